"""The exception tree, drawn by what the caller can do about it.

    StapesError
    ├── RequestError      the request is wrong: change the arguments      (also a ValueError)
    ├── AudioError        the recording cannot be used: give another one
    ├── ModelError        the model files cannot be used: fetch or fix them
    │   ├── TensorFileError   a weights file is damaged or not what it says
    │   ├── CheckpointError   tensors missing, unexpected or mis-shaped
    │   ├── ConfigError       a configuration or tokenizer file is wrong
    │   └── NumericError      the model computed NaN or infinity
    ├── CapacityError     it does not fit: shorten the input or free memory
    └── CancelledError    the caller asked to stop, and half of the result would be none

Every message is one sentence with the numbers in it. The command line translates the tree into
exit codes once, at its edge.
"""

from __future__ import annotations


class StapesError(Exception):
    """Base of every error that stapes raises on purpose."""


class RequestError(StapesError, ValueError):
    """The arguments of a call are wrong or contradict each other."""


class AudioError(StapesError):
    """A recording is missing, empty, damaged or not audio."""


class ModelError(StapesError):
    """A model's files cannot be used."""


class TensorFileError(ModelError):
    """A weights file is truncated, damaged or in an unknown format."""


class CheckpointError(ModelError):
    """The tensors of a checkpoint are not those that its configuration promises."""


class ConfigError(ModelError):
    """A configuration or tokenizer file is missing, malformed or asks for what is not supported."""


class NumericError(ModelError):
    """The model produced a value that is not finite."""


class CapacityError(StapesError):
    """The work does not fit into the memory or the positions that are there."""


class CancelledError(StapesError):
    """The caller asked to stop work whose unfinished result is of no use."""
