"""From a file to its saved transcript, and playing it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit

import av
import pytest
import srt
import webvtt

from server.page.chromium import Page
from server.serving import Running
from server.sounds_for import long_recording
from server.told import EXAMPLES, EXPECTED
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.transcript import Word
from stapes.server.served import Served

NAME = "digits-5.wav"


def transcribed(page: Page, name: str = NAME) -> str:
    page.choose(EXAMPLES / name)
    page.wait_for("done")
    return " ".join(page.segments)


def subtitles(page_server: Running, kind: str) -> str:
    """What the API gives for the same file."""
    with page_server.client() as client:
        fields = {"model": "tiny-en", "response_format": kind}
        files = {"file": (EXAMPLES / NAME).read_bytes()}
        return client.post("/v1/audio/transcriptions", data=fields, files=files).text


def test_a_file_becomes_saved_subtitles(page: Page, page_server: Running):
    assert transcribed(page) == EXPECTED[NAME]
    assert page.text("title") == NAME
    assert page.text("facts").split(" · ")[1:] == ["English", "tiny-en"]
    assert page.focused == "title"
    saved = page.saved("srt").decode()
    assert saved == subtitles(page_server, "srt")
    cues = list(srt.parse(saved))
    assert " ".join(cue.content for cue in cues).replace("\n", " ") == EXPECTED[NAME]
    saved = page.saved("vtt").decode()
    assert saved == subtitles(page_server, "vtt")
    assert len(webvtt.from_buffer(StringIO(saved))) == len(cues)
    assert page.saved("txt").decode() == EXPECTED[NAME] + "\n"
    told = json.loads(page.saved("json"))
    assert told["text"] == EXPECTED[NAME]
    assert told["segments"][0]["end"] <= told["duration"]


def test_nothing_is_asked_of_others_and_nothing_is_refused(page: Page):
    """One upload, no other origin, no violated policy, no error."""
    transcribed(page)
    page.saved("srt")
    asked = page.requested()
    others = [url for url in asked if urlsplit(url).scheme not in ("blob", "data")]
    assert len(others) > 10
    assert {url for url in others if not url.startswith(page.url + "/")} == set()
    assert sum("/v1/audio/transcriptions" in url for url in asked) == 1
    assert page.console() == []


def test_a_dropped_file(page: Page):
    page.drop(EXAMPLES / "digits-10.flac")
    page.wait_for("done")
    assert " ".join(page.segments) == EXPECTED["digits-10.flac"]
    assert not page.js("return document.body.classList.contains('dragging')")


def test_one_file_after_the_other(page: Page):
    transcribed(page)
    page["again"].click()
    assert page.state == "idle"
    assert page.focused == "choose"
    assert transcribed(page, "digits-3.wav") == EXPECTED["digits-3.wav"]
    assert page.text("title") == "digits-3.wav"
    assert page.saved("txt").decode() == EXPECTED["digits-3.wav"] + "\n"


def test_language_and_context_are_sent(page: Page, page_of):
    page["context"].send_keys("Ships & lighthouses")
    page.js("document.getElementById('language').value = 'en'")
    page.js(
        "window.sent = []; const send = XMLHttpRequest.prototype.send;"
        "XMLHttpRequest.prototype.send = function (form) {"
        " window.sent = [...form].filter(([n]) => n !== 'file'); send.call(this, form); }"
    )
    transcribed(page)
    assert page.js("return window.sent") == [
        ["model", "tiny-en"],
        ["response_format", "verbose_json"],
        ["stream", "true"],
        ["timestamp_granularities[]", "segment"],
        ["language", "en"],
        ["prompt", "Ships & lighthouses"],
    ]


def position(page: Page) -> float:
    return float(page.js("return document.getElementById('audio').currentTime"))


def is_playing(page: Page) -> bool:
    return bool(page.js("return !document.getElementById('audio').paused"))


def test_words_and_segments_play_when_clicked(page: Page):
    transcribed(page)
    words = page.all(".word")
    assert [word.text for word in words] == EXPECTED[NAME].split()
    words[2].click()
    page.wait(lambda: page.all(".word.spoken"))
    assert page.all("li.current")
    first = position(page)
    duration = float(page.js("return document.getElementById('audio').duration"))
    assert 0.2 * duration < first < 0.8 * duration  # the third of five words
    page.wait(lambda: position(page) > first + 0.2)
    page["play"].click()
    page.wait(lambda: not is_playing(page))
    assert page["play"].accessible_name == "Play"
    page.all(".time")[0].click()
    page.wait(lambda: is_playing(page))
    assert position(page) < first
    assert page["play"].accessible_name == "Pause"


def test_the_waveform_plays_where_it_is_clicked(page: Page):
    transcribed(page)
    page.wait(lambda: drawn(page))
    from selenium.webdriver import ActionChains

    canvas = page["waveform"]
    quarter = canvas.size["width"] // 4
    ActionChains(page.browser).move_to_element_with_offset(canvas, quarter, -20).click().perform()
    page.wait(lambda: is_playing(page))
    duration = float(page.js("return document.getElementById('audio').duration"))
    assert 0.7 * duration < position(page) < duration


def drawn(page: Page) -> bool:
    """Whether the picture of the sound is more than a line: high bars somewhere."""
    script = """
        const canvas = document.getElementById('waveform');
        if (!canvas.width) return false;
        const row = Math.round(canvas.height * 0.3);
        const pixels = canvas.getContext('2d').getImageData(0, row, canvas.width, 1).data;
        let filled = 0;
        for (let i = 3; i < pixels.length; i += 4) filled += pixels[i] > 0;
        return filled > canvas.width / 20;
    """
    return bool(page.js(script))


class EvenAligner:
    """Gives each word the same time."""

    name = "even"

    def align_samples(self, samples, text, *, start_s, language):
        del language
        words = text.split()
        each = len(samples) / 16_000 / len(words)
        return [Word(w, start_s + i * each, start_s + (i + 1) * each) for i, w in enumerate(words)]


def test_words_of_an_aligner(page_of, speech: Qwen3Asr):
    page, _ = page_of(Served({speech.name: speech}, aligner=EvenAligner()))
    page.open()
    assert transcribed(page) == EXPECTED[NAME]
    told = json.loads(page.saved("json"))
    assert [word["word"] for word in told["words"]] == EXPECTED[NAME].split()
    page.all(".word")[3].click()
    page.wait(lambda: is_playing(page))
    assert position(page) == pytest.approx(told["words"][3]["start"], abs=0.6)
    assert position(page) >= told["words"][3]["start"]


def other_kind(path: Path) -> Path:
    """A recording as FFmpeg's own container with 8-bit sound, which browsers do not know."""
    with av.open(str(EXAMPLES / NAME)) as given, av.open(str(path), "w", format="au") as made:
        stream = made.add_stream("pcm_alaw", rate=8000, layout="mono")
        resampler = av.AudioResampler("s16", "mono", 8000)
        for frame in [*given.decode(audio=0), None]:
            for part in resampler.resample(frame):
                made.mux(stream.encode(part))
        made.mux(stream.encode(None))
    return path


