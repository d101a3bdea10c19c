"""Transcripts in the formats of OpenAI's API."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from stapes.models.qwen3_asr.pieces import Piece
from stapes.models.transcript import Transcript, Word
from stapes.output import srt, vtt
from stapes.server.fields import TranscriptionFields
from stapes.server.scheduling import Transcribed
from stapes.text.joining import join_pieces

Object = dict[str, Any]
_FRAMES_PER_S = 100  # OpenAI's "seek" counts mel frames


def response_of(done: Transcribed, fields: TranscriptionFields) -> Response:
    """The whole answer."""
    transcript = done.transcript
    if fields.response_format == "text":
        return Response(transcript.text + "\n", media_type="text/plain; charset=utf-8")
    if fields.response_format == "srt":
        return Response(
            srt.render("", transcript), media_type="application/x-subrip; charset=utf-8"
        )
    if fields.response_format == "vtt":
        return Response(vtt.render("", transcript), media_type="text/vtt; charset=utf-8")
    if fields.response_format == "verbose_json":
        return JSONResponse(verbose(done, fields))
    return JSONResponse({"text": transcript.text, "usage": usage(transcript)} | notes(transcript))


def usage(transcript: Transcript) -> Object:
    """Tokens, as OpenAI counts them."""
    tokens = transcript.tokens
    return {
        "type": "tokens",
        "input_tokens": tokens.prompt,
        "input_token_details": {
            "audio_tokens": tokens.audio,
            "text_tokens": tokens.prompt - tokens.audio,
        },
        "output_tokens": tokens.new,
        "total_tokens": tokens.prompt + tokens.new,
    }


def notes(transcript: Transcript) -> Object:
    """What the user should know about the transcript, where there is something."""
    return {"warnings": list(transcript.warnings)} if transcript.warnings else {}


def verbose(done: Transcribed, fields: TranscriptionFields) -> Object:
    """verbose_json. What the models do not tell, such as no_speech_prob, is null."""
    transcript = done.transcript
    asked = fields.timestamp_granularities or ["segment"]
    language = transcript.language
    body: Object = {
        "task": "transcribe",
        "language": language.lower() if language else None,
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
    }
    spoken = [piece for piece in done.pieces if piece.answer.text]
    if "segment" in asked:
        temperature = fields.temperature
        body["segments"] = [segment(i, piece, temperature) for i, piece in enumerate(spoken)]
    if "word" in asked:
        body["words"] = words_of([word for piece in spoken for word in piece.words])
    body["usage"] = {"type": "duration", "seconds": round(transcript.duration_s, 3)}
    return body | notes(transcript)


def words_of(words: Sequence[Word]) -> list[Object]:
    """Words with their times."""
    return [
        {"word": word.text, "start": round(word.start_s, 3), "end": round(word.end_s, 3)}
        for word in words
    ]


def segment(number: int, piece: Piece, temperature: float) -> Object:
    """A piece that has text, as a segment of verbose_json."""
    text = piece.answer.text
    encoded = text.encode()
    tokens = piece.result.token_ids[piece.answer.text_from : piece.result.kept]
    return {
        "id": number,
        "seek": int(piece.start_s * _FRAMES_PER_S),
        "start": round(piece.start_s, 3),
        "end": round(piece.end_s, 3),
        "text": text,
        "tokens": list(tokens),
        "temperature": temperature,
        "avg_logprob": None if not piece.confidence else math.log(piece.confidence),
        "compression_ratio": len(encoded) / len(zlib.compress(encoded)),
        "no_speech_prob": None,
        "language": piece.answer.language,
    }


class Deltas:
    """Pieces in order -> what each adds to the text; together they are the transcript's."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0

    def add(self, piece: Piece) -> str:
        """What a piece adds, the space before it included; "" when it has no text."""
        self._texts.append(piece.answer.text)
        joined = join_pieces(self._texts)
        added = joined[self._length :]
        self._length = len(joined)
        return added
