"""The tables of docs/performance.md, made of the lines of docs/benchmarks/latest.jsonl."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Figures = dict[str, dict[str, Any]]  # step -> its line

NOTHING = "No run has been recorded yet: `make bench` measures and writes this.\n"


@dataclass(frozen=True)
class Target:
    """A row of the table of targets.

    Attributes:
        bound: what the figure must reach, or may at most be.
        read: the figure, of the step's line.
        best: the step that measures the same with the machine's best instruction set.
    """

    what: str
    at_least: bool
    bound: float
    step: str
    read: Callable[[dict[str, Any]], float]
    unit: str = ""
    best: str = ""

    def met(self, value: float) -> bool:
        """Whether the figure is good enough."""
        return value >= self.bound if self.at_least else value <= self.bound


def layer(line: dict[str, Any], format: str, rows: int) -> dict[str, Any]:
    """A row of figures of `bench kernels`."""
    return next(r for r in line["linear"] if (r["format"], r["rows"]) == (format, rows))


def _share(format: str, rows: int, of: str) -> Callable[[dict[str, Any]], float]:
    return lambda line: float(layer(line, format, rows)[f"share_of_{of}"])


def _times_of_one(rows: int) -> Callable[[dict[str, Any]], float]:
    return lambda line: round(layer(line, "q8", rows)["ms"] / layer(line, "q8", 1)["ms"], 3)


def _field(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda line: float(line[name])


def _kernel(what: str, bound: float, format: str, rows: int, of: str) -> Target:
    read = _share(format, rows, of)
    return Target(what, True, bound, "kernels", read, f" of {of}", best="kernels-best")


TARGETS = (
    *(_kernel(f"{f} linear, 1 row", 0.88, f, 1, "read") for f in ("q8", "q4")),
    *(_kernel(f"{f} linear, 512 rows", 1.1, f, 512, "sgemm") for f in ("q8", "q4")),
    *(_kernel(f"{f} linear, 24 rows", 0.9, f, 24, "sgemm") for f in ("q8", "q4")),
    *(
        Target(
            f"q8 linear, {rows} rows",
            *(False, bound, "kernels", _times_of_one(rows)),
            " x the time of 1 row",
            "kernels-best",
        )
        for rows, bound in ((4, 1.7), (8, 2.8))
    ),
    Target(
        "decode step at 400 positions, weights and cache",
        *(True, 0.85, "decoder-400", _field("share_of_read"), " of read", "decoder-best"),
    ),
    Target(
        "the same, the weights' bytes alone",
        *(True, 0.85, "decoder-400", _field("weights_share_of_read"), " of read", "decoder-best"),
    ),
    Target(
        "time of that step outside the kernels",
        *(False, 0.03, "decoder-400", _field("outside_kernels_share"), "", "decoder-best"),
    ),
    Target(
        "attention's reading of the f16 cache at 8,000 positions",
        *(True, 0.7, "decoder-8000", _field("attention_share_of_read"), " of read"),
    ),
    Target(
        "prefill of 406 rows, attention included",
        *(True, 1.0, "decoder-400", _field("share_of_sgemm"), " of sgemm", "decoder-best"),
    ),
    Target(
        "encoder with conv stem, 30 s",
        *(True, 0.85, "asr", _field("encode_share_of_sgemm"), " of sgemm", "asr-best"),
    ),
    Target(
        "whole run, 30 s of audio and 64 tokens, against transformers f32",
        *(True, 3.0, "asr", lambda line: float(line["versus"]["transformers"]["ratio"])),
        " x as fast",
    ),
    Target(
        "8 sequences side by side, tokens per second",
        *(True, 2.6, "decoder-batch", _field("speedup_over_one"), " x those of one"),
    ),
    Target(
        "an answer of 64 ids that was guessed right",
        *(False, 0.4, "draft", _field("share"), " of the time of decoding it"),
    ),
    Target(
        "an hour in pieces of 30 s and 128 tokens, 16 side by side, best instruction set",
        *(True, 2.0, "long", _field("speedup"), " x one after another"),
    ),
    Target(
        "process start to a loaded, converted file",
        *(False, 0.3, "load", _field("ready_s"), " s"),
    ),
    Target(
        "resident memory beyond weights and KV cache",
        *(False, 150, "load", _field("rss_beyond_weights_and_kv_mb"), " MB"),
    ),
    Target(
        "`import stapes`, more than `import numpy`",
        *(False, 50, "startup", _field("more_than_numpy_ms"), " ms"),
    ),
    Target("`stapes --help`", *(False, 300, "startup", _field("help_ms"), " ms")),
)


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; NOTHING without rows. Cells after the first that are numbers go right."""
    lines = [list(map(str, row)) for row in rows]
    if not lines:
        return NOTHING
    columns = list(map(str, head))
    marks = [_mark([line[i] for line in lines]) for i in range(len(columns))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [columns, marks, *lines])


