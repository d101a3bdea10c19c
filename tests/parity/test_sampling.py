"""Sampling against transformers: the sets that its processors keep, and whole sampled answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from decoder.tiny import checked, random_prompt
from stapes.decoder import Decoder, GenerateOptions, generate
from stapes.decoder.sampling import Sampler, SamplingOptions, kept_ids
from stapes.models.qwen_text import load_text_model
from stapes.options import RuntimeOptions
from text_models import KINDS, Sizes, random_tensors, write_folder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

torch.set_num_threads(1)  # matrices this small only suffer from more

F32 = NDArray[np.float32]

EOS = [3, 8]
NEW_TOKENS = 40
OPTIONS = [
    SamplingOptions(),
    SamplingOptions(temperature=1.4, top_k=25, top_p=0.8, repetition_penalty=1.1),
    SamplingOptions(temperature=0.6, top_p=0.95, repetition_penalty=1.3, min_new_tokens=25),
    SamplingOptions(temperature=2.5, top_k=50, min_new_tokens=40),
]


def generation_config(options: SamplingOptions, **more: Any) -> Any:
    drawn = {
        "temperature": float(options.temperature),
        "top_k": options.top_k or 0,  # its default is 50
        "top_p": options.top_p,
    }
    return transformers.GenerationConfig(
        do_sample=not options.greedy,
        **({} if options.greedy else drawn),
        repetition_penalty=float(options.repetition_penalty),
        min_new_tokens=options.min_new_tokens,
        pad_token_id=0,
        **more,
    )


# -- one step --------------------------------------------------------------------------------------


@cache
def smallest_model() -> Any:
    """Nothing is computed with it: it puts its processors in the order of generate()."""
    config = transformers.Qwen2Config(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config)


def processed(
    options: SamplingOptions, prompt: list[int], answer: list[int], logits: F32, stable: bool
) -> F32:
    """Scores behind all processors of transformers; -inf where an id cannot be drawn.

    Its top-p sorts in any order what is equal. A stable sort makes that the order of the ids.
    """
    model, config = smallest_model(), generation_config(options, eos_token_id=EOS)
    model._prepare_special_tokens(config)
    processors = model._get_logits_processor(config, input_ids_seq_length=len(prompt), device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        if stable:
            patch.setattr(torch, "sort", partial(torch.sort, stable=True))
        ids = torch.tensor([prompt + answer])
        scores: F32 = processors(ids, torch.from_numpy(logits)[None])[0].numpy()
    return scores


def inverse_cdf(probabilities: Any, uniform: float) -> int:
    """The first id, in their order, whose cumulative sum exceeds a share of the whole."""
    cumulative = np.cumsum(np.asarray(probabilities), dtype=np.float64)
    return int(np.argmax(cumulative > uniform * cumulative[-1]))


def softmax(scores: F32) -> F32:
    probabilities: F32 = torch.from_numpy(scores).softmax(-1).numpy()
    return probabilities


@st.composite
def sampling_options(draw: st.DrawFn) -> SamplingOptions:
    reals = partial(st.floats, allow_nan=False, width=32)
    return SamplingOptions(
        temperature=draw(st.just(1.0) | reals(0.125, 4)),
        top_k=draw(st.none() | st.integers(2, 60) | st.just(100_000)),
        top_p=draw(st.just(1.0) | reals(0, 1) | st.sampled_from([0.5, 0.8, 0.9, 0.95])),
        repetition_penalty=draw(st.just(1.0) | reals(0.5, 2)),
        min_new_tokens=draw(st.integers(0, 3)),
    )


@settings(max_examples=200)
@given(
    options=sampling_options(),
    seed=st.integers(0, 2**32),
    size=st.sampled_from([12, 60, 700, 4000]),
    step=st.sampled_from([0, 0, 0.25, 1, 4]),
)
def test_the_same_ids_are_kept_and_drawn(options, seed, size, step):
    """Random logits; rounded to a step, many are equal."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, size + 9, 20).tolist()  # the last nine lie outside the head
    uniforms = rng.random(5).tolist()
    sampler = Sampler(options, EOS, np.array(prompt, np.int32), iter(uniforms).__next__)
    answer: list[int] = []
    for uniform in uniforms:
        logits = rng.normal(0, 3, size).astype(np.float32)
        logits = np.round(logits / step) * np.float32(step) if step else logits
        logits[rng.random(size) < 0.05] = -np.inf
        logits[[1, 2]] = 1
        ours = sampler._scores(logits)
        kept = kept_ids(ours, options.top_k, options.top_p)
        theirs = processed(options, prompt, answer, logits, stable=True)
        assert kept.tolist() == np.flatnonzero(theirs > -np.inf).tolist()
        assert ours[kept].tobytes() == theirs[kept].tobytes()
        as_it_is = processed(options, prompt, answer, logits, stable=False)
        assert sorted(as_it_is[as_it_is > -np.inf]) == sorted(ours[kept])
        answer.append(inverse_cdf(softmax(theirs), uniform))
        assert sampler.choose(logits) == answer[-1]


@pytest.mark.parametrize("equal", [2, 3, 5, 10, 64, 1000])
@pytest.mark.parametrize("top_p", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9])
def test_sums_that_meet_the_threshold_exactly(equal: int, top_p: float):
    logits = np.full(equal, 2, np.float32)
    options = SamplingOptions(top_p=top_p)
    theirs = processed(options, [], [], logits, stable=True)
    assert kept_ids(logits, None, top_p).tolist() == np.flatnonzero(theirs > -np.inf).tolist()


