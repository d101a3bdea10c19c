"""Where the audio of `stapes listen` comes from: microphone, pipe or file."""

from __future__ import annotations

import io
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.audio.pipe import Read, open_pipe
from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.stream import AudioStream, file_stream
from stapes.errors import AudioError, RequestError

Block = NDArray[np.generic]

_PACED_SAMPLES = SAMPLE_RATE // 10  # a file is played in blocks of 0.1 s
_WAITING_BLOCKS = 64  # between the thread that reads and the one that works


@dataclass(frozen=True)
class Source:
    """Audio that comes while it is used.

    Attributes:
        name: for messages.
        rate: Hz of the blocks.
        take: the next block, if one comes within so many seconds, else None; raises EOFError at the
            end, and what goes wrong. The first call starts a microphone, or a file's pace.
        warnings: sentences about it, complete when it is over.
    """

    name: str
    rate: int
    take: Callable[[float], Block | None]
    warnings: Callable[[], tuple[str, ...]] = tuple


class _Pump:
    """A thread that reads blocks, from the first time on that somebody wants one."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self._queue: queue.Queue[Block | Exception] = queue.Queue(_WAITING_BLOCKS)
        self.stop = threading.Event()
        # A read from a pipe may never return; the program must still end.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        last: Exception = EOFError()
        try:
            for block in self._blocks:
                if not self._put(block):
                    return
        except Exception as error:  # told to the one who takes
            last = error
        self._put(last)

    def _put(self, item: Block | Exception) -> bool:
        while not self.stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def take(self, seconds: float) -> Block | None:
        """See `Source.take`."""
        if self._thread.ident is None:
            self._thread.start()
        return take(self._queue, seconds)


def take(blocks: queue.Queue[Block | Exception], seconds: float) -> Block | None:
    """The next block of a queue; see `Source.take`."""
    try:
        item = blocks.get(timeout=seconds) if seconds > 0 else blocks.get_nowait()
    except queue.Empty:
        return None
    if isinstance(item, Exception):
        raise item
    return item


@contextmanager
def pipe_source(rate: int | None) -> Iterator[Source]:
    """Standard input: raw PCM or WAV."""
    if sys.stdin is None or sys.stdin.isatty():
        raise RequestError("standard input (-) holds no audio: pipe PCM or WAV into it.")
    pipe = open_pipe(_stdin_reader(), rate or SAMPLE_RATE, "standard input")
    pump = _Pump(pipe.blocks)
    try:
        yield Source("standard input", pipe.rate, pump.take)
    finally:
        pump.stop.set()


def _stdin_reader() -> Read:
    """Reads what is there, without the lock that the interpreter wants when it ends."""
    try:
        raw = io.FileIO(sys.stdin.fileno(), closefd=False)
    except (OSError, ValueError, AttributeError):  # not a file, but something like one
        buffered: Any = sys.stdin.buffer
        read: Read = buffered.read1
        return read
    return lambda count: raw.read(count) or b""


@contextmanager
def file_source(path: str, fast: bool) -> Iterator[Source]:
    """A file, at the pace at which it would be heard, or as fast as it is taken."""
    with file_stream(path) as stream:
        if fast:
            yield Source(path, SAMPLE_RATE, lambda seconds: _next(stream), lambda: stream.warnings)
            return
        stop = threading.Event()
        pump = _Pump(_paced(stream, stop.wait))
        try:
            yield Source(path, SAMPLE_RATE, pump.take, lambda: stream.warnings)
        finally:
            stop.set()
            pump.stop.set()


def _next(stream: AudioStream) -> Block:
    try:
        return next(stream)
    except StopIteration:
        raise EOFError from None


def _paced(stream: AudioStream, sleep: Callable[[float], object]) -> Iterator[Block]:
    """Blocks of 0.1 s, each when its last sample would be heard."""
    started, given = time.monotonic(), 0
    for second in stream:
        for first in range(0, second.size, _PACED_SAMPLES):
            block = second[first : first + _PACED_SAMPLES]
            given += block.size
            sleep(max(0.0, started + given / SAMPLE_RATE - time.monotonic()))
            yield block


@contextmanager
def microphone_source(device: str | None, rate: int | None) -> Iterator[Source]:
    """A microphone, through sounddevice.

    Raises:
        RequestError: sounddevice or the library that it needs is not there.
        AudioError: the device cannot be used.
    """
    sounddevice = _sounddevice()
    chosen = int(device) if device is not None and device.isdigit() else device
    blocks: queue.Queue[Block | Exception] = queue.Queue()
    lost: list[str] = []

    def take_in(data: Any, frames: int, when: Any, status: Any) -> None:
        if status:
            lost.append(str(status))
        blocks.put(np.frombuffer(bytes(data), np.int16))

    try:
        described = sounddevice.query_devices(chosen, "input")
        hertz = rate or int(described["default_samplerate"])
        opened = sounddevice.RawInputStream(
            samplerate=hertz, device=chosen, channels=1, dtype="int16", callback=take_in
        )
    except (sounddevice.PortAudioError, ValueError) as error:
        raise AudioError(f"The microphone cannot be used: {error}.") from error
    name = str(described.get("name", "microphone"))

    def take_out(seconds: float) -> Block | None:
        if not opened.active:
            try:
                opened.start()
            except sounddevice.PortAudioError as error:
                raise AudioError(f"The microphone cannot be used: {error}.") from error
        return take(blocks, seconds)

    with closing(opened):
        yield Source(name, hertz, take_out, lambda: _losses(lost))


def _losses(lost: list[str]) -> tuple[str, ...]:
    if not lost:
        return ()
    return (f"The microphone lost audio {len(lost)} times ({lost[0]}).",)


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError:
        raise RequestError(
            "A microphone needs the package sounddevice: pip install 'stapes[mic]'."
        ) from None
    except OSError as error:  # its library
        raise RequestError(
            f"A microphone needs the PortAudio library (Debian: libportaudio2): {error}."
        ) from None
    return sounddevice
