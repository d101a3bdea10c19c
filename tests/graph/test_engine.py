"""Engines under threads, forks and limits: right answers or an exception, never a hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graph.decoder import Decoder, decoder, decoder_plan, tokens
from stapes import _native
from stapes.graph import NativeExecutor

SANITIZED = "SANITIZED" in os.environ  # address space limits and forks do not go with sanitizers


def answer(net: Decoder, seed: int) -> bytes:
    cache = net.new_cache()
    parts = [net.run((cache, tokens(n, seed))) for n in (20, 1, 9, 1)]
    return np.concatenate(parts).tobytes()


def test_an_engine_shared_by_python_threads_gives_each_its_answer() -> None:
    engine = _native.Engine(2)
    nets = [Decoder(NativeExecutor(decoder_plan(f), engine), "f16") for f in ("f32", "bf16", "q8")]
    work = [(nets[i % 3], i) for i in range(24)]
    alone = [answer(net, seed) for net, seed in work]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(lambda item: answer(*item), work)) == alone


def test_one_executor_and_packing_on_one_engine_at_once() -> None:
    engine = _native.Engine(3)
    net = Decoder(NativeExecutor(decoder_plan("q8"), engine), "f16")
    expected = answer(net, 1)
    source = np.ones((64, 64), np.float32).view(np.uint8).reshape(-1)

    def pack(_: int) -> bool:
        packed = np.zeros(_native.packed_bytes("q8", 64, 64), np.uint8)
        return _native.pack(engine, "q8", "f32", 64, 64, source, packed)

    with ThreadPoolExecutor(6) as pool:
        packs = pool.map(pack, range(60))
        answers = pool.map(lambda _: answer(net, 1), range(12))
        assert set(answers) == {expected}
        assert all(packs)


@pytest.mark.parametrize("threads", range(1, 9))
def test_more_threads_than_cores_end(threads: int) -> None:
    net = decoder("q8", "f16", "auto", threads)
    assert net.executor.run is not None
    started = time.monotonic()
    for seed in range(5):
        answer(net, seed)
    assert time.monotonic() - started < 20


def test_an_idle_engine_wakes_up() -> None:
    net = decoder("f32", "f16", "auto", 4)
    expected = answer(net, 0)
    for pause in (0.0, 0.001, 0.02, 0.1):
        time.sleep(pause)
        assert answer(net, 0) == expected


def test_engines_come_and_go() -> None:
    before, tasks = threading.active_count(), len(os.listdir("/proc/self/task"))
    for i in range(60):
        engine = _native.Engine(1 + i % 8)
        assert engine.threads == 1 + i % 8
        if i % 10 == 0:
            answer(Decoder(NativeExecutor(decoder_plan("f32"), engine), "f32"), i)
    assert threading.active_count() == before
    assert len(os.listdir("/proc/self/task")) - tasks < 20  # of more than 200; others' may end


def test_a_cache_in_use_is_left_alone() -> None:
    """Two engines, one cache: one run gets it, whoever comes meanwhile is told so."""
    nets = [decoder("f32", "f16", "auto", 1) for _ in range(2)]
    cache, refusals = nets[0].new_cache(), []
    done = threading.Event()

    def meddle() -> None:
        while not done.is_set():
            for attempt in (cache.clone, lambda: cache.truncate(0), lambda: cache.reserve(600)):
                try:
                    attempt()
                except RuntimeError as error:
                    refusals.append(error)

    thread = threading.Thread(target=meddle)
    thread.start()
    for _ in range(40):
        try:
            nets[1].run((cache, tokens(100)))
        except IndexError:  # its length changed between our reading it and the run
            continue
    done.set()
    thread.join()
    assert refusals
    assert all("a run is using it" in str(error) for error in refusals)


def in_child(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which may hang or crash on its own."""
    code = "import sys; sys.path[:0] = " + repr(sys.path) + "\n" + body
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )


