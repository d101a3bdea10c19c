"""Files -> named, typed, checked views of tensors.

`open_safetensors` maps one file or a sharded checkpoint and checks all of it before anything is
read; `stapes.tensors.gguf.open_gguf` does so with a GGUF file (imported from there, since it brings
the gguf package). `check_tensors` compares what is there with what a model needs; `widen` turns
stored words into float32.
"""

from stapes.tensors.check_names import check_tensors
from stapes.tensors.quantised import QuantisedTensor
from stapes.tensors.safetensors import open_safetensors
from stapes.tensors.store import TensorStore
from stapes.tensors.tensor import Tensor, widen

__all__ = [
    "QuantisedTensor",
    "Tensor",
    "TensorStore",
    "check_tensors",
    "open_safetensors",
    "widen",
]