def _mark(cells: list[str]) -> str:
    return "--:" if all(cell[:1].isdigit() or cell == "-" for cell in cells) else "---"


def targets(figures: Figures) -> str:
    """Every target with its figure, and the best instruction set's where that is another."""
    rows = []
    for target in TARGETS:
        if target.step not in figures:
            continue
        value = target.read(figures[target.step])
        sign = "≥" if target.at_least else "≤"
        rows.append(
            [
                target.what,
                f"{sign} {target.bound:g}{target.unit}",
                f"{value:g}",
                "yes" if target.met(value) else "no",
                _best(figures, target),
            ]
        )
    return table(["what", "target", "measured", "met", "best instruction set"], rows)


def _best(figures: Figures, target: Target) -> str:
    line = figures.get(target.best)
    if line is None or line["instruction_set"] == figures[target.step]["instruction_set"]:
        return "-"
    return f"{target.read(line):g} ({line['instruction_set']})"


def kernels(figures: Figures, step: str) -> str:
    """The rows of a `bench kernels`."""
    if step not in figures:
        return NOTHING
    line = figures[step]
    columns = ("format", "rows", "ms", "gb_s", "gflops", "share_of_read", "share_of_sgemm")
    first = line["linear"][0]
    caption = (
        f"{first['out']} x {first['in']}, {line['instruction_set']}, {line['threads']} threads; "
        f"beside it streaming read {line['streaming_read_gb_s']} GB/s, "
        f"sgemm {line['sgemm_gflops']} GFLOP/s.\n\n"
    )
    head = ("format", "rows", "ms", "GB/s", "GFLOP/s", "share of read", "share of sgemm")
    return caption + table(head, ([row[name] for name in columns] for row in line["linear"]))


def versus(figures: Figures) -> str:
    """Layers beside other libraries; more than 1 in the last column: we are faster."""
    peers = figures.get("kernels", {}).get("versus", {})
    rows = [
        [_peer(name, peer, row["format"]), row["format"], row["rows"], row["ms"], row["ratio"]]
        for name, peer in peers.items()
        for row in peer["linear"]
    ]
    return table(["library", "our format", "rows", "its ms", "its time / ours"], rows)


def _peer(name: str, peer: dict[str, Any], format: str) -> str:
    held = peer["buffers"][format] if "buffers" in peer else peer["weights"]
    return f"{name} {peer['version']} ({held})"


def runs(figures: Figures) -> str:
    """Whole runs beside transformers."""
    rows = []
    for step, pairs in _RUN_PAIRS.items():
        peer = figures.get(step, {}).get("versus", {}).get("transformers")
        for what, ours, theirs, ratio in pairs if peer else ():
            rows.append([what, figures[step][ours], peer[theirs], f"{peer[ratio]:g}"])
    return table(["what", "stapes", "transformers f32", "times as fast"], rows)


_RUN_PAIRS = {
    "decoder-400": (
        ("decode at 400 positions, tokens/s", "tokens_per_s", "tokens_per_s", "ratio"),
        ("prefill of 406, rows/s", "prefill_rows_per_s", "prefill_rows_per_s", "prefill_ratio"),
    ),
    "asr": (("30 s of audio and 64 tokens, s", "total_s", "total_s", "ratio"),),
}


def speak(figures: Figures) -> str:
    """Seconds of the stages that make sound, beside torch's."""
    if "speak" not in figures:
        return NOTHING
    line = figures["speak"]
    peer = line.get("versus", {}).get("torch", {})
    rows = [
        [
            *(what, line[f"{stage}_s"], line[f"{stage}_rtf"]),
            *(peer.get(f"{stage}_s", "-"), f"{peer.get(f'{stage}_ratio', 0):g}"),
        ]
        for stage, what in (
            ("flow", f"flow matching, {line['steps']} steps"),
            ("vocoder", "vocoder"),
        )
    ]
    caption = (
        f"{line['seconds']} s of sound behind a prompt of {line['prompt_seconds']} s, "
        f"{line['weights']}, {line['instruction_set']}, {line['threads']} threads; "
        f"peak memory {line['peak_rss_mb']} MB.\n\n"
    )
    head = ["stage", "s", "s for 1 s of sound", "torch f32, s", "times as fast"]
    return caption + table(head, rows)


