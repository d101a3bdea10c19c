"""The tokens that stand for sound: their ids are taken from the tokenizer by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stapes.errors import ConfigError, RequestError
from stapes.text.tokenizer import Tokenizer

#: Content-style codes: what is said or sung, and in which style, 12.5 of them a second.
CONTENT_STYLE_CODES = 16384
CONTENT_STYLE_HZ = 12.5
#: Prosody codes: melody and rhythm, 6.25 of them a second.
PROSODY_CODES = 512
PROSODY_HZ = 6.25

CONTENT_STYLE_START = "<|content_style_start|>"

Codes = Sequence[int] | NDArray[np.integer]
Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class CodeTokens:
    """Ids of the codes and of what stands around them.

    Attributes:
        content_style, prosody: id by code, [16384] and [512] i32.
        content_style_start, content_style_end, prosody_start, prosody_end: around the codes.
        turn_start, turn_end: around a turn of the chat; the latter ends an answer.
    """

    content_style: Ids
    prosody: Ids
    content_style_start: int
    content_style_end: int
    prosody_start: int
    prosody_end: int
    turn_start: int
    turn_end: int

    def content_style_ids(self, codes: Codes, whose: str) -> list[int]:
        """Ids of content-style codes. RequestError, naming `whose` they are, for other numbers."""
        return _ids(self.content_style, codes, f"{whose} content-style")

    def prosody_ids(self, codes: Codes, whose: str) -> list[int]:
        """Ids of prosody codes. RequestError, naming `whose` they are, for other numbers."""
        return _ids(self.prosody, codes, f"{whose} prosody")

    @cached_property
    def code_of(self) -> dict[int, int]:
        """Content-style code by id."""
        return {token_id: code for code, token_id in enumerate(self.content_style.tolist())}

    def answer_ranges(self) -> tuple[tuple[int, int], ...]:
        """[start, end) ranges of content-style codes and of what ends them."""
        ids = np.sort(np.append(self.content_style, [self.content_style_end, self.turn_end]))
        breaks = np.flatnonzero(np.diff(ids) > 1) + 1
        return tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(ids, breaks))


def read_code_tokens(tokenizer: Tokenizer, vocab_size: int) -> CodeTokens:
    """The ids that a model's tokenizer gives to the tokens; their order there is no matter.

    Raises:
        ConfigError: one of the 16,900 is missing, or has an id outside the model's vocabulary.
    """

    def numbered(kind: str, count: int) -> Ids:
        return np.array([tokenizer.token_id(f"<|{kind}_{i}|>") for i in range(count)], np.int32)

    tokens = CodeTokens(
        content_style=numbered("content_style", CONTENT_STYLE_CODES),
        prosody=numbered("prosody", PROSODY_CODES),
        content_style_start=tokenizer.token_id(CONTENT_STYLE_START),
        content_style_end=tokenizer.token_id("<|content_style_end|>"),
        prosody_start=tokenizer.token_id("<|prosody_start|>"),
        prosody_end=tokenizer.token_id("<|prosody_end|>"),
        turn_start=tokenizer.token_id("<|im_start|>"),
        turn_end=tokenizer.token_id("<|im_end|>"),
    )
    if tokenizer.vocab_size > vocab_size:
        raise ConfigError(
            f"The tokenizer has {tokenizer.vocab_size} ids, but config.json says vocab_size "
            f"{vocab_size}."
        )
    return tokens


def _ids(table: Ids, codes: Codes, whose: str) -> list[int]:
    numbers = np.asarray(codes)
    if not numbers.size:
        return []
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise RequestError(
            f"The {whose} codes must be whole numbers in one row, not {numbers.dtype} of shape "
            f"{numbers.shape}."
        )
    outside = np.flatnonzero((numbers < 0) | (numbers >= table.size))
    if outside.size:
        first = outside[0]
        raise RequestError(
            f"The {whose} code {numbers[first]} at position {first} is outside 0..{table.size - 1}."
        )
    found: list[int] = table[numbers].tolist()
    return found
