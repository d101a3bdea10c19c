"""FFmpeg, through PyAV: a stream of bytes becomes blocks of samples.

PyAV is imported at the first use: it replaces FFmpeg's log callback (by one that is silent, so
nothing reaches stderr), which importing stapes must not do to its host.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stapes.audio.mix import MAX_RATE, MIN_RATE
from stapes.audio.reader import PieceReader
from stapes.errors import AudioError

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream, Packet
    from av.container import InputContainer

Block = tuple[NDArray[Any], int]
"""Samples [channels, n] in the format they were stored in, and their rate in Hz."""

_DTYPES: dict[str, str] = {
    "u8": "u1",
    "s16": "i2",
    "s32": "i4",
    "s64": "i8",
    "flt": "f4",
    "dbl": "f8",
}

_HEADER_DURATIONS = frozenset({"aiff", "ape", "au", "flac", "matroska,webm", "mp3", "tta", "wv"})
"""Formats whose duration is written in the file. Elsewhere FFmpeg estimates it from the bit rate
or from what is there, so that it says nothing about what is missing. (MP4 is told by its prefix.)
"""

_CLOCKS = {"flac": 0.0, "ogg": 0.1}
"""Formats that number their samples, and the seconds beyond which a packet that begins later than
the one before ended tells that some are missing: FFmpeg leaves out frames and pages whose checksum
is wrong without a word, and an Ogg page holds up to a second. Ogg's numbers are those of pages,
which FFmpeg spreads over packets."""

_OPTIONS = {"protocol_whitelist": "none"}
"""Playlists and concat scripts are files too: nothing they name may be opened."""


@dataclass
class Decoded:
    """What happened while one stream was decoded.

    Attributes:
        packets: packets read. undecodable: those among them that gave an error.
        breaks: places at which the container itself was damaged, or its clock jumped.
        promised_s: duration by the file's own header, None when it has none.
        expected_s: that, or else an estimate; known from the first block on, None when unknown.
    """

    packets: int = 0
    undecodable: int = 0
    breaks: int = 0
    promised_s: float | None = None
    expected_s: float | None = None


def decode(
    reader: PieceReader, name: str, result: Decoded, raw_format: str | None = None
) -> Generator[Block]:
    """The blocks of the best audio track; damaged packets are skipped and counted.

    Args:
        reader: the file from its first byte.
        name: for messages.
        result: is filled in meanwhile.
        raw_format: FFmpeg's name of a headerless format, to be tried when nothing is recognised.

    Raises:
        AudioError: not audio, no audio track, no decoder for it, or a rate that no recording has.
    """
    container = _open(reader, name, raw_format)
    with container:
        stream = _audio_stream(container, name)
        result.promised_s = _promised_seconds(container, stream, reader)
        result.expected_s = result.expected_s or result.promised_s or _estimate(container)
        for frame in _frames(stream, _packets(container, stream, result), result):
            yield frame_samples(frame), _checked_rate(frame.sample_rate or stream.sample_rate, name)
    _check_read(reader, name)


def _checked_rate(rate: int, name: str) -> int:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(
            f"{name} says its sample rate is {rate} Hz;"
            f" rates from {MIN_RATE} to {MAX_RATE} Hz can be read."
        )
    return rate


def frame_samples(frame: AudioFrame) -> NDArray[Any]:
    """The samples of a frame as a view, [channels, n], in the format they were decoded to."""
    dtype = np.dtype(_DTYPES[frame.format.name.removesuffix("p")])
    channels, count = frame.layout.nb_channels, frame.samples
    if frame.format.is_planar:
        return np.stack([_plane(frame, index, dtype, count) for index in range(channels)])
    return _plane(frame, 0, dtype, count * channels).reshape(count, channels).T


def _plane(frame: AudioFrame, index: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """One plane as a view. ``frame.planes`` would read past its end beyond eight channels."""
    from av.audio.plane import AudioPlane

    plane: Any = AudioPlane(frame, index)
    view: NDArray[Any] = np.frombuffer(plane, dtype, count)
    return view


def _av_errors() -> tuple[type[Exception], ...]:
    """What PyAV raises: its own tree, and plain Python errors for arguments it rejects itself."""
    import av

    return (av.FFmpegError, ValueError, LookupError, RuntimeError, OSError, EOFError)


def _open(reader: PieceReader, name: str, raw_format: str | None) -> InputContainer:
    import av

    for format_name in (None, raw_format) if raw_format else (None,):
        reader.seek(0)
        try:
            return av.open(
                reader,
                "r",
                format=format_name,
                container_options=_OPTIONS,
                metadata_errors="replace",  # tags in Latin-1 must not stop a recording
            )
        except _av_errors() as error:
            failure = error
    _check_read(reader, name)
    raise AudioError(_unrecognised(reader, name)) from failure


def _unrecognised(reader: PieceReader, name: str) -> str:
    reader.seek(4)
    if reader.read(4) == b"ftyp":
        return f"{name} is an MP4 file that was cut off or never finished: its index is missing."
    return f"{name} is not a recording: none of the known formats fits its {reader.size} bytes."


def _check_read(reader: PieceReader, name: str) -> None:
    if reader.error is not None:
        raise AudioError(f"{name} could not be read: {reader.error}.") from reader.error


def _audio_stream(container: InputContainer, name: str) -> AudioStream:
    if not container.streams.audio:
        kinds = sorted({stream.type for stream in container.streams if stream.type})
        found = f"only {' and '.join(kinds)}" if kinds else "no tracks at all"
        raise AudioError(f"{name} has no audio track: it holds {found}.")
    usable = [stream for stream in container.streams.audio if stream.codec_context is not None]
    if not usable:
        raise AudioError(f"{name} cannot be decoded: its audio codec is unknown.")
    best = container.streams.best("audio")
    return next((stream for stream in usable if stream is best), usable[0])


def _packets(
    container: InputContainer, stream: AudioStream, result: Decoded
) -> Iterator[Packet[AudioStream]]:
    """The packets of the stream; behind a damaged place the reading goes on, if it gets on."""
    clock = _Clock(_CLOCKS.get(container.format.name))
    while True:
        before = result.packets
        try:
            for packet in container.demux(stream):
                if packet.size:
                    result.packets += 1
                    result.breaks += clock.jumps(packet)
                    yield packet
            return
        except _av_errors():
            result.breaks += 1
            if result.packets == before:
                return


class _Clock:
    """Tells where packets jump ahead by more than `most_s` seconds; never when that is None."""

    def __init__(self, most_s: float | None) -> None:
        self._most_s = most_s
        self._expected: int | None = None

    def jumps(self, packet: Packet[AudioStream]) -> bool:
        """Whether audio is missing before this packet."""
        if self._most_s is None or packet.pts is None or packet.time_base is None:
            return False
        ahead = 0 if self._expected is None else packet.pts - self._expected
        self._expected = packet.pts + (packet.duration or 0)
        return ahead > 0 and float(ahead * packet.time_base) > self._most_s


def _frames(
    stream: AudioStream, packets: Iterable[Packet[AudioStream]], result: Decoded
) -> Iterator[AudioFrame]:
    errors = _av_errors()
    for packet in packets:
        try:
            frames = stream.decode(packet)
        except errors:
            result.undecodable += 1
            continue
        yield from frames
    try:
        rest = stream.decode(None)
    except errors:
        return
    yield from rest


def _promised_seconds(
    container: InputContainer, stream: AudioStream, reader: PieceReader
) -> float | None:
    name = container.format.name
    if name not in _HEADER_DURATIONS and not name.startswith("mov,"):
        return None
    if name == "mp3" and not _has_mp3_header(reader):
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None and len(container.streams) == 1:
        before = max(container.start_time or 0, 0)  # the clock of a live recording runs already
        return (container.duration - before) / 1_000_000  # AV_TIME_BASE: microseconds
    return None


def _estimate(container: InputContainer) -> float | None:
    """FFmpeg's idea of the duration, by the bit rate or the last time stamp; good for progress."""
    duration = container.duration
    return duration / 1_000_000 if duration and duration > 0 else None


def _has_mp3_header(reader: PieceReader) -> bool:
    """Whether the first MP3 frame carries the frame count (Xing, Info, VBRI), after ID3v2 tags."""
    position = reader.tell()  # where the decoder will read on
    reader.seek(0)
    head = reader.read(10)
    skip, shifts = 0, (21, 14, 7, 0)
    if head[:3] == b"ID3" and len(head) == 10:
        skip = 10 + sum(
            (byte & 0x7F) << shift for byte, shift in zip(head[6:], shifts, strict=True)
        )
    reader.seek(skip)
    first_frame = reader.read(4096)
    reader.seek(position)
    return any(tag in first_frame for tag in (b"Xing", b"Info", b"VBRI"))
