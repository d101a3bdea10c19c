"""The hub's client turned to a server of the test's, with caches of the test's."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_hub import FakeHub, fake_hub


@dataclass
class Setting:
    """A server, and the folders in which its models end up."""

    hub: FakeHub
    patch: pytest.MonkeyPatch
    cache: Path
    converted: Path

    def offline(self) -> None:
        """As HF_HUB_OFFLINE=1, which the client reads when it is imported."""
        constants = importlib.import_module("huggingface_hub.constants")
        self.patch.setattr(constants, "HF_HUB_OFFLINE", True)

    def asked(self) -> int:
        """Requests for models so far."""
        return sum("/api/agent" not in path for _, path, _ in self.hub.requests)


@contextmanager
def hub_setting(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """The client reads its environment once, so its constants are changed."""
    constants = importlib.import_module("huggingface_hub.constants")
    with fake_hub() as hub:
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "ENDPOINT", hub.url)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("STAPES_CACHE", str(folder / "stapes"))
        yield Setting(hub, patch, folder / "hub", folder / "stapes" / "converted")
