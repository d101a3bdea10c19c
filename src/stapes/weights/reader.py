"""Where a model's load code gets its weights from, whatever they are stored as.

Load code asks for vectors and matrices by the names of the checkpoint's tensors, several names
where their outputs are stacked. A `CheckpointReader` packs what a checkpoint stores; a
`RecordingReader` keeps what it hands on, which is all that a converted file needs; and the reader
of such a file (`stapes.weights.packed_file`) answers the same calls without copying a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stapes.errors import CheckpointError
from stapes.tensors import QuantisedTensor
from stapes.weights.matrix import PackedMatrix
from stapes.weights.pack import MatrixPacker, Stored
from stapes.weights.policy import matrix_format

F32: TypeAlias = NDArray[np.float32]

#: Turns a stored array of any rank into the matrix [out, in] that is packed.
Arrange: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


class WeightReader(Protocol):
    """Hands out weights by the names of a checkpoint's tensors."""

    def vector(self, *names: str) -> F32:
        """Vectors, joined in the order of their names."""
        ...

    def matrix(
        self, *names: str, arrange: Arrange | None = None, exact: bool = False
    ) -> PackedMatrix:
        """Matrices stacked in the order of their names.

        Args:
            names: of tensors [out_i, in].
            arrange: for tensors of other ranks and orders; must be the same for the same names.
            exact: in f32, whatever the format.
        """
        ...


def key_of(names: tuple[str, ...]) -> str:
    """What several tensors, read as one, are called in a converted file."""
    return _JOIN.join(names)


def names_of(key: str) -> tuple[str, ...]:
    """The tensors of a key."""
    return tuple(key.split(_JOIN))


_JOIN = " + "


class TensorLike(Protocol):
    """A named tensor: stored words (float32, float16, or uint16 for bf16) or f32."""

    def raw(self) -> NDArray[Any]:
        """The stored words, in the tensor's shape."""
        ...

    def to_f32(self) -> F32:
        """The values as f32."""
        ...


class TensorSource(Protocol):
    """Where tensors come from: an open checkpoint, or a maker of random ones."""

    def __getitem__(self, name: str) -> TensorLike: ...

    def release(self, name: str) -> None:
        """A tensor's memory is not needed any more."""
        ...


class CheckpointReader:
    """Takes tensors from a source, packs them, and lets go of the source's pages."""

    def __init__(self, source: TensorSource, packer: MatrixPacker) -> None:
        self._source = source
        self._packer = packer

    def vector(self, *names: str) -> F32:
        """See `WeightReader`; CheckpointError unless all values are finite."""
        parts = [self._source[name].to_f32() for name in names]
        for name, part in zip(names, parts, strict=True):
            if not np.isfinite(part).all():
                raise CheckpointError(f"Tensor {name} holds a value that is not finite.")
        return np.concatenate(parts)

    def matrix(
        self, *names: str, arrange: Arrange | None = None, exact: bool = False
    ) -> PackedMatrix:
        """See `WeightReader`; CheckpointError where a value cannot be packed."""
        parts = [self._stored(name, arrange) for name in names]
        format = "f32" if exact else matrix_format(names, self._packer.format)
        packed = self._packer.into(format).stack(" or ".join(names), parts)
        for name in names:
            self._source.release(name)
        return packed

    def _stored(self, name: str, arrange: Arrange | None) -> Stored:
        """Quantised rows as they are, for the packer to read in pieces; of all others the words."""
        tensor = self._source[name]
        if arrange is None and isinstance(tensor, QuantisedTensor):
            return tensor
        words = tensor.raw()
        return words if arrange is None else arrange(words)


@dataclass(eq=False)
class Record:
    """All that readers have handed out, by key."""

    matrices: dict[str, PackedMatrix] = field(default_factory=dict)
    vectors: dict[str, F32] = field(default_factory=dict)


class RecordingReader:
    """Hands on what another reader gives, and keeps it in a record."""

    def __init__(self, inner: WeightReader, record: Record) -> None:
        self._inner = inner
        self._record = record

    def vector(self, *names: str) -> F32:
        """See `WeightReader`."""
        return self._record.vectors.setdefault(key_of(names), self._inner.vector(*names))

    def matrix(
        self, *names: str, arrange: Arrange | None = None, exact: bool = False
    ) -> PackedMatrix:
        """See `WeightReader`."""
        packed = self._inner.matrix(*names, arrange=arrange, exact=exact)
        return self._record.matrices.setdefault(key_of(names), packed)
