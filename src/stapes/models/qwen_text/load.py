"""Loads a text model: a tokenizer and a decoder that is ready to run."""

from __future__ import annotations

import time
from pathlib import Path

from stapes.decoder import expected_tensors
from stapes.errors import CapacityError, ModelError
from stapes.graph import NO_TRACE, NoTracer
from stapes.models.description import Description, Part
from stapes.models.qwen_text.chat_template import read_bos_token, read_chat_template
from stapes.models.qwen_text.config import read_config, read_prefix_ids
from stapes.models.qwen_text.model import TextModel
from stapes.models.qwen_text.shown import read_shown_ids
from stapes.models.registry import open_source
from stapes.models.source import ModelSource, read_decoder
from stapes.options import RuntimeOptions


def load_text_model(path: str | Path, options: RuntimeOptions | None = None) -> TextModel:
    """Load a Hugging Face folder, a GGUF file or a converted file of a qwen2 or qwen3 text model.

    Raises:
        ModelError: a file is missing, damaged, or says what is not supported.
        CapacityError: the weights do not fit into memory.
    """
    started = time.perf_counter()
    chosen, target = options or RuntimeOptions(), Path(path)
    if not target.exists():
        raise ModelError(f"{target} does not exist.")
    try:
        return load_source(open_source(target), str(path), chosen, NO_TRACE, started)
    except MemoryError:
        raise CapacityError(
            f"{path} does not fit into memory as {chosen.decoder_format} weights; "
            "q4 takes the least."
        ) from None


def load_source(
    source: ModelSource, name: str, options: RuntimeOptions, tracer: NoTracer, started: float
) -> TextModel:
    """Load a model from its source; loading is counted from `started` on. Raises ModelError."""
    tokenizer = source.tokenizer()
    spec = read_config(source.files, tokenizer)
    with source.readers(expected_tensors(spec), spec, options) as readers:
        decoder = read_decoder(spec, readers, options, tracer)
    prefix_ids = read_prefix_ids(source.files, spec.vocab_size)
    model = TextModel(
        name,
        decoder,
        tokenizer,
        chat_template=read_chat_template(source.files),
        bos_token=read_bos_token(source.files, tokenizer, prefix_ids),
        prefix_ids=prefix_ids,
        shown_ids=read_shown_ids(source.files),
        load_s=time.perf_counter() - started,
    )
    tracer.stage("load", started, started + model.load_s)
    return model


def describe(source: ModelSource) -> Description:
    """See `models.description.Description`."""
    spec = read_config(source.files, source.tokenizer())
    parts = {"decoder": Part(spec.sizes(), expected_tensors(spec))}
    return Description("qwen3" if spec.qk_norm else "qwen2", parts, spec, None)
