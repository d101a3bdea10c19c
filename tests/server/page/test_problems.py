"""What goes wrong, in one sentence each, and what the user can do then."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.page.chromium import Page
from server.serving import serving
from server.told import EXAMPLES, EXPECTED
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.server.config import MEGABYTE
from stapes.server.served import Served

NAME = "digits-5.wav"
KEY = "the-key-of-the-lighthouse"


def test_a_text_is_no_recording(page: Page, tmp_path: Path):
    path = tmp_path / "letter.wav"
    path.write_text("Dear reader, this is no sound.\n" * 50)
    page.choose(path)
    sentence = page.wait_for_problem()
    assert "letter.wav" in sentence
    assert "Traceback" not in sentence
    assert page.state == "idle"
    assert page["problem"].get_attribute("role") == "alert"
    page["dismiss"].click()
    assert not page.shown("problem")
    assert page.focused == "choose"


def test_an_empty_file(page: Page, tmp_path: Path):
    path = tmp_path / "empty.wav"
    path.touch()
    page.choose(path)
    assert page.wait_for_problem() == "empty.wav is empty."


def test_too_large_is_said_before_the_upload(page_of, tmp_path: Path):
    page, running = page_of(max_upload_bytes=MEGABYTE)
    page.open()
    assert page.text("limit").endswith("up to 1\u00a0MB")
    path = tmp_path / "large.wav"
    path.write_bytes(bytes(3 * MEGABYTE))
    page.choose(path)
    assert page.wait_for_problem() == "large.wav has 3.0 MB; this server takes up to 1 MB."
    assert not any("transcriptions" in url for url in page.requested())
    assert running.worker.places_taken == 0


def test_several_files(page: Page):
    page.drop(EXAMPLES / NAME, EXAMPLES / "digits-3.wav")
    assert "One recording at a time" in page.wait_for_problem()
    assert page.state == "idle"


def test_a_name_is_shown_and_never_run(page: Page, tmp_path: Path):
    path = tmp_path / "<img src=x onerror=alert(1)>.wav"
    path.write_text("no sound")
    page.choose(path)
    assert "<img src=x onerror=alert(1)>.wav" in page.wait_for_problem()
    assert page.all("img") == []


def test_the_server_is_gone(page_of, browser, downloads, speech: Qwen3Asr):
    with serving(Served({speech.name: speech})) as running:
        page = Page(browser, running.url, downloads).open()
    page.choose(EXAMPLES / NAME)
    assert "cannot be reached" in page.wait_for_problem()
    page.wait(lambda: page.text("server-state") == "Not reachable")
    assert page.state == "idle"
    assert page.shown("retry")
    browser.get("about:blank")


def test_try_again(page: Page):
    """The same file and choices, once what was wrong is gone."""
    page.js(
        "window.real = XMLHttpRequest.prototype.open;"
        "XMLHttpRequest.prototype.open = function () { window.real.call(this, 'POST', '/gone'); }"
    )
    page.choose(EXAMPLES / NAME)
    assert "/gone" in page.wait_for_problem()
    page.js("XMLHttpRequest.prototype.open = window.real")
    page["retry"].click()
    page.wait_for("done")
    assert page.segments == [EXPECTED[NAME]]
    assert page.said() == ""


def test_subtitles_are_asked_for_again_without_the_recording(page: Page):
    page.requested()
    page.js(
        "window.real = fetch; window.fetch = (path, options) =>"
        " real(path.endsWith('subtitles') ? '/gone' : path, options)"
    )
    page.choose(EXAMPLES / NAME)
    assert "/gone" in page.wait_for_problem()
    assert page.state == "done"
    assert page.saved("txt").decode() == EXPECTED[NAME] + "\n"
    assert not page.shown("save-srt")
    page.js("window.fetch = window.real")
    page["retry"].click()
    page.wait(lambda: page.shown("save-srt") and page.shown("save-vtt"))
    assert page.said() == ""
    assert sum("transcriptions" in url for url in page.requested()) == 1


def test_a_busy_server(page_of, speech: Qwen3Asr):
    page, running = page_of(Served({speech.name: speech}), max_queue=0)
    page.open()
    places = []
    while True:  # every place is taken
        try:
            places.append(running.worker.reserve(speech.name))
        except Exception:
            break
    try:
        page.choose(EXAMPLES / NAME)
        sentence = page.wait_for_problem()
        assert page.state == "idle"
        assert page.shown("retry")
    finally:
        for place in places:
            place.close()
    assert sentence
    page["retry"].click()
    page.wait_for("done")


def test_a_server_that_is_stopping(page_of, tmp_path: Path):
    """It refuses large uploads before it has read them."""
    page, running = page_of()
    page.open()
    path = tmp_path / "large.wav"
    path.write_bytes(bytes(40 * MEGABYTE))
    running.worker.drain()
    page.choose(path)
    assert "stopping" in page.wait_for_problem()
    assert page.shown("retry")
    page.wait(lambda: page.text("server-state") == "Stopping")


@pytest.fixture
def guarded(page_of) -> Page:
    page, _ = page_of(api_keys=(KEY,))
    page.open(models=False)
    page.wait(lambda: page.shown("key-form"))
    return page


def test_the_key_is_asked_for(guarded: Page):
    assert guarded.focused == "key"
    guarded["key"].send_keys("not-the-key-of-the-house\n")
    guarded.wait(lambda: "not valid" in guarded.text("key-hint"))
    assert guarded.shown("key-form")
    guarded["key"].send_keys(KEY + "\n")
    guarded.wait(lambda: not guarded.shown("key-form"))
    guarded.wait(lambda: guarded.js("return document.getElementById('model').value"))
    guarded.choose(EXAMPLES / NAME)
    guarded.wait_for("done")
    assert guarded.segments == [EXPECTED[NAME]]
    assert guarded.saved("srt")


def test_the_key_stays_in_the_tab_alone(guarded: Page):
    guarded["key"].send_keys(KEY + "\n")
    guarded.wait(lambda: not guarded.shown("key-form"))
    assert guarded.js("return [localStorage.length, document.cookie]") == [0, ""]
    assert guarded.js("return Object.values(sessionStorage)") == [KEY]
    assert KEY not in guarded.browser.page_source
    guarded.open()  # the same tab knows it
    assert not guarded.shown("key-form")


def test_queue_and_models(page_of, speech: Qwen3Asr):
    page, running = page_of(Served({speech.name: speech}), slots=1)
    page.open()
    page.wait(lambda: page.text("server-state") == "Ready")
    page.all("#server summary")[0].click()
    page.wait(lambda: speech.name in page.text("server-models"))
    assert "0 of 1" in page.text("server-models")
    lane = running.worker.lanes[speech.name]
    type(lane).waiting, real = property(lambda self: 3), type(lane).waiting
    try:
        page.wait(lambda: page.text("server-state") == "0 running, 3 waiting")
    finally:
        type(lane).waiting = real
