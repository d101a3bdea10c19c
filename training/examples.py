"""Write examples/: three short human recordings and the words in them.

    python -m training.examples

The strings come from a fixed seed, chosen before any model had heard them.
"""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np

from training.human import concatenate
from training.synthesize import RATE
from training.voices import DIGITS

FOLDER = Path(__file__).parent.parent / "examples"
FILES = {"digits-3.wav": 3, "digits-5.wav": 5, "digits-10.flac": 10}
SEED = 1


def write_sound(path: Path, samples: np.ndarray) -> None:
    """16-bit mono, as wav or flac."""
    codec = {".wav": "pcm_s16le", ".flac": "flac"}[path.suffix]
    pcm = np.round(samples.clip(-1, 1) * 32767).astype(np.int16)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)


def main() -> None:
    """Write the recordings and expected.json."""
    rng = np.random.default_rng(SEED)
    expected = {}
    for name, count in FILES.items():
        digits = rng.integers(0, 10, size=count).tolist()
        write_sound(FOLDER / name, concatenate(digits, "g722", rng))
        expected[name] = " ".join(DIGITS[digit] for digit in digits)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    main()
