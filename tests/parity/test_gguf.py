"""Text models against transformers: folders as it saves them, and GGUF files made of them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoder.tiny import all_logits, random_prompt
from stapes.decoder import Decoder, GenerateOptions, Prompt, generate
from stapes.models.qwen_text import TextModel, load_text_model
from stapes.options import RuntimeOptions
from text.bpe_folder import write_new_layout
from text_models import KINDS, QWEN2, QWEN3, Sizes, Tensors, hf_config, random_tensors, write_gguf

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

torch.set_num_threads(1)  # matrices this small only suffer from more

POSITIONS = [0, 1, 7, 200]
REAL = os.environ.get("STAPES_QWEN25_GGUF")


def reference(sizes: Sizes, tensors: Tensors) -> Any:
    """The model of transformers with these weights, in f32."""
    name = sizes.model_type.capitalize()
    config = getattr(transformers, f"{name}Config")(**hf_config(sizes))
    model = getattr(transformers, f"{name}ForCausalLM")(config).float().eval()
    state = {name: torch.from_numpy(values.copy()) for name, values in tensors.items()}
    if sizes.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


@torch.no_grad()
def assert_same_logits(model: Any, decoder: Decoder) -> None:
    prompt = random_prompt(201, spec=decoder.spec)
    expected = model(input_ids=torch.tensor([list(prompt.token_ids)])).logits[0].numpy()
    found = all_logits(decoder, prompt)
    assert expected[POSITIONS].std() > 0.1
    np.testing.assert_allclose(found[POSITIONS], expected[POSITIONS], rtol=0, atol=1e-3)


@torch.no_grad()
def assert_same_ids(model: Any, decoder: Decoder, new_tokens: int = 64) -> None:
    decoder = Decoder(
        dataclasses.replace(decoder.spec, eos_token_ids=frozenset()),
        decoder.weights,
        decoder._make_executor,
        decoder.kv,
    )
    model.generation_config.eos_token_id = None
    prompt = random_prompt(9, spec=decoder.spec)
    ids = torch.tensor([list(prompt.token_ids)])
    expected = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    found = generate(decoder.new_session(), prompt, GenerateOptions(new_tokens)).token_ids
    assert list(found) == expected[0, ids.shape[1] :].tolist()


def load(path: Path) -> TextModel:
    return load_text_model(path, RuntimeOptions("f32", "f32", 1))


@pytest.mark.parametrize("sizes", KINDS.values(), ids=KINDS)
def test_folders_that_transformers_saved(tmp_path, sizes):
    model = reference(sizes, random_tensors(sizes))
    model.save_pretrained(tmp_path)
    ours = load(write_new_layout_with_end(tmp_path)).decoder
    assert_same_logits(model, ours)
    assert_same_ids(model, ours)


def write_new_layout_with_end(folder: Path) -> Path:
    """The tokenizer beside what transformers saved, config.json naming the end."""
    assert "eos_token_id" in (folder / "config.json").read_text()
    return write_new_layout(folder)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_1"])
@pytest.mark.parametrize("sizes", KINDS.values(), ids=KINDS)
def test_files_of_one_type(tmp_path, sizes, kind):
    path = tmp_path / "model.gguf"
    held = write_gguf(path, sizes, random_tensors(sizes), lambda name: kind)
    model, ours = reference(sizes, held), load(path).decoder
    assert_same_logits(model, ours)
    assert_same_ids(model, ours)


@pytest.mark.parametrize("embedding", ["Q8_0", "Q6_K", "Q4_K"])
@pytest.mark.parametrize("base", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])
def test_quantised_embeddings_and_mixed_types(tmp_path, base, embedding):
    """As Q4_K_M files are: a type for each tensor, K types where rows are whole blocks of 256."""
    sizes = dataclasses.replace(
        base, hidden_size=256, num_attention_heads=8, intermediate_size=512, num_hidden_layers=3
    )
    kinds = {"token_embd": embedding, "attn_v": "Q6_K", "ffn_down": "Q6_K", "attn_q": "Q5_0"}
    path = tmp_path / "model.gguf"

    def types(name: str) -> str:
        return kinds.get(name.split(".")[-2], "Q4_K" if "ffn" in name else "Q8_0")

    held = write_gguf(path, sizes, random_tensors(sizes), types)
    model, ours = reference(sizes, held), load(path).decoder
    assert_same_logits(model, ours)
    assert_same_ids(model, ours)


# -- a real file ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> TextModel:
    if not REAL:
        pytest.skip("STAPES_QWEN25_GGUF names no file")
    return load_text_model(REAL, RuntimeOptions("q8", "f16", 2))


def continued(model: TextModel, text: str, new_tokens: int) -> str:
    prompt = Prompt(model.tokenizer.encode(text))
    result = generate(model.decoder.new_session(), prompt, GenerateOptions(new_tokens))
    return model.tokenizer.decode(result.token_ids)


def test_the_real_tokenizer_has_the_known_ids(real):
    tokenizer = real.tokenizer
    assert tokenizer.encode("def fib(n):") == [750, 15801, 1445, 1648]
    assert tokenizer.encode("Hello, world!") == [9707, 11, 1879, 0]
    assert tokenizer.encode("你好") == [108386]
    assert (tokenizer.token_id("<|im_start|>"), tokenizer.vocab_size) == (151644, 151665)
    assert real.decoder.spec.eos_token_ids == {151643, 151645}
    assert "<|im_start|>" in (real.chat_template or "")


def test_the_real_model_writes_what_makes_sense(real):
    assert "return fib(n-1) + fib(n-2)" in continued(real, "def fib(n):", 30)
    assert continued(real, "The capital of France is", 1) == " Paris"
