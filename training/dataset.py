"""Step 2: compose clips from the banks, degrade them, and keep their log-mels on disk.

    python -m training.dataset --split train --shards 20 [--first 0] [--processes 2]

A shard is two files: `NNN.mel.npy` (all frames of 2,000 clips, f16) and `NNN.npz` (lengths, words).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool

import numpy as np
import torch
from numpy.random import Generator

from training.augment import change_speed, degrade, noise
from training.mel import log_mel
from training.synthesize import DATA, RATE, Utterance, load_bank
from training.voices import Voice, voices_of

CLIPS_PER_SHARD = 2000
MAX_SECONDS = 14.0
NOISE_SHARE = 0.04


@dataclass(frozen=True)
class Clip:
    """Samples at 16 kHz, and the words in them (none when there is no speech)."""

    samples: np.ndarray
    words: str
    voice: str


class Composer:
    """Draws clips of one split."""

    def __init__(self, split: str) -> None:
        self.voices = voices_of(split)
        weights = np.array([voice.weight for voice in self.voices])
        self.weights = weights / weights.sum()
        self.banks = [load_bank(voice) for voice in self.voices]
        self.words = [[each for each in bank if " " not in each[1]] for bank in self.banks]

    def utterance(self, voice: int, rng: Generator, single: bool) -> Utterance:
        """One utterance of a voice, as f32."""
        bank = self.words[voice] if single else self.banks[voice]
        samples, words = bank[rng.integers(len(bank))]
        return samples.astype(np.float32) / 32768, words

    def talkers(self, rng: Generator) -> list[np.ndarray]:
        """Other voices for the background."""
        picks = rng.choice(len(self.voices), size=rng.integers(2, 6))
        return [self.utterance(int(pick), rng, single=False)[0] for pick in picks]

    def speech(self, rng: Generator) -> Clip:
        """A string of one to ten digits of one voice, before any degradation."""
        index = int(rng.choice(len(self.voices), p=self.weights))
        wanted = draw_count(rng)
        single, gap = rng.random() < 0.5, draw_gap(rng)
        speed = draw_speed(self.voices[index], rng)
        pieces, words = [silence(rng)], []
        while len(words) < wanted and sum(map(len, pieces)) < MAX_SECONDS * RATE:
            samples, text = self.utterance(index, rng, single)
            if len(words) + len(text.split()) > 10:
                break
            samples = samples * 10 ** (rng.normal(0, 1.5) / 20)
            pieces += [change_speed(samples, speed * rng.normal(1, 0.02)), gap_between(gap, rng)]
            words += text.split()
        pieces[-1] = silence(rng)
        return Clip(np.concatenate(pieces), " ".join(words), self.voices[index].name)

    def clip_without_speech(self, rng: Generator) -> Clip:
        """Noise of any kind and level, down to digital silence."""
        length = int(rng.uniform(0.3, 5) * RATE)
        level = 10 ** (-rng.uniform(5, 90) / 20)
        samples = level * noise(length, self.talkers(rng), rng) * 0.3
        return Clip(np.round(samples.clip(-1, 1) * 32767) / 32768, "", "none")

    def clip(self, rng: Generator) -> Clip:
        """A degraded clip; one in 25 holds no speech."""
        if rng.random() < NOISE_SHARE:
            return self.clip_without_speech(rng)
        clean = self.speech(rng)
        return Clip(degrade(clean.samples, self.talkers(rng), rng), clean.words, clean.voice)


def draw_count(rng: Generator) -> int:
    """How many digits: all counts from one to ten, short ones more often."""
    return int(rng.choice(np.arange(1, 11), p=np.array((5, 4, 4, 4, 4, 3, 2, 2, 1, 2)) / 31))


def draw_gap(rng: Generator) -> float:
    """The typical pause between utterances of one clip, in seconds."""
    kind = rng.choice(3, p=(0.35, 0.4, 0.25))
    return float((rng.uniform(-0.04, 0.05), rng.uniform(0.05, 0.35), rng.uniform(0.3, 1.3))[kind])


def gap_between(gap: float, rng: Generator) -> np.ndarray:
    """One pause around the typical one; never negative."""
    return np.zeros(int(max(0.0, gap * rng.uniform(0.5, 1.6)) * RATE), np.float32)


def silence(rng: Generator) -> np.ndarray:
    """Leading or trailing silence: none, little, or up to 1.5 s."""
    seconds = rng.choice((0.0, rng.uniform(0, 0.3), rng.uniform(0.1, 1.5)), p=(0.15, 0.5, 0.35))
    return np.zeros(int(seconds * RATE), np.float32)


def draw_speed(voice: Voice, rng: Generator) -> float:
    """Pitch and formant factor; the few natural voices are spread wider to stand for more."""
    spread = 0.09 if voice.engine == "espeak" else 0.13
    return float(np.exp(rng.normal(0, spread)).clip(0.72, 1.35))


def write_shard(number: int, split: str) -> int:
    """Compose, degrade and store the clips of one shard."""
    torch.set_num_threads(1)
    folder = DATA / split
    if (folder / f"{number:03d}.npz").exists():
        return number
    rng = np.random.default_rng((("train", "valid", "test").index(split), number))
    composer = Composer(split)
    clips = [composer.clip(rng) for _ in range(CLIPS_PER_SHARD)]
    mels = [log_mel(clip.samples).T.numpy().astype(np.float16) for clip in clips]
    np.save(folder / f"{number:03d}.mel.npy", np.concatenate(mels))
    lengths, words = [len(mel) for mel in mels], [clip.words for clip in clips]
    np.savez(folder / f"{number:03d}.npz", lengths=lengths, words=np.array(words))
    return number


@dataclass(frozen=True)
class Shard:
    """A shard on disk: `mel` [frames, 128] f16 (memory-mapped), `starts`, `lengths`, `words`."""

    mel: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    words: list[str]


def open_shards(split: str) -> list[Shard]:
    """All shards of a split that are complete at this moment."""
    shards = []
    for path in sorted((DATA / split).glob("*.npz")):
        with np.load(path) as file:
            lengths, words = file["lengths"], file["words"].tolist()
        mel = np.load(path.with_suffix(".mel.npy"), mmap_mode="r")
        shards.append(Shard(mel, np.cumsum(lengths) - lengths, lengths, words))
    return shards


@dataclass(frozen=True)
class Batch:
    """Clips of similar length: zero-padded `mel` [batch, 128, frames], `frames` [batch]."""

    mel: torch.Tensor
    frames: torch.Tensor
    words: list[str]


def load_batch(shards: list[Shard], members: list[tuple[int, int]]) -> Batch:
    """Read the clips (shard, index) and pad them to whole chunks of 100 frames."""
    lengths = [int(shards[s].lengths[i]) for s, i in members]
    mel = torch.zeros(len(members), 128, -(-max(lengths) // 100) * 100)
    for row, (s, i) in enumerate(members):
        start = shards[s].starts[i]
        frames = shards[s].mel[start : start + lengths[row]].astype(np.float32)
        mel[row, :, : lengths[row]] = torch.from_numpy(frames.T)
    return Batch(mel, torch.tensor(lengths), [shards[s].words[i] for s, i in members])


def epoch(
    shards: list[Shard], frames_per_batch: int, rng: Generator, max_frames: int = 10**9
) -> Iterator[list[tuple[int, int]]]:
    """All clips once, in batches of similar length, the batches in random order."""
    members = [
        (int(length + rng.integers(40)), s, i)
        for s, shard in enumerate(shards)
        for i, length in enumerate(shard.lengths)
        if length <= max_frames
    ]
    members.sort()
    batches, current = [], []
    for length, s, i in members:
        if current and (len(current) + 1) * (length + 99) > frames_per_batch:
            batches.append(current)
            current = []
        current.append((s, i))
    batches.append(current)
    for index in rng.permutation(len(batches)):
        yield batches[index]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=("train", "valid", "test"), default="train")
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    (DATA / args.split).mkdir(parents=True, exist_ok=True)
    numbers = range(args.first, args.first + args.shards)
    with Pool(args.processes) as pool:
        for number in pool.imap_unordered(partial(write_shard, split=args.split), numbers):
            print(f"{args.split} shard {number}", flush=True)


if __name__ == "__main__":
    main()
