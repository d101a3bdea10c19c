"""A server that speaks the Hugging Face hub's protocol, as much of it as its client uses.

Small files are served where they are asked for; weights are large files, for which the hub answers
with a redirect to another host that serves ranges (here the same one by another name).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".gguf")


@dataclass
class Repository:
    """Files by name, as of one revision.

    Attributes:
        token: without which the repository is not shown.
        error: an answer that takes the place of every other: status, X-Error-Code, message.
    """

    files: dict[str, bytes]
    token: str | None = None
    error: tuple[int, str, str] | None = None

    @property
    def commit(self) -> str:
        digest = hashlib.sha1()
        for name, data in sorted(self.files.items()):
            digest.update(name.encode() + b"\0" + data)
        return digest.hexdigest()

    def tree(self) -> list[dict[str, Any]]:
        return [_tree_entry(name, data) for name, data in sorted(self.files.items())]


def _tree_entry(name: str, data: bytes) -> dict[str, Any]:
    entry = {"type": "file", "path": name, "size": len(data), "oid": _git_id(data)}
    if name.endswith(LARGE):
        entry["lfs"] = {"oid": _sha256(data), "size": len(data), "pointerSize": 134}
    return entry


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class FakeHub:
    """What the server serves, and what it was asked.

    Attributes:
        cut_after: bytes of a large file after which the connection is closed, once.
        requests: (method, path, value of Range or "") of each request.
    """

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    cut_after: int | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_folder(self, name: str, folder: Path) -> Repository:
        """A repository that holds what lies in a folder."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        self.repositories[name] = Repository(files)
        return self.repositories[name]

    def asked_for(self, suffix: str) -> list[tuple[str, str]]:
        """(method, Range) of the requests for paths that end so."""
        return [(method, sent) for method, path, sent in self.requests if path.endswith(suffix)]

    def take_cut(self) -> int | None:
        with self.lock:
            cut, self.cut_after = self.cut_after, None
        return cut


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve on a free port of this machine for as long as the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.hub = FakeHub(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.hub  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub: FakeHub = self.server.hub  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name, rest = "/".join(parts[2:4]), parts[4:]
            self._with_repository(hub, name, lambda repo: self._api(repo, name, rest))
        elif parts[0] == "large":
            data = next(
                data
                for repo in hub.repositories.values()
                for data in repo.files.values()
                if _sha256(data) == parts[1]
            )
            self._send_data(data, {"ETag": f'"{parts[1]}"'}, hub.take_cut())
        else:
            name, file = "/".join(parts[:2]), "/".join(parts[4:])
            self._with_repository(hub, name, lambda repo: self._resolve(hub, repo, file))

    def _with_repository(self, hub: FakeHub, name: str, answer: Any) -> None:
        repo = hub.repositories.get(name)
        if repo is not None and repo.error is not None:
            self._refuse(*repo.error)
            return
        sent = self.headers.get("Authorization", "")
        if repo is None or (repo.token and sent != f"Bearer {repo.token}"):
            # The hub does not tell the two apart.
            self._refuse(404 if sent else 401, "RepoNotFound", "Repository not found")
            return
        answer(repo)

    def _api(self, repo: Repository, name: str, rest: list[str]) -> None:
        if rest[:1] == ["tree"]:
            self._send_json(repo.tree())
            return
        siblings = [{"rfilename": file} for file in sorted(repo.files)]
        self._send_json({"id": name, "modelId": name, "sha": repo.commit, "siblings": siblings})

    def _resolve(self, hub: FakeHub, repo: Repository, file: str) -> None:
        if file not in repo.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        data, fields = repo.files[file], {"X-Repo-Commit": repo.commit}
        if not file.endswith(LARGE):
            self._send_data(data, {**fields, "ETag": f'"{_git_id(data)}"'}, None)
            return
        digest = _sha256(data)
        self.send_response(302)
        linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{digest}"'}
        host = hub.url.replace("127.0.0.1", "localhost")
        location = {"Location": f"{host}/large/{digest}", "Content-Length": "0"}
        self._end({**fields, **linked, **location})

    def _send_json(self, value: Any) -> None:
        self._send_data(json.dumps(value).encode(), {"Content-Type": "application/json"}, None)

    def _send_data(self, data: bytes, fields: dict[str, str], cut: int | None) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if "Range" in self.headers else 200)
        if "Range" in self.headers:
            fields = fields | {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        self._end({**fields, "Content-Length": str(len(data) - start), "Accept-Ranges": "bytes"})
        if self.command == "HEAD":
            return
        if cut is not None:
            self.wfile.write(data[start : start + cut])
            self.close_connection = True
            return
        self.wfile.write(data[start:])

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        self._end({"X-Error-Code": code, "X-Error-Message": message, "Content-Length": "0"})

    def _end(self, fields: dict[str, str]) -> None:
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
