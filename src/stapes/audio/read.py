"""Any recording, from a path, bytes or a stream, to an :class:`Audio`."""

from __future__ import annotations

import os

from stapes.audio.decode import Decoded, decode
from stapes.audio.mix import Mixdown
from stapes.audio.ogg import MAGIC, ogg_links
from stapes.audio.reader import PieceReader
from stapes.audio.recording import Audio
from stapes.audio.riff import is_wav, parse_wav
from stapes.audio.source import AudioSource, Source, open_source
from stapes.errors import AudioError

RAW_FORMATS = {".g722": "g722", ".gsm": "gsm"}
"""Telephony formats without any header: only the file's name can tell them."""

MISSING_SHARE = 0.02
MISSING_SECONDS = 0.2
"""A gap between promised and decoded duration is reported when it exceeds both. Encoders' delay
and padding stay below (an AAC or MP3 frame is 0.02 to 0.05 s)."""


def read_audio(source: AudioSource) -> Audio:
    """Decode a recording to mono f32 at 16 kHz.

    Args:
        source: a path, the bytes of a file, or a binary stream (read from where it stands, not
            closed; one that cannot seek, such as a pipe, is read to its end first).

    Returns:
        The recording. What could not be decoded, or looks wrong, is said in its warnings.

    Raises:
        AudioError: nothing usable: missing, unreadable, empty, no audio, not finite.
        RequestError: ``source`` is of a wrong type.
    """
    with open_source(source) as opened:
        mix = Mixdown(opened.name)
        warnings = _decode_source(opened, mix)
        return mix.finish(tuple(warnings))


def _decode_source(source: Source, mix: Mixdown) -> list[str]:
    source.file.seek(source.start)
    head = source.file.read(12)
    if is_wav(head):
        return _decode_wav(source, mix)
    if head.startswith(MAGIC):
        return _decode_ogg(source, mix)
    reader = PieceReader(source.file, [(source.start, source.stop)])
    raw_format = RAW_FORMATS.get(os.path.splitext(source.name)[1].lower())
    return _losses(source.name, decode(reader, source.name, mix, raw_format), mix)


def _decode_wav(source: Source, mix: Mixdown) -> list[str]:
    wav = parse_wav(source.file, source.start, source.stop, source.name)
    pieces = wav.pieces if wav else ((source.start, source.stop),)
    result = decode(PieceReader(source.file, pieces), source.name, mix)
    if wav is None:
        return _losses(source.name, result, mix)
    result.promised_s = wav.promised_s
    return [*wav.warnings, *_losses(source.name, result, mix)]


def _decode_ogg(source: Source, mix: Mixdown) -> list[str]:
    """Decode the links of a chain one by one; a link that fails is left out with a warning."""
    links = ogg_links(source.file, source.start, source.stop)
    total, warnings, failure = Decoded(), [], None
    for number, link in enumerate(links, start=1):
        try:
            result = decode(PieceReader(source.file, [link]), source.name, mix)
        except AudioError as error:
            failure = error
            warnings.append(f"Part {number} of {len(links)} of the file could not be decoded.")
            continue
        total.packets += result.packets
        total.undecodable += result.undecodable
        total.breaks += result.breaks
    if failure is not None and len(warnings) == len(links):
        raise failure
    return [*warnings, *_losses(source.name, total, mix)]


def _losses(name: str, result: Decoded, mix: Mixdown) -> list[str]:
    """Sentences about what is missing from ``mix``; an error when everything is."""
    decoded_s = mix.duration_s
    if decoded_s == 0 and result.packets:
        raise AudioError(
            f"{name} cannot be decoded: none of its {result.packets} packets gave audio."
        )
    warnings = []
    if result.undecodable:
        warnings.append(f"{result.undecodable} of {result.packets} packets could not be decoded.")
    if result.breaks:
        places = "one place" if result.breaks == 1 else f"{result.breaks} places"
        warnings.append(f"The file is damaged in {places}; what stood there is missing.")
    missing = (result.promised_s or 0.0) - decoded_s
    if missing > MISSING_SECONDS and missing > MISSING_SHARE * (result.promised_s or 0.0):
        warnings.append(
            f"The file promises {result.promised_s:.2f} s but only {decoded_s:.2f} s could be"
            " decoded; it is cut short or damaged."
        )
    return warnings
