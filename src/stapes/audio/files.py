"""An open file -> blocks of samples, and what there is to say about them."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass, field

from stapes.audio.decode import Block, Decoded, decode
from stapes.audio.ogg import MAGIC, ogg_links
from stapes.audio.reader import PieceReader
from stapes.audio.riff import is_wav, parse_wav
from stapes.audio.source import Source
from stapes.errors import AudioError

RAW_FORMATS = {".g722": "g722", ".gsm": "gsm"}
"""Telephony formats without any header: only the file's name can tell them."""

MISSING_SHARE = 0.02
MISSING_SECONDS = 0.2
"""A gap between promised and decoded duration is reported when it exceeds both. Encoders' delay
and padding stay below (an AAC or MP3 frame is 0.02 to 0.05 s)."""


@dataclass
class Report:
    """What is known about a file beside its samples; filled in while it is decoded.

    Attributes:
        warnings: sentences about the file's structure.
        decoded: figures of the decoding.
    """

    warnings: list[str] = field(default_factory=list)
    decoded: Decoded = field(default_factory=Decoded)

    def losses(self, name: str, decoded_s: float) -> list[str]:
        """Sentences about what is missing from the `decoded_s` seconds that came.

        Raises:
            AudioError: everything is missing.
        """
        result = self.decoded
        if decoded_s == 0 and result.packets:
            raise AudioError(
                f"{name} cannot be decoded: none of its {result.packets} packets gave audio."
            )
        found = []
        if result.undecodable:
            found.append(f"{result.undecodable} of {result.packets} packets could not be decoded.")
        if result.breaks:
            places = "one place" if result.breaks == 1 else f"{result.breaks} places"
            found.append(f"The file is damaged in {places}; what stood there is missing.")
        missing = (result.promised_s or 0.0) - decoded_s
        if missing > MISSING_SECONDS and missing > MISSING_SHARE * (result.promised_s or 0.0):
            found.append(
                f"The file promises {result.promised_s:.2f} s but only {decoded_s:.2f} s could be"
                " decoded; it is cut short or damaged."
            )
        return found


def file_blocks(source: Source, report: Report) -> Generator[Block]:
    """Decode a file block by block.

    Raises:
        AudioError: not audio, no audio track, no decoder for it, or a header that lies.
    """
    source.file.seek(source.start)
    head = source.file.read(12)
    if is_wav(head):
        yield from _wav_blocks(source, report)
    elif head.startswith(MAGIC):
        yield from _ogg_blocks(source, report)
    else:
        reader = PieceReader(source.file, [(source.start, source.stop)])
        raw_format = RAW_FORMATS.get(os.path.splitext(source.name)[1].lower())
        yield from decode(reader, source.name, report.decoded, raw_format)


def _wav_blocks(source: Source, report: Report) -> Generator[Block]:
    wav = parse_wav(source.file, source.start, source.stop, source.name)
    if wav is None:
        whole = PieceReader(source.file, [(source.start, source.stop)])
        yield from decode(whole, source.name, report.decoded)
        return
    report.warnings += wav.warnings
    report.decoded.expected_s = wav.promised_s
    yield from decode(PieceReader(source.file, wav.pieces), source.name, report.decoded)
    report.decoded.promised_s = wav.promised_s


def _ogg_blocks(source: Source, report: Report) -> Generator[Block]:
    """Decode the links of a chain one by one; a link that fails is left out with a warning."""
    links = ogg_links(source.file, source.start, source.stop)
    failures, total = [], report.decoded
    for number, link in enumerate(links, start=1):
        part = total if len(links) == 1 else Decoded()
        try:
            yield from decode(PieceReader(source.file, [link]), source.name, part)
        except AudioError as error:
            failures.append(error)
            report.warnings.append(
                f"Part {number} of {len(links)} of the file could not be decoded."
            )
            continue
        if part is not total:
            total.packets += part.packets
            total.undecodable += part.undecodable
            total.breaks += part.breaks
    if len(failures) == len(links):
        raise failures[-1]