def test_what_the_browser_cannot_play_is_transcribed(page: Page, tmp_path: Path):
    page.choose(other_kind(tmp_path / "old.au"))
    page.wait_for("done")
    assert page.segments
    assert page.text("facts").startswith("0:0")
    assert "cannot play" in page.text("sound-note")
    assert not page["play"].is_enabled()
    assert list(srt.parse(page.saved("srt").decode()))


def test_parts_come_while_the_rest_is_transcribed(page: Page, tmp_path: Path):
    """Text, a bar that moves, and Cancel, which keeps the text that came."""
    path = tmp_path / "long.wav"
    path.write_bytes(long_recording(60).getvalue())
    page.choose(path)
    page.wait(lambda: page.segments)
    assert page.state == "working"
    assert page.focused == "cancel"
    page.wait(lambda: page.text("phase").startswith("Transcribed "))
    assert 0 < float(page.js("return document.getElementById('progress').value")) < 1
    page["cancel"].click()
    page.wait_for("done")
    assert "incomplete" in page.text("facts")
    count = len(page.segments)
    assert page.saved("txt").decode().strip() == " ".join(page.segments)
    assert list(srt.parse(page.saved("srt").decode()))
    assert len(page.segments) == count


def test_cancelled_before_any_text(page: Page, page_server: Running, tmp_path: Path):
    path = tmp_path / "long.wav"
    path.write_bytes(long_recording(60).getvalue())
    page.js(
        "const add = (node) => node.click();"
        "new MutationObserver(() => { if (document.body.dataset.state === 'working')"
        " add(document.getElementById('cancel')); })"
        ".observe(document.body, { attributes: true });"
    )
    page.choose(path)
    page.wait(lambda: page.state == "idle" and not page.shown("work"))
    page.wait(lambda: page_server.worker.places_taken == 0)
    assert page.said() == ""
