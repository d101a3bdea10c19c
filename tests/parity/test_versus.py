"""The benchmark's peer runs the same model on the same work."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bench.test_asr import small, small_decoder  # noqa: F401  (fixtures)
from stapes.audio import log_mel
from stapes.bench.asr import AsrBench, build, noise, prompt_ids
from stapes.bench.decoder import STEPS, DecoderBench, _Runs
from stapes.bench.versus import TransformersAsr
from stapes.bench.versus_decoder import TransformersDecoder
from stapes.cli.root import root
from stapes.decoder import GenerateOptions, Injection, Prompt, generate
from stapes.graph import NO_TRACE
from stapes.options import RuntimeOptions

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_transformers_gives_the_ids_that_we_give(small, monkeypatch):  # noqa: F811
    bench = AsrBench("qwen3-asr-0.6b", 9.3, 12, RuntimeOptions("f32", "f32"))
    peer = TransformersAsr(bench)
    made = []
    original = peer._model.generate
    monkeypatch.setattr(
        peer._model, "generate", lambda **inputs: made.append(original(**inputs)) or made[-1]
    )
    samples = noise(9.3)
    assert peer.run(samples) > 0

    networks, _ = build(bench)
    embeddings = networks.encoder.encode(log_mel(samples))
    ids = prompt_ids(embeddings.shape[0], small.audio_token_id)
    positions = np.arange(9, 9 + embeddings.shape[0])
    prompt = Prompt(ids, Injection(embeddings, positions))
    ours = generate(networks.decoder.new_session(), prompt, GenerateOptions(12))
    assert made[0][0, len(ids) :].tolist() == list(ours.token_ids)


def test_the_decoder_bench_decodes_the_same_ids_there(small):  # noqa: F811
    bench = DecoderBench("qwen3-asr-0.6b", 20, 2, 30, RuntimeOptions("f32", "f32"), 1)
    peer = TransformersDecoder(bench)
    first, again = peer.steps(), peer.steps()
    assert np.array_equal(first, again)

    decoder = build(AsrBench("qwen3-asr-0.6b", 1.0, 1, bench.runtime))[0].decoder
    for ids, start, theirs in zip(bench.ids(2, 20), bench.ids(1, 2)[0], first, strict=True):
        prompt = Prompt([*ids.tolist(), int(start)])
        ours = generate(decoder.new_session(), prompt, GenerateOptions(STEPS))
        assert list(ours.token_ids) == theirs.tolist()
    prompt = Prompt(bench.ids(1, 30)[0].tolist())
    ours = generate(decoder.new_session(), prompt, GenerateOptions(1))
    assert list(ours.token_ids) == [peer.prefill()]


def test_a_decoder_that_is_sampled_draws_the_same_ids_there(small_decoder):  # noqa: F811
    bench = DecoderBench("vevo2-ar", 20, 2, 30, RuntimeOptions("f32", "f32"), 1)
    peer, runs = TransformersDecoder(bench), _Runs(bench, NO_TRACE, lambda text: None)
    uniforms = [np.random.Generator(np.random.PCG64(0)).random for _ in range(2)]

    def multinomial(probabilities, num_samples):
        drawn = []
        for row, uniform in zip(probabilities.numpy(), uniforms, strict=True):
            cumulative = np.cumsum(row, dtype=np.float64)
            drawn.append([int(np.argmax(cumulative > uniform() * cumulative[-1]))])
        return torch.tensor(drawn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        theirs = peer.sampled()
    first, again = runs.sampled(), runs.sampled()
    assert first == again == [tuple(row) for row in theirs.tolist()]
    assert len(set(first[0])) > 3
    greedy = peer.steps()
    assert np.array_equal(greedy, peer.steps())
    assert greedy.tolist() != theirs.tolist()


def test_the_command_compares_draws_too(small_decoder):  # noqa: F811
    sizes = ["--positions", "9", "--prefill-rows", "9", "--rounds", "1", "--batch", "2"]
    arguments = ["--synthetic", "vevo2-ar", "--versus", "transformers", *sizes]
    result = CliRunner().invoke(root, ["bench", "decoder", *arguments])
    assert result.exit_code == 0, result.exception
    figures = json.loads(result.stdout.splitlines()[-1])
    peer = figures["versus"]["transformers"]
    assert peer["sampled_ratio"] == pytest.approx(
        figures["sampled_tokens_per_s"] / peer["sampled_tokens_per_s"], rel=0.02
    )
    assert peer["ratio"] > 0 < peer["prefill_ratio"]


def test_the_command_compares_them(small):  # noqa: F811
    arguments = ["--positions", "9", "--prefill-rows", "9", "--versus", "transformers"]
    result = CliRunner().invoke(root, ["bench", "decoder", "--rounds", "1", *arguments])
    assert result.exit_code == 0, result.exception
    peer = json.loads(result.stdout.splitlines()[-1])["versus"]["transformers"]
    assert set(peer) == {"tokens_per_s", "ratio", "prefill_rows_per_s", "prefill_ratio"}
    assert all(value > 0 for value in peer.values())
