"""Vevo2's autoregressive stage against transformers, called as the publisher's code calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stapes.decoder import GenerateOptions, generate
from stapes.models.vevo2.autoregressive.decoder import Vevo2Decoder
from stapes.models.vevo2.autoregressive.load import load_vevo2
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from stapes.options import RuntimeOptions
from vevo2_models import SIZES, ids, vevo2_tensors, write_root

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

torch.set_num_threads(1)  # matrices this small only suffer from more

SEEDS = range(20)
NEW_TOKENS = 60
END = ids()["<|im_end|>"]
REQUESTS = [
    CodeRequest("The quick brown fox.", style_text="La la", style_codes=range(50, 90)),
    CodeRequest("dogs", "humming_to_singing", prosody_codes=range(30)),
]


def theirs_in(root: Path) -> Any:
    """A random Qwen2 that transformers has saved as bf16 in place of the folder's own."""
    sizes = {
        n: v for n, v in vars(SIZES).items() if n not in ("model_type", "rope_theta", "head_dim")
    }
    rope = {"rope_theta": SIZES.rope_theta, "rope_type": "default"}
    model = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**sizes, rope_parameters=rope, eos_token_id=END)
    )
    tensors = vevo2_tensors(5)
    tensors["model.embed_tokens.weight"][END] *= 20  # now and then the likeliest of all
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(values) for name, values in tensors.items()}, strict=False
    )
    assert (missing, unexpected) == (["lm_head.weight"], [])
    folder = root / "contentstyle_modeling/posttrained"
    generation = (folder / "generation_config.json").read_text()
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").write_text(generation)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_root(tmp_path_factory.mktemp("Vevo2"))


@pytest.fixture(scope="module")
def theirs(folder) -> Any:
    return theirs_in(folder)


@pytest.fixture(scope="module")
def ours(theirs, folder) -> Vevo2Decoder:
    return load_vevo2(folder, RuntimeOptions("f32", "f32", 1))


def their_answer(model: Any, prompt: list[int], seed: int, **more: Any) -> list[int]:
    """The publisher's call, whose draws are made with the numbers of a seed of ours."""
    uniform = np.random.default_rng(seed).random

    def multinomial(probabilities: Any, num_samples: int) -> Any:
        assert (num_samples, len(probabilities)) == (1, 1)
        cumulative = np.cumsum(probabilities[0].numpy(), dtype=np.float64)
        return torch.tensor([[int(np.argmax(cumulative > uniform() * cumulative[-1]))]])

    given = torch.tensor([prompt])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        out = model.generate(
            input_ids=given,
            attention_mask=torch.ones_like(given),
            min_new_tokens=15,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=END,
            do_sample=True,
            top_k=25,
            top_p=0.8,
            temperature=1.0,
            **more,
        )
    return out[0, len(prompt) :].tolist()


def our_answer(model: Vevo2Decoder, request: CodeRequest, options: CodeOptions) -> list[int]:
    """All ids of an answer, the end included, whether or not they are codes."""
    asked = GenerateOptions(
        options.max_new_tokens,
        sampling=options.sampling(model.repetition_penalty),
        allowed_ids=model.tokens.answer_ranges() if options.codes_only else None,
    )
    result = generate(model.decoder.new_session(), model.encode(request), asked)
    return [*result.token_ids, *([END] if result.finish_reason == "stop" else [])]


@pytest.mark.parametrize("codes_only", [False, True])
@pytest.mark.parametrize("request_", REQUESTS, ids=["style", "prosody"])
def test_the_same_draws_give_the_same_ids(theirs, ours, request_, codes_only):
    prompt = list(ours.encode(request_).token_ids)
    allowed = [i for start, end in ours.tokens.answer_ranges() for i in range(start, end)]
    only: Callable[..., Any] = lambda batch, sent: allowed  # noqa: E731
    more = {"prefix_allowed_tokens_fn": only} if codes_only else {}
    lengths, different = set(), set()
    seeds = SEEDS[:6] if codes_only else SEEDS  # their mask is slow
    for seed in seeds:
        options = CodeOptions(max_new_tokens=NEW_TOKENS, seed=seed, codes_only=codes_only)
        found = our_answer(ours, request_, options)
        assert found == their_answer(theirs, prompt, seed, **more)
        lengths.add(len(found))
        different.add(tuple(found))
    assert len(different) == len(seeds)
    assert min(lengths) >= 16
    assert len(lengths) > 3


def test_the_codes_are_those_that_a_search_in_the_text_finds(theirs, ours, folder):
    """The publisher's code decodes the ids and searches the names of codes in the text."""
    tokenizer = their_tokenizer(folder)
    prompt = list(ours.encode(REQUESTS[0]).token_ids)
    for seed in range(5):
        options = CodeOptions(max_new_tokens=NEW_TOKENS, seed=seed)
        text = tokenizer.decode(their_answer(theirs, prompt, seed), skip_special_tokens=False)
        names = text.replace("<|im_end|>", "").split("<|content_style_")[1:]
        assert all(name.endswith("|>") for name in names)
        expected = tuple(int(name.removesuffix("|>")) for name in names)
        assert ours.generate(REQUESTS[0], options).codes == expected


def their_tokenizer(root: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(root / "contentstyle_modeling/posttrained")


@pytest.mark.parametrize(
    "request_",
    [*REQUESTS, CodeRequest("Größe, naïve 你好 🎙", style_text="  two\n\nlines ", style_codes=[3])],
)
def test_their_tokenizer_reads_the_prompt_as_we_do(ours, folder, request_):
    tokenizer = their_tokenizer(folder)
    found = list(ours.encode(request_).token_ids)
    text = ours.tokenizer.decode(found, skip_special=False)
    assert tokenizer(text)["input_ids"] == found
    assert tokenizer.convert_tokens_to_ids("<|content_style_77|>") == ours.tokens.content_style[77]
    assert tokenizer.eos_token_id == END
