"""Draw a Chrome trace of `stapes bench asr --trace FILE` as an SVG: `make bench BENCH=trace`.

`generate_trace_picture.py TRACE SVG`. Above, the last run in the trace: its stages, the runs of
plans, and the share of every kind of op in each slice of time. Below, one decode step, op by op.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT = 1200, 90, 40
ROW, OPS_HEIGHT = 26, 110
_SLICES = 360
_PALETTE = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#004488"),
    *("#ddaa33", "#997700", "#6699cc", "#994455", "#117733", "#88ccaa", "#332288", "#999999"),
)
_STAGES, _RUNS, _OPS = "stages", "plan runs", "ops"


@dataclass(frozen=True)
class Span:
    """An event, in milliseconds from the picture's start."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Scale:
    """Milliseconds -> x."""

    start: float
    end: float

    def x(self, at: float) -> float:
        """Where a moment lies."""
        share = (at - self.start) / (self.end - self.start)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def render(trace: dict[str, Any]) -> str:
    """The whole picture."""
    rows = last_run(trace)
    order = kinds(rows[_OPS])
    colours = {name: _PALETTE[i % len(_PALETTE)] for i, name in enumerate(order)}
    whole = Scale(0.0, max(span.end for row in rows.values() for span in row))
    parts = [_title(20, f"One run of {whole.end:.0f} ms, from mel to the last token")]
    parts += _spans(rows[_STAGES], whole, 34, _STAGES, dict.fromkeys(_names(rows[_STAGES]), "#ddd"))
    parts += _spans(rows[_RUNS], whole, 64, _RUNS, dict.fromkeys(_names(rows[_RUNS]), "#bcd"))
    parts += _slices(rows[_OPS], whole, 94, colours)
    parts += _axis(whole, 94 + OPS_HEIGHT)
    step = rows[_RUNS][-1]
    inner = [op for op in rows[_OPS] if step.start <= op.start and op.end <= step.end]
    parts.append(_title(262, f"Its last decode step, {step.end - step.start:.2f} ms, op by op"))
    parts += _spans(inner, Scale(step.start, step.end), 276, _OPS, colours, gap=False)
    parts += _axis(Scale(step.start, step.end), 276 + ROW)
    parts += _legend(rows, colours, 350)
    height = 350 + 20 * (1 + (len(colours) - 1) // 3) + 12
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">'
    )
    background = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def last_run(trace: dict[str, Any]) -> dict[str, list[Span]]:
    """Spans of the three rows from the last `mel` stage on, which begins a run."""
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    timed = sorted((e for e in events if e["ph"] == "X"), key=lambda event: event["ts"])
    begin = max(e["ts"] for e in timed if e["name"] == "mel" and names[e["tid"]] == _STAGES)
    rows: dict[str, list[Span]] = {name: [] for name in (_STAGES, _RUNS, _OPS)}
    for event in timed:
        start = (event["ts"] - begin) / 1000
        if start >= 0:
            span = Span(event["name"], start, start + event["dur"] / 1000)
            rows[names[event["tid"]]].append(span)
    return rows


def kinds(ops: Iterable[Span]) -> list[str]:
    """Kinds of ops, those that take longest first."""
    totals: dict[str, float] = {}
    for op in ops:
        totals[op.name] = totals.get(op.name, 0.0) + op.end - op.start
    return sorted(totals, key=lambda name: -totals[name])


def _names(spans: Iterable[Span]) -> list[str]:
    return list(dict.fromkeys(span.name for span in spans))


def _spans(
    spans: Iterable[Span],
    scale: Scale,
    y: int,
    label: str,
    colours: dict[str, str],
    gap: bool = True,
) -> Iterator[str]:
    """A row of boxes, named where there is room."""
    yield _text(LEFT - 8, y + 17, label, "end")
    for span in spans:
        x, width = scale.x(span.start), scale.x(span.end) - scale.x(span.start)
        shown = max(0.2, width - (0.6 if gap and width > 2 else 0))
        yield _box(x, y, shown, ROW - 4, colours[span.name], span.name)
        if width > 8 * len(span.name):
            yield _text(x + width / 2, y + 16, span.name, "middle")


def _slices(ops: list[Span], scale: Scale, y: int, colours: dict[str, str]) -> Iterator[str]:
    """For each slice of time a column: what share of it went into which kind of op."""
    yield _text(LEFT - 8, y + 17, _OPS, "end")
    length = (scale.end - scale.start) / _SLICES
    width = (WIDTH - LEFT - RIGHT) / _SLICES
    for number, shares in enumerate(_shares(ops, length)):
        bottom = y + OPS_HEIGHT - 4.0
        for name in colours:
            height = shares.get(name, 0.0) * (OPS_HEIGHT - 4)
            if height >= 0.3:
                bottom -= height
                yield _box(LEFT + number * width, bottom, width + 0.1, height, colours[name], name)


def _shares(ops: list[Span], length: float) -> list[dict[str, float]]:
    columns: list[dict[str, float]] = [{} for _ in range(_SLICES)]
    for op in ops:
        first, last = int(op.start / length), min(_SLICES - 1, int(op.end / length))
        for number in range(first, last + 1):
            inside = min(op.end, (number + 1) * length) - max(op.start, number * length)
            column = columns[number]
            column[op.name] = column.get(op.name, 0.0) + max(0.0, inside) / length
    return columns


def _axis(scale: Scale, y: int) -> Iterator[str]:
    for number in range(6):
        at = scale.start + (scale.end - scale.start) * number / 5
        yield f'<path d="M{scale.x(at):.1f} {y - 2}v6" stroke="#666"/>'
        digits = 0 if scale.end - scale.start > 50 else 2
        yield _text(scale.x(at), y + 18, f"{at - scale.start:.{digits}f} ms", "middle")


def _legend(rows: dict[str, list[Span]], colours: dict[str, str], y: int) -> Iterator[str]:
    """Every kind of op with its share of the time in ops of each stage."""
    stages = [span for span in rows[_STAGES] if span.name != "mel"]
    totals = {stage.name: _totals(rows[_OPS], stage) for stage in stages}
    for number, (name, colour) in enumerate(colours.items()):
        x, row = LEFT + 370 * (number % 3), y + 20 * (number // 3)
        parts = [
            f"{stage} {100 * found[name] / sum(found.values()):.1f} %"
            for stage, found in totals.items()
            if name in found
        ]
        yield _box(x, row - 10, 12, 12, colour, name)
        yield _text(x + 18, row, f"{name}: {', '.join(parts)}", "start")


def _totals(ops: Iterable[Span], stage: Span) -> dict[str, float]:
    found: dict[str, float] = {}
    for op in ops:
        if stage.start <= op.start < stage.end:
            found[op.name] = found.get(op.name, 0.0) + op.end - op.start
    return found


def _box(x: float, y: float, width: float, height: float, colour: str, name: str) -> str:
    size = f'width="{width:.2f}" height="{height:.1f}"'
    title = f"<title>{escape(name)}</title>"
    return f'<rect x="{x:.2f}" y="{y:.1f}" {size} fill="{colour}">{title}</rect>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _title(y: int, text: str) -> str:
    return f'<text x="{LEFT}" y="{y}" font-weight="bold">{escape(text)}</text>'


def main() -> None:
    """Read a trace, write the picture."""
    source, target = map(Path, sys.argv[1:])
    trace = json.loads(source.read_text(encoding="utf-8"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render(trace), encoding="utf-8")


if __name__ == "__main__":
    main()