FORK = """
import os, gc, sys, time, threading
import numpy as np
from graph.decoder import decoder, tokens
from graph.test_engine import answer

net = decoder("q8", "f16", "auto", 4)
expected = answer(net, 3)
{before}
child = os.fork()
if not child:
    try:
        {in_child}
        code = 0
    except RuntimeError as error:
        code = 7 if "fork" in str(error) else 8
    except BaseException as error:
        sys.stderr.write(repr(error))
        code = 9
    os._exit(code)
for _ in range(2000):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.01)
else:
    os.kill(child, 9)
    sys.exit("the child hangs")
{after}
assert answer(net, 3) == expected
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(SANITIZED, reason="sanitizers do not go with forks")
@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_after_a_fork_the_child_runs_and_ends(pause: float) -> None:
    body = "assert answer(net, 3) == expected; assert answer(net, 3) == expected"
    body += "\n        assert answer(decoder('q8', 'f16', 'auto', 2), 3) == expected"
    body += "\n        del net; gc.collect()"
    result = in_child(FORK.format(before=f"time.sleep({pause})", in_child=body, after=""))
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(SANITIZED, reason="sanitizers do not go with forks")
def test_a_fork_in_the_middle_of_a_run_never_hangs() -> None:
    """The child inherits a taken lock; it runs (the lock was free) or says so, and ends."""
    before = (
        "stop = threading.Event()\n"
        "def work():\n"
        "    while not stop.is_set():\n"
        "        net.run((net.new_cache(), tokens(200)))\n"
        "other = threading.Thread(target=work)\n"
        "other.start()\n"
        "time.sleep(0.05)"
    )
    after = "stop.set(); other.join()"
    result = in_child(FORK.format(before=before, in_child="answer(net, 3)", after=after))
    assert result.returncode in (0, 7), result.stderr


LIMITED = """
import resource
import numpy as np
from stapes import _native
from stapes.graph import GraphBuilder, NativeExecutor

def limit(megabytes):
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
"""


@pytest.mark.skipif(SANITIZED, reason="sanitizers need the address space")
def test_threads_that_cannot_be_had_are_an_exception() -> None:
    body = """
limit(60)
try:
    _native.Engine(1000)
except (RuntimeError, MemoryError):
    _native.Engine(2)
    print("refused")
"""
    result = in_child(LIMITED + body)
    assert (result.returncode, result.stdout) == (0, "refused\n"), result.stderr


@pytest.mark.skipif(SANITIZED, reason="sanitizers need the address space")
def test_a_run_that_fails_half_way_adds_nothing_to_its_cache() -> None:
    """The second op needs more memory than there is, after the first has written its keys."""
    body = """
g = GraphBuilder("rows")
x, wide = g.input("x", "rows", 6), g.input("wide", "rows", 40000)
indices = [g.index_input(n, "rows") for n in ("sequences", "positions", "ends")]
q, k, v = x.split(2, 2, 2)
attention = {"layer": 0, "heads": 1, "kv_heads": 1, "head_dim": 2}
g.output("first", g.cached_attention(q, k, v, *indices[:2], **attention))
starts = indices[0]
g.output("y", g.window_attention(wide, wide, wide, starts, indices[2], heads=1, head_dim=40000))
executor = NativeExecutor(g.build(), _native.Engine(2))
cache = executor.new_cache(1, 1, 2, "f16")
inputs = {"x": np.ones((1, 6), np.float32), "wide": np.ones((1, 40000), np.float32)}
inputs |= {n: np.zeros(1, np.int32) for n in ("sequences", "positions")}
inputs["ends"] = np.ones(1, np.int32)
cache.reserve(10)
limit(40)
try:
    executor.run(inputs, [cache])
except MemoryError:
    print("refused", cache.length)
cache.truncate(0)
"""
    result = in_child(LIMITED + body)
    assert (result.returncode, result.stdout) == (0, "refused 0\n"), result.stderr
