"""A real model: f32 against transformers, the other formats against f32. docs/fidelity.md has all.

`stapes bench fidelity` reads the whole text; here it is the beginning, so that it takes seconds.
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stapes.bench.fidelity import (
    FidelityBench,
    Measured,
    compared,
    default_prompts,
    default_text,
    encoded,
    measure,
)
from stapes.bench.perplexity import Windows
from stapes.models.qwen_text import TextModel, load_text_model
from stapes.models.qwen_text.config import to_config
from stapes.options import RuntimeOptions
from text_models import KINDS, random_tensors, write_folder, write_gguf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
versus_fidelity = pytest.importorskip("stapes.bench.versus_fidelity")

pytestmark = [pytest.mark.parity, pytest.mark.timeout(600)]

REAL = os.environ.get("STAPES_QWEN25_GGUF")
THREADS = 2
TEXT_TOKENS = 768

# What is aimed at (docs/fidelity.md).
Q8_SAME = 19
Q4_LIMIT = 0.05


# -- tiny models ---------------------------------------------------------------------------------


def tiny_text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Every weight is read once, and its sum is exact. " * 12, encoding="utf-8")
    return path


def assert_equal(figures: dict[str, Any]) -> None:
    assert figures["different_tensors"] == 0
    assert figures["ratio"] == pytest.approx(1, abs=1e-5)
    assert (figures["first_16"], figures["all_48"]) == (20, 20)
    assert figures["smallest_margin"] > 0


def versus(path, text, spoil=None) -> dict[str, Any]:
    from stapes.bench import fidelity

    def make(bench):
        peer = versus_fidelity.TransformersText(bench)
        if spoil:
            spoil(peer._model)
        return peer

    bench = FidelityBench(str(path), (), text, "f32", 1, Windows(64, 32))
    return fidelity.run(bench, lambda _: None, make)["versus"]["transformers"]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3-untied"])
def test_a_folder_in_f32_is_what_transformers_computes(tmp_path, kind):
    folder = write_folder(tmp_path / "model", KINDS[kind], random_tensors(KINDS[kind]))
    assert_equal(versus(folder, tiny_text(tmp_path)))


@pytest.mark.parametrize(
    "sizes",
    # of Qwen3 it takes the published head size, whatever the file says
    [KINDS["qwen2-untied"], replace(KINDS["qwen3"], head_dim=128)],
    ids=["qwen2-untied", "qwen3"],
)
def test_a_gguf_file_holds_the_values_that_transformers_reads(tmp_path, sizes):
    path = tmp_path / "model.gguf"
    write_gguf(path, sizes, random_tensors(sizes), lambda name: "Q5_0")
    assert_equal(versus(path, tiny_text(tmp_path)))


def test_other_weights_are_seen(tmp_path):
    folder = write_folder(tmp_path / "model", KINDS["qwen2"], random_tensors(KINDS["qwen2"]))

    @torch.no_grad()
    def spoil(model):
        model.model.layers[1].mlp.down_proj.weight *= 1.5

    figures = versus(folder, tiny_text(tmp_path), spoil)
    assert figures["different_tensors"] == 1
    assert abs(figures["ratio"] - 1) > 1e-4
    assert figures["all_48"] < 20


# -- the real model ------------------------------------------------------------------------------


def measured(weights: str, kv: str) -> tuple[TextModel, Measured]:
    model = load_text_model(REAL, RuntimeOptions(weights, kv, THREADS))
    ids = encoded(model, default_text())[:TEXT_TOKENS]
    prompts = [encoded(model, prompt) for prompt in default_prompts()]
    return model, measure(model, ids, prompts, FidelityBench(REAL, (), threads=THREADS))


@pytest.fixture(scope="module")
def exact() -> tuple[TextModel, Measured]:
    if not REAL:
        pytest.skip("STAPES_QWEN25_GGUF names no file")
    return measured("f32", "f32")


def reference(model: TextModel) -> Any:
    """transformers' model with the values that ours holds in f32."""
    values = to_config(model.decoder.spec, ())
    config = transformers.Qwen2Config(
        **{k: v for k, v in values.items() if k not in {"model_type", "stapes_prefix_ids"}}
    )
    with torch.device("meta"):
        theirs = transformers.Qwen2ForCausalLM(config)
    sizes = {name: len(parameter) for name, parameter in theirs.named_parameters()}
    state = {}
    for names, stacked in versus_fidelity._tensors(model):
        ends = np.cumsum([sizes[name] for name in names])[:-1]
        parts = zip(names, np.split(stacked, ends), strict=True)
        state |= {name: torch.from_numpy(part) for name, part in parts}
    theirs.load_state_dict(state, assign=True)
    versus_fidelity.refresh_frequencies(theirs)
    return theirs.eval()


@torch.no_grad()
def test_real_greedy_ids_in_f32_are_those_of_transformers(exact):
    """Each id is the first maximum after those before it: so the answers are the same."""
    torch.set_num_threads(THREADS)
    model, ours = exact
    peer = SimpleNamespace(_torch=torch, _model=reference(model))
    wrong = []
    for text, answer in zip(default_prompts(), ours.answers, strict=True):
        prompt = encoded(model, text)
        ids = np.concatenate([prompt, answer[:-1]])
        logits = versus_fidelity.TransformersText.logits(peer, ids)[prompt.size - 1 :]
        if (logits.argmax(axis=1) != answer).any():
            wrong.append(text)
    assert wrong == []
    assert len(np.unique(ours.answers)) > 300


def test_real_q8_reads_and_answers_as_f32_does(exact):
    figures = compared(measured("q8", "f16")[1], exact[1])
    assert abs(figures["ratio"] - 1) < 0.002
    assert figures["first_16"] >= Q8_SAME
    assert ratio_is_measured(figures)


def test_real_q4_stays_close_to_f32(exact):
    figures = compared(measured("q4", "f16")[1], exact[1])
    assert abs(figures["ratio"] - 1) < Q4_LIMIT
    assert ratio_is_measured(figures)


def ratio_is_measured(figures: dict[str, Any]) -> bool:
    return figures["ratio"] != 1 and 10 < figures["perplexity"] < 200
