"""Recordings made on the spot: WAV from bytes, everything else by PyAV's encoders."""

from __future__ import annotations

import io
import struct

import av
import numpy as np

PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
GUID_TAIL = bytes.fromhex("00001000800000aa00389b71")


def tone(seconds=1.0, rate=16_000, hz=440.0, level=0.5):
    """f64 [n]."""
    return level * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)


def s16(x):
    return np.round(np.asarray(x) * 32767).astype("<i2").tobytes()


def s24(x):
    words = np.round(np.asarray(x) * (2**23 - 1)).astype("<i4")
    return words.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def s32(x):
    return np.round(np.asarray(x) * (2**31 - 1)).astype("<i4").tobytes()


def u8(x):
    return np.round(np.asarray(x) * 127 + 128).astype(np.uint8).tobytes()


def chunk(kind, body, size=None):
    """One chunk with its pad byte; ``size`` overrides what the header says."""
    head = struct.pack("<4sI", kind, len(body) if size is None else size)
    return head + body + b"\0" * (len(body) % 2)


def plain_format(tag, bits, channels=1, rate=16_000):
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits)


def extensible_format(tag, bits, valid=None, channels=1, rate=16_000):
    head = plain_format(EXTENSIBLE, bits, channels, rate)
    guid = struct.pack("<I", tag) + GUID_TAIL
    return head + struct.pack("<HHI", 22, bits if valid is None else valid, 0) + guid


def riff(*chunks, form=b"RIFF", size=None):
    body = b"WAVE" + b"".join(chunks)
    return form + struct.pack("<I", len(body) if size is None else size) + body


def wav(data, tag=PCM, bits=16, channels=1, rate=16_000, size=None):
    """A plain WAV file; ``size`` overrides the data chunk's."""
    return riff(chunk(b"fmt ", plain_format(tag, bits, channels, rate)), chunk(b"data", data, size))


def encode(container, codec, x=None, rate=48_000, channels=1, video=False, target=None, **options):
    """Encode f64 [n] (or [channels, n]) with PyAV; the container format's options as keywords.

    Returns the bytes, or None when they go to the path ``target``.
    """
    out = target or io.BytesIO()
    with av.open(out, "w", format=container, options=options) as muxer:
        picture = _video_stream(muxer) if video else None
        layout = {1: "mono", 2: "stereo", 6: "5.1", 16: "hexadecagonal"}[channels]
        separate = (
            {"mapping_family": "255"} if channels > 8 else {}
        )  # Opus: channels without a place
        sound = (
            muxer.add_stream(codec, rate=rate, layout=layout, options=separate) if codec else None
        )
        if sound:
            _mux_sound(muxer, sound, tone(2.0, rate) if x is None else x)
        if picture:
            _mux_pictures(muxer, picture)
    return None if target else out.getvalue()


def _video_stream(muxer):
    stream = muxer.add_stream("mpeg4", rate=10)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    return stream


def _mux_sound(muxer, stream, x):
    shape = (stream.layout.nb_channels, np.shape(x)[-1])
    packed = np.broadcast_to(x, shape).T.astype(np.float32).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(packed, format="flt", layout=stream.layout.name)
    frame.sample_rate, frame.pts = stream.rate, 0
    muxer.mux(stream.encode(frame))
    muxer.mux(stream.encode(None))


def _mux_pictures(muxer, stream):
    for shade in range(20):
        image = np.full((64, 64, 3), shade * 10, np.uint8)
        muxer.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
    muxer.mux(stream.encode(None))


def damaged(data, start=0.5, size=500):
    """The bytes with ``size`` of them zeroed from the given share of the file on."""
    at = int(len(data) * start)
    return data[:at] + bytes(size) + data[at + size :]


def strongest_hz(samples, rate=16_000):
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax()) * rate / len(samples)


class Pipe(io.RawIOBase):
    """A stream that cannot seek and gives little at a time."""

    name = 0

    def __init__(self, data):
        self._left = data

    def readable(self):
        return True

    def readinto(self, buffer):
        part, self._left = (
            self._left[: min(len(buffer), 4096)],
            self._left[min(len(buffer), 4096) :],
        )
        buffer[: len(part)] = part
        return len(part)