@pytest.mark.parametrize("scale", [2, 5])
@pytest.mark.parametrize(
    "options", [*OPTIONS, SamplingOptions(top_p=0.8), SamplingOptions(top_k=2000)]
)
def test_a_vocabulary_of_full_size(options, scale):
    rng = np.random.default_rng(scale)
    prompt = rng.integers(0, 151_936, 500).tolist()
    sampler = Sampler(options, EOS, np.array(prompt, np.int32), rng.random)
    for _ in range(3):
        logits = rng.normal(0, scale, 151_936).astype(np.float32)
        kept = kept_ids(sampler._scores(logits), options.top_k, options.top_p)
        theirs = processed(options, prompt, [], logits, stable=True)
        assert kept.tolist() == np.flatnonzero(theirs > -np.inf).tolist()


# -- whole answers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["qwen2", "qwen3", "qwen3-untied"])
def models(request, tmp_path_factory) -> tuple[Any, Decoder]:
    """The same tiny model in transformers and here."""
    sizes: Sizes = KINDS[request.param]
    folder: Path = tmp_path_factory.mktemp(request.param)
    write_folder(folder, sizes, random_tensors(sizes))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return theirs, load_text_model(folder, RuntimeOptions("f32", "f32", 1)).decoder


def their_answer(
    model: Any, prompt: Sequence[int], options: SamplingOptions, eos: list[int], seed: int
) -> list[int]:
    """What transformers' generate() returns when its draws are made with these numbers."""
    uniform = np.random.default_rng(seed).random

    def multinomial(probabilities: Any, num_samples: int) -> Any:
        assert (num_samples, len(probabilities)) == (1, 1)
        return torch.tensor([[inverse_cdf(probabilities[0], uniform())]])

    ids = torch.tensor([list(prompt)])
    config = generation_config(options, max_new_tokens=NEW_TOKENS, eos_token_id=eos)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, generation_config=config)
    return out[0, len(prompt) :].tolist()


def our_answer(
    decoder: Decoder, prompt: list[int], sampler: Sampler, eos: list[int]
) -> tuple[list[int], list[int]]:
    """The ids that are drawn, and the likeliest in their places."""
    session = decoder.new_session()
    whole = checked(random_prompt(len(prompt), spec=decoder.spec), decoder.spec)
    assert whole.ids.tolist() == prompt
    logits = session.prefill(whole, want="logits")
    ids = [sampler.choose(logits[0])]
    likeliest = [int(logits[0].argmax())]
    while len(ids) < NEW_TOKENS and ids[-1] not in eos:
        logits = session.step(ids[-1], want="logits")
        ids.append(sampler.choose(logits[0]))
        likeliest.append(int(logits[0].argmax()))
    return ids, likeliest


@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_numbers_draw_the_same_answer(models, options):
    theirs, decoder = models
    prompt = list(random_prompt(9, spec=decoder.spec).token_ids)
    eos = list(range(0, decoder.spec.vocab_size, 37))  # many, so that some answers end early
    lengths, answers = set(), set()
    for seed in range(6):
        uniform = np.random.default_rng(seed).random
        sampler = Sampler(options, eos, np.array(prompt, np.int32), uniform)
        ids, likeliest = our_answer(decoder, prompt, sampler, eos)
        assert ids == their_answer(theirs, prompt, options, eos, seed)
        assert len(ids) > options.min_new_tokens or len(ids) == NEW_TOKENS
        assert ids != likeliest
        lengths.add(len(ids))
        answers.add(tuple(ids))
    assert len(answers) == 6
    assert len(lengths) > 1 or lengths == {options.min_new_tokens}


@pytest.mark.parametrize("greedy", [{"temperature": 0}, {"top_k": 1, "temperature": 0.7}])
@pytest.mark.parametrize("penalty", [1.0, 1.3, 0.8])
def test_greedy_answers_with_a_penalty_and_a_minimum(models, greedy, penalty):
    theirs, decoder = models
    prompt = list(random_prompt(9, spec=decoder.spec).token_ids)
    eos = list(range(0, decoder.spec.vocab_size, 17))
    options = SamplingOptions(repetition_penalty=penalty, min_new_tokens=20, **greedy)
    sampler = Sampler(options, eos, np.array(prompt, np.int32))
    ids, likeliest = our_answer(decoder, prompt, sampler, eos)
    assert ids == their_answer(theirs, prompt, options, eos, 0)
    assert (ids == likeliest) == (penalty == 1 and not {*likeliest[:20]} & {*eos})


def test_generate_draws_with_numpys_default_generator(models):
    theirs, decoder = models
    spec = dataclasses.replace(decoder.spec, eos_token_ids=frozenset())
    endless = Decoder(spec, decoder.weights, decoder._make_executor, decoder.kv)
    prompt = random_prompt(9, spec=spec)
    for seed in range(3):
        options = GenerateOptions(NEW_TOKENS, sampling=SamplingOptions(seed=seed))
        ids = list(generate(endless.new_session(), prompt, options).token_ids)
        assert len(set(ids)) > 10
        assert ids == their_answer(theirs, prompt.token_ids, SamplingOptions(), [-1], seed)
