"""A new audio encoder in front of the decoder: `python examples/custom_model.py`.

What wires the two up is 60 lines, down to `build_prompt`; the rest makes weights and shows what a
session, a draft and a batch do. The weights are random: the ids that come out mean nothing. Writing
them takes the safetensors package, reading them does not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from stapes.audio import SAMPLE_RATE, log_mel
from stapes.decoder import (
    Batch,
    Decoder,
    DecoderNames,
    DecoderSpec,
    GenerateOptions,
    Injection,
    Prompt,
    expected_tensors,
    generate,
    read_weights,
)
from stapes.graph import Engine, Executor, GraphBuilder, NativeExecutor, Plan
from stapes.tensors import check_tensors, open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker, WeightReader

F32 = NDArray[np.float32]
MELS, STRIDE, WIDTH = 80, 8, 128  # 8 frames of 10 ms become one row
SPEC = DecoderSpec(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=96,
    vocab_size=512,
    max_position_embeddings=2048,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
    tie_word_embeddings=True,
    attention_bias=False,
    qk_norm=True,
    eos_token_ids=frozenset({511}),
    names=DecoderNames("llm.embed.weight", "llm.norm.weight", layer_prefix="llm.layers"),
)
ENCODER = {
    "encoder.conv.weight": (WIDTH, STRIDE * MELS),
    "encoder.conv.bias": (WIDTH,),
    "encoder.proj.weight": (SPEC.hidden_size, WIDTH),
}
SYSTEM, AUDIO, WRITE, TRANSLATE = [1, 2, 3], 4, [5, 6], [5, 7]  # token ids of the turns


class Encoder:
    """Log-mel frames in, one embedding row for every 8 of them out; runs in the core, too."""

    def __init__(self, reader: WeightReader, make_executor: Callable[[Plan], Executor]) -> None:
        g = GraphBuilder("steps")  # a step is 8 frames, read as one row that is 8 times as wide
        frames = g.input("mel", "steps", MELS, per_row=STRIDE).rows_of(STRIDE * MELS)
        conv, bias = reader.matrix("encoder.conv.weight"), reader.vector("encoder.conv.bias")
        hidden = g.linear(frames, conv, bias, activation="gelu")
        g.output("rows", g.linear(hidden, reader.matrix("encoder.proj.weight")))
        self._executor = make_executor(g.build())

    def encode(self, samples: F32) -> F32:
        """Mono samples [n] f32 at 16 kHz -> rows [n // 1280, hidden_size] f32."""
        mel = log_mel(samples, MELS)
        return np.asarray(self._executor.run({"mel": mel[: len(mel) // STRIDE * STRIDE]})["rows"])


def load(path: Path) -> tuple[Encoder, Decoder]:
    """Both networks, on one engine: its threads, and kernels for this processor."""
    engine = Engine(threads=2)
    make_executor = partial(NativeExecutor, engine=engine)
    with open_safetensors(path) as store:
        check_tensors(store, ENCODER | expected_tensors(SPEC))
        reader = CheckpointReader(store, MatrixPacker(engine, "q8"))
        encoder, weights = Encoder(reader, make_executor), read_weights(reader, SPEC)
    return encoder, Decoder(SPEC, weights, make_executor)


def build_prompt(rows: F32, task: list[int]) -> Prompt:
    """The turns around the audio: each of its rows takes the place of one AUDIO id."""
    positions = range(len(SYSTEM), len(SYSTEM) + len(rows))
    return Prompt([*SYSTEM, *[AUDIO] * len(rows), *task], Injection(rows, positions))


def write_weights(path: Path) -> None:
    """Random numbers under every name that is needed, in sizes with which ids change."""
    rng, tensors = np.random.default_rng(0), {}
    for name, shape in (ENCODER | expected_tensors(SPEC)).items():
        scale = 0.1 if "embed" in name else 1.6 / np.sqrt(shape[-1])
        values = rng.normal(0, scale, shape) if len(shape) == 2 else rng.uniform(0.5, 3, shape)
        tensors[name] = values.astype(np.float32)
    save_file(tensors, path)


def main() -> None:
    """Answer prompts in a new session, in a used one, with a draft, and side by side."""
    with tempfile.TemporaryDirectory() as folder:
        write_weights(path := Path(folder) / "model.safetensors")
        encoder, decoder = load(path)
    time_s = np.arange(3 * SAMPLE_RATE, dtype=np.float32) / SAMPLE_RATE
    sounds = [np.sin(2 * np.pi * hz * time_s * (1 + time_s)) for hz in (150, 220)]
    rows = [encoder.encode(sound) for sound in sounds]
    print(f"encoder: {time_s.size} samples became {len(rows[0])} rows of {rows[0].shape[1]}")

    session, options = decoder.new_session(), GenerateOptions(max_new_tokens=12)
    first = generate(session, build_prompt(rows[0], WRITE), options)
    print(f"random weights wrote ids that mean nothing: {first.token_ids}")

    second = generate(session, build_prompt(rows[0], TRANSLATE), options)
    print(f"another task: {second.reused_tokens} of {second.prompt_tokens} tokens reused")

    draft = GenerateOptions(max_new_tokens=12, draft_ids=[*first.token_ids[:8], 9])
    third = generate(decoder.new_session(), build_prompt(rows[0], WRITE), draft)
    same = third.token_ids == first.token_ids
    print(f"draft: {third.draft_accepted} of {third.draft_offered} ids accepted, same ids: {same}")

    batch = Batch(decoder)
    answers = [batch.join(decoder.new_session(), build_prompt(r, WRITE), options) for r in rows]
    batch.run()
    same = answers[0].result().token_ids == first.token_ids
    print(f"batch: {len(answers)} answers side by side, same ids for the first: {same}")


if __name__ == "__main__":
    main()
