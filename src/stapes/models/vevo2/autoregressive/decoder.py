"""The autoregressive stage: text, prosody and style in, content-style codes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from types import TracebackType
from typing import Self

from stapes.decoder import Batch, Decoder, GenerateOptions, Generation, Prompt, Session
from stapes.decoder.rows import run_rows
from stapes.decoder.session import PREFILL_ROWS
from stapes.errors import ModelError, RequestError
from stapes.models.vevo2.autoregressive.codes import CodeReader, GeneratedCodes
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.prompt import CodeRequest, prompt_ids
from stapes.models.vevo2.autoregressive.tokens import CodeTokens
from stapes.text.tokenizer import Tokenizer

ShouldCancel = Callable[[], bool]

_DEFAULTS = CodeOptions()


class Vevo2Decoder:
    """Vevo2's autoregressive stage, loaded.

    It keeps the KV cache of the last answer, so that the next one with the same style, or the same
    request with another seed, costs only what is new in it. May be used from several threads: what
    begins while another answer is under way works with a cache of its own.

    Attributes:
        name: the name or path it was loaded by.
        decoder, tokenizer, tokens: what it is made of.
        repetition_penalty: what the checkpoint asks for.
        load_s: seconds that loading took.
    """

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        tokenizer: Tokenizer,
        tokens: CodeTokens,
        repetition_penalty: float,
        load_s: float = 0.0,
    ) -> None:
        self.name = name
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.tokens = tokens
        self.repetition_penalty = repetition_penalty
        self.load_s = load_s
        self._ranges = tokens.answer_ranges()
        self._kept: Session | None = None
        self._lock = Lock()  # of _kept

    def generate(
        self,
        request: CodeRequest,
        options: CodeOptions = _DEFAULTS,
        should_cancel: ShouldCancel | None = None,
    ) -> GeneratedCodes:
        """The codes of a request, all at once.

        Args:
            request: text, and the codes of the sounds that it is to follow.
            options: how codes are drawn.
            should_cancel: asked between tokens; True ends the answer with what is there.

        Raises:
            RequestError: codes or text cannot be written as a prompt.
            CapacityError: prompt and budget exceed the model's positions, or the cache the memory.
            ModelError: the model wrote no codes, or text among them.
            NumericError: the model's numbers overflowed.
        """
        with self.stream(request, options, should_cancel) as stream:
            for _ in stream:
                pass
            return stream.result()

    def stream(
        self,
        request: CodeRequest,
        options: CodeOptions = _DEFAULTS,
        should_cancel: ShouldCancel | None = None,
    ) -> CodeStream:
        """The same codes one by one as they come; arguments and errors are those of `generate`."""
        prompt = self.encode(request)
        reader = self._reader()
        asked = self._asked(options, reader, should_cancel)
        session = self._take()
        try:
            return CodeStream(Generation(session, prompt, asked), reader, self._keep)
        except BaseException:
            self._keep(session)
            raise

    def generate_batch(
        self,
        requests: Sequence[CodeRequest],
        options: Sequence[CodeOptions] | CodeOptions = _DEFAULTS,
        should_cancel: ShouldCancel | None = None,
    ) -> list[GeneratedCodes | Exception]:
        """The codes of several requests, sampled side by side: each is what it would be alone.

        Args:
            requests: any number.
            options: one for each request, or one for all.
            should_cancel: asked between steps; True ends all answers with what is there.

        Returns:
            For each request its codes, or the error that `generate` would have raised.

        Raises:
            RequestError: there are not as many options as requests.
        """
        each = [options] * len(requests) if isinstance(options, CodeOptions) else options
        if len(each) != len(requests):
            raise RequestError(f"{len(requests)} requests need as many options, not {len(each)}.")
        batch = Batch(self.decoder)
        begun = [
            self._begin(batch, request, asked, should_cancel)
            for request, asked in zip(requests, each, strict=True)
        ]
        batch.run()
        return [_outcome(begin) for begin in begun]

    def encode(self, request: CodeRequest) -> Prompt:
        """The prompt of a request. RequestError when codes or text cannot be written."""
        return Prompt(prompt_ids(request, self.tokenizer, self.tokens))

    # -- one answer --------------------------------------------------------------------------------

    def _reader(self) -> CodeReader:
        return CodeReader(self.tokens, self.tokenizer)

    def _asked(
        self, options: CodeOptions, reader: CodeReader, should_cancel: ShouldCancel | None
    ) -> GenerateOptions:
        return GenerateOptions(
            options.max_new_tokens,
            sampling=options.sampling(self.repetition_penalty),
            allowed_ids=self._ranges if options.codes_only else None,
            on_token=reader.feed,
            should_cancel=should_cancel,
        )

    def _begin(
        self,
        batch: Batch,
        request: CodeRequest,
        options: CodeOptions,
        should_cancel: ShouldCancel | None,
    ) -> tuple[Generation, CodeReader] | Exception:
        """An answer that has joined a batch, or why it could not."""
        reader = self._reader()
        try:
            asked = self._asked(options, reader, should_cancel)
            session = self.decoder.new_session()
            return batch.join(session, self.encode(request), asked), reader
        except Exception as error:
            return error

    def _take(self) -> Session:
        """The session that is kept, or a new one while another answer has it."""
        with self._lock:
            session, self._kept = self._kept, None
        return session or self.decoder.new_session()

    def _keep(self, session: Session) -> None:
        self._kept = session  # what is in it is true even after a failure


class CodeStream:
    """Codes as they come: an iterator, which ends when the answer does.

        with model.stream(request) as stream:
            for code in stream:
                ...
        reason = stream.result().finish_reason

    Leaving the `with` block, or `close`, ends an answer that is still under way with what is there.
    `Vevo2Decoder.stream` makes it.

    Args:
        generation: the answer; its `on_token` feeds the reader.
        reader: of its codes.
        keep: takes the session back.
    """

    def __init__(
        self, generation: Generation, reader: CodeReader, keep: Callable[[Session], None]
    ) -> None:
        self._generation = generation
        self._reader = reader
        self._keep: Callable[[Session], None] | None = keep
        self._given = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        """The next code; see `Vevo2Decoder.generate` for the errors."""
        while self._given == len(self._reader.codes):
            if not self._step():
                self.close()
                raise StopIteration
        self._given += 1
        return self._reader.codes[self._given - 1]

    def _step(self) -> bool:
        """Run until the next id is known; False when the answer is finished."""
        generation = self._generation
        try:
            if not generation.should_run():
                _check_written(generation, self._reader)
                return False
            generation.take(run_rows([generation.rows(PREFILL_ROWS)], generation.want)[0])
        except BaseException as error:
            if isinstance(error, Exception) and generation.error is None:
                generation.fail(error)
            self.close()
            raise
        return True

    def result(self) -> GeneratedCodes:
        """All codes. Raises the error that ended the answer, RequestError while it is under way."""
        return _written(self._generation, self._reader)

    def close(self) -> None:
        """End the answer, if it is under way; its codes so far are the result."""
        self._generation.cancel()
        keep, self._keep = self._keep, None
        if keep is not None:
            keep(self._generation.session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _outcome(begun: tuple[Generation, CodeReader] | Exception) -> GeneratedCodes | Exception:
    if isinstance(begun, Exception):
        return begun
    try:
        return _written(*begun)
    except Exception as error:
        return error


def _check_written(generation: Generation, reader: CodeReader) -> None:
    if not reader.codes and generation.finish_reason not in (None, "cancelled"):
        raise ModelError(
            f"The model ended its answer after {len(generation.token_ids)} tokens without a single "
            "code; try another seed, or a larger min_new_tokens."
        )


def _written(generation: Generation, reader: CodeReader) -> GeneratedCodes:
    result = generation.result()
    _check_written(generation, reader)
    return GeneratedCodes(
        codes=tuple(reader.codes),
        finish_reason=result.finish_reason,
        token_ids=result.token_ids,
        prompt_tokens=result.prompt_tokens,
        reused_tokens=result.reused_tokens,
        prefill_s=result.prefill_s,
        decode_s=result.decode_s,
    )
