"""Live text from the microphone, for which Chromium plays a file."""

from __future__ import annotations

import json
import time

import pytest

from server.page.chromium import Page
from server.page.hearing import TalkingStream
from server.told import EXPECTED
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.server.served import Served

SPOKEN = EXPECTED["digits-5.wav"]


def partial(page: Page) -> str:
    return page.text("partial")


def test_live_text_while_somebody_speaks(page: Page):
    """Then the recording stays: it plays, and its transcript is saved like any other's."""
    page["microphone"].click()
    page.wait_for("live")
    assert page.focused == "stop"
    page.wait(lambda: partial(page) == SPOKEN, "for the words")
    assert page.segments == []
    page["stop"].click()
    page.wait_for("done")
    assert page.segments == [SPOKEN]
    assert partial(page) == ""
    assert page.text("title").startswith("Recording ")
    told = json.loads(page.saved("json"))
    assert told["text"] == SPOKEN
    assert told["language"] == "english"
    assert page.saved("srt").decode().count(" --> ") >= 1
    duration = page.js("return document.getElementById('audio').duration")
    assert duration == pytest.approx(told["duration"], abs=0.05)
    assert duration > 2
    page.all(".word")[1].click()
    page.wait(lambda: page.js("return document.getElementById('audio').currentTime") > 0.3)
    assert page.said() == ""
    assert page.console() == []


def test_settled_text_is_told_apart(page_of, speech: Qwen3Asr):
    page, _ = page_of(Served({speech.name: speech}, open_stream=lambda *asked: TalkingStream()))
    page.open()["microphone"].click()
    page.wait(lambda: partial(page) == "one two three four", "for all words")
    assert page.js("return document.querySelector('#partial b').textContent") == "one two"
    page["stop"].click()
    page.wait_for("done")
    assert page.segments == ["one two three.", "Four."]
    assert page.saved("txt").decode() == "one two three. Four.\n"


def test_language_context_and_model_are_asked_for(page_of, speech: Qwen3Asr):
    asked = []

    def open_stream(model, language, context, batch):
        asked.append((model.name, language, context))
        return TalkingStream()

    page, _ = page_of(Served({speech.name: speech}, open_stream=open_stream))
    page.open()
    page.js("document.getElementById('language').value = 'en'")
    page["context"].send_keys("Häfen & Leuchttürme")
    page["microphone"].click()
    page.wait(lambda: partial(page), "for words")
    page["stop"].click()
    page.wait_for("done")
    assert asked == [(speech.name, "English", "Häfen & Leuchttürme")]


def test_with_a_key(page_of, speech: Qwen3Asr):
    key = "the-key-of-the-lighthouse"
    served = Served({speech.name: speech}, open_stream=lambda *asked: TalkingStream())
    page, _ = page_of(served, api_keys=(key,))
    page.open(models=False)
    page.wait(lambda: page.shown("key-form"))
    page["key"].send_keys(key + "\n")
    page.wait(lambda: not page.shown("key-form"))
    page["microphone"].click()
    page.wait(lambda: partial(page), "for words")
    page["stop"].click()
    page.wait_for("done")
    assert page.segments == ["one two three.", "Four."]


def test_refused(page: Page):
    page.js(
        "navigator.mediaDevices.getUserMedia ="
        " () => Promise.reject(new DOMException('no', 'NotAllowedError'))"
    )
    page["microphone"].click()
    assert "Allow it" in page.wait_for_problem()
    assert page.state == "idle"


def test_no_microphone_button_without_live_transcription(page_of, speech: Qwen3Asr):
    page, _ = page_of(Served({speech.name: speech}))
    page.open()
    assert not page.shown("microphone")


class FailingStream(TalkingStream):
    def _news(self):
        raise RuntimeError("something that should not happen")


def test_what_fails_is_told_and_the_sound_stays(page_of, speech: Qwen3Asr, caplog):
    page, _ = page_of(Served({speech.name: speech}, open_stream=lambda *asked: FailingStream()))
    page.open()["microphone"].click()
    assert "went wrong in the server" in page.wait_for_problem()
    page.wait_for("done")
    assert page["play"].is_enabled()
    assert "incomplete" in page.text("facts")
    page.wait(page["retry"].is_enabled)
    page["retry"].click()  # sends the recording as a file
    page.wait_for("done")
    page.wait(lambda: page.text("facts") and "incomplete" not in page.text("facts"))
    assert page.said() == ""
    assert "something that should not happen" in caplog.text
    assert "should not happen" not in page.browser.page_source


class SlowStream(TalkingStream):
    """Never says its last words."""

    @property
    def pending(self) -> bool:
        return True

    def poll(self):
        time.sleep(0.02)
        return self._news() if self._has_news() else []


def test_the_last_words_need_not_be_waited_for(page_of, speech: Qwen3Asr):
    page, running = page_of(Served({speech.name: speech}, open_stream=lambda *asked: SlowStream()))
    page.open()["microphone"].click()
    page.wait(lambda: partial(page) == "one two three four", "for all words")
    page["stop"].click()
    page.wait(lambda: "waiting for the last words" in page.text("facts"))
    assert page.focused == "cancel"
    page["cancel"].click()
    page.wait_for("done")
    assert "incomplete" in page.text("facts")
    page.wait(lambda: running.worker.places_taken == 0)
    assert page["play"].is_enabled()
