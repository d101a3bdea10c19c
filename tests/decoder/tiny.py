"""Tiny decoders made in memory: random ones, and rigged ones that emit what a test needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes import _native
from stapes.decoder import (
    Decoder,
    DecoderNames,
    DecoderSpec,
    Injection,
    Prompt,
    expected_tensors,
    load_weights,
)
from stapes.decoder.prompt import CheckedPrompt, check_prompt
from stapes.graph import NativeExecutor, Plan, ReferenceExecutor
from stapes.weights import MatrixPacker

F32 = NDArray[np.float32]
Tensors = dict[str, F32]

SPEC = DecoderSpec(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=96,
    vocab_size=512,
    max_position_embeddings=4096,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
    tie_word_embeddings=True,
    attention_bias=False,
    qk_norm=True,
    eos_token_ids=frozenset({511}),
)
QWEN2 = replace(SPEC, attention_bias=True, qk_norm=False, num_attention_heads=2)
KINDS = {
    "qwen3": SPEC,
    "qwen3-untied": replace(SPEC, tie_word_embeddings=False),
    "qwen2": QWEN2,
    "qwen2-packed": replace(QWEN2, packed_qkv=True),
    "wide-head": replace(SPEC, tie_word_embeddings=False, logits_size=700),
    "narrow-head": replace(SPEC, tie_word_embeddings=False, logits_size=40),
    "odd-widths": replace(SPEC, hidden_size=50, intermediate_size=77, head_dim=10),
    "other-names": replace(
        SPEC,
        tie_word_embeddings=False,
        names=DecoderNames("lm.wte", "lm.norm", "lm.head", "lm.blocks"),
    ),
}


@dataclass
class Stored:
    """One tensor of a dictionary."""

    values: NDArray[Any]

    def raw(self) -> NDArray[Any]:
        return self.values

    def to_f32(self) -> F32:
        return self.values.astype(np.float32)


@dataclass
class Source:
    """Tensors by name; notes what has been read and let go."""

    tensors: Mapping[str, NDArray[Any]]
    read: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Stored:
        self.read.add(name)
        return Stored(self.tensors[name])

    def release(self, name: str) -> None:
        self.released.add(name)


def random_tensors(spec: DecoderSpec, seed: int = 0) -> Tensors:
    """Weights with which ids change along the answer and with the prompt."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, shape in expected_tensors(spec).items():
        if len(shape) == 2:
            scale = 1.6 / np.sqrt(shape[1]) if name.startswith(spec.names.layer_prefix) else 0.1
            values = rng.normal(0, scale, shape)
        else:
            low, high = (2, 4) if name.endswith(("q_norm.weight", "k_norm.weight")) else (0.5, 1.5)
            values = rng.uniform(low, high, shape)
        tensors[name] = values.astype(np.float32)
    return tensors


@cache
def engine(threads: int = 1) -> _native.Engine:
    return _native.Engine(threads)


def native(threads: int = 1) -> Callable[[Plan], NativeExecutor]:
    return partial(NativeExecutor, engine=engine(threads))


def decoder(
    spec: DecoderSpec = SPEC,
    tensors: Tensors | None = None,
    *,
    weights: str = "f32",
    kv: Any = "f32",
    seed: int = 0,
    make_executor: Callable[[Plan], Any] | None = None,
    memory_limit_bytes: int | None = None,
) -> Decoder:
    tensors = random_tensors(spec, seed) if tensors is None else tensors
    packed = load_weights(Source(tensors), spec, MatrixPacker(engine(), weights))
    return Decoder(spec, packed, make_executor or native(), kv, memory_limit_bytes)


def reference(plan: Plan) -> ReferenceExecutor:
    return ReferenceExecutor(plan)


# -- prompts -------------------------------------------------------------------------------------


def random_prompt(
    length: int, injected: Sequence[int] = (), seed: int = 0, spec: DecoderSpec = SPEC
) -> Prompt:
    """Random ids, and random rows at the given positions."""
    rng = np.random.default_rng((seed, length))
    ids = rng.integers(0, spec.vocab_size, length).tolist()
    values = rng.normal(0, 0.3, (len(injected), spec.hidden_size)).astype(np.float32)
    return Prompt(ids, Injection(values, list(injected)) if len(injected) else None)


def checked(prompt: Prompt, spec: DecoderSpec = SPEC) -> CheckedPrompt:
    return check_prompt(prompt, 1, spec)


def all_logits(runs_on: Decoder, prompt: Prompt) -> F32:
    """Logits at every position of a prompt, read in one prefill."""
    rows = np.arange(len(prompt), dtype=np.int32)
    session = runs_on.new_session()
    return np.asarray(session.prefill(checked(prompt, runs_on.spec), rows, "logits"))


def stepped_logits(runs_on: Decoder, prompt: Prompt) -> F32:
    """The same, one row at a time. Injected rows go through prefills of one token."""
    session, rows = runs_on.new_session(), []
    whole = checked(prompt, runs_on.spec)
    for position, token in enumerate(whole.ids):
        at = whole.index == position
        one = CheckedPrompt(
            whole.ids[position : position + 1], whole.values[at], np.zeros(int(at.sum()), np.int32)
        )
        rows.append(
            session.prefill(one, want="logits") if at.any() else session.step(int(token), "logits")
        )
    return np.concatenate(rows)


# -- rigged decoders -------------------------------------------------------------------------------


def successor_decoder(table: Mapping[int, int], eos: int, vocab: int = 48) -> Decoder:
    """A real decoder that answers each id with table[id]: layers add nothing, the head looks up."""
    spec = replace(
        SPEC,
        hidden_size=vocab,
        vocab_size=vocab,
        tie_word_embeddings=False,
        eos_token_ids=frozenset({eos}),
    )
    tensors = random_tensors(spec)
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name][:] = 0
    tensors[spec.names.token_embedding] = np.eye(vocab, dtype=np.float32)
    head = np.zeros((vocab, vocab), np.float32)
    for token, following in table.items():
        head[following, token] = 1
    tensors[spec.names.lm_head] = head
    return decoder(spec, tensors)


@dataclass
class CountedCache:
    """Holds nothing but its length."""

    length: int = 0
    capacity: int = 0
    page_bytes: int = 1024

    def reserve(self, positions: int) -> None:
        self.capacity = -(-positions // 512) * 512

    def truncate(self, length: int) -> None:
        self.length = length

    def clone(self) -> CountedCache:
        return CountedCache(self.length, self.capacity)


class Script:
    """Executors that answer position p with answers[p - prompt + 1], and count their runs.

    An id of -1 stands for logits with a NaN, as it does in the core.
    """

    def __init__(self, answers: Sequence[int], prompt: int) -> None:
        self.answers = list(answers)
        self.prompt = prompt
        self.rows: list[int] = []

    def __call__(self, plan: Plan) -> Script:
        self.plan = plan
        return self

    def run(self, inputs: Mapping[str, Any], caches: Sequence[CountedCache]) -> dict[str, Any]:
        positions = inputs["positions"]
        self.rows.append(positions.size)
        caches[0].length = int(positions[-1]) + 1
        wanted = positions[inputs["picked"]] - self.prompt + 1
        return {"next": np.array([self.answers[i] for i in wanted], np.int32)}

    def new_cache(self, layers: int, kv_heads: int, head_dim: int, type: str) -> CountedCache:
        return CountedCache()


def scripted(answers: Sequence[int], prompt: int = 3) -> tuple[Decoder, Script]:
    """A decoder that gives these answers after a prompt of that length."""
    script = Script(answers, prompt)
    return decoder(make_executor=script), script
