"""Times as subtitle files write them."""

from __future__ import annotations


def clock(milliseconds: int, point: str) -> str:
    """HH:MM:SS, then the milliseconds behind a point or comma; hours may have more digits."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02d}:{minute:02d}:{second:02d}{point}{rest:03d}"
