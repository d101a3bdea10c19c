"""Detectors that say what they are told, and the regions that follow from it."""

from __future__ import annotations

import numpy as np

from stapes.audio.speech import FRAME, SpeechTracker


class Told:
    """Gives the probabilities of a list, one a frame."""

    def __init__(self, probabilities):
        self._left = iter(probabilities)

    def probability(self, frame):
        assert frame.shape == (FRAME,)
        return next(self._left)


def regions(probabilities, rule, samples):
    """What a tracker hears as speech, [start, end) in samples, within so many samples."""
    tracker, found = SpeechTracker(rule), []
    for probability in probabilities:
        start = tracker.start
        end = tracker.hear(probability)
        if end is not None:
            found.append((start, min(end, samples)))
    if tracker.start is not None:
        found.append((tracker.start, samples))
    return found


def script(*parts):
    """Probabilities for (value, seconds) parts, and how many samples they stand for."""
    frames = [v for value, seconds in parts for v in [value] * round(seconds * 16_000 / FRAME)]
    return frames, len(frames) * FRAME


def wild(samples, seed):
    """Probabilities that stay and jump as those of speech do, now and then quite unlike them."""
    rng = np.random.default_rng(seed)
    frames, found = -(-samples // FRAME), []
    while len(found) < frames:
        length = int(rng.exponential(rng.choice([4, 20, 100, 400]))) + 1
        level = rng.choice([0.05, 0.5, 0.95])
        found += np.clip(level + rng.normal(0, 0.3 * (level == 0.5), length), 0, 1).tolist()
    return found[:frames]
