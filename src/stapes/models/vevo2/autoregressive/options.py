"""What is asked of one answer of the autoregressive stage."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.decoder import SamplingOptions
from stapes.errors import RequestError

#: Where generation_config.json does not say it.
DEFAULT_REPETITION_PENALTY = 1.1


@dataclass(frozen=True)
class CodeOptions:
    """How codes are drawn. The defaults are what the publisher's code asks for.

    Attributes:
        max_new_tokens: most new tokens, the end included; 500 are 40 s.
        min_new_tokens: how many come before the answer may end.
        temperature, top_k, top_p: see `stapes.decoder.SamplingOptions`. generation_config.json has
            other values, of the chat model that this one was trained from; they are not for codes.
        repetition_penalty: None takes that of generation_config.json, or 1.1 where it has none.
        seed: makes the codes repeat; None gives others each time.
        codes_only: rule out everything but content-style codes and the tokens that end them.

    Raises:
        RequestError: naming the field and its value.
    """

    max_new_tokens: int = 500
    min_new_tokens: int = 15
    temperature: float = 1.0
    top_k: int | None = 25
    top_p: float = 0.8
    repetition_penalty: float | None = None
    seed: int | None = None
    codes_only: bool = False

    def __post_init__(self) -> None:
        count = self.max_new_tokens
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RequestError(f"max_new_tokens must be a positive whole number, not {count!r}.")
        sampling = self.sampling(DEFAULT_REPETITION_PENALTY)  # which checks the others
        if sampling.min_new_tokens > count:
            raise RequestError(
                f"min_new_tokens is {sampling.min_new_tokens}, more than max_new_tokens ({count})."
            )

    def sampling(self, repetition_penalty: float) -> SamplingOptions:
        """How ids are drawn; the penalty is used where the options leave it open."""
        given = self.repetition_penalty
        return SamplingOptions(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            repetition_penalty=repetition_penalty if given is None else given,
            min_new_tokens=self.min_new_tokens,
            seed=self.seed,
        )
