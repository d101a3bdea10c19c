"""Who gets in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from server.serving import client_of, serving
from server.told import EXAMPLES, EXPECTED
from stapes.errors import RequestError
from stapes.server.config import ServerConfig, read_keys
from stapes.server.served import Served

KEYS = ("first-key-of-the-server", "second-key-of-the-server")
NAME = "digits-3.wav"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_a_public_address_needs_a_key(host):
    with pytest.raises(RequestError, match=r"--api-key-file, or --insecure"):
        ServerConfig(host=host)
    assert not ServerConfig(host=host, insecure=True).is_local
    assert ServerConfig(host=host, api_keys=KEYS).api_keys == KEYS


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "localhost", "::1"])
def test_a_local_address_needs_none(host):
    assert ServerConfig(host=host).is_local


def test_keys_are_not_shown():
    assert KEYS[0] not in repr(ServerConfig(api_keys=KEYS))


def test_key_files(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text(f"# of the team\n\n  {KEYS[0]}  \n{KEYS[1]}\n")
    assert read_keys(path) == KEYS
    cases = {
        "": "holds no key",
        "# nothing\n": "holds no key",
        "short\n": "line 1 .* has 5 characters; at least 16",
        f"{KEYS[0]}\nkey with spaces in it\n": "line 2 .* is not plain printable ASCII",
        "clé-clé-clé-clé-clé\n": "not plain printable ASCII",
    }
    for text, says in cases.items():
        path.write_text(text)
        with pytest.raises(RequestError, match=says):
            read_keys(path)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(RequestError, match="no UTF-8"):
        read_keys(path)
    with pytest.raises(RequestError, match="cannot be read"):
        read_keys(tmp_path)


@pytest.fixture(scope="module")
def guarded(speech):
    with serving(Served({"tiny-en": speech}), api_keys=KEYS) as running:
        yield running


@pytest.mark.parametrize("key", KEYS)
def test_the_right_keys(guarded, key):
    with client_of(guarded, key) as client:
        assert [model.id for model in client.models.list()] == ["tiny-en"]
        answer = client.audio.transcriptions.create(model="tiny-en", file=EXAMPLES / NAME)
        assert answer.text == EXPECTED[NAME]


@pytest.mark.parametrize("key", ["wrong", KEYS[0][:-1], KEYS[0] + "x", KEYS[0].upper()])
def test_the_wrong_keys(guarded, key):
    with guarded.client() as client:
        for path in ("/v1/models", "/metrics", "/v1/nothing"):
            answer = client.get(path, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["error"]["type"] == "authentication_error"
    with client_of(guarded, key) as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_no_key(guarded):
    with guarded.client() as client:
        answer = client.get("/v1/models")
        assert answer.json()["error"]["code"] == "missing_api_key"
        basic = client.get("/v1/models", headers={"Authorization": f"Basic {KEYS[0]}"})
        assert basic.status_code == 401
        assert client.get("/health").status_code == 200


def test_a_wrong_key_is_told_before_the_upload(guarded):
    """Nothing of the body is waited for."""
    host, port = guarded.url.removeprefix("http://").split(":")
    import socket

    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        )
        assert b" 401 " in connection.recv(100)


def test_websockets_ask_for_the_key_too(guarded):
    url = guarded.url.replace("http", "ws") + "/v1/audio/stream"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, proxy=None)
    assert refused.value.response.status_code == 403
    with connect(url, additional_headers={"Authorization": f"Bearer {KEYS[0]}"}, proxy=None):
        pass
    protocols = ["stapes", f"stapes-key.{KEYS[1]}"]
    with connect(url, subprotocols=protocols, proxy=None) as socket:
        assert socket.subprotocol == "stapes"
    with pytest.raises(InvalidStatus):
        connect(url, subprotocols=["stapes", "stapes-key.wrong"], proxy=None)


# -- pages of other sites, where there is no key -------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "OWN"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80", "Origin": "http://evil.example:80"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "[broken"}, 403),
        ({"Host": ""}, 403),
    ],
)
def test_other_sites_are_kept_out(server, headers, status):
    headers = {k: v.replace("OWN", server.url) for k, v in headers.items()}
    with server.client() as client:
        answer = client.get("/v1/models", headers=headers)
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"]["code"] in ("wrong_host", "wrong_origin")


def test_websockets_of_other_sites_are_kept_out(server):
    url = server.url.replace("http", "ws") + "/v1/audio/stream"
    with pytest.raises(InvalidStatus):
        connect(url, origin="https://evil.example", proxy=None)
    with connect(url, origin=server.url, proxy=None):
        pass


def test_with_a_key_other_sites_may_come(guarded):
    with guarded.client() as client:
        headers = {"Authorization": f"Bearer {KEYS[0]}", "Host": "speech.example"}
        assert client.get("/v1/models", headers=headers).status_code == 200


# -- the command ---------------------------------------------------------------------------------


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stapes", "serve", "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_refuses_what_is_unsafe_before_it_loads(tmp_path):
    started = time.perf_counter()
    done = serve("--host", "0.0.0.0", "--model", "no-such-model")
    assert done.returncode == 2
    assert done.stderr == (
        "stapes: error: Others can reach 0.0.0.0: give --api-key-file, or --insecure to let "
        "anybody use the server.\n"
    )
    short = tmp_path / "keys"
    short.write_text("short\n")
    done = serve("--api-key-file", str(short))
    assert done.returncode == 2
    assert "short" not in done.stderr
    assert time.perf_counter() - started < 30


def test_the_command_and_wrong_models(tmp_path):
    done = serve("--model", "no-such-model")
    assert (done.returncode, "no-such-model" in done.stderr) == (4, True)
    done = serve("--model", "a=tiny-en", "--model", "a=tiny-en")
    assert (done.returncode, "'a'" in done.stderr) == (2, True)


def test_the_command_and_an_address_that_is_taken():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve("--port", str(taken.getsockname()[1]))
        assert done.returncode == 2
        assert "cannot listen at 127.0.0.1" in done.stderr


def test_an_extra_that_is_missing_is_named(monkeypatch):
    from stapes.cli import serve as command

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(RequestError, match=r"needs the package uvicorn: pip install"):
        command._need_packages()
    assert os.environ  # nothing of it was touched


def test_who_reads_the_address_may_connect_at_once(monkeypatch, capsys):
    """Before the first look at the socket: connections wait, and are not refused."""
    from stapes.cli import main
    from stapes.server import run as running

    def connect(app, config, listening, on_stop):
        assert "serving at http://" in capsys.readouterr().err
        socket.create_connection(listening.getsockname(), timeout=5).close()

    monkeypatch.setattr(running, "run", connect)
    assert main(["serve", "--port", "0"]) == 0
