"""A headless Chromium, driven through WebDriver."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

selenium = pytest.importorskip("selenium", reason="the package selenium is not installed")

from selenium.webdriver import Chrome, ChromeOptions, ChromeService  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402

__all__ = ["Keys", "Page", "chromium"]

PATIENCE_S = 40.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",  # containers have little of it
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,900",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)


@contextmanager
def chromium(downloads: Path, microphone: Path) -> Iterator[Chrome]:
    """A new browser without a profile; it hears a WAV file in its microphone, once.

    Skips the test where there is none.
    """
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("Chromium or its driver is not installed (make test-deps)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = binary
        for flag in _FLAGS:
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={profile}")
        options.add_argument(f"--use-file-for-fake-audio-capture={microphone}%noloop")
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        browser = Chrome(options=options, service=ChromeService(driver))
        try:
            yield browser
        finally:
            browser.quit()


class Page:
    """The page in a browser, by the ids of its elements."""

    def __init__(self, browser: Chrome, url: str, downloads: Path) -> None:
        self.browser, self.url, self.downloads = browser, url, downloads

    def open(self, *, models: bool = True) -> Page:
        """Load it, and wait for the models."""
        self.browser.get(self.url)
        if models:
            self.wait(lambda: self.js("return document.getElementById('model').value"))
        return self

    def js(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def module(self, script: str, *arguments: Any) -> Any:
        """Run the body of an async function, which may import the page's modules."""
        told = self.browser.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            f"(async (...given) => {{ {script} }})(...arguments)"
            ".then((value) => done({ value }), (error) => done({ error: String(error) }));",
            *arguments,
        )
        assert "error" not in told, told["error"]
        return told.get("value")

    def cdp(self, command: str, **fields: Any) -> Any:
        return self.browser.execute_cdp_cmd(command, fields)

    def __getitem__(self, name: str) -> WebElement:
        return self.browser.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, name: str) -> str:
        return str(self.js("return document.getElementById(arguments[0]).innerText", name)).strip()

    def shown(self, name: str) -> bool:
        return self[name].is_displayed()

    @property
    def state(self) -> str:
        return str(self.js("return document.body.dataset.state"))

    @property
    def focused(self) -> str:
        return str(self.js("return document.activeElement.id"))

    @property
    def segments(self) -> list[str]:
        return [str(item) for item in self.js(
            "return [...document.querySelectorAll('#segments .text')].map((e) => e.textContent)"
        )]  # fmt: skip

    def wait(self, check: Callable[[], Any], what: str = "") -> Any:
        """Until it is true."""
        ends = time.perf_counter() + PATIENCE_S
        while not (found := check()):
            assert time.perf_counter() < ends, f"waited in vain {what}: {self.state}, {self.said()}"
            time.sleep(0.02)
        return found

    def wait_for(self, state: str) -> None:
        self.wait(lambda: self.state == state, f"for {state}")

    def said(self) -> str:
        """What the page says of a problem."""
        return self.text("problem-text") if self.shown("problem") else ""

    def wait_for_problem(self) -> str:
        return str(self.wait(self.said, "for a problem"))

    def choose(self, *files: Path) -> None:
        """Choose files in the file dialog, which WebDriver stands in for."""
        self.cdp("DOM.enable")
        root = self.cdp("DOM.getDocument")["root"]["nodeId"]
        node = self.cdp("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.cdp("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, *files: Path) -> None:
        """Drag files from outside and drop them on the page."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.cdp("Input.dispatchDragEvent", type=kind, x=400, y=300, data=data)

    def saved(self, kind: str) -> bytes:
        """Click a link that saves the transcript, and read what it saved."""
        link = f"save-{kind}"
        self.wait(lambda: self[link].get_dom_attribute("href"), f"for {link}")
        name = str(self[link].get_dom_attribute("download"))
        path = self.downloads / name
        path.unlink(missing_ok=True)
        self[link].click()
        # The browser reserves the name with an empty file first.
        self.wait(lambda: path.exists() and path.stat().st_size, f"for {name}")
        return path.read_bytes()

    def console(self) -> list[str]:
        """Warnings and errors since the last call; refused policies are among them."""
        return [str(entry["message"]) for entry in self.browser.get_log("browser")]

    def requested(self) -> list[str]:
        """Addresses that the browser has asked for since the last call."""
        entries = self.browser.get_log("performance")
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        opened = [m["params"] for m in messages if m["method"] == "Network.webSocketCreated"]
        return [p["request"]["url"] for p in sent] + [p["url"] for p in opened]
