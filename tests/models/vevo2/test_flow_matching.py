"""Flow matching: what it refuses, what its result depends on, and what it does not depend on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.vevo2 import acoustic_checkpoint as made
from stapes.errors import CancelledError, CheckpointError, ConfigError, NumericError, RequestError
from stapes.graph import Engine, Executor, NativeExecutor, Plan, ReferenceExecutor
from stapes.models.vevo2.acoustic import flow_weights
from stapes.models.vevo2.acoustic.config import flow_matching_spec
from stapes.models.vevo2.acoustic.flow_matching import FlowMatching, FlowOptions, initial_noise
from stapes.models.vevo2.acoustic.load import load_flow_matching
from stapes.tensors import open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker
from stapes.weights.packed_file import Contents, PackedReader, open_packed, write_packed
from stapes.weights.reader import Record, RecordingReader

FEW = FlowOptions(steps=3, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write(tmp_path_factory.mktemp("fm"), made.flow_tensors())


def load(folder: Path, weights: str = "f32", threads: int = 2, sets: str = "auto") -> FlowMatching:
    return load_flow_matching(folder, made.flow_config(), Engine(threads, sets), weights)


@pytest.fixture(scope="module")
def flow(folder: Path) -> FlowMatching:
    return load(folder)


def built(folder: Path, make_executor: Any) -> FlowMatching:
    spec = flow_matching_spec(made.flow_config())
    with open_safetensors(folder) as store:
        reader = CheckpointReader(store, MatrixPacker(Engine(1, "auto"), "f32"))
        weights = flow_weights.read_flow_weights(reader, spec)
    return FlowMatching(spec, weights, make_executor)


# -- what a mel depends on -------------------------------------------------------------------------


@pytest.mark.parametrize(("codes", "prompt"), [(1, 0), (3, 11), (9, 4)])
def test_frames_are_four_a_code_without_those_of_the_prompt(flow, codes: int, prompt: int):
    mel = flow.mel(made.random_codes(codes), made.random_mel(prompt), FEW)
    assert mel.shape == (4 * codes - prompt, made.MELS)
    assert mel.shape[0] == flow.frames(codes, prompt)
    assert mel.dtype == np.float32


def test_a_seed_repeats_and_everything_else_shows(flow):
    codes, prompt = made.random_codes(6), made.random_mel(5)
    mel = flow.mel(codes, prompt, FEW)
    assert flow.mel(codes, prompt, FEW).tobytes() == mel.tobytes()
    other_codes, other_prompt = codes.copy(), prompt.copy()
    other_codes[-1] = (codes[-1] + 1) % made.CODES
    other_prompt[0] += 1
    others = [
        flow.mel(codes, prompt, FlowOptions(steps=3, seed=2)),
        flow.mel(other_codes, prompt, FEW),
        flow.mel(codes, other_prompt, FEW),
        flow.mel(codes, prompt, FlowOptions(steps=3, seed=1, cfg=0.5)),
        flow.mel(codes, prompt, FlowOptions(steps=3, seed=1, rescale=0.2)),
    ]
    assert all(np.abs(other - mel).max() > 0.01 for other in others)


def test_noise_is_normal_and_repeats():
    noise = initial_noise(7, 500, 20)
    assert noise.dtype == np.float32
    assert abs(noise.mean()) < 0.03
    assert noise.std() == pytest.approx(1, abs=0.02)
    assert np.array_equal(noise, initial_noise(7, 500, 20))
    assert not np.array_equal(noise, initial_noise(8, 500, 20))


# -- what it does not depend on --------------------------------------------------------------------


def test_the_reference_executor_draws_the_same_mel(folder: Path, flow):
    codes, prompt = made.random_codes(5), made.random_mel(3)
    expected = built(folder, ReferenceExecutor).mel(codes, prompt, FEW)
    assert np.abs(flow.mel(codes, prompt, FEW) - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("weights", ["f32", "bf16", "q8"])
def test_any_number_of_threads_gives_the_same_bits(folder: Path, weights: str):
    codes, prompt = made.random_codes(8), made.random_mel(7)
    mels = [load(folder, weights, threads).mel(codes, prompt, FEW) for threads in (1, 2, 5)]
    assert mels[0].tobytes() == mels[1].tobytes() == mels[2].tobytes()


class Spy:
    """Keeps what plans are run with, and what they give."""

    def __init__(self) -> None:
        self.engine = Engine(2, "auto")
        self.runs: list[tuple[Executor, dict[str, Any], dict[str, Any]]] = []

    def __call__(self, plan: Plan) -> Executor:
        executor = NativeExecutor(plan, self.engine)
        inner = executor.run

        def run(inputs: Any, caches: Any = ()) -> Any:
            outputs = inner(inputs, caches)
            copies = {name: np.array(values) for name, values in inputs.items()}
            self.runs.append((inner, copies, outputs))
            return outputs

        executor.run = run  # type: ignore[method-assign]
        return executor


def test_both_passes_in_one_run_are_each_alone_bit_for_bit(folder: Path):
    spy = Spy()
    flow = built(folder, spy)
    prompt, frames = 7, 4 * 9 - 7
    flow.mel(made.random_codes(9), made.random_mel(prompt), FEW)
    run, inputs, outputs = spy.runs[-1]
    assert inputs["mel"].shape[0] == prompt + 2 * frames
    for first, last, behind in ((0, prompt + frames, prompt), (prompt + frames, None, 0)):
        alone = {
            name: values[first:last]
            for name, values in inputs.items()
            if name not in ("scales", "targets", "target_steps")
        }
        count = len(alone["mel"])
        alone["starts"], alone["ends"] = np.zeros(count, np.int32), np.full(count, count, np.int32)
        targets = np.arange(behind, count, dtype=np.int32)
        alone |= {"targets": targets, "target_steps": 0 * targets, "scales": inputs["scales"]}
        part = outputs["flow"][:frames] if first == 0 else outputs["flow"][frames:]
        assert run(alone)["flow"].tobytes() == part.tobytes()


def test_without_guidance_the_second_pass_is_not_run(folder: Path):
    spy = Spy()
    built(folder, spy).mel(made.random_codes(3), made.random_mel(2), FlowOptions(steps=2, cfg=0.0))
    assert spy.runs[-1][1]["mel"].shape[0] == 12


def test_what_is_the_same_for_every_step_is_computed_once(folder: Path):
    spy = Spy()
    built(folder, spy).mel(made.random_codes(3), made.random_mel(2), FlowOptions(steps=6))
    bodies = [inputs for _, inputs, _ in spy.runs if "targets" in inputs]
    assert (len(bodies), len(spy.runs)) == (6, 6 + 5)


@pytest.mark.parametrize(("weights", "most"), [("bf16", 0.01), ("q8", 0.03)])
def test_smaller_weights_stay_near(folder: Path, flow, weights: str, most: float):
    codes, prompt = made.random_codes(12), made.random_mel(9)
    exact = flow.mel(codes, prompt, FlowOptions(seed=4))
    found = load(folder, weights).mel(codes, prompt, FlowOptions(seed=4))
    error = np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())
    assert 0 < error < most


# -- progress and cancelling -----------------------------------------------------------------------


def test_progress_is_told_after_every_step(flow):
    told: list[tuple[int, int]] = []
    flow.mel(made.random_codes(2), made.random_mel(0), FEW, progress=partial(_append, told))
    assert told == [(1, 3), (2, 3), (3, 3)]


def _append(told: list[tuple[int, int]], done: int, total: int) -> None:
    told.append((done, total))


@pytest.mark.parametrize("after", [0, 2])
def test_cancelling_is_an_error_that_says_how_far_it_came(flow, after: int):
    told: list[tuple[int, int]] = []
    with pytest.raises(CancelledError, match=f"after {after} of 3 steps"):
        flow.mel(
            *(made.random_codes(2), made.random_mel(0), FEW),
            progress=partial(_append, told),
            should_cancel=lambda: len(told) == after,
        )
    assert len(told) == after


def test_the_states_end_in_the_mel(flow):
    codes, prompt = made.random_codes(4), made.random_mel(3)
    states = list(flow.states(codes, prompt, FEW))
    assert len(states) == 3
    assert states[-1].tobytes() == flow.mel(codes, prompt, FEW).tobytes()
    assert not np.array_equal(states[0], states[1])


# -- what is refused -------------------------------------------------------------------------------

BAD_CODES = {
    "below 0": np.array([0, -1]),
    "beyond the codebook": np.array([0, made.CODES]),
    "beyond 32 bits": np.array([2**40]),
    "not whole": np.array([1.0, 2.0]),
    "two axes": np.zeros((1, 4), np.int64),
    "none": np.zeros(0, np.int64),
    "text": np.array(["1"]),
}


@pytest.mark.parametrize("codes", BAD_CODES.values(), ids=BAD_CODES)
def test_codes_that_do_not_fit_are_refused(flow, codes: Any):
    with pytest.raises(RequestError):
        flow.mel(codes, made.random_mel(0), FEW)


@pytest.mark.parametrize(
    "prompt", [np.zeros((2, 3), "f4"), np.zeros(made.MELS, "f4"), np.full((2, made.MELS), np.nan)]
)
def test_prompts_that_do_not_fit_are_refused(flow, prompt: Any):
    with pytest.raises(RequestError):
        flow.mel(made.random_codes(3), prompt, FEW)


def test_a_prompt_that_leaves_nothing_is_refused_with_the_numbers(flow):
    with pytest.raises(RequestError, match="3 codes and a prompt of 12 frames leave 0 frames"):
        flow.mel(made.random_codes(3), made.random_mel(12), FEW)


@pytest.mark.parametrize(
    "options",
    [
        *({"steps": value} for value in (0, -1, 1001, 2.0, True)),
        *({"cfg": value} for value in (-0.1, float("nan"), float("inf"), "1")),
        *({"rescale": value} for value in (-0.1, 1.1, float("nan"))),
        *({"seed": value} for value in (-1, 2**64, 0.5)),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]):
    with pytest.raises(RequestError, match=next(iter(options))):
        FlowOptions(**options)


def test_a_flow_that_is_not_finite_names_the_step(tmp_path: Path):
    tensors = made.flow_tensors()
    tensors["diff_estimator.mel_out_mlp.2.weight"] *= np.float32(1e38)
    flow = load(made.write(tmp_path, tensors))
    with pytest.raises(NumericError, match="after step 1"), np.errstate(all="ignore"):
        flow.mel(made.random_codes(2), made.random_mel(0), FEW)


# -- configuration and checkpoint ------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"use_text_as_condition": True},
        {"use_cond_code": False},
        {"num_heads": 3},
        {"num_heads": 0},
        {"cond_scale_factor": 3},
        {"hidden_size": None},
        {"hidden_size": "64"},
        {"num_layers": 2**30},
    ],
    ids=str,
)
def test_configurations_that_are_not_known_are_refused(change: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(change))):
        flow_matching_spec(made.flow_config(**change))


def test_a_configuration_without_the_model_is_refused():
    with pytest.raises(ConfigError, match="flow_matching_transformer"):
        flow_matching_spec({"model": {}})


def test_tensors_that_are_missing_or_too_many_are_named(tmp_path: Path):
    tensors = made.flow_tensors()
    del tensors["diff_estimator.norm.to_weight.bias"]
    tensors["text_cond_emb.weight"] = np.zeros((2, 2), np.float32)
    with pytest.raises(CheckpointError, match=r"norm\.to_weight\.bias.*text_cond_emb\.weight"):
        load(made.write(tmp_path, tensors))


def test_tensors_of_training_and_stored_tables_are_left_alone(tmp_path: Path, flow):
    tensors = made.flow_tensors()
    assert any(name.startswith("repa_mlp_layer.") for name in tensors)
    tensors["diff_estimator.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    codes, prompt = made.random_codes(2), made.random_mel(1)
    found = load(made.write(tmp_path, tensors)).mel(codes, prompt, FEW)
    assert found.tobytes() == flow.mel(codes, prompt, FEW).tobytes()


def test_the_published_sizes_are_354_million():
    published = {"mel_dim": 128, "hidden_size": 1024, "num_layers": 16, "num_heads": 16}
    config = made.flow_config(**published, cond_codebook_size=16384)
    shapes = flow_weights.expected_tensors(flow_matching_spec(config))
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == pytest.approx(354e6, rel=3e-3)


@pytest.mark.parametrize("weights", ["f32", "q8"])
def test_a_converted_file_draws_the_same_mel(folder: Path, tmp_path: Path, weights: str):
    """What is recorded while a checkpoint is read answers the same calls later."""
    spec, record, engine = flow_matching_spec(made.flow_config()), Record(), Engine(2, "auto")
    with open_safetensors(folder) as store:
        reader = CheckpointReader(store, MatrixPacker(engine, weights))
        flow_weights.read_flow_weights(RecordingReader(reader, record), spec)
    write_packed(tmp_path / "flow.stapes", Contents(record.matrices, record.vectors))
    file = open_packed(tmp_path / "flow.stapes")
    assert file is not None
    packed = PackedReader(file, flow_weights.arranged_tensors(spec))
    read = flow_weights.read_flow_weights(packed, spec)
    flow = FlowMatching(spec, read, partial(NativeExecutor, engine=engine))
    codes, prompt = made.random_codes(3), made.random_mel(2)
    expected = load(folder, weights).mel(codes, prompt, FEW)
    assert flow.mel(codes, prompt, FEW).tobytes() == expected.tobytes()
