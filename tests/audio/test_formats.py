"""Other containers and codecs: whole, cut, damaged, chained, misnamed, without sound."""

from __future__ import annotations

import io
import re
from functools import cache

import numpy as np
import pytest

from audio import sounds
from stapes.audio import read_audio
from stapes.errors import AudioError

HEALTHY = {
    "mp3": ("mp3", "libmp3lame"),
    "m4a": ("ipod", "aac"),
    "alac": ("ipod", "alac"),
    "flac": ("flac", "flac"),
    "opus": ("ogg", "libopus"),
    "oggflac": ("ogg", "flac"),
    "webm": ("webm", "libopus"),
    "mkv": ("matroska", "aac"),
    "mp4": ("mp4", "aac"),
    "aiff": ("aiff", "pcm_s16be"),
    "au": ("au", "pcm_s16be"),
    "caf": ("caf", "pcm_s16le"),
    "w64": ("w64", "pcm_s24le"),
    "s64": ("wav", "pcm_s64le"),
    "adpcm-wav": ("wav", "adpcm_ms"),
    "mp3-wav": ("wav", "libmp3lame"),
    "adts": ("adts", "aac"),
    "ac3": ("ac3", "ac3"),
    "mpegts": ("mpegts", "aac"),
    "tta": ("tta", "tta"),
    "wavpack": ("wv", "wavpack"),
}
EXACT = ("mp3", "alac", "flac", "opus", "oggflac", "webm", "aiff", "au", "caf", "w64", "s64", "tta")


@cache
def healthy(kind, rate=48_000, channels=1):
    container, codec = HEALTHY[kind]
    return sounds.encode(container, codec, rate=rate, channels=channels)


