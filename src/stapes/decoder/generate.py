"""One answer of one session."""

from __future__ import annotations

from collections.abc import Callable

from stapes.decoder.generation import Generation
from stapes.decoder.options import GenerateOptions, GenerateResult
from stapes.decoder.prompt import Prompt
from stapes.decoder.rows import run_rows
from stapes.decoder.session import PREFILL_ROWS, Session


def generate(
    session: Session,
    prompt: Prompt,
    options: GenerateOptions,
    uniform: Callable[[], float] | None = None,
) -> GenerateResult:
    """Read a prompt and continue it.

    The prompt is the whole of the sequence. What the session's cache has in common with it, token
    ids and injected rows, is used again, and the rest of the cache is forgotten; the answer is the
    same, bit for bit, as that of a new session.

    Args:
        session: which cache to use.
        prompt: token ids, and the embedding rows that replace some of them.
        options: budget, sampling, draft, limits, callbacks.
        uniform: numbers in [0, 1) for drawing ids, in place of those that the seed gives.

    Raises:
        RequestError: the prompt, the draft or the promise of `cached_prefix` is wrong.
        CapacityError: prompt and budget exceed the model's positions, or the cache the memory.
        NumericError: an injected value is not finite, or the logits of a step, which it names,
            hold a NaN. After any of these the session can be used as before.
    """
    generation = Generation(session, prompt, options, uniform)
    while generation.should_run():
        generation.take(run_rows([generation.rows(PREFILL_ROWS)], generation.want)[0])
    result = generation.result()
    generation.trace(session.decoder.tracer)
    return result
