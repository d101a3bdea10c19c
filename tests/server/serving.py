"""A real server at a free port, in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import openai

from stapes.server.app import App, create_app
from stapes.server.config import ServerConfig
from stapes.server.run import in_background
from stapes.server.served import Served


@dataclass
class Running:
    """A server that runs.

    Attributes:
        url: without a slash at the end.
        app: what is served.
    """

    url: str
    app: App

    @property
    def worker(self) -> Any:
        return self.app.worker

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)


def client_of(running: Running, key: str = "any", **options: Any) -> openai.OpenAI:
    """The real client, which does not try again."""
    chosen = {"max_retries": 0, "timeout": 60, **options}
    http = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, http_client=http, **chosen)


@contextmanager
def serving(served: Served, slots: int | None = None, **config: Any) -> Iterator[Running]:
    """Serves until the `with` block ends, and checks that nothing of it is left."""
    chosen = ServerConfig(**{"port": 0, **config})
    app = create_app(served, chosen, slots)
    with in_background(app, chosen) as url:
        yield Running(url, app)
    assert app.worker.places_taken == 0
