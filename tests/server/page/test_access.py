"""Keyboard alone, names for screen readers, contrast in light and dark, small screens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.page.chromium import Keys, Page
from server.told import EXAMPLES, EXPECTED

NAME = "digits-5.wav"
CONTROLS = {"button", "link", "textbox", "combobox", "slider", "checkbox", "DisclosureTriangle"}
LEAST_CONTRAST = 4.5  # WCAG AA for text


def press(page: Page, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(page.browser).send_keys(*keys).perform()


def tab_to(page: Page, name: str, most: int = 30) -> None:
    for _ in range(most):
        if page.focused == name:
            return
        press(page, Keys.TAB)
    raise AssertionError(f"Tab does not reach {name}")


def label(page: Page) -> str:
    return str(page.js("return document.activeElement.getAttribute('aria-label')"))


def is_playing(page: Page) -> bool:
    return bool(page.js("return !document.getElementById('audio').paused"))


def test_keyboard_alone(page: Page):
    tab_to(page, "choose")
    page.js("document.getElementById('file').addEventListener('click', (event) => {"
            " window.asked = true; event.preventDefault(); })")  # fmt: skip
    press(page, Keys.ENTER)
    assert page.js("return window.asked")
    tab_to(page, "language")
    press(page, "Engl")
    assert page.js("return document.getElementById('language').value") == "en"
    page.choose(EXAMPLES / NAME)
    page.wait_for("done")
    assert page.focused == "title"
    press(page, " ")
    page.wait(lambda: is_playing(page), "for the space bar")
    press(page, " ")
    page.wait(lambda: not is_playing(page))
    tab_to(page, "seek")
    before = page.js("return document.getElementById('audio').currentTime")
    press(page, *[Keys.ARROW_RIGHT] * 5)
    assert page.js("return document.getElementById('audio').currentTime") > before
    tab_to(page, "save-srt")
    path = page.downloads / "digits-5.srt"
    path.unlink(missing_ok=True)
    press(page, Keys.ENTER)
    page.wait(path.exists, "for the file")


def test_words_by_keyboard(page: Page):
    page.choose(EXAMPLES / NAME)
    page.wait_for("done")
    first = page.all(".time")[0]
    tab_to(page, "save-json")
    press(page, Keys.TAB)
    assert page.js("return document.activeElement === arguments[0]", first)
    assert label(page) == "0:00, play from here"
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert EXPECTED[NAME].split()[2] in label(page)
    assert len(page.all(".word.chosen")) == 1
    press(page, Keys.ENTER)
    page.wait(lambda: is_playing(page))
    assert page.js("return document.getElementById('audio').currentTime") > 0.5
    press(page, Keys.HOME)
    assert label(page) == "0:00, play from here"


def test_the_server_sheet_closes_with_escape(page: Page):
    summary = page.all("#server summary")[0]
    summary.send_keys(Keys.ENTER)
    assert page.shown("server-version")
    press(page, Keys.ESCAPE)
    assert not page.shown("server-version")
    assert page.js("return document.activeElement === arguments[0]", summary)


def nodes(page: Page) -> Iterator[tuple[str, str]]:
    """Roles and names of the accessibility tree."""
    page.cdp("Accessibility.enable")
    for node in page.cdp("Accessibility.getFullAXTree")["nodes"]:
        if not node.get("ignored"):
            yield node["role"]["value"], node.get("name", {}).get("value", "")


def check_names(page: Page) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for role, name in nodes(page):
        found.setdefault(role, []).append(name)
    for role in CONTROLS & set(found):
        assert all(name.strip() for name in found[role]), (role, found[role])
    return found


def test_every_control_has_a_name(page: Page):
    found = check_names(page)
    assert {"Choose a file", "Use the microphone"} <= set(found["button"])
    assert {"Language", "Model"} <= set(found["combobox"])
    assert any(name.startswith("Context") for name in found["textbox"])
    assert found["heading"] == ["Speech to text"]
    page.choose(EXAMPLES / NAME)
    page.wait_for("done")
    page.saved("srt")
    found = check_names(page)
    assert {"Play", "Copy", "New recording", "0:00, play from here"} <= set(found["button"])
    assert "Save as SRT, digits-5.srt" in found["link"]
    assert found["slider"] == ["Position"]
    assert found["log"] == ["Transcript"]
    live = page.js("return document.querySelector('[role=log]').getAttribute('aria-live')")
    assert live == "polite"


CONTRAST = """
    const luminance = ([r, g, b]) => {
      const linear = [r, g, b].map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
      return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const ground = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = numbers(getComputedStyle(at).backgroundColor);
        if (colour.length === 3 || colour[3] === 1) return colour;
      }
      throw new Error("no ground");
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.textContent.trim() || !element.checkVisibility()) continue;
      if (element.closest(":disabled, script, noscript")) continue;
      const [a, b] = [numbers(getComputedStyle(element).color), ground(element)].map(luminance);
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      found.push([ratio, node.textContent.trim().slice(0, 40)]);
    }
    return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(page: Page, scheme: str):
    """Of all text that is seen, in each state of the page."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},  # colours change at once
    ]
    page.cdp("Emulation.setEmulatedMedia", features=features)
    try:
        seen = page.js(CONTRAST)
        grounds = {page.js("return getComputedStyle(document.body).backgroundColor")}
        page.all("#server summary")[0].click()
        seen += page.js(CONTRAST)
        page.choose(EXAMPLES / NAME)
        page.wait_for("done")
        page.all(".word")[0].click()
        page.wait(lambda: page.all(".word.spoken"))
        seen += page.js(CONTRAST)
        page.drop(EXAMPLES / NAME, EXAMPLES / NAME)
        page.wait_for_problem()
        seen += page.js(CONTRAST)
    finally:
        page.cdp("Emulation.setEmulatedMedia", features=[])
    assert len(seen) > 40
    assert [pair for pair in seen if pair[0] < LEAST_CONTRAST] == []
    [ground] = grounds
    level = sum(int(v) for v in ground.strip("rgb()").split(",")) / 3
    assert level > 200 if scheme == "light" else level < 60


@pytest.mark.parametrize("width", [320, 400])
def test_small_screens(page: Page, width: int):
    """Nothing has to be scrolled sideways, and fingers hit what they aim at."""
    page.cdp("Emulation.setDeviceMetricsOverride", width=width, height=700,
             deviceScaleFactor=2, mobile=True)  # fmt: skip
    try:
        page.open()
        check_fits(page, width)
        page.choose(EXAMPLES / "digits-10.flac")
        page.wait_for("done")
        page.wait(lambda: page.shown("save-srt"))
        check_fits(page, width)
    finally:
        page.cdp("Emulation.clearDeviceMetricsOverride")


def check_fits(page: Page, width: int) -> None:
    assert page.js("return document.documentElement.scrollWidth") <= width
    small = page.js(
        "return [...document.querySelectorAll('button:not(.time), .button, select')]"
        ".filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 40)"
        ".map((e) => e.id)"
    )
    assert small == []
