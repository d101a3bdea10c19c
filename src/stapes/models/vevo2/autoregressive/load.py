"""Loads the autoregressive stage from its Hugging Face folder, or from a converted file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from stapes.decoder import DecoderSpec, expected_tensors
from stapes.graph import NoTracer
from stapes.models.config_reader import ConfigReader
from stapes.models.decoder_config import decoder_spec
from stapes.models.description import Description, Part
from stapes.models.registry import VOICE, load_kind
from stapes.models.source import ModelSource, read_decoder
from stapes.models.vevo2.autoregressive.decoder import Vevo2Decoder
from stapes.models.vevo2.autoregressive.options import DEFAULT_REPETITION_PENALTY
from stapes.models.vevo2.autoregressive.tokens import CONTENT_STYLE_HZ, CodeTokens, read_code_tokens
from stapes.models.vevo2.layout import LICENSE
from stapes.options import RuntimeOptions, WeightFormat
from stapes.text.folder import Folder
from stapes.text.json_files import read_json_object, read_optional_object
from stapes.text.tokenizer import Tokenizer

DEFAULT_WEIGHTS: WeightFormat = "bf16"  # as published; see docs/models/vevo2-autoregressive.md


def load_vevo2(
    path: str | Path, options: RuntimeOptions | None = None, tracer: NoTracer | None = None
) -> Vevo2Decoder:
    """Load the autoregressive stage.

    Args:
        path: the root of the published folder, the folder of the AR in it, or a converted file.
        options: formats and threads. The matrices are bf16 unless they say otherwise: with fewer
            bits other codes are drawn than the published weights would draw.
        tracer: records the runs.

    Raises:
        ModelError: a file is missing, damaged, or says what is not supported.
        RequestError: a converted file is asked for in another format.
        CapacityError: the weights do not fit into memory.
    """
    return cast("Vevo2Decoder", load_kind(path, options or RuntimeOptions(), VOICE, tracer))


def load_source(
    source: ModelSource, name: str, options: RuntimeOptions, tracer: NoTracer, started: float
) -> Vevo2Decoder:
    """Load a model from its source; loading is counted from `started` on. Raises ModelError."""
    tokenizer = source.tokenizer()
    spec, tokens = read_config(source.files, tokenizer)
    penalty = read_repetition_penalty(source.files)
    with source.readers(expected_tensors(spec), spec, options) as readers:
        decoder = read_decoder(spec, readers, options, tracer)
    load_s = time.perf_counter() - started
    tracer.stage("load", started, started + load_s)
    return Vevo2Decoder(name, decoder, tokenizer, tokens, penalty, load_s)


def describe(source: ModelSource) -> Description:
    """See `models.description.Description`."""
    spec, _ = read_config(source.files, source.tokenizer())
    parts = {"decoder": Part(spec.sizes(), expected_tensors(spec))}
    return Description("vevo2", parts, spec, int(60 * CONTENT_STYLE_HZ), LICENSE)


def read_config(folder: Folder, tokenizer: Tokenizer) -> tuple[DecoderSpec, CodeTokens]:
    """The decoder, whose only end is `<|im_end|>`, and the ids of the codes.

    generation_config.json names a second end, which the publisher's code does not use.

    Raises:
        ConfigError: a file or value is missing, malformed, or asks for what is not supported.
    """
    config = ConfigReader(read_json_object(folder / "config.json"), "config.json")
    tokens = read_code_tokens(tokenizer, config.integer("vocab_size"))
    return decoder_spec(config, "qwen2", frozenset({tokens.turn_end})), tokens


def read_repetition_penalty(folder: Folder) -> float:
    """What generation_config.json says, the one value that the publisher's code takes from there.

    ConfigError when it is no positive number.
    """
    where = "generation_config.json"
    config = ConfigReader(read_optional_object(folder / where), where)
    if "repetition_penalty" not in config:
        return DEFAULT_REPETITION_PENALTY
    return config.number("repetition_penalty")
