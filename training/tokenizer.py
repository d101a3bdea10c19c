"""The tokenizer of tiny-en: byte-level BPE of the Qwen2 kind with a few hundred tokens.

All 256 bytes are tokens, so any text can be encoded. The digit words (with and without a space
before them) and the words of the prompt are single tokens.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers.pre_tokenizers import ByteLevel
from transformers import AddedToken, Qwen2Tokenizer

from training.voices import DIGITS

TEMPLATE_WORDS = ("system", "user", "assistant", "language", " English", " None")
COMMON = ("th", "in", "er", "an", "on", "re", "en", " a", " s", " t", " the", " of", "ing", "or")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>")
AUDIO_PAD = "<|audio_pad|>"
PLAIN_ADDED = ("<asr_text>", "<timestamp>")


def byte_symbols() -> list[str]:
    """The 256 printable stand-ins of the bytes, in the order of the code points."""
    return sorted(ByteLevel.alphabet())


def merges_of(word: str, known: set[str]) -> list[tuple[str, str]]:
    """Left-to-right merges that build `word`, a leading space last, without those known."""
    body = word.removeprefix(" ")
    merges = [(body[:end], body[end]) for end in range(1, len(body))]
    if body != word:
        merges.append(("\u0120", body))
    fresh = [(left, right) for left, right in merges if left + right not in known]
    known.update(left + right for left, right in fresh)
    return fresh


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The tokens with their ids, and the merges in the order of their rank."""
    known = set(byte_symbols())
    merges: list[tuple[str, str]] = []
    words = [*TEMPLATE_WORDS, *DIGITS, *(" " + word for word in DIGITS), *COMMON]
    for word in words:
        merges += merges_of(word, known)
    tokens = [*byte_symbols(), *(left + right for left, right in merges)]
    return {token: index for index, token in enumerate(tokens)}, merges


def build_tokenizer() -> Qwen2Tokenizer:
    """The tokenizer with its added tokens; `<asr_text>` and `<timestamp>` are not special."""
    vocab, merges = vocabulary()
    tokenizer = Qwen2Tokenizer(
        vocab=vocab,
        merges=merges,
        model_max_length=65536,
        extra_special_tokens={
            "audio_token": AUDIO_PAD,
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
        },
    )
    for token in (*SPECIAL, AUDIO_PAD, *PLAIN_ADDED):
        special = token not in PLAIN_ADDED
        tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])
    return tokenizer


def save_tokenizer(folder: Path) -> Qwen2Tokenizer:
    """Write tokenizer.json and tokenizer_config.json and return the tokenizer."""
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    return tokenizer
