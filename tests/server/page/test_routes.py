"""What serves the page: its files and nothing else, under a policy that loads nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stapes
from server.serving import Running, serving
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.server.page_routes import page_files
from stapes.server.served import Served

FOLDER = Path(stapes.__file__).parent / "server" / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
KEY = "k" * 20
MOST_LINES = 400


@pytest.fixture(scope="module")
def guarded(speech: Qwen3Asr):
    with serving(Served({speech.name: speech}), api_keys=(KEY,)) as running:
        yield running


def test_every_file_has_its_type(page_server: Running):
    with page_server.client() as client:
        for name in page_files():
            address = "/" if name == "index.html" else f"/static/{name}"
            answer = client.get(address)
            assert answer.status_code == 200
            assert answer.content == (FOLDER / name).read_bytes()
            assert answer.headers["content-type"].split(";")[0] == TYPES[Path(name).suffix]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert client.head(address).status_code == 200


def test_the_table_holds_the_whole_folder():
    assert set(page_files()) == {path.name for path in FOLDER.iterdir()}


def test_policy(page_server: Running):
    with page_server.client() as client:
        policy = client.get("/").headers["content-security-policy"]
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["default-src"] == "'none'"
    assert set(parts.values()) <= {"'none'", "'self'", "blob:"}
    assert parts["script-src"] == "'self'"
    assert parts["frame-ancestors"] == "'none'"


def test_unchanged_files_are_not_sent_again(page_server: Running):
    with page_server.client() as client:
        first = client.get("/static/main.js")
        again = client.get("/static/main.js", headers={"If-None-Match": first.headers["etag"]})
        other = client.get("/static/main.js", headers={"If-None-Match": '"other"'})
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/index.html",
        "/static/none.js",
        "/static/../page_routes.py",
        "/static/%2e%2e/page_routes.py",
        "/static/..%2fpage_routes.py",
        "/static/%2fetc%2fpasswd",
        "/static//etc/passwd",
        "/static/main.js%00",
        "/static/page/main.js",
        "/index.html",
    ],
)
def test_nothing_else_is_served(page_server: Running, path: str):
    # A connection of its own: clients tidy such paths up.
    import http.client

    host = page_server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    assert answer.status == 404
    assert b"error" in body
    assert b"import" not in body


def test_settings(guarded: Running):
    with guarded.client() as client:
        told = client.get("/static/settings.json").json()
    assert told["key_needed"] is True
    assert told["max_upload_bytes"] == 512 * 2**20
    assert told["live"] is False
    assert {"code": "de", "name": "German"} in told["languages"]
    assert KEY not in str(told)


def test_the_page_is_open_and_the_rest_is_not(guarded: Running):
    with guarded.client() as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/main.js").status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.post("/v1/audio/subtitles", json={}).status_code == 401


def test_files_name_only_each_other():
    """No address of another host; every module, style and picture that is named is there."""
    for name, file in page_files().items():
        text = file.data.decode()
        without_names = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]", without_names), name
        named = re.findall(r"/static/([\w.-]+)", text) + re.findall(r'from "\./([\w.-]+)"', text)
        assert set(named) <= {*page_files(), "settings.json"}, name


def test_no_script_or_style_within_the_document():
    """The policy would refuse it."""
    text = page_files()["index.html"].data.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=", text)
    assert re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL) == [""]


def test_files_stay_short():
    lengths = {name: len(file.data.splitlines()) for name, file in page_files().items()}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}
