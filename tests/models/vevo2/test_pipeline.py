"""From text and recordings to samples: routes, rules, seeds, seams. The weights are random."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stapes
from models.vevo2.tokenizer_checkpoint import melody
from models.vevo2.voice_setting import QUICK, recording, stapes_reference
from models.vevo2.voice_setting import voice_model as voice_model
from models.vevo2.voice_setting import voice_root as voice_root
from stapes.errors import AudioError, CancelledError, ModelError, RequestError
from stapes.models.description import describe
from stapes.models.vevo2 import spoken, stages
from stapes.models.vevo2.autoregressive.codes import GeneratedCodes
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from stapes.models.vevo2.joining import LONGEST_PIECE, PAUSE, cuts, levelled
from stapes.models.vevo2.request import VoiceOptions, VoiceRequest
from stapes.models.vevo2.sound import VoiceProgress
from stapes.models.vevo2.tasks import TASKS
from stapes.options import RuntimeOptions

VOICE = recording(1.7, 0, "la la la")
STYLE = recording(1.3, 1, "do re mi")
SOURCE = recording(1.91, 2, "fa so la")
MELODY = recording(1.9, 3)


# -- one piece -------------------------------------------------------------------------------------


def test_speech_is_its_stages_put_together(voice_model):
    audio = voice_model.speak("Good morning.", VOICE, **QUICK)
    parts, options = voice_model.parts, VoiceOptions(**QUICK)
    prompt = VOICE.content_style(parts.content_style)
    written = parts.ar.generate(
        CodeRequest("Good morning.", style_text="la la la", style_codes=prompt),
        CodeOptions(max_new_tokens=25, seed=1, codes_only=True),
    )
    mel = parts.flow_matching.mel(
        np.concatenate([prompt, written.codes]), VOICE.mel(parts.mel), options.flow(1)
    )
    expected = levelled(parts.vocoder.samples(mel), -25.0)
    np.testing.assert_array_equal(audio.codes, written.codes)
    np.testing.assert_array_equal(audio.samples, expected)
    assert audio.samples.dtype == np.float32
    assert (audio.sample_rate, audio.seed, audio.pieces, audio.task) == (
        24_000,
        1,
        1,
        "text_to_speech",
    )
    frames = 4 * (prompt.size + audio.codes.size) - VOICE.voice.frames
    assert audio.samples.size == 480 * frames
    assert audio.timings_s.total > audio.timings_s.mel > 0


def test_seeds_repeat_and_another_one_is_another_sound(voice_model):
    first = voice_model.speak("Good morning.", VOICE, **QUICK)
    again = voice_model.speak("Good morning.", VOICE, **QUICK)
    other = voice_model.speak("Good morning.", VOICE, **QUICK | {"seed": 2})
    np.testing.assert_array_equal(first.samples, again.samples)
    assert first.codes.tolist() != other.codes.tolist()


def test_threads_change_nothing(voice_model, voice_root):
    formats = {"weights": "f32", "kv": "f32", "acoustic_weights": "f32"}
    other = stapes.load_voice(voice_root, **formats, threads=2)
    one, two = (m.speak("Good morning.", VOICE, **QUICK) for m in (voice_model, other))
    np.testing.assert_array_equal(one.samples, two.samples)


def test_a_seed_that_was_chosen_is_told(voice_model):
    chosen = voice_model.speak("Good morning.", VOICE, **QUICK | {"seed": None})
    again = voice_model.speak("Good morning.", VOICE, **QUICK | {"seed": chosen.seed})
    np.testing.assert_array_equal(chosen.samples, again.samples)


def test_a_style_is_continued_and_the_voice_is_still_the_voice(voice_model):
    plain = voice_model.speak("Good morning.", VOICE, **QUICK)
    styled = voice_model.speak("Good morning.", VOICE, style=STYLE, **QUICK)
    other = voice_model.speak("Good morning.", STYLE, **QUICK)
    assert styled.codes.tolist() == other.codes.tolist() != plain.codes.tolist()
    assert styled.samples.size != other.samples.size or not np.allclose(
        styled.samples, other.samples, atol=1e-3
    )


def test_a_voice_without_its_text_is_warned_of(voice_model):
    audio = voice_model.speak("Good morning.", recording(), **QUICK)
    assert "without its text" in audio.warnings[0]
    assert voice_model.speak("Good morning.", VOICE, **QUICK).warnings[:-1] == ()


def test_an_answer_that_was_cut_off_is_told(voice_model):
    audio = voice_model.speak("Good morning.", VOICE, **QUICK)
    assert audio.codes.size == 25
    assert audio.finish_reason == "length"
    assert "after 2 s, and was cut off" in audio.warnings[-1]


def test_the_level(voice_model):
    plain = voice_model.speak("Good morning.", VOICE, level_db=None, **QUICK)
    for level in (-25.0, -40.0):
        audio = voice_model.speak("Good morning.", VOICE, level_db=level, **QUICK)
        rms = np.sqrt(np.mean(audio.samples.astype(np.float64) ** 2))
        assert 20 * np.log10(rms) == pytest.approx(level, abs=0.01)
        gain = audio.samples[1000] / plain.samples[1000]
        np.testing.assert_allclose(audio.samples, gain * plain.samples, atol=1e-6)


def test_a_request_from_two_threads_is_what_it_is_alone(voice_model):
    texts, found = ["Good morning.", "Good night, then."], {}

    def speak(text):
        found[text] = voice_model.speak(text, VOICE, **QUICK).samples

    threads = [threading.Thread(target=speak, args=(text,)) for text in texts]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for text in texts:
        expected = voice_model.speak(text, VOICE, **QUICK).samples
        np.testing.assert_array_equal(found[text], expected)


# -- what the autoregressive stage is asked --------------------------------------------------------


@pytest.fixture
def asked(monkeypatch) -> list[CodeRequest]:
    """Requests to the autoregressive stage, which answers with three codes."""
    seen: list[CodeRequest] = []

    def answer(job, request, piece):
        seen.append(request)
        voice_model_prompt = job.parts.ar.encode(request)  # that it can be written
        return GeneratedCodes((1, 2, 3), "stop", (1, 2, 3), len(voice_model_prompt.token_ids))

    monkeypatch.setattr(spoken, "written_codes", answer)
    return seen


def request_of(task: str) -> VoiceRequest:
    """A request with every recording that a task may have."""
    from stapes.models.vevo2.request import used

    given = {"source": SOURCE, "melody": MELODY, "style": STYLE, "timbre": VOICE}
    roles = {role: given[role] for role in used(TASKS[task])}
    return VoiceRequest(task, "tra la la" if TASKS[task].autoregressive else "", **roles)


@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if task.autoregressive])
def test_every_task_asks_for_what_the_table_says(task, voice_model, asked):
    options = VoiceOptions(**QUICK)
    audio = voice_model.run(request_of(task), options)
    (request,) = asked
    row, parts = TASKS[task], voice_model.parts
    assert (request.task, request.text) == (task, "tra la la")
    style = SOURCE if task == "editing" else STYLE
    timbre = SOURCE if row.timbre == ("source",) else VOICE
    # Each recording is shifted by the steps from its own pitch to the timbre's.
    steps = style.steps_to(timbre) if row.pitch_shift else 0
    assert request.style_text == style.text
    np.testing.assert_array_equal(
        request.style_codes, style.content_style(parts.content_style, steps)
    )
    if row.prosody is None:
        assert len(request.prosody_codes) == len(request.style_prosody) == 0
        assert audio.pitch_steps == 0
    else:
        followed = MELODY if row.prosody == "melody" else SOURCE
        own = followed.steps_to(timbre) if row.pitch_shift else 0
        np.testing.assert_array_equal(request.prosody_codes, followed.prosody(parts.prosody, own))
        np.testing.assert_array_equal(request.style_prosody, style.prosody(parts.prosody, steps))
        assert audio.pitch_steps == own
    prompt = timbre.content_style(parts.content_style)  # never shifted
    assert audio.samples.size == 480 * (4 * (prompt.size + 3) - timbre.voice.frames)


def test_the_recordings_of_these_tests_have_different_pitches():
    """Otherwise a shift that is left out would not be seen."""
    assert STYLE.steps_to(VOICE) != 0
    assert MELODY.steps_to(VOICE) != 0
    assert SOURCE.steps_to(VOICE) != STYLE.steps_to(VOICE)


def test_a_melody_without_a_style_is_followed_by_whole_numbers(voice_model, asked):
    voice_model.run(VoiceRequest("humming_to_singing", "la", melody=MELODY, timbre=VOICE))
    (request,) = asked
    assert (request.style_text, len(request.style_codes), len(request.style_prosody)) == ("", 0, 0)
    assert request.prosody_codes.dtype.kind == "i"


def test_the_voice_stands_in_for_a_style_with_its_codes_never_its_text_alone(voice_model, asked):
    voice_model.speak("Hello.", VOICE, **QUICK)
    assert asked[0].style_text == VOICE.text
    assert len(asked[0].style_codes) > 0


@pytest.mark.parametrize("steps", [0, 5, -3])
def test_pitch_steps_that_are_asked_for_are_taken(steps, voice_model, asked):
    request = request_of("humming_to_singing")
    audio = voice_model.run(request, VoiceOptions(**QUICK, pitch_steps=steps))
    expected = MELODY.prosody(voice_model.parts.prosody, steps)
    np.testing.assert_array_equal(asked[0].prosody_codes, expected)
    assert audio.pitch_steps == steps


def test_the_same_recording_twice_is_not_shifted(voice_model):
    twice = stapes_reference(VOICE.voice.samples.copy())
    audio = voice_model.convert_voice(twice, VOICE, seed=1, steps=2)
    assert audio.pitch_steps == 0


def test_a_pitch_that_cannot_be_estimated(voice_model):
    noise = np.random.default_rng(0).normal(0, 0.1, 48_000).astype(np.float32)
    whisper = stapes_reference(noise)
    with pytest.raises(AudioError, match=r"no voiced part.*pitch_steps; 0 shifts nothing"):
        voice_model.convert_voice(whisper, VOICE, seed=1, steps=2)
    audio = voice_model.convert_voice(whisper, VOICE, seed=1, steps=2, pitch_steps=0)
    assert audio.samples.size == 48_000


def test_a_duration_stretches_the_prosody(voice_model, asked):
    voice_model.run(request_of("editing"), VoiceOptions(**QUICK | {"max_new_tokens": 100}))
    stretched = VoiceOptions(**QUICK | {"max_new_tokens": 100}, duration_s=3.82)
    voice_model.run(request_of("editing"), stretched)
    plain, longer = (len(request.prosody_codes) for request in asked)
    assert longer == pytest.approx(2 * plain, abs=1)
    assert len(asked[0].style_prosody) == len(asked[1].style_prosody)


def test_a_text_that_follows_a_prosody_is_one_piece(voice_model, asked):
    text = "One sentence. Another one.\n\nAnd a third, which is longer. " * 4
    request = replace(request_of("editing"), text=text)
    voice_model.run(request, VoiceOptions(**QUICK, longest_piece=20))
    assert [request.text for request in asked] == [" ".join(text.split())]


# -- long text -------------------------------------------------------------------------------------

LONG = "One sentence is here. Another one is there! And is this the third?"


def test_long_text_is_spoken_in_pieces_with_the_same_voice(voice_model, asked):
    audio = voice_model.speak(LONG, VOICE, **QUICK, longest_piece=25)
    assert [request.text for request in asked] == [
        "One sentence is here.",
        "Another one is there!",
        "And is this the third?",
    ]
    assert all(request.style_text == VOICE.text for request in asked)
    assert all(np.array_equal(r.style_codes, asked[0].style_codes) for r in asked)
    assert (audio.pieces, audio.codes.tolist()) == (3, [1, 2, 3] * 3)


def test_pieces_that_have_no_word_are_not_spoken(voice_model, asked):
    voice_model.speak("One sentence. \n\n ... \n\n --- \n\n Two.", VOICE, **QUICK, longest_piece=10)
    assert "..." not in [request.text for request in asked]


def test_pieces_one_by_one_are_the_whole(voice_model):
    given = QUICK | {"longest_piece": 25}
    whole = voice_model.speak(LONG, VOICE, **given)
    pieces = list(voice_model.speak_pieces(LONG, VOICE, **given))
    assert [(piece.index, piece.count) for piece in pieces] == [(0, 3), (1, 3), (2, 3)]
    assert " ".join(piece.text for piece in pieces) == LONG
    np.testing.assert_array_equal(np.concatenate([p.samples for p in pieces]), whole.samples)
    np.testing.assert_array_equal(np.concatenate([p.codes for p in pieces]), whole.codes)
    assert tuple(w for piece in pieces for w in piece.warnings) == whole.warnings
    assert len({piece.codes.tobytes() for piece in pieces}) == 3


def test_the_first_piece_is_there_before_the_second_is_begun(voice_model):
    seen: list[VoiceProgress] = []
    given = QUICK | {"longest_piece": 25}
    pieces = voice_model.speak_pieces(LONG, VOICE, on_progress=seen.append, **given)
    next(pieces)
    assert {progress.piece for progress in seen} == {0}


def test_no_jump_at_a_seam_is_larger_than_those_within_pieces(voice_model):
    given = QUICK | {"longest_piece": 25}
    pieces = [p.samples for p in voice_model.speak_pieces(LONG, VOICE, **given)]
    within = max(np.abs(np.diff(piece[: len(piece) - PAUSE])).max() for piece in pieces)
    whole = np.concatenate(pieces)
    for seam in np.cumsum([len(piece) for piece in pieces])[:-1]:
        around = whole[seam - PAUSE - 200 : seam + 200]
        assert np.abs(np.diff(around)).max() <= within
        assert not whole[seam - PAUSE : seam].any()


# -- conversion ------------------------------------------------------------------------------------


def test_a_conversion_needs_no_autoregressive_stage(voice_root, tmp_path):
    root = shutil.copytree(voice_root, tmp_path / "Vevo2")
    shutil.rmtree(root / "contentstyle_modeling")
    shutil.rmtree(root / "tokenizer" / "prosody_fvq512_6.25hz")
    model = stapes.load_voice(root, threads=1)
    audio = model.convert_voice(SOURCE, VOICE, seed=1, steps=2)
    assert audio.task == "style_preserved_voice_conversion"
    assert "ar" not in model.parts.load_s
    with pytest.raises(ModelError, match="contentstyle_modeling"):
        model.speak("Hello.", VOICE, **QUICK)


def test_a_conversion_is_its_stages_put_together(voice_model):
    audio = voice_model.convert_voice(SOURCE, VOICE, seed=7, steps=2, level_db=None)
    parts = voice_model.parts
    steps = SOURCE.steps_to(VOICE)
    codes = SOURCE.content_style(parts.content_style, steps)
    prompt = VOICE.content_style(parts.content_style)
    flow = VoiceOptions(steps=2).flow(7)
    mel = parts.flow_matching.mel(np.concatenate([prompt, codes]), VOICE.mel(parts.mel), flow)
    samples = parts.vocoder.samples(mel)
    lead = 480 * (4 * prompt.size - VOICE.voice.frames)
    frames = SOURCE.voice.frames
    assert 0 <= lead <= 3 * 480
    np.testing.assert_array_equal(audio.samples, samples[lead : lead + 480 * frames])
    np.testing.assert_array_equal(audio.codes, codes)
    assert (audio.pitch_steps, audio.finish_reason) == (steps, "stop")


def test_a_long_source_is_converted_in_pieces_and_as_long(voice_model):
    source = recording(63.0, 5)
    audio = voice_model.convert_voice(source, VOICE, seed=1, steps=1, pitch_steps=0)
    assert audio.pieces == len(cuts(source.voice.samples)) == 3
    assert audio.samples.size == source.voice.frames * 480
    assert audio.warnings == ()
    inside = np.abs(np.diff(audio.samples[: 15 * 24_000])).max()
    for start, _ in cuts(source.voice.samples)[1:]:
        around = audio.samples[start - 480 : start + 3000]
        assert np.abs(np.diff(around)).max() <= inside


def test_another_style_is_written_by_the_autoregressive_stage(voice_model, asked):
    audio = voice_model.convert_voice(SOURCE, style=STYLE, text="fa so la", **QUICK)
    assert audio.task == asked[0].task == "style_converted_voice_conversion"
    singing = voice_model.convert_voice(
        SOURCE, VOICE, style=STYLE, text="fa", singing=True, **QUICK
    )
    assert singing.task == "style_converted_singing_conversion"
    assert singing.pitch_steps == SOURCE.steps_to(VOICE)
    # The timbre is the source's where no voice is given.
    prompt = SOURCE.content_style(voice_model.parts.content_style)
    assert audio.samples.size == 480 * (4 * (prompt.size + 3) - SOURCE.voice.frames)


# -- lengths ---------------------------------------------------------------------------------------


def test_a_voice_longer_than_whisper_hears(voice_model):
    long = stapes_reference(melody(31.0))
    audio = voice_model.convert_voice(SOURCE, long, seed=1, steps=1)
    assert audio.warnings == ("The array has 31.0 s; the first 30 are used.",)
    short = stapes_reference(melody(31.0)[: 30 * 24_000])
    expected = voice_model.convert_voice(SOURCE, short, seed=1, steps=1)
    assert expected.pitch_steps == audio.pitch_steps
    np.testing.assert_array_equal(audio.samples, expected.samples)


def test_a_long_voice_is_not_parted_from_its_text(voice_model):
    with pytest.raises(RequestError, match=r"has 31\.0 s, of which the model hears 30"):
        voice_model.speak("Hello.", stapes_reference(melody(31.0), "la"), **QUICK)


def test_a_melody_longer_than_an_answer(voice_model):
    request = replace(request_of("humming_to_singing"), melody=recording(2.5))
    with pytest.raises(RequestError, match=r"has 2\.5 s, more than the 2 that the model writes"):
        voice_model.run(request, VoiceOptions(**QUICK))


def test_a_short_voice_is_warned_of(voice_model):
    audio = voice_model.convert_voice(SOURCE, recording(0.5), seed=1, steps=1, pitch_steps=0)
    assert audio.warnings == ("The array has 0.50 s: little of a voice.",)


# -- progress and cancelling -----------------------------------------------------------------------


def test_a_prepared_voice_is_ready_and_sounds_the_same(voice_model, monkeypatch):
    prepared = recording(1.7, 0, "la la la")
    assert voice_model.prepare_voice(prepared) == ()
    tokenizer = voice_model.parts.content_style
    expected = voice_model.speak("Good morning.", VOICE, **QUICK)
    monkeypatch.setattr(tokenizer, "codes", lambda *args: pytest.fail("its codes were not kept"))
    audio = voice_model.speak("Good morning.", prepared, **QUICK)
    np.testing.assert_array_equal(audio.samples, expected.samples)


def test_what_is_wrong_with_a_voice_is_told_when_it_is_prepared(voice_model):
    (warning,) = voice_model.prepare_voice(recording(1.7))
    assert "without its text" in warning
    most = voice_model.parts.content_style.whisper_seconds
    with pytest.raises(RequestError, match="give a shorter recording with its text"):
        voice_model.prepare_voice(recording(most + 1, text="la"))


def test_progress(voice_model):
    seen: list[VoiceProgress] = []
    given = QUICK | {"longest_piece": 25}
    voice_model.speak(LONG, VOICE, on_progress=seen.append, **given)
    steps = [(p.piece, p.done, p.total) for p in seen if p.stage == "mel"]
    assert steps == [(piece, done, 2) for piece in range(3) for done in (1, 2)]
    codes = [(p.piece, p.done) for p in seen if p.stage == "codes"]
    assert codes == [(piece, done) for piece in range(3) for done in range(1, 26)]
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("after", [0, 1, 10, 26, 27, 28])
def test_cancelling_anywhere(after, voice_model):
    calls = 0

    def should_cancel() -> bool:
        nonlocal calls
        calls += 1
        return calls > after

    with pytest.raises(CancelledError):
        voice_model.speak("Good morning.", VOICE, should_cancel=should_cancel, **QUICK)
    assert voice_model.speak("Good morning.", VOICE, **QUICK).codes.size == 25


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "roles", "message"),
    [
        ("poetry", {}, "no task 'poetry'"),
        ("text_to_speech", {}, "text_to_speech needs a recording for the voice or the style"),
        ("text_to_speech", {"timbre": VOICE, "melody": MELODY}, "no use for a recording for the m"),
        ("editing", {}, "editing needs a recording for the source"),
        ("editing", {"source": MELODY}, "editing needs the text of the recording for the source"),
        ("editing", {"source": SOURCE, "timbre": VOICE}, "no use for a recording for the voice"),
        ("humming_to_singing", {"timbre": VOICE}, "needs a recording for the melody"),
        ("humming_to_singing", {"melody": MELODY}, "needs a recording for the voice"),
        ("singing_style_conversion", {"source": SOURCE}, "needs a recording for the style"),
        ("style_preserved_voice_conversion", {"source": SOURCE}, "takes no text"),
    ],
)
def test_requests_that_do_not_fit(task, roles, message):
    if task.startswith("style_preserved"):
        roles = roles | {"timbre": VOICE}
    with pytest.raises(RequestError, match=message):
        VoiceRequest(task, "tra la", **roles)


@pytest.mark.parametrize("text", ["", "  \n", "...!?", None])
def test_a_text_without_a_word(text):
    with pytest.raises(RequestError, match="text"):
        VoiceRequest("text_to_speech", text, timbre=VOICE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1),
        ("seed", 1.5),
        ("seed", 2**63),
        ("steps", 0),
        ("guidance", -0.1),
        ("temperature", -1.0),
        ("top_k", 0),
        ("top_p", 1.5),
        ("pitch_steps", 61),
        ("pitch_steps", 0.5),
        ("duration_s", 0.0),
        ("duration_s", 41.0),
        ("level_db", 1.0),
        ("level_db", float("nan")),
        ("longest_piece", 9),
        ("max_new_tokens", 0),
    ],
)
def test_options_that_are_wrong(field, value):
    with pytest.raises(RequestError, match=re.escape(str(value))):
        VoiceOptions(**{field: value})


def test_an_option_that_does_not_exist(voice_model):
    with pytest.raises(TypeError, match="sed"):
        voice_model.speak("Hello.", VOICE, sed=1)


def test_recordings_that_cannot_be_used(voice_model, tmp_path):
    with pytest.raises(AudioError, match=r"is silent: all 24000 samples are 0"):
        voice_model.reference(np.zeros(24_000, np.float32), sample_rate=24_000)
    with pytest.raises(AudioError, match="does not exist"):
        voice_model.speak("Hello.", tmp_path / "none.wav", **QUICK)
    with pytest.raises(RequestError, match="has a text of its own"):
        voice_model.speak("Hello.", VOICE, voice_text="other", **QUICK)


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("vocoder/model.safetensors", "vocoder .* lacks model.safetensors"),
        ("acoustic_modeling/fm_emilia101k_singnet7k_repa/whisper_stats.pt", "whisper_stats.pt"),
        ("whisper-medium", "no Whisper medium"),
        ("tokenizer/contentstyle_fvq16384_12.5hz/model.safetensors", "content style tokenizer"),
    ],
)
def test_a_part_that_is_missing_is_named(missing, named, voice_root, tmp_path):
    root = shutil.copytree(voice_root, tmp_path / "Vevo2")
    path = root / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ModelError, match=named):
        stapes.load_voice(root, threads=1).convert_voice(SOURCE, VOICE, seed=1, steps=1)


def test_whisper_elsewhere(voice_root, tmp_path):
    root = shutil.copytree(voice_root, tmp_path / "Vevo2")
    shutil.move(root / "whisper-medium", tmp_path / "w")
    model = stapes.load_voice(root, threads=1, whisper=tmp_path / "w")
    audio = model.convert_voice(SOURCE, VOICE, seed=1, steps=1, pitch_steps=0)
    assert audio.duration_s == pytest.approx(SOURCE.seconds, abs=0.02)


def test_parts_are_loaded_once_and_when_they_are_needed(voice_root):
    model = stapes.load_voice(voice_root, threads=1)
    assert model.load_s == 0
    model.parts.prepare(TASKS["style_preserved_voice_conversion"])
    first = dict(model.parts.load_s)
    assert set(first) == {"mel", "whisper", "content_style_tokenizer", "flow_matching", "vocoder"}
    model.parts.prepare(TASKS["text_to_speech"])
    assert set(model.parts.load_s) == {*first, "ar"}
    model.parts.prepare(TASKS["editing"])
    assert set(model.parts.load_s) == {*first, "ar", "prosody_tokenizer"}
    assert {name: model.parts.load_s[name] for name in first} == first


def test_info_tells_of_every_part(voice_root):
    told = describe(voice_root, RuntimeOptions())
    names = ("whisper", "content_style_tokenizer", "prosody_tokenizer", "flow_matching", "vocoder")
    formats = [told[name]["weights"] for name in ("decoder", *names)]
    assert formats == ["bf16", "f32", "f32", "f32", "bf16", "bf16"]
    assert told["parameters"] == sum(told[name]["parameters"] for name in ("decoder", *names))
    further = sum(told[name]["weights_bytes"] for name in names)
    assert 0 < told["memory"]["weights_bytes"] - further < 2 * told["memory"]["weights_bytes"] / 3
    assert told["flow_matching"]["cond_codebook_size"] == 16384
    assert {Path(file["file"]).name for file in told["files"]} == {"model.safetensors"}
    assert len(told["files"]) == 6
    asked = describe(voice_root, RuntimeOptions("q8", encoder_weights="q8"))
    assert [asked[name]["weights"] for name in names[:3]] == ["q8"] * 3


def test_info_tells_what_is_missing(voice_root, tmp_path):
    root = shutil.copytree(voice_root, tmp_path / "Vevo2")
    (root / "vocoder" / "model.safetensors").unlink()
    told = describe(root, RuntimeOptions())
    assert "lacks model.safetensors" in told["vocoder"]["missing"]
    assert len(told["files"]) == 5


def test_what_is_no_voice_model(tmp_path, voice_root):
    with pytest.raises(ModelError, match="There is no model"):
        stapes.load_voice(tmp_path / "none")
    with pytest.raises(ModelError, match="holds no Vevo2 model"):
        stapes.load_voice(tmp_path)
    with pytest.raises(ModelError, match="supported is 'vevo2'"):
        stapes.load_voice("tiny-en")
    with pytest.raises(ModelError, match="is a file; a voice model is a folder"):
        stapes.load_voice(voice_root / "vocoder" / "model.safetensors")
    with pytest.raises(RequestError, match="q9"):
        stapes.load_voice(voice_root, acoustic_weights="q9")


def test_the_folder_of_the_autoregressive_stage_is_enough(voice_root, monkeypatch):
    monkeypatch.chdir(voice_root / "contentstyle_modeling")
    model = stapes.load_voice("posttrained", threads=1)
    monkeypatch.chdir(Path("/"))
    assert model.convert_voice(SOURCE, VOICE, seed=1, steps=1).samples.size > 0


def test_pieces_of_a_source_are_what_whisper_hears(voice_model):
    assert voice_model.parts.content_style.whisper_seconds * 24_000 == LONGEST_PIECE
    assert stages.SHORTEST_S < 3
