"""The page's modules that compute something, run in the browser."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest

from server.page.chromium import Page

TIMES = "const times = await import('/static/times.js');"
WAV = "const wav = await import('/static/wav.js');"


@pytest.mark.parametrize(
    ("seconds", "shown", "told"),
    [
        (0, "0:00", "0 seconds"),
        (3.9, "0:03", "3 seconds"),
        (61, "1:01", "1 minute 1 second"),
        (3723, "1:02:03", "1 hour 2 minutes 3 seconds"),
        (36000, "10:00:00", "10 hours"),
    ],
)
def test_clocks(page: Page, seconds: float, shown: str, told: str):
    script = TIMES + "return [times.clock(given[0]), times.spokenClock(given[0])]"
    assert page.module(script, seconds) == [shown, told]


def parts(page: Page, text: str, words: list[dict] | None = None) -> list[dict]:
    segment = {"start": 10, "end": 20, "text": text}
    return page.module(TIMES + "return times.timedParts(given[0], given[1])", segment, words or [])


def test_estimated_times_share_the_segment(page: Page):
    found = parts(page, "ab cdefgh")
    assert "".join(part["text"] for part in found) == "ab cdefgh"
    words = [part for part in found if "start" in part]
    assert [word["text"] for word in words] == ["ab", "cdefgh"]
    assert words[0]["start"] == 10
    assert words[1]["start"] == pytest.approx(10 + 10 * 3 / 9)
    assert words[1]["end"] == 20


def test_scripts_without_spaces_have_words(page: Page):
    text = "今天天气很好。我们去公园。"
    found = parts(page, text)
    assert "".join(part["text"] for part in found) == text
    assert len(found) > 3
    assert not any(part["text"] == "。" for part in found)


def test_words_of_the_server(page: Page):
    words = [
        {"word": "One,", "start": 11, "end": 12},
        {"word": "two", "start": 15, "end": 16},
    ]
    found = parts(page, "One, two!", words)
    assert found == [
        {"text": "One,", "start": 11, "end": 12},
        {"text": " "},
        {"text": "two", "start": 15, "end": 16},
        {"text": "!"},
    ]


def test_words_that_do_not_spell_the_text_are_not_used(page: Page):
    words = [{"word": "One", "start": 11, "end": 12}]
    found = parts(page, "One two", words)
    assert [part["text"] for part in found if "start" in part] == ["One", "two"]
    assert found[0]["start"] == 10


def test_texts_are_joined_by_script(page: Page):
    script = TIMES + "return times.joinTexts(given[0])"
    assert page.module(script, ["One.", "", "Two."]) == "One. Two."
    assert page.module(script, ["今天。", "明天。"]) == "今天。明天。"


def test_events_of_a_text_that_grows(page: Page):
    script = """
        const { EventReader } = await import('/static/server.js');
        const reader = new EventReader();
        const text = given[0];
        const found = [];
        for (let end = 0; end <= text.length; end += 1) {
          for (const event of reader.upTo(text.slice(0, end))) found.push([end, event.n]);
        }
        return found;
    """
    text = 'data: {"n": 1}\n\n: comment\n\ndata: {"n":\ndata: 2}\n\ndata: [DONE]\n\ndata: {"n": 3}'
    assert [n for _, n in page.module(script, text)] == [1, 2]


def pcm(kind: str) -> tuple[bytes, list[float]]:
    """A WAV file of two channels, and what its first one holds."""
    first = [0.0, 0.5, -0.5, 0.25]
    both = np.array([[value, -value] for value in first]).reshape(-1)
    if kind == "f32":
        data = both.astype("<f4").tobytes()
    elif kind == "u8":
        data = (both * 128 + 128).astype("u1").tobytes()
    else:
        width = int(kind[1:]) // 8
        whole = np.round(both * 2 ** (8 * width - 1)).astype("<i4")
        data = b"".join(int(value).to_bytes(width, "little", signed=True) for value in whole)
    bits = int(kind[1:])
    chunk = struct.pack(
        "<HHIIHH", 3 if kind == "f32" else 1, 2, 8000, 8000 * bits // 4, bits // 4, bits
    )
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    body = b"WAVE" + odd + b"fmt " + struct.pack("<I", 16) + chunk
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body, first


@pytest.mark.parametrize("kind", ["u8", "s16", "s24", "s32", "f32"])
def test_samples_of_wav_files(page: Page, kind: str):
    file, expected = pcm(kind)
    script = WAV + """
        const bytes = new Uint8Array(given[0]).buffer;
        const header = wav.readHeader(bytes, bytes.byteLength);
        const view = new DataView(bytes, header.offset, header.bytes);
        return [header.rate, [...wav.samplesOf(view, header)]];
    """  # fmt: skip
    rate, samples = page.module(script, list(file))
    assert rate == 8000
    assert samples == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"ID3" + bytes(100), b"RIFF\0\0\0\0WAVE" + bytes(60)]
)
def test_what_is_no_wav_file(page: Page, data: bytes):
    script = WAV + "return wav.readHeader(new Uint8Array(given[0]).buffer, given[0].length)"
    assert page.module(script, list(data)) is None


def test_a_written_wav_file(page: Page):
    script = WAV + """
        const blocks = [new Int16Array([1, -2]), new Int16Array([32767])];
        const bytes = await wav.wavFile(blocks, 16000, 'a.wav').arrayBuffer();
        return Array.from(new Uint8Array(bytes));
    """  # fmt: skip
    with wave.open(io.BytesIO(bytes(page.module(script)))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
        assert file.readframes(9) == struct.pack("<3h", 1, -2, 32767)


def test_peaks(page: Page):
    script = """
        const { Peaks } = await import('/static/peaks.js');
        const peaks = new Peaks();
        const samples = new Float32Array(16000);
        samples[0] = 0.5;
        samples[8000] = -1;
        for (let at = 0; at < samples.length; at += 100) {
          peaks.add(samples.subarray(at, at + 100), 16000);
        }
        return [peaks.duration, peaks.between(0, 0.02), peaks.between(0.02, 0.5),
                peaks.between(0.4, 0.6), peaks.between(5, 6)];
    """
    duration, first, silent, loud, beyond = page.module(script)
    assert duration == 1
    assert first == pytest.approx(0.5, abs=0.01)
    assert (silent, loud, beyond) == (0, 1, 0)


def test_an_hour_does_not_stop_the_page(page: Page):
    """Its loudness is read in steps of which none takes long."""
    script = """
        const { Peaks, readPeaks } = await import('/static/peaks.js');
        const { wavFile } = await import('/static/wav.js');
        const second = Int16Array.from({ length: 8000 }, (_, i) => 8000 * Math.sin(i / 5));
        const hour = wavFile(Array(3600).fill(second), 8000, 'hour.wav');
        const peaks = new Peaks();
        const gaps = [];
        let before = performance.now();
        const timer = setInterval(() => {
          gaps.push(performance.now() - before);
          before = performance.now();
        }, 5);
        let steps = 0;
        const isDrawn = await readPeaks(hour, peaks, {
          seconds: 3600, onGrowth: () => (steps += 1), signal: new AbortController().signal });
        clearInterval(timer);
        return [isDrawn, steps, peaks.duration, gaps.length];
    """
    is_drawn, steps, duration, gaps = page.module(script)
    assert is_drawn
    assert steps > 50
    assert duration == pytest.approx(3600, abs=0.1)
    assert gaps > steps / 3  # others had their turn in between
