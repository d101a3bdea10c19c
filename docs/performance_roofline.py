"""The roofline of docs/performance.md: how far each stage is from what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from performance_tables import Figures, layer, table


@dataclass(frozen=True)
class Stage:
    """A stage's work, its time, and the two limits that were measured in the same run."""

    what: str
    nbytes: float
    gflop: float
    ms: float
    read_gb_s: float
    sgemm_gflops: float

    @property
    def read_ms(self) -> float:
        """Least time for the reading."""
        return self.nbytes / self.read_gb_s / 1e6

    @property
    def sgemm_ms(self) -> float:
        """Least time for the arithmetic, at the speed of sgemm."""
        return self.gflop / self.sgemm_gflops * 1e3

    def cells(self) -> list[str]:
        """A row of the table."""
        limit = max(self.read_ms, self.sgemm_ms)
        return [
            self.what,
            f"{self.nbytes / 1e6:.1f}",
            f"{self.gflop:.3g}",
            f"{self.gflop * 1e9 / self.nbytes:.1f}",
            "reading" if self.read_ms > self.sgemm_ms else "arithmetic",
            f"{limit:.3g}",
            f"{self.ms:.3g}",
            f"{100 * limit / self.ms:.0f} %",
        ]


def roofline(figures: Figures) -> str:
    """Bytes and FLOPs of each stage, its limit, and how much of the limit it reaches."""
    head = ("stage", "MB read", "GFLOP", "FLOP/byte", "limit", "limit ms", "ms", "reached")
    return table(head, (stage.cells() for stage in _stages(figures)))


def _stages(figures: Figures) -> Iterator[Stage]:
    if "kernels" in figures:
        yield from _layers(figures["kernels"])
    steps = {"decoder-400": "one", "decoder-8000": "one", "decoder-batch": "8 sequences"}
    for step, who in steps.items():
        if step in figures:
            yield _step(figures[step], who)
    if "decoder-400" in figures:
        line = figures["decoder-400"]
        ms = 1e3 * line["prefill_rows"] / line["prefill_rows_per_s"]
        yield _stage(f"prefill of {line['prefill_rows']} rows", "prefill", line, line, ms)
    if "asr" in figures and "kernels" in figures:
        line = figures["asr"]
        what = f"encoder, {line['seconds']:g} s"
        yield _stage(what, "encode", line, figures["kernels"], 1e3 * line["encode_s"])


def _layers(line: dict[str, Any]) -> Iterator[Stage]:
    limits = (line["streaming_read_gb_s"], line["sgemm_gflops"])
    for format in ("q8", "q4"):
        for rows in (1, 8, 24, 512):
            row = layer(line, format, rows)
            gflop = 2 * rows * row["out"] * row["in"] / 1e9
            what = f"{format} linear, {rows} row{'s' if rows > 1 else ''}"
            yield Stage(what, row["weight_bytes"], gflop, row["ms"], *limits)


def _step(line: dict[str, Any], who: str) -> Stage:
    limits = (line["streaming_read_gb_s"], line["sgemm_gflops"])
    what = f"decode step of {who} at {line['positions']:,} positions"
    return Stage(what, line["step_bytes"], line["step_gflop"], line["step_ms"], *limits)


def _stage(what: str, name: str, line: dict[str, Any], read: dict[str, Any], ms: float) -> Stage:
    limits = (read["streaming_read_gb_s"], line["sgemm_gflops"])
    return Stage(what, line[f"{name}_bytes"], line[f"{name}_gflop"], ms, *limits)
