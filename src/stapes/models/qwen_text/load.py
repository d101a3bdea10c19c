"""Loads a text model: a tokenizer and a decoder that is ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stapes.decoder import Decoder, DecoderSpec, expected_tensors, load_weights
from stapes.decoder.weights import TensorSource
from stapes.errors import CapacityError, ModelError
from stapes.graph import Engine, NativeExecutor
from stapes.models.qwen_text.chat_template import read_chat_template
from stapes.models.qwen_text.config import read_config
from stapes.models.tied_head import check_tied_head
from stapes.options import RuntimeOptions
from stapes.system import default_threads
from stapes.tensors import check_tensors, open_safetensors
from stapes.text.tokenizer import Tokenizer, load_tokenizer
from stapes.weights import MatrixPacker


@dataclass(frozen=True, eq=False)
class TextModel:
    """A loaded text model.

    Attributes:
        chat_template: the model's own, in Jinja2; None when it has none.
        prefix_ids: ids that belong in front of every plain prompt (a begin-of-text token, or none).
        load_s: seconds that loading took.
    """

    decoder: Decoder
    tokenizer: Tokenizer
    chat_template: str | None
    prefix_ids: tuple[int, ...]
    load_s: float


def load_text_model(path: str | Path, options: RuntimeOptions | None = None) -> TextModel:
    """Load a Hugging Face folder or a GGUF file of a qwen2 or qwen3 text model.

    Raises:
        ModelError: a file is missing, damaged, or says what is not supported.
        CapacityError: the weights do not fit into memory.
    """
    target, chosen = Path(path), options or RuntimeOptions()
    if not target.exists():
        raise ModelError(f"{target} does not exist.")
    load = _load_folder if target.is_dir() else _load_gguf
    try:
        return load(target, chosen)
    except MemoryError:
        raise CapacityError(
            f"{target} does not fit into memory as {chosen.weights} weights; q4 takes the least."
        ) from None


def _load_folder(folder: Path, options: RuntimeOptions) -> TextModel:
    started = time.perf_counter()
    tokenizer = load_tokenizer(folder)
    spec = read_config(folder, tokenizer)
    # A tied checkpoint may carry its head all the same; it is the embedding again.
    ignored = (spec.names.lm_head,) if spec.tie_word_embeddings else ()
    with open_safetensors(folder) as store:
        check_tensors(store, expected_tensors(spec), ignored=ignored)
        check_tied_head(store, spec)
        decoder = _build(spec, store, options)
    template = read_chat_template(folder)
    return TextModel(decoder, tokenizer, template, (), time.perf_counter() - started)


def _load_gguf(path: Path, options: RuntimeOptions) -> TextModel:
    # Imported here: they bring the gguf package, which folders do not need.
    from stapes.models.qwen_text.gguf import SPLITS, GgufSource, gguf_shapes, read_gguf_config
    from stapes.tensors.gguf import open_gguf
    from stapes.text.gguf_tokenizer import gguf_prefix_ids, tokenizer_from_gguf

    started = time.perf_counter()
    with open_gguf(path) as store:
        tokenizer = tokenizer_from_gguf(store.metadata, path, SPLITS)
        spec = read_gguf_config(store, tokenizer)
        check_tensors(store, gguf_shapes(spec))
        decoder = _build(spec, GgufSource(store, spec), options)
    template = store.metadata.get("tokenizer.chat_template")
    return TextModel(
        decoder,
        tokenizer,
        template if isinstance(template, str) else None,
        gguf_prefix_ids(store.metadata, path),
        time.perf_counter() - started,
    )


def _build(spec: DecoderSpec, source: TensorSource, options: RuntimeOptions) -> Decoder:
    engine = Engine(options.threads or default_threads())
    weights = load_weights(source, spec, MatrixPacker(engine, options.weights))
    make_executor: Callable[..., NativeExecutor] = partial(NativeExecutor, engine=engine)
    return Decoder(spec, weights, make_executor, options.kv)
