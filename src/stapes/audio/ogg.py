"""Chained Ogg: several complete streams, one after the other, in one file.

FFmpeg follows a chain only while the parameters stay the same; a change of rate or channels stops
it. Each link is a file of its own, so the links are found here and decoded one by one.
Page layout: RFC 3533, section 6.
"""

from __future__ import annotations

from typing import BinaryIO

from stapes.audio.reader import Range

MAGIC = b"OggS"
_HEADER_BYTES = 27
_FIRST_PAGE_FLAG = 0x02
_LARGEST_PAGE = _HEADER_BYTES + 255 + 255 * 255


def ogg_links(file: BinaryIO, start: int, stop: int) -> list[Range]:
    """The byte ranges of the links of bytes [start, stop), in order; at least one."""
    starts = [start]
    position, was_first = start, True
    while position + _HEADER_BYTES <= stop:
        file.seek(position)
        page = file.read(_HEADER_BYTES + 255)
        if not page.startswith(MAGIC):
            position = _resynchronise(file, position + 1, stop)
            continue
        is_first = bool(page[5] & _FIRST_PAGE_FLAG)
        if is_first and not was_first:
            starts.append(position)
        was_first = is_first
        position += _page_bytes(page)
    return list(zip(starts, [*starts[1:], stop], strict=True))


def _page_bytes(page: bytes) -> int:
    segments = page[26]
    return _HEADER_BYTES + segments + sum(page[_HEADER_BYTES : _HEADER_BYTES + segments])


def _resynchronise(file: BinaryIO, position: int, stop: int) -> int:
    """Where the next page starts within the length of one page, else the end of the file."""
    file.seek(position)
    offset = file.read(_LARGEST_PAGE + len(MAGIC)).find(MAGIC)
    return stop if offset < 0 else position + offset
