"""Chats against transformers' apply_chat_template: the same ids for ordinary messages."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chat_templates import ORDINARY, PLAIN, THINKING, assistant, user, write_chat_tokenizer
from stapes.models.qwen_text.chat import ChatTemplate
from stapes.models.qwen_text.gguf import GgufSource
from stapes.text.tokenizer import Tokenizer, load_tokenizer

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

REAL = os.environ.get("STAPES_QWEN25_GGUF")
REASONED = {
    "reasoning of an earlier turn": [user("a"), assistant("<think>\nb\n</think>\n\nc"), user("d")],
    "reasoning of the last turn": [user("a"), assistant("<think>\nb\n\n</think>\n\n\nc\n")],
    "no reasoning": [user("a"), assistant("c")],
}


def reference_ids(file: Path, source: str, messages: Any) -> list[int]:
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))
    encoded = reference.apply_chat_template(
        messages, chat_template=source, add_generation_prompt=True, tokenize=True
    )
    return list(encoded["input_ids"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_chat_tokenizer(tmp_path_factory.mktemp("chat"))


# Not reasoning and PLAIN: names in an answer's text become control tokens with transformers.
@pytest.mark.parametrize(
    ("source", "messages"),
    [
        *(pytest.param(PLAIN, chat, id=f"plain {name}") for name, chat in ORDINARY.items()),
        *(
            pytest.param(THINKING, chat, id=f"thinking {name}")
            for name, chat in (ORDINARY | REASONED).items()
        ),
    ],
)
def test_small_tokenizer(folder, source, messages):
    ours = ChatTemplate(source, load_tokenizer(folder)).encode(messages)
    assert ours == reference_ids(folder / "tokenizer.json", source, messages)


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[Tokenizer, str, Path]:
    """Tokenizer and template of the real file, and a tokenizer.json of the same."""
    if not REAL:
        pytest.skip("STAPES_QWEN25_GGUF names no file")
    source = GgufSource(Path(REAL))
    tokenizer, metadata = source.tokenizer(), source._store.metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    control = tokenizer.parts.control
    vocab = {
        name: i
        for i, name in enumerate(tokens)
        if i not in control and metadata["tokenizer.ggml.token_type"][i] == 1
    }
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    spec = {
        **tokenizer.parts.split,
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": list(metadata["tokenizer.ggml.merges"]),
        },
        "added_tokens": [
            {"id": i, "content": name, "special": True, **flags} for i, name in control.items()
        ],
    }
    path = tmp_path_factory.mktemp("real") / "tokenizer.json"
    path.write_text(json.dumps(spec))
    return tokenizer, metadata["tokenizer.chat_template"], path


@pytest.mark.parametrize("kind", ["its own", "thinking"])
def test_the_real_tokenizer(real, kind):
    tokenizer, own, file = real
    source = own if kind == "its own" else THINKING
    template = ChatTemplate(source, tokenizer)
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))
    for messages in ORDINARY.values():
        expected = reference.apply_chat_template(
            messages, chat_template=source, add_generation_prompt=True, tokenize=True
        )
        assert template.encode(messages) == list(expected["input_ids"])
