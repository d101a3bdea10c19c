"""Traces: what they record, and that they change nothing."""

from __future__ import annotations

import itertools
import json

import numpy as np

from stapes.graph import Engine, GraphBuilder, NativeExecutor, Tracer
from stapes.weights import pack_reference


def small_plan():
    g = GraphBuilder("rows")
    x = g.input("x", "rows", 32)
    matrix = pack_reference(np.ones((48, 32), np.float32), "q8")
    g.output("y", g.gelu(g.linear(g.add(x, x), matrix)))
    return g.build()


def test_a_run_leaves_one_span_for_each_op_inside_its_own():
    tracer = Tracer()
    plan, x = small_plan(), np.ones((5, 32), np.float32)
    traced = NativeExecutor(plan, Engine(2), tracer).run({"x": x})["y"]
    assert np.array_equal(traced, NativeExecutor(plan, Engine(2)).run({"x": x})["y"])
    events = json.loads(tracer.to_json())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    run, *ops = spans
    assert [op["name"] for op in ops] == ["add", "linear", "gelu"]
    assert run["args"] == {"rows": 5}
    assert ops[1]["args"] == {"48x32": "q8"}
    assert ops[0]["ts"] == run["ts"]
    for before, after in itertools.pairwise(ops):
        assert abs(after["ts"] - before["ts"] - before["dur"]) < 0.01
    assert ops[-1]["ts"] + ops[-1]["dur"] <= run["ts"] + run["dur"]
    assert set(tracer.seconds_by_op()) == {"add", "linear", "gelu"}


def test_rows_of_the_picture_have_names():
    tracer = Tracer()
    tracer.stage("mel", 1.0, 1.5)
    names, stage = {}, None
    for event in json.loads(tracer.to_json())["traceEvents"]:
        if event["ph"] == "M":
            names[event["tid"]] = event["args"]["name"]
        else:
            stage = event
    assert stage is not None
    assert (names[stage["tid"]], stage["dur"]) == ("stages", 500_000)
