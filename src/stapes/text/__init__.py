"""Text: between token ids and strings, and between strings and what a reader wants.

    tokenizer         load_tokenizer, Tokenizer: text <-> ids; user text forges no control token
    eos               eos_token_ids: the ids that end an answer, from all files that name one
    detokenizer       Detokenizer: ids -> pieces of text, as they come
    languages         canonical_language, language_code
    repetition        collapse_repetitions
    joining           join_pieces

Import from the modules; this package imports none of them, since some need libraries.
"""
