"""Step 5: word error rates.

    python -m training.evaluate --set human [--runtime stapes|transformers] [--weights f32|bf16|q8]
        [--activation-bits 9|13] [--vad]

Sets: `heldout` (voices never trained on, degraded as in training), `heldout-clean` (the same voices
without noise, rooms and lines), `human` (recorded digits), `silence` (noise and silence only:
counts clips in which words were heard). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jiwer
import numpy as np

from training.dataset import Clip, Composer
from training.export import BUNDLED
from training.human import MissingRecordingsError, human_clips
from training.synthesize import RATE

Transcriber = Callable[[np.ndarray], str]


def heldout_clips(count: int) -> list[Clip]:
    """Degraded speech of the test voices; clips without speech are left to `silence`."""
    rng, composer = np.random.default_rng(2026), Composer("test")
    clips: list[Clip] = []
    while len(clips) < count:
        clip = composer.clip(rng)
        if clip.words:
            clips.append(clip)
    return clips


def clean_clips(count: int) -> list[Clip]:
    """Speech of the test voices as the engines made it."""
    rng, composer = np.random.default_rng(2026), Composer("test")
    return [composer.speech(rng) for _ in range(count)]


def silence_clips(count: int) -> list[Clip]:
    """Noise of all kinds without speech, and digital silence."""
    rng, composer = np.random.default_rng(2026), Composer("test")
    noises = [composer.clip_without_speech(rng) for _ in range(count)]
    quiet = replace(noises[0], samples=np.zeros(2 * RATE, np.float32))
    return [*noises[:-1], quiet]


SETS: dict[str, Callable[[int], list[Clip]]] = {
    "heldout": heldout_clips,
    "heldout-clean": clean_clips,
    "human": human_clips,
    "silence": silence_clips,
}


def with_transformers(args: argparse.Namespace) -> Transcriber:
    """The reference implementation; f32 means bf16 weights computed in f32."""
    import torch
    from transformers import AutoProcessor, Qwen3ASRForConditionalGeneration

    if args.weights == "q8":
        raise SystemExit("transformers has no q8 weights; use --runtime stapes")
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.weights]
    processor = AutoProcessor.from_pretrained(args.model)
    network = Qwen3ASRForConditionalGeneration.from_pretrained(args.model, dtype=dtype).eval()

    def transcribe(samples: np.ndarray) -> str:
        inputs = processor.apply_transcription_request(samples).to(dtype=dtype)
        with torch.inference_mode():
            out = network.generate(**inputs, max_new_tokens=64, do_sample=False)
        new = out[0, inputs.input_ids.shape[1] :]
        return str(processor.decode(new, return_format="transcription_only"))

    return transcribe


def with_stapes(args: argparse.Namespace) -> Transcriber:
    """This project's own runtime; clips are one piece each unless a speech detector cuts them."""
    import stapes

    bits = args.activation_bits
    network = stapes.load(args.model, weights=args.weights, activation_bits=bits)
    return lambda samples: str(network.transcribe(samples, sample_rate=RATE, vad=args.vad).text)


RUNTIMES = {"transformers": with_transformers, "stapes": with_stapes}


def error_rate(pairs: list[tuple[str, str]]) -> float:
    """Word error rate in percent, rounded to two digits."""
    said, heard = zip(*pairs, strict=True)
    return round(100 * float(jiwer.wer(list(said), list(heard))), 2)


def summary(clips: list[Clip], heard: list[str]) -> dict[str, object]:
    """Error rates over all clips and by voice, or the count of invented texts."""
    spoken = [(clip, text) for clip, text in zip(clips, heard, strict=True) if clip.words]
    if not spoken:
        return {"clips": len(clips), "invented": sum(bool(text) for text in heard)}
    by_voice: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for clip, text in spoken:
        by_voice[clip.voice.rpartition("+")[2]].append((clip.words, text))
    pairs = [pair for pairs in by_voice.values() for pair in pairs]
    return {
        "clips": len(clips),
        "words": sum(len(said.split()) for said, _ in pairs),
        "wer_percent": error_rate(pairs),
        "strings_right_percent": round(100 * sum(s == h for s, h in pairs) / len(pairs), 2),
        "wer_percent_by_voice": {voice: error_rate(by_voice[voice]) for voice in sorted(by_voice)},
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, default="human")
    parser.add_argument("--runtime", choices=RUNTIMES, default="stapes")
    parser.add_argument("--weights", choices=("f32", "bf16", "q8"), default="f32")
    parser.add_argument("--activation-bits", type=int, choices=(9, 13), default=9)
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument(
        "--vad", action="store_true", help="leave out what is no speech, as users do"
    )
    parser.add_argument("--errors", action="store_true", help="print every clip that is wrong")
    args = parser.parse_args()
    try:
        clips = SETS[args.set](args.clips)
    except MissingRecordingsError as problem:
        raise SystemExit(str(problem)) from None
    transcribe = RUNTIMES[args.runtime](args)
    heard = [transcribe(clip.samples) for clip in clips]
    for clip, text in zip(clips, heard, strict=True):
        if args.errors and text != clip.words:
            print(f"{clip.voice}: said [{clip.words}] heard [{text}]")
    settings = {"set": args.set, "runtime": args.runtime, "weights": args.weights}
    if args.weights == "q8":
        settings["activation_bits"] = args.activation_bits
    print(json.dumps(settings | summary(clips, heard)))


if __name__ == "__main__":
    main()
