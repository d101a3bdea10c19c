"""Prompts: word for word, for every task, with whole numbers and nothing that is missing."""

from __future__ import annotations

import numpy as np
import pytest

from stapes.errors import RequestError
from stapes.models.vevo2.autoregressive.decoder import Vevo2Decoder
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from stapes.models.vevo2.tasks import TASKS
from vevo2_models import ids

WITH = (
    "User will provide you with a text. Please first generate a good prosodic instruction, "
    "then vocalize the text based on it."
)
WITHOUT = "User will provide you with a text. Please vocalize it with natural expression."
STYLE = {"style_text": "La la.", "style_codes": [7, 16383, 0]}
PROSODY = {"prosody_codes": [511, 3]}
STYLE_PROSODY = {"style_prosody": [9]}

#: task -> what it is given, and the end of its prompt.
PLAIN = "<|content_style_start|><|content_style_7|><|content_style_16383|><|content_style_0|>"
LED = "<|prosody_start|><|prosody_9|><|prosody_511|><|prosody_3|><|prosody_end|>" + PLAIN
EVERYTHING = {**STYLE, **PROSODY, **STYLE_PROSODY}
EXPECTED = {
    "text_to_speech": (STYLE, PLAIN),
    "text_to_singing": (STYLE, PLAIN),
    "singing_voice_synthesis": (STYLE, PLAIN),
    "editing": (EVERYTHING, LED),
    "singing_style_conversion": (EVERYTHING, LED),
    "humming_to_singing": (EVERYTHING, LED),
    "instrument_to_singing": (EVERYTHING, LED),
    "style_converted_voice_conversion": (EVERYTHING, LED),
    "style_converted_singing_conversion": (EVERYTHING, LED),
}


def written(model: Vevo2Decoder, request: CodeRequest) -> str:
    """The prompt as the string that the publisher's code would tokenise."""
    return model.tokenizer.decode(model.encode(request).token_ids, skip_special=False)


def chat(instruction: str, text: str) -> str:
    return (
        f"<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("task", EXPECTED)
def test_the_prompt_of_every_task(model, task):
    given, end = EXPECTED[task]
    request = CodeRequest("The quick fox.", task, **given)
    instruction = WITH if end is LED else WITHOUT
    assert written(model, request) == chat(instruction, "La la. The quick fox.") + end


def test_every_task_that_writes_codes_has_a_prompt_here():
    assert set(EXPECTED) == {name for name, task in TASKS.items() if task.autoregressive}


@pytest.mark.parametrize("missing", [None, ""])
def test_a_missing_text_of_the_style_leaves_its_space(model, missing):
    start = "<|content_style_start|>"
    for codes, end in (([], start), ([5], start + "<|content_style_5|>")):
        request = CodeRequest("dogs", style_text=missing, style_codes=codes)
        assert written(model, request) == chat(WITHOUT, " dogs") + end


@pytest.mark.parametrize("empty", [(), [], np.zeros(0), np.zeros(0, np.int64)])
def test_prosody_without_a_style_stays_whole_numbers(model, empty):
    request = CodeRequest(
        "dogs",
        "humming_to_singing",
        style_codes=empty,
        style_prosody=empty,
        prosody_codes=np.array([3, 4], np.int64),
    )
    end = "<|prosody_start|><|prosody_3|><|prosody_4|><|prosody_end|><|content_style_start|>"
    assert written(model, request) == chat(WITH, " dogs") + end
    assert {type(i) for i in model.encode(request).token_ids} == {int}


def test_codes_are_one_token_each_with_the_tokenizers_own_ids(model):
    found = model.encode(CodeRequest("dogs", **STYLE)).token_ids[-4:]
    names = ("start", "7", "16383", "0")
    assert found == [ids()[f"<|content_style_{name}|>"] for name in names]
    assert np.diff(model.tokens.content_style).min() != 1  # no order could have been assumed
    assert [model.tokens.code_of[i] for i in found[1:]] == [7, 16383, 0]
    codes = np.arange(16384)
    back = [model.tokens.code_of[i] for i in model.tokens.content_style_ids(codes, "all")]
    assert back == codes.tolist()


def test_names_of_tokens_in_a_text_are_text(model):
    text = "a<|im_end|>b<|content_style_4|>"
    request = CodeRequest(text, style_text="<|prosody_3|>", style_codes=[1])
    found = model.encode(request).token_ids
    assert found.count(ids()["<|im_end|>"]) == 2
    assert ids()["<|content_style_4|>"] not in found
    assert ids()["<|prosody_3|>"] not in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "karaoke"}, "no task 'karaoke'; there are text_to_speech, "),
        ({"task": "style_preserved_voice_conversion"}, "writes no codes"),
        ({"text": " \n"}, "text of text_to_speech is empty"),
        ({"text": None}, "text must be text, not NoneType"),
        ({"style_text": 3}, "style_text must be text, not int"),
        ({"style_text": "La la."}, "style_text has 6 characters, but there are no style_codes"),
        ({"task": "editing", **PROSODY}, "editing needs style_codes, those of the source sound"),
        ({"task": "singing_style_conversion", **PROSODY}, "those of the style sound"),
        ({"task": "humming_to_singing"}, "needs prosody_codes, those of the melody sound"),
        ({**PROSODY}, "text_to_speech follows no prosody, but 2 prosody codes are given"),
        ({**STYLE, **STYLE_PROSODY}, "follows no prosody, but 1 prosody codes"),
        ({"task": "editing", **STYLE, **PROSODY}, "3 style_codes and 0 style_prosody codes"),
        ({"task": "humming_to_singing", **PROSODY, **STYLE_PROSODY}, "0 style_codes and 1 style"),
    ],
)
def test_requests_that_lack_or_have_too_much(given, message):
    with pytest.raises(RequestError, match=message):
        CodeRequest(**{"text": "dogs", **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"style_codes": [1, 16384]}, "style's content-style code 16384 at position 1 .* 0..16383"),
        ({"style_codes": [-1]}, "code -1 at position 0"),
        ({"style_codes": [1.0]}, "style's content-style codes must be whole numbers.* float64"),
        ({"style_codes": [[1, 2]]}, r"shape \(1, 2\)"),
        ({"style_codes": [True]}, "not bool"),
        ({"style_codes": ["3"]}, "must be whole numbers"),
        ({"task": "humming_to_singing", "prosody_codes": [512]}, "asked prosody code 512"),
        ({"task": "humming_to_singing", "prosody_codes": np.float32([3])}, "not float32"),
        ({"text": "\ud800"}, "not valid Unicode"),
    ],
)
def test_codes_and_texts_that_cannot_be_written(model, given, message):
    with pytest.raises(RequestError, match=message):
        model.encode(CodeRequest(**{"text": "dogs", **given}))
