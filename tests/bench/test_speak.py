"""`stapes bench speak`: what it runs, and what it prints."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from stapes.bench import speak
from stapes.bench.speak import SpeakBench
from stapes.cli.root import root
from stapes.models.vevo2.acoustic.config import FlowMatchingSpec, VocoderSpec
from stapes.models.vevo2.acoustic.flow_matching import FlowOptions

FIELDS = [
    *("bench", "seconds", "prompt_seconds", "steps", "weights", "threads", "instruction_set"),
    *("flow_s", "flow_rtf", "vocoder_s", "vocoder_rtf", "peak_rss_mb"),
]
SMALL = {
    "flow": FlowMatchingSpec(16, 64, 2, 2, 40, 4),
    "vocoder": VocoderSpec(16, 48, 96, 2, 1920, 480),
}


def small(**more) -> SpeakBench:
    return SpeakBench(**({"seconds": 0.4, "options": FlowOptions(2), "threads": 1} | SMALL | more))


def test_the_figures_of_both_stages():
    figures = speak.run(small(), 2)
    assert list(figures) == FIELDS
    assert (figures["seconds"], figures["prompt_seconds"], figures["steps"]) == (0.4, 3.04, 2)
    assert figures["flow_rtf"] == pytest.approx(figures["flow_s"] / 0.4, abs=0.01)


def test_the_peer_gets_the_same_codes_prompt_and_noise():
    """Plain torch of the same weights draws the same mel and makes the same samples."""
    pytest.importorskip("torch")
    from stapes.bench.versus_speak import TorchSpeak

    for options in (FlowOptions(3), FlowOptions(2, cfg=0.0)):
        figures = speak.run(small(options=options, weights="f32"), 1, TorchSpeak)
        versus = figures["versus"]["torch"]
        names = ("s", "ratio", "difference")
        assert list(versus) == [f"{stage}_{x}" for stage in ("flow", "vocoder") for x in names]
        assert versus["flow_difference"] < 1e-4
        assert versus["vocoder_difference"] < 1e-4


class Peer:
    """Gives what no model gives, and takes no time."""

    name = "torch"

    def __init__(self, bench: SpeakBench) -> None:
        self._bench = bench

    def mel(self) -> np.ndarray:
        return np.full((self._bench.frames, self._bench.flow.mel_dim), 7, np.float32)

    def samples(self) -> np.ndarray:
        return np.ones(self._bench.frames * self._bench.vocoder.hop_size, np.float32)


def test_a_peer_that_differs_shows():
    versus = speak.run(small(), 1, Peer)["versus"]["torch"]
    assert versus["flow_difference"] > 0.1
    assert versus["vocoder_difference"] > 0.1


def test_random_weights_are_the_same_each_time_and_alive():
    first, second = speak.flow_source(small()), speak.flow_source(small())
    for name in first.shapes:
        assert np.array_equal(first[name].raw(), second[name].raw())
    mel = speak.build(small()).flow.mel(small().codes(), small().prompt(), FlowOptions(2))
    assert 0.1 < mel.std() < 100


def test_the_command_line(monkeypatch):
    seen = []

    def run(bench, rounds, make_peer, tracer):
        seen.append((bench, rounds, make_peer))
        return {"bench": "speak"}

    monkeypatch.setattr(speak, "run", run)
    arguments = ["bench", "speak", "--seconds", "2", "--steps", "4", "--weights", "q8", "--json"]
    result = CliRunner().invoke(root, [*arguments, "--rounds", "1", "--threads", "1"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == {"bench": "speak"}
    assert seen == [(SpeakBench(2.0, 3.0, FlowOptions(4), "q8", 1), 1, None)]


def test_the_published_sizes():
    bench = SpeakBench()
    assert (bench.frames, bench.prompt_frames, bench.audio_s) == (200, 152, 4.0)
    sizes = [
        sum(int(np.prod(shape)) for shape in source.shapes.values())
        for source in (speak.flow_source(bench), speak.vocoder_source(bench))
    ]
    assert sizes == pytest.approx([354e6, 254e6], rel=5e-3)
