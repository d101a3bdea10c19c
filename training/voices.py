"""Which voices speak in which split. Whole voices are held out, never single clips."""

from __future__ import annotations

from dataclasses import dataclass

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

ESPEAK_ACCENTS = (
    "en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd",
    "en-029", "en-us-nyc",
)  # fmt: skip

ESPEAK_TRAIN = (
    "Alex", "Alicia", "Andrea", "AnxiousAndy", "Demonic", "Diogo", "Gene", "Henrique", "Hugo",
    "Jacky", "Lee", "Mario", "Mike", "Mr serious", "Nguyen", "RicishayMax", "RicishayMax3",
    "Storm", "Tweaky", "adam", "anika", "announcer", "antonio", "aunty", "benjamin", "boris",
    "caleb", "croak", "david", "ed", "edward2", "f1", "f3", "f4", "f5", "fast", "grandma",
    "grandpa", "gustave", "iven", "iven3", "iven4", "kaukovalta", "klatt", "klatt2", "klatt4",
    "klatt5", "linda", "m1", "m2", "m4", "m5", "m6", "m7", "marcelo", "max", "michel", "miguel",
    "norbert", "pablo", "pedro", "rob", "robert", "robosoft2", "robosoft5", "robosoft8", "sandro",
    "shelby", "steph", "steph3", "travis", "victor", "whisper", "whisperf", "zac",
)  # fmt: skip
ESPEAK_VALID = ("Denis", "Marco", "klatt6", "m8", "john", "belinda")
ESPEAK_TEST = (
    "Annie", "Michael", "Andy", "edward", "f2", "m3", "klatt3", "iven2", "paul", "quincy",
    "steph2", "Gene2",
)  # fmt: skip


@dataclass(frozen=True)
class Voice:
    """One speaker of one engine. `weight` is its share of the clips of its split."""

    name: str
    engine: str
    split: str
    weight: float
    utterances: int


def _espeak(variants: tuple[str, ...], split: str, share: float, utterances: int) -> list[Voice]:
    """Every variant with two or three of the accents, in a fixed rotation."""
    pairs = [
        f"{ESPEAK_ACCENTS[(2 * i + step) % len(ESPEAK_ACCENTS)]}+{variant}"
        for i, variant in enumerate(variants)
        for step in (0, 3, 5)
    ]
    return [Voice(pair, "espeak", split, share / len(pairs), utterances) for pair in pairs]


VOICES: tuple[Voice, ...] = (
    *_espeak(ESPEAK_TRAIN, "train", 0.40, 60),
    Voice("rms", "flite", "train", 0.10, 1500),
    Voice("slt", "flite", "train", 0.09, 1500),
    Voice("awb", "flite", "train", 0.08, 1500),
    Voice("cmu_us_slt_arctic_hts", "festival", "train", 0.07, 800),
    Voice("joe", "piper", "train", 0.15, 1500),
    *(Voice(f"blend-{i:02d}", "kokoro", "train", 0.012, 24) for i in range(24)),
    Voice("saytime", "words", "train", 0.04, 10),
    Voice("captcha", "words", "train", 0.02, 10),
    *_espeak(ESPEAK_VALID, "valid", 0.6, 20),
    Voice("kal16", "flite", "valid", 0.4, 200),
    *_espeak(ESPEAK_TEST, "test", 0.6, 40),
    Voice("ked_diphone", "festival", "test", 0.2, 400),
    Voice("jf_nezumi", "kokoro", "test", 0.2, 120),
)


def voices_of(split: str) -> list[Voice]:
    """The voices of one split: `train`, `valid` or `test`."""
    return [voice for voice in VOICES if voice.split == split]
