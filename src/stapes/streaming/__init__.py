"""Live transcription: audio is fed while people speak, and events come out.

docs/streaming.md explains it. `stapes.stream` makes a stream; importing this package is cheap.
"""

from stapes.streaming.events import StreamEvent
from stapes.streaming.policy import StreamPolicy

__all__ = ["StreamEvent", "StreamPolicy"]
