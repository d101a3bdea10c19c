"""Compares the tensors of a checkpoint with those that a model needs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Protocol

from stapes.errors import CheckpointError


class _Shaped(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


class _Named(Protocol):
    """What is asked of a store; a dict of anything with a shape will do."""

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, name: str, /) -> _Shaped: ...


def check_tensors(
    store: _Named,
    expected: Mapping[str, tuple[int, ...]],
    *,
    ignored: Callable[[str], bool] | Container[str] = (),
) -> None:
    """Every expected tensor is there in its shape, and nothing else but what is ignored.

    `ignored` tells, by a test or a collection, which surplus names are no error. Raises
    CheckpointError with the full lists of missing, unexpected and mis-shaped names.
    """
    there = set(store)
    unexpected = [n for n in sorted(there - set(expected)) if not _is_ignored(n, ignored)]
    misshaped = [
        f"{name} (expected {list(shape)}, found {list(store[name].shape)})"
        for name, shape in sorted(expected.items())
        if name in there and tuple(store[name].shape) != tuple(shape)
    ]
    lists = {
        "missing": sorted(set(expected) - there),
        "unexpected": unexpected,
        "mis-shaped": misshaped,
    }
    wrong = [f"{len(names)} {what}: {', '.join(names)}" for what, names in lists.items() if names]
    if wrong:
        raise CheckpointError(f"The checkpoint does not fit the model: {'; '.join(wrong)}.")


def _is_ignored(name: str, ignored: Callable[[str], bool] | Container[str]) -> bool:
    return ignored(name) if callable(ignored) else name in ignored
