"""Connections on which a request does not come, does not end, or cannot be read."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from server.serving import Running
from stapes.server.connections import HttpProtocol

GET = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    "GET /v1/audio/stream?prompt={} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)


def opened(running: Running, text: str = "") -> socket.socket:
    host, port = running.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(text.encode())
    return connection


def rest(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("head", ["", "GET /hea", GET[:-2]])
def test_headers_that_do_not_end(server, monkeypatch, head):
    monkeypatch.setattr(HttpProtocol, "head_s", 0.3)
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(opened(server, head))
        assert rest(connection) == b""


def test_bytes_now_and_then_are_no_headers(server, monkeypatch):
    monkeypatch.setattr(HttpProtocol, "head_s", 0.3)
    with opened(server, "GET /health HTTP/1.1\r\nX: ") as connection:
        connection.settimeout(0.02)
        for _ in range(500):
            try:
                connection.sendall(b"x")
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    raise AssertionError("The connection is still open.")


def test_a_second_request_that_does_not_end(server, monkeypatch):
    monkeypatch.setattr(HttpProtocol, "head_s", 0.3)
    with opened(server, GET) as connection:
        answer = b""
        while not answer.endswith(b"}}}"):
            answer += connection.recv(65_536)
        connection.sendall(b"GET /hea")
        assert rest(connection) == b""


def test_a_long_answer_is_no_idleness(server, monkeypatch):
    """The time is the headers' alone: neither a body's nor an answer's."""
    monkeypatch.setattr(HttpProtocol, "head_s", 0.3)
    head = GET.replace("GET /health", "POST /v1/chat/completions")[:-2]
    with opened(server, f"{head}Content-Length: 2\r\n\r\n{{") as connection:
        time.sleep(1)
        connection.sendall(b"}")
        assert b"HTTP/1.1 400" in connection.recv(65_536)


def test_an_address_of_a_websocket_that_is_too_long(server):
    with opened(server, UPGRADE.format("x" * 9000)) as connection:
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"8,192 bytes" in answer
