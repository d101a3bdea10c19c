"""Sound that is written as it comes, for readers that cannot wait for its end."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from stapes.errors import RequestError
from stapes.output.sound_file import as_int16, frames_of, wav_header

F32 = NDArray[np.float32]

StreamFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
STREAM_FORMATS: tuple[StreamFormat, ...] = get_args(StreamFormat)

#: FFmpeg's names of container and codec.
_ENCODED = {
    "mp3": ("mp3", "libmp3lame"),
    "opus": ("ogg", "libopus"),
    "aac": ("adts", "aac"),
    "flac": ("flac", "flac"),
}
_BUFFER_BYTES = 1024  # after which FFmpeg hands bytes on; its own 32 KB are seconds of speech


class SoundStream:
    """Mono sound in one of `STREAM_FORMATS`; all bytes behind one another are the whole file.

    What an encoder holds back of a block, up to a frame of its codec, comes with the next one.

    Args:
        kind: pcm is 16 bits, little-endian, without a header; wav states an open length.
        sample_rate: Hz.

    Raises:
        RequestError: the kind is none of these.
    """

    def __init__(self, kind: StreamFormat, sample_rate: int) -> None:
        if kind not in STREAM_FORMATS:
            raise RequestError(f"{kind!r} is none of {', '.join(STREAM_FORMATS)}.")
        self._rate, self._given = sample_rate, 0
        self._waiting = bytearray(wav_header(None, sample_rate) if kind == "wav" else b"")
        self._encoder = None if kind in ("wav", "pcm") else _Encoder(kind, sample_rate)

    def add(self, samples: F32) -> bytes:
        """The next bytes, of samples f32 [n]; what lies beyond [-1, 1] is clipped."""
        whole = as_int16(samples)
        if self._encoder is None:
            self._waiting += whole.astype("<i2").tobytes()
        else:
            for frame in frames_of(whole, self._rate, self._given):
                self._encoder.encode(frame)
            self._waiting += self._encoder.taken()
        self._given += len(whole)
        return self._taken()

    def finish(self) -> bytes:
        """The last bytes. Nothing may be added behind them."""
        if self._encoder is not None:
            self._waiting += self._encoder.finish()
        return self._taken()

    def close(self) -> None:
        """Give back what the encoder holds, finished or not; may be called twice."""
        if self._encoder is not None:
            self._encoder.close()

    def _taken(self) -> bytes:
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken


class _Encoder:
    """FFmpeg, into a sink that cannot go back."""

    def __init__(self, kind: str, sample_rate: int) -> None:
        import av

        container, codec = _ENCODED[kind]
        self._sink = _Sink()
        self._output = av.open(
            cast("Any", self._sink), "w", format=container, buffer_size=_BUFFER_BYTES
        )
        self._stream: Any = self._output.add_stream(codec, rate=sample_rate, layout="mono")

    def encode(self, frame: Any) -> None:
        self._output.mux(self._stream.encode(frame))

    def finish(self) -> bytes:
        self._output.mux(self._stream.encode(None))
        self._output.close()
        return self.taken()

    def close(self) -> None:
        self._output.close()

    def taken(self) -> bytes:
        return self._sink.taken()


class _Sink:
    """A file that can only be written."""

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def taken(self) -> bytes:
        taken = bytes(self._held)
        self._held.clear()
        return taken
