"""The benchmark's peer runs the same model on the same work."""

from __future__ import annotations

import numpy as np
import pytest

from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.audio import log_mel
from stapes.bench.asr import AsrBench, build, noise, prompt_ids
from stapes.bench.versus import TransformersAsr
from stapes.decoder import GenerateOptions, Injection, Prompt, generate
from stapes.options import RuntimeOptions

pytest.importorskip("torch")
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
