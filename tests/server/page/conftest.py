"""Pages of real servers in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from server.page.hearing import HeardStream
from server.serving import Running, serving
from server.told import EXAMPLES
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.server.served import Served

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from server.page.chromium import Page

DIGITS = EXAMPLES / "digits-5.wav"


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def browser(downloads: Path) -> Iterator[Chrome]:
    from server.page.chromium import chromium

    with chromium(downloads, DIGITS) as started:
        yield started


@pytest.fixture(scope="session")
def page_server(speech: Qwen3Asr) -> Iterator[Running]:
    """Keeps nothing from one test to the next."""
    with serving(Served({speech.name: speech}, open_stream=HeardStream)) as running:
        yield running


@pytest.fixture
def page(browser: Chrome, page_server: Running, downloads: Path) -> Iterator[Page]:
    """The page, loaded anew."""
    from server.page.chromium import Page

    opened = Page(browser, page_server.url, downloads)
    opened.console()
    opened.requested()
    yield opened.open()
    browser.get("about:blank")


@pytest.fixture
def page_of(
    browser: Chrome, downloads: Path, speech: Qwen3Asr
) -> Iterator[Callable[..., tuple[Page, Running]]]:
    """Starts a server of one's own, and gives its page, which is not yet loaded."""
    from contextlib import ExitStack

    from server.page.chromium import Page

    with ExitStack() as stack:

        def make(served: Served | None = None, **config: Any) -> tuple[Page, Running]:
            served = served or Served({speech.name: speech}, open_stream=HeardStream)
            running = stack.enter_context(serving(served, **config))
            return Page(browser, running.url, downloads), running

        yield make
        browser.get("about:blank")
