"""`stapes bench fidelity`: perplexity and greedy answers against plain computations."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest
from click.testing import CliRunner

from decoder.tiny import KINDS, all_logits, decoder, engine
from stapes.bench import fidelity
from stapes.bench.fidelity import (
    FIRST_TOKENS,
    NEW_TOKENS,
    FidelityBench,
    Measured,
    compared,
    default_prompts,
    default_text,
)
from stapes.bench.perplexity import PlanRunner, Windows, perplexity, target_nll
from stapes.cli.root import root
from stapes.decoder import Prompt
from stapes.errors import NumericError, RequestError
from text_models import QWEN2, random_tensors, write_folder

TEXT_SIZE = (2412, 13379)  # words, characters


def random_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 500, count).astype(np.int32)


def plain_nll(logits: np.ndarray, target: int) -> float:
    """The definition, without care for overflow: logits here are small."""
    exps = np.exp(logits.astype(np.float64))
    return float(-np.log(exps[target] / exps.sum()))


# -- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [2, 7, 8, 9, 12, 13, 50])
@pytest.mark.parametrize(("size", "stride"), [(8, 4), (8, 7), (8, 1), (2, 1)])
def test_every_token_but_the_first_is_scored_once_with_enough_before_it(tokens, size, stride):
    scored = []
    for start, first, end in Windows(size, stride).cut(tokens):
        assert end - start <= size
        assert start < first < end
        assert start == 0 or first - start >= size - stride
        scored += range(first, end)
    assert scored == list(range(1, tokens))


@pytest.mark.parametrize(("size", "stride"), [(8, 8), (8, 0), (1, 1)])
def test_windows_that_leave_tokens_out_are_refused(size, stride):
    with pytest.raises(RequestError, match=f"Windows of {size} tokens .* not {stride}"):
        Windows(size, stride)


# -- perplexity ----------------------------------------------------------------------------------


def test_a_loss_is_that_of_the_definition_in_f64():
    logits = np.array([[0, 1, 2], [5, -3, 0.5]], np.float32)
    found = target_nll(logits, np.array([2, 1], np.int32))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [plain_nll(logits[0], 2), plain_nll(logits[1], 1)], 1e-14)
    huge = np.array([[1e4, 1e4]], np.float32)
    np.testing.assert_allclose(target_nll(huge, np.array([0], np.int32)), np.log(2), 1e-12)


def test_logits_that_are_not_finite_are_an_error_with_their_number():
    logits = np.array([[0, np.nan, np.inf]], np.float32)
    with pytest.raises(NumericError, match="2 logits"):
        target_nll(logits, np.array([0], np.int32))


@pytest.mark.parametrize("kind", ["qwen2", "qwen3-untied"])
def test_losses_are_those_of_every_window_read_alone(kind):
    runs_on = decoder(KINDS[kind])
    ids, windows = random_ids(700), Windows(300, 170)
    found = PlanRunner(runs_on, engine()).negative_log_likelihoods(ids, windows)
    expected = []
    for start, scored, end in windows.cut(ids.size):
        logits = all_logits(runs_on, Prompt(ids[start:end].tolist()))
        expected += [plain_nll(logits[i - start - 1], ids[i]) for i in range(scored, end)]
    assert found.size == 699
    assert np.std(expected) > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert perplexity(found) == pytest.approx(np.exp(np.mean(expected)))


def test_a_text_of_one_token_has_no_perplexity():
    with pytest.raises(RequestError, match="1 tokens"):
        PlanRunner(decoder(), engine()).negative_log_likelihoods(random_ids(1), Windows())


# -- greedy answers ------------------------------------------------------------------------------


def test_answers_side_by_side_are_the_first_maxima_after_all_that_came_before():
    runs_on = decoder(KINDS["qwen2"])
    prompts = [random_ids(n, seed=n) for n in (3, 1, 40)]
    answers = PlanRunner(runs_on, engine()).greedy(prompts, 12)
    assert answers.shape == (3, 12)
    assert len(np.unique(answers)) > 12
    for prompt, answer in zip(prompts, answers, strict=True):
        whole = Prompt([*prompt.tolist(), *answer[:-1].tolist()])
        greedy = all_logits(runs_on, whole)[prompt.size - 1 :].argmax(axis=1)
        assert greedy.tolist() == answer.tolist()


def test_a_nan_in_an_answer_is_an_error_that_names_the_step():
    runs_on = decoder()
    runs_on.weights.final_norm[:] = np.nan
    with pytest.raises(NumericError, match="new token 0"):
        PlanRunner(runs_on, engine()).greedy([random_ids(3)], 2)


# -- what is reported ----------------------------------------------------------------------------


def test_figures_of_a_format_are_relative_to_f32():
    answers = np.zeros((4, NEW_TOKENS), np.int32)
    other = answers.copy()
    other[0, FIRST_TOKENS - 1] = 1
    other[1, FIRST_TOKENS] = 1
    exact = Measured(np.array([1.0, 3.0]), answers, 4_000_000)
    figures = compared(Measured(np.array([1.1, 3.3]), other, 1_000_000), exact)
    ratio = np.exp(0.2)
    assert figures == {
        "weights_bytes": 1_000_000,
        "perplexity": round(float(np.exp(2.2)), 4),
        "ratio": round(float(ratio), 5),
        "ratio_error": round(float(ratio * 0.1 / np.sqrt(2)), 5),
        f"first_{FIRST_TOKENS}": 3,
        f"all_{NEW_TOKENS}": 2,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("model"), QWEN2, random_tensors(QWEN2))


def test_the_last_line_is_the_json_object(folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A few words are enough. " * 20, encoding="utf-8")
    arguments = ["--model", str(folder), "--weights", "q8", "--weights", "q4", "--threads", "1"]
    size = ["--text", str(text), "--window", "64", "--stride", "32"]
    result = CliRunner().invoke(root, ["bench", "fidelity", *arguments, *size])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout.splitlines()[-1])
    assert [figures[key] for key in ("bench", "text", "window", "stride", "kv", "prompts")] == [
        *("fidelity", "text.txt", 64, 32, "f16", 20)
    ]
    f32, q8, q4 = figures["formats"]
    assert [row["weights"] for row in (f32, q8, q4)] == ["f32", "q8", "q4"]
    assert (f32["ratio"], f32["ratio_error"], f32["first_16"], f32["all_48"]) == (1, 0, 20, 20)
    assert f32["weights_bytes"] > q8["weights_bytes"] > q4["weights_bytes"]
    assert 0 < abs(q8["ratio"] - 1) < 0.05
    assert 0 < q8["ratio_error"] < q4["ratio_error"]
    assert q8["first_16"] > q4["first_16"]


def test_the_bits_of_activations_reach_the_runs_of_q8(folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A few words are enough. " * 5, encoding="utf-8")
    arguments = ["--model", str(folder), "--weights", "q8", "--text", str(text), "--threads", "1"]

    def measured(*more: str) -> tuple[int, list[float]]:
        result = CliRunner().invoke(root, ["bench", "fidelity", *arguments, *more])
        figures = json.loads(result.stdout.splitlines()[-1])
        return figures["activation_bits"], [row["ratio_error"] for row in figures["formats"]]

    assert measured() == measured("--activation-bits", "13")
    bits, (exact, coarse) = measured("--activation-bits", "9")
    assert (bits, exact) == (9, 0)
    assert coarse != measured()[1][1]


def test_a_peer_gets_the_same_ids_and_what_f32_gave(folder):
    given = {}

    class Fake:
        name = "peer"

        def versus(self, model, ids, prompts, ours, windows):
            given.update(ids=ids, prompts=prompts, ours=ours, spec=model.decoder.spec)
            return {"ratio": 1.0}

    text = folder / "short.txt"
    text.write_text("Some words to read.", encoding="utf-8")
    bench = FidelityBench(str(folder), (), text, threads=1)
    result = fidelity.run(bench, lambda _: None, lambda _: Fake())
    assert result["versus"] == {"peer": {"ratio": 1.0}}
    assert given["ids"].size == result["text_tokens"]
    assert given["ours"].losses.size == given["ids"].size - 1
    assert given["ours"].answers.shape == (len(given["prompts"]), NEW_TOKENS)


def test_a_text_that_cannot_be_read_is_a_request_error(folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(RequestError, match=r"text\.txt cannot be read as UTF-8"):
        fidelity.run(FidelityBench(str(folder), (), text), lambda _: None)


def test_the_text_and_the_prompts_are_in_the_package_and_do_not_change():
    """Figures on the page belong to this very text; another one needs new figures."""
    assert files("stapes.bench").joinpath("data", "prose.txt").is_file()
    assert (len(default_text().split()), len(default_text())) == TEXT_SIZE
    prompts = default_prompts()
    assert len(prompts) == len(set(prompts)) == 20
    assert all(prompt == prompt.strip(" ") and len(prompt) < 120 for prompt in prompts)
