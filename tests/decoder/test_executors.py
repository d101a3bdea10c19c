"""The decoder's plans give the same answers in the native core and in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoder.tiny import (
    KINDS,
    SPEC,
    all_logits,
    decoder,
    random_prompt,
    random_tensors,
    reference,
)
from stapes.decoder import GenerateOptions, generate


@pytest.mark.parametrize("kv", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("weights", ["f32", "bf16", "q8"])
def test_logits_and_ids(weights: str, kv: str):
    spec = replace(SPEC, eos_token_ids=frozenset(), tie_word_embeddings=False)
    tensors = random_tensors(spec)
    for name in tensors:
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            tensors[name] /= 3  # soft attention, so that a rounding stays one
    prompt = random_prompt(24, range(6, 15))
    twins = [
        decoder(spec, tensors, weights=weights, kv=kv, make_executor=make)
        for make in (None, reference)
    ]
    logits = [all_logits(twin, prompt) for twin in twins]
    assert logits[0].std() > 0.3
    difference = np.abs(logits[0] - logits[1])
    exact = weights != "q8" and kv == "f32"
    assert difference.mean() < (1e-5 if exact else 1e-3)
    assert difference.max() < (1e-4 if exact else 0.1)  # a value that rounds the other way
    answers = [generate(t.new_session(), prompt, GenerateOptions(12)).token_ids for t in twins]
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_every_kind_of_decoder(kind: str):
    spec = replace(KINDS[kind], eos_token_ids=frozenset())
    if spec.head_size > spec.vocab_size:
        spec = replace(spec, logits_size=spec.vocab_size)  # ids that can be read back
    tensors = random_tensors(spec)
    prompt = random_prompt(20, [0, 9, 19], spec=spec)
    native, numpy = (decoder(spec, tensors, make_executor=make) for make in (None, reference))
    first, second = (
        generate(twin.new_session(), prompt, GenerateOptions(16)).token_ids
        for twin in (native, numpy)
    )
    assert first == second


def test_the_reference_keeps_sessions_as_the_core_does():
    twins = [decoder(make_executor=make, kv="f16") for make in (None, reference)]
    prompt = random_prompt(6)
    for twin in twins:
        session = twin.new_session()
        generate(session, prompt, GenerateOptions(3))
        clone = session.clone()
        session.truncate(4)
        assert (session.length, clone.length, session.capacity) == (4, 8, 512)
    assert twins[0].new_cache().page_bytes == twins[1].new_cache().page_bytes
