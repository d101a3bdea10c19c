"""Transcribing: pieces, budgets, languages, warnings, and recordings of every odd kind."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stapes
from checkpoints import CONTROL, Sizes, write_checkpoint
from models.conftest import SMALL, load
from models.rigged import TAG, rig, says
from sounds import babble, noise
from stapes.audio import split_at_quiet
from stapes.decoder import GenerateResult
from stapes.errors import AudioError, CapacityError, RequestError
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.qwen3_asr.encoder import audio_tokens
from stapes.models.qwen3_asr.pieces import Piece, spoken_language, token_budget
from stapes.models.qwen3_asr.postprocess import Answer
from stapes.models.transcript import Segment, Transcript

RATE = 16_000


def transcribe(model: Qwen3Asr, samples: np.ndarray, **options: Any) -> Transcript:
    """Without looking for speech: these sounds are none."""
    return model.transcribe(samples, sample_rate=RATE, **{"vad": False, **options})


@pytest.fixture
def rigged(cold: Callable[[], Qwen3Asr]) -> Iterator[Qwen3Asr]:
    return cold()


# -- recordings of every odd kind ----------------------------------------------------------------


@pytest.mark.parametrize("layout", ["hf", "original"])
@pytest.mark.parametrize("weights", ["f32", "bf16", "q8"])
@pytest.mark.parametrize("kv", ["f16", "f32", "bf16"])
def test_every_format_transcribes(tmp_path: Path, layout: str, weights: str, kv: str):
    folder = write_checkpoint(tmp_path, SMALL, layout=layout, dtype="BF16")
    model = load(folder, weights=weights, kv=kv)
    transcript = transcribe(model, babble(20_000), max_new_tokens=20)
    assert len(transcript.token_ids) > 0
    assert transcript == transcribe(model, babble(20_000), max_new_tokens=20)


@pytest.mark.parametrize("seconds", [0.0001, 0.01, 0.05, 0.1, 0.3, 0.49, 0.5, 0.51, 0.9, 1.0, 1.1])
def test_short_clips_keep_their_true_duration(model: Qwen3Asr, seconds: float):
    samples = babble(max(1, int(seconds * RATE)))
    transcript = transcribe(model, samples)
    assert transcript.duration_s == samples.size / RATE
    assert transcript.tokens.audio == audio_tokens(max(samples.size, 8000) // 160)
    assert transcript == transcribe(model, samples)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(5 * RATE, np.float32),
        np.zeros(1, np.float32),
        noise(RATE, level=1e-3),
        noise(RATE, level=0.3),
        np.ones(RATE, np.float32),
        np.full(RATE, -3.0),
        np.eye(1, RATE, 100, dtype=np.float32)[0],
        np.full(RATE, 1e-30, np.float32),
        (noise(RATE) * 32767).astype(np.int16),
        noise(2 * RATE).reshape(2, RATE),
        noise(3 * RATE).reshape(RATE, 3),
    ],
    ids=[
        "silence",
        "one-zero",
        "faint-noise",
        "noise",
        "constant",
        "too-loud",
        "click",
        "tiny",
        "int16",
        "stereo-rows",
        "three-columns",
    ],
)
@pytest.mark.parametrize("context", ["", "Ada, Grace, Alan"])
def test_any_signal_gives_a_transcript(model: Qwen3Asr, samples: np.ndarray, context: str):
    for language in (None, "en"):
        transcript = transcribe(model, samples, context=context, language=language)
        assert transcript.language == ("English" if language else transcript.language)
        assert transcript.finish_reason in ("stop", "length", "loop")


@pytest.mark.parametrize("hops", [50, 51, 100, 101, 800])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_lengths_around_a_hop(model: Qwen3Asr, hops: int, off: int):
    samples = babble(hops * 160 + off)
    tokens = transcribe(model, samples, max_new_tokens=1).tokens.audio
    assert tokens == audio_tokens(max(8000, samples.size) // 160)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused(model: Qwen3Asr, value: float):
    samples = babble(RATE)
    samples[77] = value
    with pytest.raises(AudioError):
        transcribe(model, samples)


def test_nothing_to_hear_is_refused(model: Qwen3Asr):
    with pytest.raises(AudioError):
        transcribe(model, np.zeros(0, np.float32))
    for source in (b"", b"no sound", io.BytesIO(b"")):
        with pytest.raises(AudioError):
            model.transcribe(source)
    with pytest.raises(AudioError):
        model.transcribe("no/such/file.wav")


def test_an_array_needs_its_rate_and_a_file_has_one(model: Qwen3Asr, tmp_path: Path):
    with pytest.raises(RequestError, match="sample_rate"):
        model.transcribe(babble(RATE))
    with pytest.raises(RequestError, match="sample_rate"):
        model.transcribe(tmp_path / "a.wav", sample_rate=RATE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "Klingon"}, "known are Chinese"),
        ({"language": ""}, "known are"),
        ({"language": 3}, "language"),
        ({"context": None}, "context"),
        ({"context": b"x"}, "context"),
        ({"context": "\ud800"}, "context is not valid Unicode at character 0"),
        ({"aligner": "folder"}, "aligner must be a model of load_aligner, not str"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": -5}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"max_new_tokens": 2.5}, "max_new_tokens"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(model: Qwen3Asr, options: dict[str, Any], message: str):
    with pytest.raises(RequestError, match=message):
        transcribe(model, babble(RATE), **options)


# -- pieces --------------------------------------------------------------------------------------


def test_long_recordings_are_read_to_their_end(model: Qwen3Asr):
    samples = babble(int(62.455 * RATE))
    spans = split_at_quiet(samples, 30)
    frames = [(span.end - span.start) // 160 for span in spans]
    assert sum(frames) == 6245
    assert len(frames) >= 3
    transcript = transcribe(model, samples, max_new_tokens=40)
    assert transcript.duration_s == 62.455
    assert transcript.tokens.audio == sum(audio_tokens(n) for n in frames)
    assert 812 <= transcript.tokens.audio < 812 + len(frames)
    changed = samples.copy()
    changed[45 * RATE :] = babble(samples.size, seed=9)[45 * RATE :]
    assert transcribe(model, changed, max_new_tokens=40).token_ids != transcript.token_ids


def test_progress_is_told_after_every_piece(rigged: Qwen3Asr):
    rig(rigged, says(rigged, "a"))
    told: list[tuple[float, float]] = []
    transcribe(rigged, babble(70 * RATE), on_progress=lambda *now: told.append(now))
    assert len(told) >= 3
    assert all(total == 70 for _, total in told)
    assert all(before < after for (before, _), (after, _) in pairwise(told))
    assert told[-1][0] == 70


def test_every_piece_has_a_budget_of_its_own(rigged: Qwen3Asr):
    """Four pieces that each need six tenths of the cap."""
    answer = says(rigged, "one two")
    script = rig(rigged, answer)
    cap = int(len(answer) / 0.6)
    transcript = transcribe(rigged, noise(100 * RATE), max_new_tokens=cap)
    assert script.pieces >= 4
    assert transcript.text == " ".join(["one two"] * script.pieces)
    assert (transcript.finish_reason, transcript.truncated) == ("stop", False)
    assert transcript.warnings == ()
    assert transcript.tokens.new == script.pieces * (len(answer) - 1)


def test_a_piece_that_is_cut_short_says_so(rigged: Qwen3Asr):
    short, long = says(rigged, "one"), says(rigged, "two " * 9)
    rig(rigged, short, long, short)
    transcript = transcribe(rigged, noise(80 * RATE), max_new_tokens=len(short) + 2)
    assert (transcript.finish_reason, transcript.truncated) == ("length", True)
    (warning,) = transcript.warnings
    assert "cut short" in warning
    assert f"{len(short) + 2} tokens" in warning
    start, end = (float(x) for x in warning.split(" s:")[0].split("-"))
    assert 0 < start < end < 80


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_end_as_the_last_permitted_token_is_no_truncation(rigged: Qwen3Asr, more: int):
    answer = says(rigged, "one two")
    rig(rigged, answer)
    transcript = transcribe(rigged, babble(RATE), max_new_tokens=len(answer) + more)
    assert transcript.truncated is (more < 0)
    assert transcript.finish_reason == ("length" if more < 0 else "stop")


@pytest.mark.parametrize("seconds", [0.3, 1, 10, 30])
def test_a_model_that_never_ends_stops_at_its_piece_s_budget(rigged: Qwen3Asr, seconds: float):
    rig(rigged, list(range(100, 500)) * 4)
    transcript = transcribe(rigged, babble(int(seconds * RATE)))
    assert len(transcript.token_ids) == token_budget(seconds)
    assert transcript.truncated


def test_budgets_grow_with_the_piece():
    assert [token_budget(s) for s in (0, 0.3, 1, 30)] == [32, 36, 48, 512]


@pytest.mark.parametrize("period", [1, 3, 20])
def test_a_loop_is_tried_again_in_halves_and_then_dropped(rigged: Qwen3Asr, period: int):
    pattern = rigged.tokenizer.encode("The quick brown fox doesn't jump over dogs")[:period]
    pattern = (pattern + list(range(40, 60)))[:period]
    head = says(rigged, "well ")[:-1]
    script = rig(rigged, head + pattern * 500)
    transcript = transcribe(rigged, babble(30 * RATE))
    assert transcript.finish_reason == "loop"
    assert script.pieces == 3
    assert len(transcript.token_ids) <= 2 * (len(head) + max(48, 8 * period))
    assert not transcript.truncated
    assert len(transcript.warnings) == 2
    assert all("repeated itself without end, twice" in warning for warning in transcript.warnings)
    assert (transcript.text, transcript.segments) == ("", ())


def test_a_loop_that_a_smaller_piece_does_not_have_leaves_no_trace(rigged: Qwen3Asr):
    loop = says(rigged, "well ")[:-1] + [60] * 500
    script = rig(rigged, loop, says(rigged, "one"), says(rigged, "two"))
    transcript = transcribe(rigged, babble(30 * RATE))
    assert script.pieces == 3
    assert (transcript.text, transcript.finish_reason) == ("one two", "stop")
    assert transcript.warnings == ()
    first, second = transcript.segments
    assert (first.start_s, second.end_s) == (0, 30)
    assert 12 < first.end_s == second.start_s < 18


def test_a_short_loop_is_dropped_at_once(rigged: Qwen3Asr):
    script = rig(rigged, says(rigged, "")[:-1] + [60] * 500)
    transcript = transcribe(rigged, babble(3 * RATE))
    assert script.pieces == 1
    assert transcript.text == ""


def test_the_whole_context_for_an_answer_is_tried_again_and_dropped(rigged: Qwen3Asr):
    context = "Ada, Grace, Alan"
    rig(rigged, says(rigged, "Ada, Grace, Alan."))
    transcript = transcribe(rigged, noise(10 * RATE), context=context)
    assert transcript.text == ""
    assert any("gave back the context and nothing else, twice" in w for w in transcript.warnings)
    rig(rigged, says(rigged, "Ada, Grace, Alan."), says(rigged, "Hello Ada."))
    transcript = transcribe(rigged, noise(10 * RATE), context=context)
    assert transcript.text == "Hello Ada. Hello Ada."


def test_a_word_of_the_context_may_have_been_said(rigged: Qwen3Asr):
    rig(rigged, says(rigged, "Grace."))
    transcript = transcribe(rigged, noise(10 * RATE), context="Ada, Grace, Alan")
    assert transcript.text == "Grace."
    assert "nothing but words of the given context" in transcript.warnings[0]


def test_segments_say_where_what_was_said_how_surely(rigged: Qwen3Asr):
    answers = [
        says(rigged, "one", "English"),
        says(rigged, "", None),
        says(rigged, "zwei", "German"),
    ]
    rig(rigged, *answers)
    transcript = transcribe(rigged, noise(65 * RATE))
    assert [(s.text, s.language) for s in transcript.segments] == [
        ("one", "English"),
        ("zwei", "German"),
    ]
    first, second = transcript.segments
    assert first.start_s == 0
    assert first.end_s < second.start_s < second.end_s == 65
    certain = 1 / (1 + (rigged.decoder.spec.head_size - 1) * np.exp(-9))
    assert first.confidence == pytest.approx(certain, rel=1e-5)


@pytest.mark.parametrize("batch", [1, 2, 5, None])
def test_any_number_of_pieces_side_by_side_gives_the_same(model: Qwen3Asr, batch: int | None):
    samples = babble(100 * RATE)
    one = transcribe(model, samples, max_new_tokens=30, batch=1)
    assert len(one.segments) >= 3
    assert transcribe(model, samples, max_new_tokens=30, batch=batch) == one


@pytest.mark.parametrize("seconds", [5, 12.5])
def test_pieces_are_no_longer_than_asked(model: Qwen3Asr, seconds: float):
    transcript = transcribe(model, babble(50 * RATE), max_new_tokens=9, chunk_seconds=seconds)
    lengths = [segment.end_s - segment.start_s for segment in transcript.segments]
    assert len(lengths) >= 50 / seconds
    assert max(lengths) <= seconds


@pytest.mark.parametrize("seconds", [0, 0.5, 301, float("nan"), "30", None])
def test_pieces_of_no_sensible_length_are_refused(model: Qwen3Asr, seconds: Any):
    with pytest.raises(RequestError, match="chunk_seconds"):
        transcribe(model, babble(RATE), chunk_seconds=seconds)


def test_segments_come_as_they_are_done_and_in_order(model: Qwen3Asr):
    told: list[Segment] = []
    transcript = transcribe(model, babble(100 * RATE), max_new_tokens=20, on_segment=told.append)
    assert tuple(told) == transcript.segments
    assert len(told) >= 3


def test_a_cancelled_transcription_gives_what_is_done(model: Qwen3Asr):
    samples, told = babble(100 * RATE), []
    whole = transcribe(model, samples, max_new_tokens=20)
    options = {"max_new_tokens": 20, "batch": 1, "on_segment": told.append}
    part = transcribe(model, samples, should_cancel=lambda: len(told) == 2, **options)
    assert part.finish_reason == "cancelled"
    assert part.segments == whole.segments[:2]
    assert "Stopped before the end, with 2 pieces" in part.warnings[-1]
    nothing = transcribe(model, samples, should_cancel=lambda: True)
    assert (nothing.text, nothing.finish_reason) == ("", "cancelled")


def test_loop_detection_can_be_switched_off(rigged: Qwen3Asr):
    rig(rigged, [*says(rigged, "")[:-1], 60])
    transcript = transcribe(rigged, babble(30 * RATE), loop_detection=False)
    assert transcript.finish_reason == "length"
    assert len(transcript.token_ids) == 512
    assert len(transcript.text) == 1  # collapsed all the same


def test_what_people_repeat_survives(rigged: Qwen3Asr):
    spoken = "no, " * 11 + "no."
    rig(rigged, says(rigged, spoken))
    transcript = transcribe(rigged, babble(10 * RATE))
    assert transcript.text == spoken
    assert transcript.finish_reason == "stop"
    assert transcript.warnings == ()


# -- languages -----------------------------------------------------------------------------------


def languages(model: Qwen3Asr, *answers: list[int], **options: Any) -> Transcript:
    """Of a recording that makes one piece for each answer."""
    seconds = {1: 10, 2: 50, 3: 65}[len(answers)]
    script = rig(model, *answers)
    transcript = transcribe(model, noise(seconds * RATE), **options)
    assert script.pieces == len(answers)
    return transcript


def test_the_language_is_the_one_spoken_longest(rigged: Qwen3Asr):
    german, english = says(rigged, "zwei", "German"), says(rigged, "one")
    assert languages(rigged, german).language == "German"
    assert languages(rigged, german, english, german).language == "German"
    assert languages(rigged, german, english, english).language == "English"


def test_seconds_decide_about_the_language_not_pieces():
    def piece(seconds: float, language: str, text: str = "x") -> Piece:
        result = GenerateResult((1,), "stop", 1, 1, 0.0, 0.0)
        return Piece(0.0, seconds, Answer(text, language, False), result, 1, 0.0, 0.0)

    pieces = [piece(3, "English"), piece(3.5, "English"), piece(20, "German"), piece(8, "English")]
    assert spoken_language(pieces) == "German"
    assert spoken_language([piece(30, "German", text=""), piece(1, "English")]) == "English"
    assert spoken_language([]) is None


def test_a_piece_without_speech_says_nothing_about_the_language(rigged: Qwen3Asr):
    silent, german = says(rigged, "", None), says(rigged, "zwei", "German")
    transcript = languages(rigged, silent, german, silent)
    assert (transcript.language, transcript.text) == ("German", "zwei")
    transcript = languages(rigged, german, silent)
    assert (transcript.language, transcript.text) == ("German", "zwei")


def test_no_speech_is_no_language_and_no_text(rigged: Qwen3Asr):
    transcript = languages(rigged, says(rigged, "", None))
    assert (transcript.language, transcript.text) == (None, "")
    transcript = languages(rigged, says(rigged, "", "English"))  # a tag and nothing behind it
    assert (transcript.language, transcript.text) == (None, "")


@pytest.mark.parametrize("asked", ["de", "German", "GERMAN", "de-AT", "deu"])
def test_a_forced_language_is_the_language(rigged: Qwen3Asr, asked: str):
    plain = [*rigged.tokenizer.encode("zwei"), CONTROL["<|im_end|>"]]
    repeated = says(rigged, "drei", "German")
    transcript = languages(rigged, plain, repeated, language=asked)
    assert (transcript.language, transcript.text) == ("German", "zwei drei")


def test_a_forced_language_is_told_even_without_speech(rigged: Qwen3Asr):
    transcript = languages(rigged, [CONTROL["<|im_end|>"]], language="de")
    assert (transcript.language, transcript.text) == ("German", "")


def test_an_answer_without_a_tag_is_all_text(rigged: Qwen3Asr):
    transcript = languages(rigged, [*rigged.tokenizer.encode("hello"), CONTROL["<|im_end|>"]])
    assert (transcript.language, transcript.text) == (None, "hello")


# -- what should not be taken at face value --------------------------------------------------------


def test_a_transcript_that_only_repeats_the_context_is_doubted(rigged: Qwen3Asr):
    rig(rigged, says(rigged, "Ada, Grace"))
    transcript = transcribe(rigged, noise(3 * RATE), context="Ada, Grace, Alan")
    assert any("given context" in warning for warning in transcript.warnings)
    assert transcribe(rigged, noise(3 * RATE), context="Alan").warnings == ()


def test_silence_may_be_empty_but_a_loud_recording_is_doubted(rigged: Qwen3Asr):
    rig(rigged, says(rigged, "", None))
    assert transcribe(rigged, np.zeros(3 * RATE, np.float32)).warnings == ()
    assert transcribe(rigged, noise(3 * RATE, level=1e-3)).warnings == ()
    (warning,) = transcribe(rigged, noise(3 * RATE, level=0.2)).warnings
    assert "No speech was found" in warning
    assert "-14 dBFS" in warning


# -- what a transcript carries ---------------------------------------------------------------------


def test_ids_and_counts_add_up_over_the_pieces(rigged: Qwen3Asr):
    first, second = says(rigged, "one"), says(rigged, "zwei", "German")
    rig(rigged, first, second)
    transcript = transcribe(rigged, noise(50 * RATE))
    assert transcript.token_ids == (*first[:-1], *second[:-1])
    assert TAG in transcript.token_ids
    assert transcript.tokens.new == len(transcript.token_ids)
    assert transcript.tokens.prompt > transcript.tokens.audio
    assert transcript.model == rigged.name
    times = vars(transcript.timings_s)
    assert list(times)[:6] == ["load", "audio", "mel", "encode", "prefill", "decode"]
    assert all(seconds >= 0 for seconds in times.values())
    stages = sum(v for name, v in times.items() if name not in ("load", "total"))
    assert stages <= times["total"]


# -- one model, many recordings --------------------------------------------------------------------


def test_recordings_in_turn_are_each_as_if_alone(model: Qwen3Asr, cold: Callable[[], Qwen3Asr]):
    """Same length, same prompt ids, other sound; then the first again; then one sample changed."""
    first, second = babble(3 * RATE, seed=1), babble(3 * RATE, seed=2)
    nearly = first.copy()
    nearly[20_000] += 0.2
    alone = [transcribe(cold(), sound) for sound in (first, second, nearly)]
    assert alone[0].token_ids != alone[1].token_ids
    in_turn = [transcribe(model, sound) for sound in (first, second, first, nearly)]
    for found, expected in zip(in_turn, [alone[0], alone[1], alone[0], alone[2]], strict=True):
        assert found.token_ids == expected.token_ids
        assert found.text == expected.text


def test_a_failed_recording_leaves_no_trace(model: Qwen3Asr):
    sound = babble(2 * RATE)
    expected = transcribe(model, sound)
    with pytest.raises(CapacityError):
        transcribe(model, sound, max_new_tokens=70_000)
    with pytest.raises(AudioError):
        transcribe(model, np.full(RATE, np.nan, np.float32))
    assert transcribe(model, sound).token_ids == expected.token_ids


def test_threads_share_one_model(model: Qwen3Asr):
    sounds = [babble(RATE + 700 * n, seed=n) for n in range(8)]
    expected = [transcribe(model, sound).token_ids for sound in sounds]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda sound: transcribe(model, sound).token_ids, sounds * 2))
    assert found == expected * 2


def test_any_number_of_threads_in_the_core_gives_the_same_ids(pristine: Path, model: Qwen3Asr):
    sound = babble(9 * RATE)
    for threads in (2, 3):
        other = load(pristine, threads=threads)
        assert transcribe(other, sound).token_ids == transcribe(model, sound).token_ids


# -- what does not fit -----------------------------------------------------------------------------


def test_a_context_that_does_not_fit_is_refused_with_numbers(model: Qwen3Asr):
    with pytest.raises(CapacityError) as refused:
        transcribe(model, babble(RATE), context="0 " * 70_000)
    message = str(refused.value)
    assert "65536" in message
    prompt = int(message.split("prompt of ")[1].split(" ")[0])
    assert prompt > 70_000


def test_what_does_not_fit_is_refused_before_its_audio_is_encoded(
    cold: Callable[[], Qwen3Asr], monkeypatch: pytest.MonkeyPatch
):
    model = cold()
    monkeypatch.setattr(model.encoder, "encode", lambda mel: pytest.fail("encoded"))
    with pytest.raises(CapacityError, match="65536"):
        transcribe(model, babble(RATE), context="0 " * 70_000)
    with pytest.raises(CapacityError, match="65536"):
        transcribe(model, babble(RATE), max_new_tokens=65_536)


@pytest.mark.parametrize("limit", [240, 255, 256, 300])
def test_audio_and_budget_are_held_against_the_models_positions(tmp_path: Path, limit: int):
    sizes = Sizes(**{**vars(SMALL), "max_position_embeddings": limit})
    model = load(write_checkpoint(tmp_path, sizes))
    sound = babble(15 * RATE)
    prompt = len(model.prompts.build(np.zeros((195, 64), np.float32)))
    room = limit - prompt
    transcript = transcribe(model, sound, max_new_tokens=room)
    assert transcript.tokens.prompt == prompt
    with pytest.raises(CapacityError, match=f"{limit + 1} positions, but the model has {limit}"):
        transcribe(model, sound, max_new_tokens=room + 1)


def test_a_cache_that_does_not_fit_is_refused_with_numbers(cold: Callable[[], Qwen3Asr]):
    model = cold()
    sound = babble(RATE)
    expected = transcribe(model, sound).token_ids
    model.decoder.memory_limit_bytes = 1000
    with pytest.raises(CapacityError, match=r"13 of them injected.* 1,000 are available"):
        transcribe(model, sound)
    model.decoder.memory_limit_bytes = None
    assert transcribe(model, sound).token_ids == expected


def test_the_public_entry_takes_the_same_folder(pristine: Path):
    assert stapes.load(str(pristine)).transcribe(babble(RATE), sample_rate=RATE).text is not None