@pytest.mark.parametrize("kind", HEALTHY)
def test_every_format_gives_the_tone(kind):
    audio = read_audio(healthy(kind))
    assert audio.warnings == ()
    assert audio.duration_s == pytest.approx(2.0, abs=0.1)
    assert len(audio.samples) == pytest.approx(16_000 * audio.duration_s, abs=1)
    assert sounds.strongest_hz(audio.samples) == pytest.approx(440, abs=2)
    assert np.sqrt(np.mean(audio.samples**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize("kind", EXACT)
def test_encoder_delay_and_padding_are_removed(kind):
    """LAME's gapless numbers and the pre-skip of Opus are honoured: the duration is exact."""
    assert read_audio(healthy(kind)).duration_s == 2.0


@pytest.mark.parametrize(
    ("kind", "channels"),
    [("mp3", 2), ("flac", 2), ("opus", 2), ("flac", 6), ("opus", 6), ("mkv", 6)],
)
def test_several_channels(kind, channels):
    audio = read_audio(healthy(kind, 48_000, channels))
    assert sounds.strongest_hz(audio.samples) == pytest.approx(440, abs=2)
    assert audio.warnings == ()


def test_more_channels_than_a_frame_has_fixed_places_for():
    x = np.zeros((16, 48_000))
    x[11] = sounds.tone(1.0, 48_000)
    audio = read_audio(sounds.encode("ogg", "libopus", x, channels=16))
    assert audio.duration_s == pytest.approx(1.0, abs=0.001)
    assert sounds.strongest_hz(audio.samples) == pytest.approx(440, abs=2)
    assert np.abs(audio.samples).max() == pytest.approx(0.5 / 16, rel=0.1)


@pytest.mark.parametrize("kind", ["mp3", "flac", "mkv", "webm", "aiff", "au", "s64"])
def test_a_cut_file_says_both_durations(kind):
    data = healthy(kind)
    audio = read_audio(data[: len(data) * 6 // 10])
    assert 0.8 < audio.duration_s < 1.5
    text = " ".join(audio.warnings)
    assert re.search(r"promises 2\.\d\d s but only [01]\.\d\d s could be decoded", text)


def test_a_cut_mp4_with_its_index_in_front(tmp_path):
    sounds.encode("mp4", "aac", target=str(tmp_path / "clip.mp4"), movflags="faststart")
    data = (tmp_path / "clip.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    assert read_audio(data).warnings == ()
    audio = read_audio(data[: len(data) * 7 // 10])
    assert 0.8 < audio.duration_s < 1.7
    assert "promises 2.00 s" in " ".join(audio.warnings)


@pytest.mark.parametrize("kind", ["m4a", "mp4", "alac"])
def test_an_mp4_without_its_index(kind):
    data = healthy(kind)
    with pytest.raises(AudioError, match="cut off or never finished: its index is missing"):
        read_audio(data[: data.rindex(b"moov") - 4])


@pytest.mark.parametrize("kind", ["m4a", "mp4", "flac", "mp3", "opus"])
def test_a_pipe_is_as_good_as_a_file(kind):
    audio = read_audio(sounds.Pipe(healthy(kind)))
    np.testing.assert_array_equal(audio.samples, read_audio(healthy(kind)).samples)


@pytest.mark.parametrize("kind", ["mp3", "m4a", "adts", "mpegts"])
def test_a_hole_in_the_middle_keeps_the_rest_and_counts_packets(kind):
    audio = read_audio(sounds.damaged(healthy(kind)))
    assert audio.duration_s > 1.8
    assert re.search(r"^[1-9]\d* of \d+ packets could not be decoded\.$", audio.warnings[0])


@pytest.mark.parametrize(
    ("container", "codec"), [("flac", "flac"), ("ogg", "flac"), ("ogg", "libopus")]
)
def test_a_hole_is_told_where_ffmpeg_keeps_quiet(container, codec):
    x = sounds.tone(10.0, 48_000) + np.random.default_rng(0).normal(0, 0.05, 480_000)
    data = sounds.encode(container, codec, x.astype(np.float32), 48_000)
    assert read_audio(data).warnings == ()
    audio = read_audio(sounds.damaged(data))
    assert 8.9 < audio.duration_s < 9.99
    assert audio.warnings == ("The file is damaged in one place; what stood there is missing.",)


def test_a_hole_in_an_mp3_of_unknown_length_is_no_false_alarm_about_the_duration():
    data = sounds.encode("mp3", "libmp3lame", write_xing="0")
    assert read_audio(data).warnings == ()


def test_damaged_blocks_of_wavpack_are_left_out():
    data = sounds.encode("wv", "wavpack", sounds.tone(5.0, 48_000))
    block = data.index(b"wvpk", len(data) // 2)
    audio = read_audio(data[:block] + b"xxxx" + data[block + 4 :])
    assert 2.0 < audio.duration_s < 5.0
    assert "promises 5.00 s" in audio.warnings[-1]


def test_a_container_that_breaks_off_says_so():
    data = healthy("wavpack")
    audio = read_audio(data[: len(data) * 6 // 10])
    assert audio.warnings[0] == "The file is damaged in one place; what stood there is missing."
    assert "promises 2.00 s" in audio.warnings[1]


@pytest.mark.parametrize("codec", ["libopus", "flac"])
def test_a_chain_of_ogg_streams_with_other_rates_and_channels(codec):
    first = sounds.encode("ogg", codec, sounds.tone(1.0, 48_000, 440), 48_000)
    second = sounds.encode("ogg", codec, sounds.tone(1.5, 24_000, 880), 24_000, channels=2)
    audio = read_audio(first + second)
    assert audio.duration_s == 2.5
    assert sounds.strongest_hz(audio.samples[:16_000]) == pytest.approx(440, abs=3)
    assert sounds.strongest_hz(audio.samples[16_000:]) == pytest.approx(880, abs=3)
    assert audio.warnings == ()


def test_a_damaged_link_does_not_take_the_others_along():
    first = sounds.encode("ogg", "libopus", sounds.tone(1.0, 48_000))
    second = sounds.encode("ogg", "flac", sounds.tone(1.0, 16_000), 16_000)
    broken = second.replace(b"\x7fFLAC", b"\x7fXXXX")
    audio = read_audio(first + bytes(300) + broken)
    assert audio.duration_s == 1.0
    assert audio.warnings == ("Part 2 of 2 of the file could not be decoded.",)
    with pytest.raises(AudioError):
        read_audio(broken)


def test_rates_and_channels_may_change_within_one_stream():
    first = sounds.encode("adts", "aac", sounds.tone(1.0, 44_100, 440), 44_100)
    second = sounds.encode("adts", "aac", sounds.tone(1.0, 22_050, 880), 22_050, channels=2)
    audio = read_audio(first + second)
    assert audio.duration_s == pytest.approx(2.1, abs=0.1)
    assert sounds.strongest_hz(audio.samples[:16_000]) == pytest.approx(440, abs=3)
    assert sounds.strongest_hz(audio.samples[-16_000:]) == pytest.approx(880, abs=3)


def test_the_sound_of_a_video():
    audio = read_audio(sounds.encode("mp4", "aac", video=True))
    assert audio.duration_s == pytest.approx(2.0, abs=0.1)
    assert audio.warnings == ()


def test_a_short_sound_beside_a_longer_video_is_not_called_cut():
    data = sounds.encode("matroska", "aac", sounds.tone(0.5, 48_000), video=True)
    assert read_audio(data).warnings == ()


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_a_video_without_sound(container):
    with pytest.raises(AudioError, match="has no audio track: it holds only video"):
        read_audio(sounds.encode(container, None, video=True))


def test_cover_art_is_not_a_video():
    picture = b"\x89PNG\r\n\x1a\n" + bytes(40)
    frame = b"\0image/png\0\3\0" + picture
    body = b"APIC" + len(frame).to_bytes(4, "big") + b"\0\0" + frame
    size = bytes((len(body) >> shift) & 0x7F for shift in (21, 14, 7, 0))
    audio = read_audio(b"ID3\3\0\0" + size + body + healthy("mp3"))
    assert audio.duration_s == 2.0
    data = healthy("mp3")
    cut = read_audio(b"ID3\3\0\0" + size + body + data[: len(data) // 2])
    assert "The file promises 2.0" in cut.warnings[-1]


def test_tags_in_latin_1_do_no_harm():
    info = sounds.chunk(b"LIST", b"INFOINAM\6\0\0\0caf\xe9\0\0")
    data = sounds.encode("wav", "libmp3lame")
    assert read_audio(data[:12] + info + data[12:]).duration_s == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("kind", ["mp3", "flac", "opus"])
@pytest.mark.parametrize("name", ["clip.wav", "clip", "clip.txt", "clip.mp4", "clip.g722"])
def test_the_name_does_not_matter(tmp_path, kind, name):
    (tmp_path / name).write_bytes(healthy(kind))
    assert read_audio(tmp_path / name).duration_s == 2.0


def test_g722_has_only_its_name(tmp_path):
    data = sounds.encode("g722", "g722", sounds.tone(2.0), 16_000)
    (tmp_path / "clip.G722").write_bytes(data)
    audio = read_audio(tmp_path / "clip.G722")
    assert audio.duration_s == 2.0
    assert sounds.strongest_hz(audio.samples) == pytest.approx(440, abs=2)
    with pytest.raises(AudioError, match="is not a recording"):
        read_audio(data)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"RIFF",
        b"OggS",
        b"fLaC",
        b"\x1a\x45\xdf\xa3",
        b"hello, this is a text.\n" * 100,
        b"<html><body>404</body></html>",
        b'{"error": "not found"}',
        bytes(10_000),
        np.random.default_rng(0).bytes(20_000),
        b"ID3\4\0\0\0\0\0\0",
        b"OggS" + bytes(5000),
    ],
)
def test_what_is_not_audio(data):
    with pytest.raises(AudioError, match=f"^<bytes> is not a recording.* {len(data)} bytes"):
        read_audio(data)


def test_playlists_and_scripts_open_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.wav").write_bytes(sounds.wav(sounds.s16(sounds.tone())))
    for script in (
        "ffconcat version 1.0\nfile secret.wav\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://{tmp_path}/secret.wav\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
    ):
        with pytest.raises(AudioError, match="is not a recording"):
            read_audio(script.encode())


def test_garbage_in_any_place_never_escapes_as_another_error():
    """200 damaged files: an Audio or an AudioError, nothing else, and always finite samples."""
    rng = np.random.default_rng(1)
    kinds = ("mp3", "m4a", "flac", "opus", "mkv", "adpcm-wav", "wavpack", "s64")
    for trial in range(200):
        data = bytearray(healthy(kinds[trial % len(kinds)]))
        for at in rng.integers(0, len(data) if trial % 3 else 200, size=10):
            data[at] = rng.integers(256)
        try:
            audio = read_audio(io.BytesIO(bytes(data[: rng.integers(1, len(data))])))
        except AudioError:
            continue
        assert np.isfinite(audio.samples).all()
        assert np.abs(audio.samples).max() <= 1.0
        assert audio.duration_s > 0