_DRAWN = (
    ("likeliest", "tokens_per_s", "ratio"),
    ("drawn", "sampled_tokens_per_s", "sampled_ratio"),
)


def drawn(figures: Figures) -> str:
    """Codes of Vevo2 beside transformers, in two formats."""
    rows = []
    for step in ("vevo2-q8", "vevo2-bf16"):
        line = figures.get(step, {})
        peer = line.get("versus", {}).get("transformers")
        for what, name, ratio in _DRAWN if peer else ():
            rows.append([line["weights"], what, line[name], peer[name], f"{peer[ratio]:g}"])
    return table(["our weights", "codes/s", "stapes", "transformers f32", "times as fast"], rows)


_STREAM = {
    "seconds": "length of the stream, s",
    "second_minute_step_s": "a step in the second minute, s",
    "last_minute_step_s": "a step in the last minute, s",
    "last_to_second": "last to second minute (at most 1.2)",
    "second_minute_rss_mb": "memory in the second minute, MB",
    "last_minute_rss_mb": "memory in the last minute, MB",
    "everything_s": "encoding and prefilling all 60 s anew, s",
    "step_there_s": "a step of the stream there, s",
    "share": "its share (at most 0.25)",
    "first_partial_s": "from the first sound to the first partial text, s",
    "rtf": "real-time factor",
}
_SERVE = {
    "clients": "clients",
    "tokens_per_request": "new tokens of a request",
    "single_audio_s_per_s": "seconds of sound in a second, one client",
    "audio_s_per_s": "the same, all clients",
    "throughput_ratio": "ratio (2.5 was aimed at)",
    "tokens_per_run": "rows of a decoding run",
    "single_median_latency_s": "median latency of one client, s",
    "median_latency_s": "of all, s",
    "peak_rss_mb": "peak memory, MB",
}


_LONG = {
    "pieces": "pieces",
    "seconds": "seconds of each",
    "tokens": "new tokens of each",
    "batch": "pieces side by side",
    "batched_s": "side by side, s",
    "single_s": "one after another, s",
    "speedup": "ratio (2 was asked for)",
    "rtf": "real-time factor, side by side",
    "peak_rss_mb": "peak memory, MB",
}


def long(figures: Figures) -> str:
    """An hour in pieces, side by side and one after another."""
    return _listed(figures, "long", _LONG)


def stream(figures: Figures) -> str:
    """A long live stream."""
    return _listed(figures, "stream", _STREAM)


def serve(figures: Figures) -> str:
    """Many clients at once beside one."""
    return _listed(figures, "serve", _SERVE)


def _listed(figures: Figures, step: str, names: Mapping[str, str]) -> str:
    """Some figures of a step, a row each."""
    if step not in figures:
        return NOTHING
    line = figures[step]
    return table(["what", "measured"], ([what, f"{line[name]:g}"] for name, what in names.items()))


def stages(figures: Figures) -> str:
    """Seconds of the stages of a whole run, one column for each instruction set."""
    lines = [figures[step] for step in ("asr", "asr-best") if step in figures]
    columns = {line["instruction_set"]: line for line in lines}
    names = ("mel_s", "encode_s", "prefill_s", "decode_ms_per_token", "total_s", "rtf")
    rows = ([f"`{name}`", *(line[name] for line in columns.values())] for name in names)
    return table(["", *columns], rows) if columns else NOTHING


def machine(figures: Figures) -> str:
    """What was measured on."""
    if "machine" not in figures:
        return NOTHING
    found = figures["machine"]
    packages = ("stapes", "numpy", "torch", "transformers")
    versions = [f"{name} {found[name]}" for name in packages if found.get(name)]
    lines = [
        f"{found['cpu']}, {found['cores']} cores ({found['caches']}), {found['memory_gb']} GB",
        f"{found['system']}, Python {found['python']}, {', '.join(versions)}",
    ]
    if "kernels" in figures:
        limits = figures["kernels"]
        lines.append(
            f"streaming read {limits['streaming_read_gb_s']} GB/s with {limits['threads']} "
            f"threads, sgemm {limits['sgemm_gflops']} GFLOP/s"
        )
    return "".join(f"- {line}\n" for line in lines)
