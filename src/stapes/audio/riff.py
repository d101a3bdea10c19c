"""WAV files: the chunks are walked here, the samples are decoded by FFmpeg.

FFmpeg reads well-formed WAV well, but takes the size of a sample from its valid bits (24 valid
bits in 32 come out as noise, 20 in 32 at the wrong speed), refuses an extensible header that was
cut, plays the bytes behind an empty data chunk, keeps only the last of several data chunks, and
hides that a file was cut short. So plain encodings (integer, float, A-law, mu-law) are presented
to it behind a header of 44 bytes made here. Anything else passes through as it is.

Chunk and format layout: Microsoft's "Multiple Channel Audio Data and WAVE Files"; 64-bit sizes:
EBU Tech 3306 (RF64) and ITU-R BS.2088 (BW64).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from stapes.audio.reader import Piece, Range
from stapes.errors import AudioError

FORM_IDS = (b"RIFF", b"RF64", b"BW64")
UNKNOWN_SIZE = 0xFFFFFFFF
PLACEHOLDER_FROM = 0x7FFF0000
"""Writers that cannot seek back leave sizes like 0x7FFFFFFF - 36, 0x80000000 or 0xFFFFFFFF."""

PCM, FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_SAMPLE_BYTES = {PCM: (1, 2, 3, 4, 8), FLOAT: (4, 8), _ALAW: (1,), _MULAW: (1,)}
_GUID_TAIL = bytes.fromhex("00001000800000aa00389b71")


@dataclass(frozen=True)
class WavFormat:
    """How the samples of a plain WAV file are stored."""

    tag: int
    channels: int
    rate: int
    sample_bytes: int

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return self.channels * self.sample_bytes

    def header(self) -> bytes:
        """A plain header whose data chunk reaches to the end of the file, however far that is."""
        rate = self.rate * self.frame_bytes
        numbers = (self.tag, self.channels, self.rate, min(rate, UNKNOWN_SIZE), self.frame_bytes)
        form = struct.pack("<4sI4s4sI", b"RIFF", UNKNOWN_SIZE, b"WAVE", b"fmt ", 16)
        plain = struct.pack("<HHIIHH", *numbers, 8 * self.sample_bytes)
        return form + plain + struct.pack("<4sI", b"data", UNKNOWN_SIZE)


@dataclass(frozen=True)
class Wav:
    """A plain WAV file: what to hand to the decoder, and what the header promised."""

    pieces: tuple[Piece, ...]
    promised_s: float | None
    warnings: tuple[str, ...]


@dataclass
class _Walk:
    """What a walk over the chunks has found so far."""

    format: bytes | None = None
    long_data_size: int | None = None
    data: list[Range] = field(default_factory=list)
    promised_bytes: int = 0
    open_ended: bool = False


def is_wav(head: bytes) -> bool:
    """Whether the first 12 bytes of a file announce a WAV file."""
    return head[:4] in FORM_IDS and head[8:12] == b"WAVE"


def parse_wav(file: BinaryIO, start: int, stop: int, name: str) -> Wav | None:
    """Find format and samples of the WAV file in bytes [start, stop); None leaves it to FFmpeg.

    Raises:
        AudioError: no samples, or a header that contradicts itself.
    """
    walk = _walk(file, start + 12, stop)
    if walk.format is None:
        return None
    wav_format, warnings = parse_format(walk.format, name)
    if wav_format is None:
        return None
    if not walk.data:
        raise AudioError(
            f"{name} holds no audio: it has no data chunk in its {stop - start} bytes."
        )
    data = [_whole_frames(chunk, wav_format.frame_bytes) for chunk in walk.data]
    if all(begin == end for begin, end in data):
        raise AudioError(f"{name} holds no audio: its data chunk has no samples.")
    if len(data) > 1:
        warnings.append(f"The file has {len(data)} data chunks; they were joined in order.")
    seconds = walk.promised_bytes / (wav_format.frame_bytes * wav_format.rate)
    pieces: tuple[Piece, ...] = (wav_format.header(), *data)
    return Wav(pieces, None if walk.open_ended else seconds, tuple(warnings))


def _whole_frames(chunk: Range, frame_bytes: int) -> Range:
    """Without half a frame at the end, which would shift what follows."""
    begin, end = chunk
    return begin, end - (end - begin) % frame_bytes


def _walk(file: BinaryIO, position: int, stop: int) -> _Walk:
    walk = _Walk()
    while position + 8 <= stop:
        kind, size = _chunk_at(file, position)
        body = position + 8
        if kind == b"fmt " and walk.format is None:
            walk.format = file.read(min(size, 40))
        elif kind == b"ds64" and size >= 24:
            walk.long_data_size = struct.unpack("<QQQ", file.read(24).ljust(24, b"\0"))[1]
        elif kind == b"data":
            size = _add_data(walk, file, body, size, stop)
        position = _after_chunk(file, body + size)
    return walk


def _chunk_at(file: BinaryIO, position: int) -> tuple[bytes, int]:
    file.seek(position)
    kind, size = struct.unpack("<4sI", file.read(8).ljust(8, b"\0"))
    return kind, size


def _add_data(walk: _Walk, file: BinaryIO, body: int, size: int, stop: int) -> int:
    """Note a data chunk; return its size in the file."""
    if size == UNKNOWN_SIZE and walk.long_data_size is not None:
        size = walk.long_data_size
    unknown = size >= PLACEHOLDER_FROM and body + size > stop and walk.long_data_size is None
    if unknown or (size == 0 and not _is_chunk(file, body)):
        walk.open_ended, size = True, stop - body
    walk.promised_bytes += size
    walk.data.append((body, min(body + size, stop)))
    return size


def _after_chunk(file: BinaryIO, end: int) -> int:
    """Chunks are padded to even lengths; writers that forget it are followed too."""
    if end % 2 and not _is_chunk(file, end + 1) and _is_chunk(file, end):
        return end
    return end + end % 2


def _is_chunk(file: BinaryIO, position: int) -> bool:
    """Whether a chunk that is known to stand in WAV files starts here."""
    file.seek(position)
    return file.read(4).lower() in _KNOWN_CHUNKS


_KNOWN_CHUNKS = frozenset(
    b"fmt |data|list|junk|fact|cue |smpl|inst|bext|ixml|axml|_pmx|id3 |pad |fllr|peak|plst|chna"
    b"|cart|disp|umid|afsp|note|labl|ltxt|levl|qlty|mext|acid|guan".split(b"|")
)


def parse_format(chunk: bytes, name: str) -> tuple[WavFormat | None, list[str]]:
    """The body of a format chunk -> how samples are stored, None when not plainly; warnings.

    Raises:
        AudioError: the chunk is cut short or contradicts itself.
    """
    if len(chunk) < 14:
        raise AudioError(f"{name} has a damaged WAV header: its format has {len(chunk)} bytes.")
    tag, channels, rate, _, frame_bytes = struct.unpack("<HHIIH", chunk[:14])
    bits = int.from_bytes(chunk[14:16], "little")
    if channels == 0 or rate == 0:
        raise AudioError(f"{name} has a damaged WAV header: {channels} channels at {rate} Hz.")
    warnings: list[str] = []
    size = _sample_bytes(frame_bytes, channels, bits)
    if tag == _EXTENSIBLE:
        tag = _extended_tag(chunk, size, name, warnings)
    if size not in _SAMPLE_BYTES.get(tag, ()):
        return None, warnings
    return WavFormat(tag, channels, rate, size), warnings


def _sample_bytes(frame_bytes: int, channels: int, bits: int) -> int:
    """Bytes a sample occupies: from the frame's size, or from the bits when that is nonsense."""
    whole, rest = divmod(frame_bytes, channels)
    return whole if rest == 0 and 8 * whole >= bits > 0 else -(-bits // 8)


def _extended_tag(chunk: bytes, sample_bytes: int, name: str, warnings: list[str]) -> int:
    """The tag inside the sub-format GUID; a cut header is taken as integers where that is safe."""
    if len(chunk) >= 40:
        tag, tail = struct.unpack("<I12s", chunk[24:40])
        return int(tag) if tail == _GUID_TAIL else _EXTENSIBLE
    if sample_bytes > 3:
        raise AudioError(
            f"{name} has a damaged WAV header: its extensible format is cut to {len(chunk)} bytes"
            f" and does not say whether {8 * sample_bytes}-bit samples are integers or floats."
        )
    warnings.append(
        f"The WAV format is cut to {len(chunk)} bytes; {8 * sample_bytes}-bit integers are assumed."
    )
    return PCM
