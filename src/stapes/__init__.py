"""Local speech language models: `stapes.load("tiny-en").transcribe("talk.wav").text`.

docs/api.md shows how it is used; `stapes.decoder` is for those who build another model.

Importing this package is cheap: it loads neither NumPy nor the compiled core, starts no thread
and changes nothing in the host program. `load` does the work.
"""

from stapes.api import load, load_aligner, load_text, load_voice, stream
from stapes.errors import AudioError, CapacityError, ModelError, RequestError, StapesError
from stapes.models.interface import SpeechModel
from stapes.models.transcript import Timings, TokenCounts, Transcript
from stapes.streaming import StreamEvent, StreamPolicy

__version__ = "0.1.0"

__all__ = [
    "AudioError",
    "CapacityError",
    "ModelError",
    "RequestError",
    "SpeechModel",
    "StapesError",
    "StreamEvent",
    "StreamPolicy",
    "Timings",
    "TokenCounts",
    "Transcript",
    "__version__",
    "load",
    "load_aligner",
    "load_text",
    "load_voice",
    "stream",
]
