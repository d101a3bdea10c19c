"""Sound files: WAV of 16 bits, and whatever else FFmpeg writes, by the name's ending."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.errors import RequestError
from stapes.output.files import write_atomically

F32 = NDArray[np.float32]
I16 = NDArray[np.int16]

WAV = ".wav"

#: Codecs of containers whose own default is no good choice for speech.
_CODECS = {
    **dict.fromkeys(("ogg", "oga", "opus", "webm", "mkv"), "libopus"),
    **dict.fromkeys(("m4a", "mp4", "aac"), "aac"),
    "mp3": "libmp3lame",
    "flac": "flac",
}
_FRAME = 4800  # samples that are given to an encoder at a time
_MOST_WAV_BYTES = 2**32 - 1 - 36  # a RIFF file states its length in 32 bits


def check_sound_file(path: Path) -> None:
    """Make sure, before any work, that a file of this name can be written as sound.

    Raises:
        RequestError: its ending is none of sound, or its folder does not exist.
    """
    _target(path)
    if path.is_dir():
        raise RequestError(f"{path} is a folder; the sound needs a file's name.")
    if not path.parent.is_dir():
        raise RequestError(f"{path} would lie in a folder that does not exist.")


def write_sound(path: Path, samples: F32, sample_rate: int) -> None:
    """Write samples as a file that is there whole or not at all.

    Args:
        path: its ending tells the container: .wav, or one of FFmpeg's (.mp3, .flac, .ogg, .m4a).
        samples: f32 [n], mono; what lies beyond [-1, 1] is clipped.
        sample_rate: Hz.

    Raises:
        RequestError: the ending is none of sound, or the file cannot be written.
        CapacityError: the disk is full.
    """
    write_atomically(path, encoded(path, samples, sample_rate))


def encoded(path: Path, samples: F32, sample_rate: int) -> bytes:
    """The bytes of such a file."""
    whole = as_int16(samples)
    target = _target(path)
    if target is None:
        return wav_header(whole.nbytes, sample_rate) + whole.astype("<i2").tobytes()
    return _by_ffmpeg(path, target, whole, sample_rate)


def as_int16(samples: F32) -> I16:
    """Samples of 16 bits, to the nearest; full scale is 32767, and what lies beyond is clipped."""
    scaled = np.rint(np.clip(samples, -1, 1).astype(np.float64) * 32767)
    return scaled.astype(np.int16)


def wav_header(data_bytes: int | None, sample_rate: int) -> bytes:
    """The 44 bytes before mono samples of 16 bits; None writes the length of a stream, unknown.

    RequestError for more data than a WAV file can hold.
    """
    if data_bytes is not None and data_bytes > _MOST_WAV_BYTES:
        raise RequestError(
            f"A WAV file holds {_MOST_WAV_BYTES} bytes of samples, not {data_bytes}; use .flac."
        )
    size = _MOST_WAV_BYTES if data_bytes is None else data_bytes
    form = struct.pack("<HHIIHH", 1, 1, sample_rate, 2 * sample_rate, 2, 16)
    return b"".join(
        (
            *(b"RIFF", struct.pack("<I", 36 + size), b"WAVE"),
            *(b"fmt ", struct.pack("<I", len(form)), form),
            *(b"data", struct.pack("<I", size)),
        )
    )


def _target(path: Path) -> tuple[str, str] | None:
    """FFmpeg's names of container and codec; None for WAV, which needs no FFmpeg."""
    if path.suffix.lower() == WAV:
        return None
    container = _containers().get(path.suffix.lower().removeprefix("."))
    codec = None if container is None else _codec(path, container)
    if container is None or codec is None:
        raise RequestError(
            f"{path} has no ending of a sound file that can be written: .wav, .flac, .mp3, .ogg, "
            ".opus and .m4a are some."
        )
    return container, codec


def _containers() -> dict[str, str]:
    """Containers that FFmpeg writes sound into, by ending."""
    from av import format as formats

    found: dict[str, str] = {}
    for name in sorted(formats.formats_available):
        try:
            container = formats.ContainerFormat(name, "w")
        except ValueError:  # it is only read
            continue
        if not name.startswith("image"):
            for ending in container.extensions:
                found.setdefault(ending, name)
    return found


def _codec(path: Path, container: str) -> str | None:
    """The codec of a file; None where the container takes no sound."""
    import av

    chosen = _CODECS.get(path.suffix.lower().removeprefix("."))
    if chosen is not None:
        return chosen
    default = av.open(io.BytesIO(), "w", format=container).default_audio_codec
    return None if default == "none" else default


def _by_ffmpeg(path: Path, target: tuple[str, str], samples: I16, sample_rate: int) -> bytes:
    import av

    container, codec = target
    buffer = io.BytesIO()
    try:
        with av.open(buffer, "w", format=container) as output:
            stream: Any = output.add_stream(codec, rate=sample_rate, layout="mono")
            for frame in frames_of(samples, sample_rate):
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
    except (av.FFmpegError, ValueError) as error:
        raise RequestError(f"{path} cannot be written as {container}: {error}.") from error
    return buffer.getvalue()


def frames_of(samples: I16, sample_rate: int, start: int = 0) -> Iterator[Any]:
    """Samples i16 [n] as frames for FFmpeg's encoders; `start` came before them."""
    import av

    for first in range(0, len(samples), _FRAME):
        block = samples[first : first + _FRAME].reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
        frame.sample_rate, frame.pts = sample_rate, start + first
        yield frame
