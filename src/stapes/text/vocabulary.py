"""A byte-level BPE's pieces and merges as flat arrays, and the merging itself.

The tokenizers library builds its tables from Python objects or JSON, which takes it 0.4 s for a
vocabulary of 150,000 pieces, each time a model is loaded. These arrays are made once, lie in a
converted file, and are used from there; merging gives the ids that the library gives.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stapes.errors import ConfigError

Merge: TypeAlias = tuple[int, int]  # its rank, lower ones first, and the id of its product

_CACHED_WORD = 64  # characters of the longest word that is remembered
_CACHED_WORDS = 50_000

#: Names and types of the arrays, the strictest alignment first.
ARRAYS: Mapping[str, np.dtype[np.generic]] = {
    "pairs": np.dtype(np.int64),
    "ranks": np.dtype(np.int32),
    "products": np.dtype(np.int32),
    "ids": np.dtype(np.int32),
    "ends": np.dtype(np.int32),
    "pieces": np.dtype(np.uint8),
}


class Vocabulary:
    """Pieces by id, and merges by pair.

    Args:
        arrays: `ids` of all pieces, ascending; `pieces`, their UTF-8 one behind the other, and
            `ends`, where each ends; `pairs`, ascending, left id << 32 | right id; `ranks` and
            `products` of the pairs. Views of a mapped file will do.
        whole_words: a word that is a piece needs no merges.
        where: for messages.

    Raises:
        ConfigError: the arrays do not fit together.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], whole_words: bool, where: str) -> None:
        _check(arrays, where)
        self.arrays = dict(arrays)
        self.whole_words = whole_words
        self.size = 1 + int(arrays["ids"][-1]) if len(arrays["ids"]) else 0
        """One more than the highest id."""
        self._ids, self._ends, self._pairs, self._ranks, self._products = (
            arrays[name].data for name in ("ids", "ends", "pairs", "ranks", "products")
        )
        self._pieces = arrays["pieces"].data
        self._words: dict[str, tuple[int, ...]] = {}

    def piece(self, token_id: int) -> str | None:
        """The piece with this id; None where there is none."""
        at = bisect_left(self._ids, token_id)
        if at == len(self._ids) or self._ids[at] != token_id:
            return None
        return self._piece_at(at)

    def _piece_at(self, at: int) -> str:
        start = self._ends[at - 1] if at else 0
        return str(self._pieces[start : self._ends[at]], "utf-8", "replace")

    @cached_property
    def characters(self) -> dict[str, int]:
        """The ids of the pieces that are one character: what merging begins with."""
        sizes = np.diff(self.arrays["ends"], prepend=0)
        filled = np.flatnonzero(sizes)
        starts = (self.arrays["ends"] - sizes)[filled]
        first = self.arrays["pieces"][starts]
        utf8_size = sum((first >= least).astype(np.int32) for least in (0, 0xC0, 0xE0, 0xF0))
        found = filled[sizes[filled] == utf8_size].tolist()
        return {self._piece_at(at): self._ids[at] for at in found}

    @cached_property
    def _by_piece(self) -> dict[str, int]:
        return {self._piece_at(at): token_id for at, token_id in enumerate(self._ids)}

    def encode(self, word: str) -> tuple[int, ...]:
        """The ids of one word; KeyError for a character that is no piece."""
        known = self._words.get(word)
        if known is not None:
            return known
        if self.whole_words and word in self._by_piece:
            ids: tuple[int, ...] = (self._by_piece[word],)
        else:
            ids = tuple(self._merged([self.characters[character] for character in word]))
        if len(word) <= _CACHED_WORD:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            self._words[word] = ids
        return ids

    def _merged(self, ids: list[int]) -> list[int]:
        """Merges the pair of lowest rank, of several the leftmost, until there is none."""
        end = len(ids)
        after, before = list(range(1, end + 1)), list(range(-1, end - 1))
        heap: list[tuple[int, int, int]] = []  # rank, place of the left one, product

        def offer(left: int, right: int) -> None:
            if left >= 0 and right < end and (merge := self._merge(ids[left], ids[right])):
                heapq.heappush(heap, (merge[0], left, merge[1]))

        for place in range(end - 1):
            offer(place, place + 1)
        while heap:
            _, left, product = heapq.heappop(heap)
            right = after[left]
            if ids[left] < 0 or right >= end:
                continue
            merge = self._merge(ids[left], ids[right])
            if merge is None or merge[1] != product:
                continue  # one of the two has become another piece since
            ids[left], ids[right] = product, -1
            after[left] = after[right]
            if after[left] < end:
                before[after[left]] = left
            offer(before[left], left)
            offer(left, after[left])
        return [token_id for token_id in ids if token_id >= 0]

    def _merge(self, left: int, right: int) -> Merge | None:
        pair = left << 32 | right
        at = bisect_left(self._pairs, pair)
        if at == len(self._pairs) or self._pairs[at] != pair:
            return None
        return self._ranks[at], self._products[at]


def pack_vocabulary(
    vocab: Mapping[str, int], merges: Iterable[tuple[str, str]], whole_words: bool, where: str
) -> Vocabulary:
    """The arrays of a vocabulary and its merges, most urgent first, all of which it has pieces for.

    Raises:
        ConfigError: a piece is not valid Unicode.
    """
    pieces = sorted(vocab, key=vocab.__getitem__)
    try:
        encoded = [piece.encode("utf-8") for piece in pieces]
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"The tokenizer in {where} is malformed: the piece {error.object!r} is not Unicode."
        ) from error
    found: dict[int, Merge] = {}
    for rank, (left, right) in enumerate(merges):
        found[vocab[left] << 32 | vocab[right]] = (rank, vocab[left + right])
    pairs = np.array(sorted(found), np.int64)
    ranked = np.array([found[pair] for pair in pairs.tolist()], np.int32).reshape(-1, 2)
    arrays: dict[str, NDArray[Any]] = {
        "pairs": pairs,
        "ranks": np.ascontiguousarray(ranked[:, 0]),
        "products": np.ascontiguousarray(ranked[:, 1]),
        "ids": np.array([vocab[piece] for piece in pieces], np.int32),
        "ends": np.cumsum([len(piece) for piece in encoded], dtype=np.int32),
        "pieces": np.frombuffer(b"".join(encoded), np.uint8),
    }
    return Vocabulary(arrays, whole_words, where)


def _check(arrays: Mapping[str, NDArray[Any]], where: str) -> None:
    """A damaged file's arrays lead to an error here, and to no index beyond their ends later."""
    typed = all(a.ndim == 1 and a.dtype == ARRAYS[name] for name, a in arrays.items())
    ids, ends, products = arrays["ids"], arrays["ends"], arrays["products"]
    ordered = all(bool(np.all(a[1:] > a[:-1])) for a in (ids, arrays["pairs"]))
    rising = bool(np.all(ends[1:] >= ends[:-1]))
    whole = len(ids) == len(ends) and (int(ends[-1]) if len(ends) else 0) == len(arrays["pieces"])
    positive = len(ends) == 0 or (int(ends[0]) >= 0 and int(ids[0]) >= 0)
    paired = len(arrays["pairs"]) == len(arrays["ranks"]) == len(products)
    known = bool(np.isin(products, ids).all())
    if not (typed and ordered and rising and whole and positive and paired and known):
        raise ConfigError(f"The tokenizer in {where} is malformed: its arrays do not fit together.")
