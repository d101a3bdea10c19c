"""A text model: text in, text out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from stapes.decoder import Decoder, GenerateOptions, GenerateResult, Prompt, Session, generate
from stapes.errors import RequestError
from stapes.models.qwen_text.answer import Answer, TextTimings, TextTokens
from stapes.models.qwen_text.options import DEFAULT_NEW_TOKENS, TextOptions
from stapes.models.qwen_text.shown import ShownTokens
from stapes.text.detokenizer import Detokenizer
from stapes.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from stapes.models.qwen_text.chat import ChatTemplate, Message

OnText = Callable[[str], None]
ShouldCancel = Callable[[], bool]


class TextModel:
    """A loaded text model.

    It keeps the KV cache of the last answer, so that a prompt which begins as the last one did,
    such as a chat's next turn, costs only what is new in it. May be used from several threads:
    a call that comes while another is running works with a cache of its own.

    Attributes:
        name: the name or path it was loaded by.
        decoder, tokenizer: what it is made of.
        chat_template: the model's own, in Jinja2; None when it has none.
        prefix_ids: ids that belong in front of every plain prompt (a begin-of-text token, or none).
        shown_ids: control tokens whose names are part of an answer's text.
        load_s: seconds that loading took.
    """

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        tokenizer: Tokenizer,
        *,
        chat_template: str | None = None,
        bos_token: str | None = None,
        prefix_ids: tuple[int, ...] = (),
        shown_ids: frozenset[int] = frozenset(),
        load_s: float = 0.0,
    ) -> None:
        self.name = name
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.prefix_ids = prefix_ids
        self.shown_ids = shown_ids - decoder.spec.eos_token_ids
        self.load_s = load_s
        self._bos_token = bos_token
        self._shown = ShownTokens(tokenizer, self.shown_ids)
        self._kept: Session | None = None
        self._lock = Lock()  # of _kept

    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int = DEFAULT_NEW_TOKENS,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        on_text: OnText | None = None,
        should_cancel: ShouldCancel | None = None,
    ) -> Answer:
        """Continue a plain text.

        Args:
            prompt: the text; names of control tokens in it are text like any other.
            max_new_tokens: most ids that may be generated.
            temperature: 0 takes the likeliest id each time, which is the default unless one of the
                next ones asks for sampling; then it is 1.
            top_k: sample from this many of the likeliest ids.
            top_p: sample from the likeliest ids that together have this probability.
            repetition_penalty: above 1 makes ids that have occurred less likely.
            seed: makes sampling repeat exactly.
            on_text: called with every piece of text as it comes; they join to the answer's text.
            should_cancel: asked between tokens; True ends the answer with what is there.

        Raises:
            RequestError: an argument is wrong, or the prompt is empty.
            CapacityError: the prompt exceeds the model's positions, or its cache the memory.
            NumericError: the model's numbers overflowed.
        """
        options = TextOptions(max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed)
        return self.answer(self.encode(prompt), options, on_text, should_cancel)

    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        system: str | None = None,
        max_new_tokens: int = DEFAULT_NEW_TOKENS,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        on_text: OnText | None = None,
        should_cancel: ShouldCancel | None = None,
    ) -> Answer:
        """Write the next message of a chat, by the model's own chat template.

        `messages` are such as `[{"role": "user", "content": "Hello"}]`, oldest first, or the text
        of one message of the user; names of control tokens in them are text like any other.
        `system` is a message in front of them that tells the model how to be. The other arguments
        are those of `generate`.

        Raises:
            RequestError, CapacityError, NumericError: see `generate`; also RequestError for
                malformed messages and for a model without a chat template.
            ConfigError: the chat template cannot be used.
        """
        options = TextOptions(max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed)
        return self.answer(self.encode_chat(messages, system), options, on_text, should_cancel)

    def encode(self, prompt: str) -> list[int]:
        """The ids of a plain prompt. RequestError when it is empty or no text."""
        if not isinstance(prompt, str):
            raise RequestError(f"The prompt must be text, not {type(prompt).__name__}.")
        if not prompt:
            raise RequestError("The prompt is empty.")
        return [*self.prefix_ids, *self.tokenizer.encode(prompt)]

    def encode_chat(
        self, messages: str | Sequence[Message], system: str | None = None
    ) -> list[int]:
        """The ids of a chat up to where its next answer begins; see `chat`."""
        if isinstance(messages, str):
            if not messages:
                raise RequestError("The prompt is empty.")
            messages = [{"role": "user", "content": messages}]
        return self._template.encode(messages, system)

    def answer(
        self,
        prompt_ids: Sequence[int],
        options: TextOptions,
        on_text: OnText | None = None,
        should_cancel: ShouldCancel | None = None,
    ) -> Answer:
        """Continue ids, as `generate` continues text."""
        writing = self.begin(prompt_ids, options, on_text, should_cancel)
        with self._session() as session:
            return writing.finish(generate(session, writing.prompt, writing.options))

    def begin(
        self,
        prompt_ids: Sequence[int],
        options: TextOptions,
        on_text: OnText | None = None,
        should_cancel: ShouldCancel | None = None,
    ) -> Writing:
        """An answer for those who decode it themselves, such as in a batch; see `Writing`."""
        budget, warnings = self._budget(len(prompt_ids), options.max_new_tokens)
        writer = _Writer(Detokenizer(self._shown), on_text)
        asked = GenerateOptions(
            budget,
            sampling=options.sampling,
            on_token=writer.on_token,
            should_cancel=should_cancel,
        )
        return Writing(Prompt(prompt_ids), asked, writer, warnings, self.load_s)

    def _budget(self, prompt_tokens: int, asked: int) -> tuple[int, tuple[str, ...]]:
        """How many tokens there is room for, and what to say when they are fewer than asked for."""
        positions = self.decoder.spec.max_position_embeddings
        room = positions - prompt_tokens
        if asked <= room or room < 1:  # a prompt that leaves no room at all is refused later on
            return asked, ()
        return room, (
            f"at most {room} new tokens instead of {asked}: the prompt takes {prompt_tokens} of "
            f"the model's {positions} positions.",
        )

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """The session that is kept, or a new one while another call has it."""
        with self._lock:
            session, self._kept = self._kept, None
        session = session or self.decoder.new_session()
        try:
            yield session
        finally:
            self._kept = session  # what is in it is true even after a failure

    @cached_property
    def _template(self) -> ChatTemplate:
        if self.chat_template is None:
            raise RequestError(f"{self.name} has no chat template; it can only continue text.")
        from stapes.models.qwen_text.chat import ChatTemplate  # brings Jinja2

        return ChatTemplate(self.chat_template, self.tokenizer, self._bos_token)


class Writing:
    """An answer that is about to be decoded; its text is written as the ids come.

    Attributes:
        prompt: what is to be read.
        options: what is asked of the decoder; its callback writes the text.
    """

    def __init__(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        writer: _Writer,
        warnings: tuple[str, ...],
        load_s: float,
    ) -> None:
        self.prompt = prompt
        self.options = options
        self._writer, self._warnings, self._load_s = writer, warnings, load_s
        self._started = time.perf_counter()

    def finish(self, result: GenerateResult) -> Answer:
        """The answer, once the decoder is done with it."""
        text = self._writer.finish()
        total_s = time.perf_counter() - self._started
        return Answer(
            text=text,
            token_ids=result.token_ids,
            finish_reason=result.finish_reason,
            tokens=TextTokens(result.prompt_tokens, result.reused_tokens, len(result.token_ids)),
            timings_s=TextTimings(self._load_s, result.prefill_s, result.decode_s, total_s),
            warnings=self._warnings,
        )


class _Writer:
    """Collects the text of an answer as its ids come, and hands it on."""

    def __init__(self, detokenizer: Detokenizer, on_text: OnText | None) -> None:
        self._detokenizer, self._on_text = detokenizer, on_text
        self._pieces: list[str] = []

    def on_token(self, token_id: int) -> None:
        self._write(self._detokenizer.feed(token_id))

    def finish(self) -> str:
        """All of it, the rest of an incomplete character included."""
        self._write(self._detokenizer.flush())
        return "".join(self._pieces)

    def _write(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            if self._on_text:
                self._on_text(piece)
