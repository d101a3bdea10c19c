"""`stapes bench fidelity`: what a weight format costs in a text model's answers, against f32."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.bench.measure import open_engine
from stapes.bench.perplexity import Ids, PlanRunner, Windows, perplexity
from stapes.errors import RequestError
from stapes.models.qwen_text import TextModel, load_text_model
from stapes.models.registry import find_model
from stapes.options import ActivationBits, KvFormat, RuntimeOptions, WeightFormat
from stapes.system import default_threads

NEW_TOKENS = 48  # greedy ids after each prompt
FIRST_TOKENS = 16  # of them, that are also compared on their own

Progress = Callable[[str], None]


@dataclass(frozen=True)
class FidelityBench:
    """What to compare.

    Attributes:
        model: folder, GGUF file or name of a text model.
        formats: of the weights; f32 is measured first in any case.
        text: the file to be read; None takes the text that comes with the package.
        activation_bits: beside q8 weights.
    """

    model: str
    formats: tuple[WeightFormat, ...]
    text: Path | None = None
    kv: KvFormat = "f16"
    threads: int | None = None
    windows: Windows = field(default_factory=Windows)
    activation_bits: ActivationBits = 13


@dataclass(frozen=True, eq=False)
class Measured:
    """How one format reads the text and continues the prompts.

    Attributes:
        losses: -log p [n - 1] f64 of the text's ids but the first.
        answers: greedy ids [prompts, NEW_TOKENS] i32.
        weights_bytes: of all matrices.
    """

    losses: NDArray[np.float64]
    answers: Ids
    weights_bytes: int


class Peer(Protocol):
    """Another runtime, with the same weights in f32."""

    name: str

    def versus(
        self, model: TextModel, ids: Ids, prompts: list[Ids], ours: Measured, windows: Windows
    ) -> dict[str, object]:
        """How ours compares with it."""


def default_text() -> str:
    """The text that comes with the package."""
    return _data("prose.txt")


def default_prompts() -> list[str]:
    """The prompts that come with the package: code, prose, lists, five languages."""
    prompts: list[str] = json.loads(_data("prompts.json"))
    return prompts


def _data(name: str) -> str:
    return files("stapes.bench").joinpath("data", name).read_text(encoding="utf-8")


def run(
    bench: FidelityBench,
    progress: Progress,
    make_peer: Callable[[FidelityBench], Peer] | None = None,
) -> dict[str, object]:
    """The JSON object: a row for each format, and how f32 compares with the peer.

    Raises:
        RequestError: the text cannot be read, or has fewer than two tokens.
        ModelError: the model cannot be used. CapacityError: it does not fit.
    """
    text = default_text() if bench.text is None else _read(bench.text)
    rows: list[dict[str, object]] = []
    result = _header(bench)
    exact: Measured | None = None
    for weights in dict.fromkeys(("f32", *bench.formats)):
        progress(f"Measuring {weights}")
        model = load_text_model(
            find_model(bench.model), RuntimeOptions(weights, bench.kv, bench.threads)
        )
        ids, prompts = encoded(model, text), [encoded(model, p) for p in default_prompts()]
        measured = measure(model, ids, prompts, bench)
        if exact is None:
            exact = measured
            result |= {"text_tokens": int(ids.size), "prompts": len(prompts)}
            if make_peer is not None:
                progress("Comparing f32 with the peer")
                peer = make_peer(bench)
                versus = peer.versus(model, ids, prompts, measured, bench.windows)
                result["versus"] = {peer.name: versus}
        rows.append({"weights": weights, **compared(measured, exact)})
    return result | {"formats": rows}


def _header(bench: FidelityBench) -> dict[str, object]:
    return {
        "bench": "fidelity",
        "model": Path(bench.model).name,
        "text": "prose.txt of the package" if bench.text is None else bench.text.name,
        "window": bench.windows.size,
        "stride": bench.windows.stride,
        "kv": bench.kv,
        "activation_bits": bench.activation_bits,
        "new_tokens": NEW_TOKENS,
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read as UTF-8 text: {error}.") from error


def encoded(model: TextModel, text: str) -> Ids:
    """The ids of a plain text, behind those that the model wants in front of one."""
    return np.array([*model.prefix_ids, *model.tokenizer.encode(text)], np.int32)


def measure(model: TextModel, ids: Ids, prompts: list[Ids], bench: FidelityBench) -> Measured:
    """Read the text and continue the prompts."""
    engine = open_engine(bench.threads or default_threads(), "auto")
    runner = PlanRunner(model.decoder, engine, bench.activation_bits)
    return Measured(
        runner.negative_log_likelihoods(ids, bench.windows),
        runner.greedy(prompts, NEW_TOKENS),
        model.decoder.weights.nbytes,
    )


def compared(measured: Measured, exact: Measured) -> dict[str, object]:
    """A format's figures beside those of f32.

    `ratio` is that of the perplexities and `ratio_error` its standard error over the tokens;
    `first_16` and `all_48` count the prompts whose first ids, or all of them, are those of f32.
    """
    difference = measured.losses - exact.losses
    ratio = float(np.exp(difference.mean()))
    same = measured.answers == exact.answers
    return {
        "weights_bytes": measured.weights_bytes,
        "perplexity": round(perplexity(measured.losses), 4),
        "ratio": round(ratio, 5),
        "ratio_error": round(ratio * float(difference.std()) / difference.size**0.5, 5),
        f"first_{FIRST_TOKENS}": int(same[:, :FIRST_TOKENS].all(axis=1).sum()),
        f"all_{NEW_TOKENS}": int(same.all(axis=1).sum()),
    }
