"""Ray: a cluster of one node, which these tests start."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from stapes.batch.cluster import Cluster, shares
from stapes.errors import RequestError

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra 'ray' brings it")


@pytest.mark.parametrize(
    ("processors", "workers", "threads", "found"),
    [
        ([8], None, None, (1, 8)),
        ([8, 4], None, None, (2, 4)),
        ([8], 4, None, (4, 2)),
        ([8], None, 2, (4, 2)),
        ([8, 6], None, 4, (3, 4)),
        ([2, 2], 8, None, (8, 1)),
        ([2], None, 4, (1, 4)),
        ([], None, None, (1, 1)),
        ([8], 3, 2, (3, 2)),
    ],
)
def test_shares(processors, workers, threads, found):
    assert shares(processors, workers, threads) == found


def test_without_ray_it_is_said_where_it_comes_from(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RequestError, match=r"pip install 'stapes\[ray\]'"):
        Cluster("auto")


@dataclass(frozen=True)
class Head:
    """A cluster of this machine alone, with a token of its own: its ports are open to others."""

    address: str
    token: Path

    def environment(self) -> dict[str, str]:
        paths = [str(TESTS), *filter(None, sys.path)]
        authentication = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        return {
            **os.environ,
            **authentication,
            "PYTHONPATH": os.pathsep.join(paths),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # A process of its own: Ray changes the program that it is imported into.
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = tmp_path_factory.mktemp("ray") / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    head = Head(f"127.0.0.1:{port}", token)
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--port={port}", "--num-cpus=2", "--disable-usage-stats"]
    command += ["--include-dashboard=false", "--object-store-memory=100000000"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=head.environment(), stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        _wait_for(port, process)
        yield head
    finally:
        process.send_signal(signal.SIGTERM)  # it ends what it has started
        process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("no Ray cluster came up")


@needs_ray
def test_a_job_on_a_cluster(head, tmp_path):
    names = ["digits-3.wav", "digits-5.wav", "digits-10.flac"]
    manifest, out = tmp_path / "m.jsonl", tmp_path / "r.jsonl"
    lines = [{"audio": str(EXAMPLES / name), "id": name} for name in names]
    lines.append({"audio": "absent.wav"})
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ("-m", "stapes", "batch", str(manifest), "--out", str(out), "--ray", head.address)
    done = head.python(*command, "--workers", "2")
    assert done.returncode == 3, done.stderr
    assert "nodes: 1, workers: 2, threads of each: 1" in done.stderr
    results = {line["id"]: line for line in map(json.loads, out.read_text().splitlines())}
    assert results["digits-3.wav"]["text"] == "four five seven"
    assert results["digits-3.wav"]["model"] == "tiny-en"
    assert results["absent.wav"]["kind"] == "audio"
    assert len(results) == 4


@needs_ray
def test_an_actor_that_dies_is_replaced(head, tmp_path):
    names = ["a", "fatal", "b", "bug", "c"]
    (tmp_path / "manifest").write_text("".join(f'{{"audio": "{name}"}}\n' for name in names))
    files = [str(tmp_path / name) for name in ("manifest", "out", "log")]
    done = head.python("-m", "batch.rigged_job", *files, "0", head.address)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    kinds = {line["id"]: line.get("kind") for line in lines}
    assert kinds == {"a": None, "fatal": "worker", "b": None, "bug": "unexpected", "c": None}
    begun = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(begun) == sorted([*names, "fatal"])
    assert len(lines) == len(names)


def test_a_cluster_that_is_not_there(monkeypatch):
    def init(address: str, **options: object) -> None:
        raise ConnectionError(f"Could not reach {address}.\nMore about it.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(RequestError, match=r"no Ray cluster at 'a:1': Could not reach a:1\.$"):
        Cluster("a:1")


def test_a_cluster_that_asks_for_a_token(monkeypatch):
    def init(address: str, **options: object) -> None:
        cause = RuntimeError("ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken")
        raise ConnectionError(f"Failed to connect to {address}") from cause

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(RequestError, match="'a:1' asks for its token"):
        Cluster("a:1")
