"""What is asked of one answer of a text model."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.decoder import SamplingOptions
from stapes.errors import RequestError

DEFAULT_NEW_TOKENS = 512


@dataclass(frozen=True)
class TextOptions:
    """What is asked of one answer.

    Attributes:
        max_new_tokens: most ids that may be generated; fewer where the model has fewer positions.
        temperature: 0 takes the likeliest id each time; None is 0, or 1 when top_k, top_p or seed
            ask for sampling.
        top_k: sample from this many of the likeliest ids; None from all.
        top_p: sample from the likeliest ids that together have this probability; None from all.
        repetition_penalty: above 1 makes ids that have occurred less likely, sampled or not.
        seed: makes sampling repeat exactly; None gives another answer each time.

    Raises:
        RequestError: naming the field and its value.
    """

    max_new_tokens: int = DEFAULT_NEW_TOKENS
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        count = self.max_new_tokens
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RequestError(f"max_new_tokens must be a positive whole number, not {count!r}.")
        _ = self.sampling  # which checks the others

    @property
    def sampling(self) -> SamplingOptions | None:
        """How ids are drawn; None for the likeliest each time, without a penalty."""
        asked = any(value is not None for value in (self.top_k, self.top_p, self.seed))
        default = 1.0 if asked else 0.0
        options = SamplingOptions(
            temperature=default if self.temperature is None else self.temperature,
            top_k=self.top_k,
            top_p=1.0 if self.top_p is None else self.top_p,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
        )
        plain = options.temperature == 0 and options.repetition_penalty == 1
        return None if plain else options
