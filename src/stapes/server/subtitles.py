"""POST /v1/audio/subtitles: a transcript, as verbose_json tells it, becomes SubRip or WebVTT.

A client that has asked for verbose_json, or has listened to a live stream, gets its subtitles from
here without sending the recording again, cut by the same rules as everywhere.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from stapes.models.transcript import Segment, Timings, TokenCounts, Transcript, Word
from stapes.output import srt, vtt
from stapes.server.config import MEGABYTE
from stapes.server.failures import ApiError
from stapes.server.fields import Fields, read_fields
from stapes.server.shared import shared_of
from stapes.server.uploads import read_body

router = APIRouter()

_MOST_BYTES = 16 * MEGABYTE  # some hundred hours of speech with the times of its words
_MOST_S = 1e7  # of a recording: more than a hundred days

Seconds = Annotated[float, Field(ge=0, le=_MOST_S, allow_inf_nan=False)]
RENDER = {"srt": srt.render, "vtt": vtt.render}
MEDIA_TYPES = {"srt": "application/x-subrip", "vtt": "text/vtt"}


class _Told(BaseModel):
    """Part of a verbose_json, whose other fields do not matter here."""

    model_config = ConfigDict(extra="ignore")


class SegmentFields(_Told):
    """A segment of verbose_json."""

    start: Seconds
    end: Seconds
    text: str


class WordFields(_Told):
    """A word of verbose_json."""

    word: str
    start: Seconds
    end: Seconds


class SubtitleFields(Fields):
    """POST /v1/audio/subtitles: fields of verbose_json, and the format of the answer."""

    response_format: Literal["srt", "vtt"] = "srt"
    duration: Seconds
    segments: list[SegmentFields]
    words: list[WordFields] = Field(default_factory=list)


@router.post("/v1/audio/subtitles")
async def subtitles(request: Request) -> Response:
    """Subtitles of a transcript."""
    body = await read_body(request, _MOST_BYTES, shared_of(request).config.idle_s)
    fields = read_fields(SubtitleFields, body)
    transcript = transcript_of(fields)
    text = await asyncio.to_thread(RENDER[fields.response_format], "", transcript)
    kind = MEDIA_TYPES[fields.response_format]
    return Response(text, headers={"Content-Type": f"{kind}; charset=utf-8"})


def transcript_of(fields: SubtitleFields) -> Transcript:
    """The transcript that the fields tell of. ApiError when segments are not in order."""
    end_s = 0.0
    for number, told in enumerate(fields.segments):
        if told.start < end_s or told.end < told.start:
            raise ApiError(
                400,
                f"Segment {number} goes from {told.start:g} to {told.end:g} s; segments must be in "
                f"order, and the one before it ends at {end_s:g} s.",
                "segments",
                "invalid_value",
            )
        end_s = told.end
    words = _words_by_segment(fields)
    segments = tuple(
        Segment(told.start, told.end, told.text, words=own)
        for told, own in zip(fields.segments, words, strict=True)
        if told.text.strip()
    )
    return Transcript(
        text=" ".join(segment.text for segment in segments),
        language=None,
        duration_s=max(fields.duration, end_s),
        model="",
        finish_reason="stop",
        truncated=False,
        warnings=(),
        token_ids=(),
        tokens=TokenCounts(0, 0, 0),
        timings_s=Timings(0, 0, 0, 0, 0, 0, 0),
        segments=segments,
    )


def _words_by_segment(fields: SubtitleFields) -> list[tuple[Word, ...]]:
    """Each word goes to the segment in which its middle lies; others are left out."""
    found: list[list[Word]] = [[] for _ in fields.segments]
    at = 0
    for told in sorted(fields.words, key=lambda word: word.start):
        middle = (told.start + told.end) / 2
        while at < len(found) and fields.segments[at].end < middle:
            at += 1
        if at < len(found) and fields.segments[at].start <= middle:
            found[at].append(Word(told.word, told.start, told.end))
    return [tuple(words) for words in found]
