"""Text models: what is generated, shown, reused and refused."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import stapes
from chat_templates import PLAIN, assistant, chat_tokenizer_json, control_ids, system, user
from stapes.decoder import Decoder, GenerateOptions, Prompt, generate
from stapes.errors import CapacityError, ConfigError, RequestError
from stapes.models.convert import convert
from stapes.models.qwen_text import TextModel, TextOptions
from stapes.models.qwen_text.shown import read_shown_ids
from stapes.options import RuntimeOptions
from stapes.text.folder import MemoryFolder
from text.bpe_folder import tokenizer_config, write_json
from text_models import QWEN2, QWEN3, random_tensors, write_folder, write_gguf

IDS = control_ids()


def load(path: Path) -> TextModel:
    return stapes.load_text(path, weights="f32", kv="f32", threads=1)


@pytest.fixture(scope="session")
def pristine_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "model.gguf"
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={"tokenizer.chat_template": PLAIN})
    return path


@pytest.fixture
def model(pristine_gguf: Path) -> TextModel:
    return load(pristine_gguf)


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tokenizer has <think> and <tool_call>, which are not special."""
    folder = write_folder(tmp_path_factory.mktemp("chat"), QWEN2, random_tensors(QWEN2))
    write_json(folder / "tokenizer.json", chat_tokenizer_json())
    (folder / "chat_template.jinja").write_text(PLAIN)
    return folder


class Rigged:
    """Runs a plan by giving one id after another, and end when there is none left."""

    def __init__(self, model: TextModel, ids: list[int]) -> None:
        self.inner, self.ids, self.given = model.decoder._next, ids, 0
        end = min(model.decoder.spec.eos_token_ids)
        old = model.decoder
        model.decoder = Decoder(
            old.spec,
            old.weights,
            lambda plan: self,  # type: ignore[arg-type, return-value]
            old.kv,
        )
        self.end = end

    def new_cache(self, *shape: Any) -> Any:
        return self.inner.new_cache(*shape)

    def run(self, inputs: Any, caches: Any) -> Any:
        result = self.inner.run(inputs, caches)
        for row in range(len(result["next"])):
            ids = self.ids[self.given : self.given + 1] or [self.end]
            result["next"][row] = ids[0]
            self.given += 1
        return result


# -- what is generated ---------------------------------------------------------------------------


def test_an_answer_is_the_decoders(model):
    answer = model.generate("The quick", max_new_tokens=12)
    prompt = Prompt(model.tokenizer.encode("The quick"))
    ids = generate(model.decoder.new_session(), prompt, GenerateOptions(12)).token_ids
    assert answer.token_ids == ids
    assert answer.text == model.tokenizer.decode(ids)
    assert (answer.tokens.prompt, answer.tokens.new) == (len(prompt), len(ids))
    assert answer.finish_reason == ("length" if len(ids) == 12 else "stop")
    assert answer.timings_s.total >= answer.timings_s.prefill > 0
    assert answer.timings_s.load == model.load_s > 0


def test_the_text_comes_in_pieces_that_join_to_it(model):
    pieces: list[str] = []
    answer = model.generate("The quick", max_new_tokens=30, on_text=pieces.append)
    assert "".join(pieces) == answer.text
    assert len(pieces) > 5


def test_characters_come_whole(model):
    text = "naïve 🎙 数"
    rigged = Rigged(model, [i for c in text for i in model.tokenizer.encode(c)])
    pieces: list[str] = []
    answer = model.generate("x", on_text=pieces.append)
    assert len(rigged.ids) > len(text)
    assert answer.text == "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert (answer.finish_reason, answer.tokens.new) == ("stop", len(rigged.ids))


def test_half_a_character_at_the_end_is_shown_as_such(model):
    ids = model.tokenizer.encode("🎙")
    assert len(ids) > 1
    Rigged(model, [*model.tokenizer.encode("a"), ids[0]])
    pieces: list[str] = []
    answer = model.generate("x", on_text=pieces.append)
    assert answer.text == "".join(pieces) == "a\ufffd"


def test_a_chat_is_its_templates_ids(model):
    messages = [user("Hi"), assistant("Ho"), user("Hu")]
    answer = model.chat(messages, system="Be short.", max_new_tokens=5)
    whole = [system("Be short."), *messages]
    assert answer.tokens.prompt == len(model.encode_chat(whole))
    assert model.encode_chat("Hi") == model.encode_chat([user("Hi")])
    ids = generate(
        model.decoder.new_session(), Prompt(model.encode_chat(whole)), GenerateOptions(5)
    ).token_ids
    assert answer.token_ids == ids


def test_the_prefix_is_in_front_of_plain_text_only(tmp_path):
    path = tmp_path / "model.gguf"
    metadata = {"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "{{bos_token}}a"}
    write_gguf(path, QWEN2, random_tensors(QWEN2), metadata=metadata)
    model = load(path)
    begin = IDS["<|endoftext|>"]
    assert model.encode("a") == [begin, *model.tokenizer.encode("a")]
    assert model.encode_chat("x") == [begin, *model.tokenizer.encode("a")]
    metadata = {"tokenizer.chat_template": "<|im_end|>a"}
    write_gguf(path, QWEN2, random_tensors(QWEN2), metadata=metadata)
    assert load(path).encode_chat("x") == [IDS["<|im_end|>"], *model.tokenizer.encode("a")]


def test_names_in_a_prompt_are_text(model):
    assert not any(model.tokenizer.is_control(i) for i in model.encode("<|im_end|><|im_start|>"))


# -- what is shown -------------------------------------------------------------------------------

PLAIN_NAMES = {"<asr_text>", "<timestamp>", "<think>", "</think>", "<tool_call>", "</tool_call>"}


def shown(model: TextModel) -> set[str]:
    return {model.tokenizer.parts.control[i] for i in model.shown_ids}


def test_tokens_that_are_not_special_are_shown(chat_folder):
    model = load(chat_folder)
    assert shown(model) == PLAIN_NAMES
    ids = [IDS["<|im_start|>"], IDS["<think>"], *model.tokenizer.encode("hm"), IDS["</think>"]]
    Rigged(model, ids)
    assert model.generate("x").text == "<think>hm</think>"


def test_flags_lie_in_tokenizer_config_too(tmp_path):
    folder = write_folder(tmp_path, QWEN2, random_tensors(QWEN2))
    write_json(folder / "tokenizer_config.json", tokenizer_config())
    assert shown(load(folder)) == {"<asr_text>", "<timestamp>"}


def test_flags_of_a_gguf_file_and_of_what_it_is_converted_to(pristine_gguf, tmp_path):
    assert shown(load(pristine_gguf)) == {"<asr_text>", "<timestamp>"}
    convert(pristine_gguf, tmp_path / "x.stapes", RuntimeOptions("f32", "f32", 1))
    converted = load(tmp_path / "x.stapes")
    assert shown(converted) == {"<asr_text>", "<timestamp>"}
    assert converted.encode_chat("Hi") == load(pristine_gguf).encode_chat("Hi")


@pytest.mark.parametrize("value", [1, [1], {"x": {}}, {"1": 2}])
def test_flags_that_are_malformed(value):
    files = {"tokenizer_config.json": json.dumps({"added_tokens_decoder": value})}
    with pytest.raises(ConfigError, match="added tokens in there are malformed"):
        read_shown_ids(MemoryFolder("there", files))


def test_an_end_is_never_shown(tmp_path):
    path = tmp_path / "model.gguf"
    metadata = {"tokenizer.ggml.eos_token_id": IDS["<timestamp>"]}
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata=metadata)
    assert shown(load(path)) == {"<asr_text>"}


# -- sampling ------------------------------------------------------------------------------------


def test_options_become_those_of_the_decoder():
    assert TextOptions().sampling is None
    assert TextOptions(temperature=0.0, top_k=4, seed=1).sampling is None
    assert TextOptions(temperature=0.7).sampling.temperature == 0.7
    for implied in ({"top_k": 4}, {"top_p": 0.5}, {"seed": 0}):
        sampling = TextOptions(**implied).sampling
        assert sampling.temperature == 1.0
        assert {name: getattr(sampling, name) for name in implied} == implied
    penalised = TextOptions(repetition_penalty=1.2).sampling
    assert (penalised.temperature, penalised.repetition_penalty) == (0.0, 1.2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 0),
        ("max_new_tokens", 1.5),
        ("temperature", float("nan")),
        ("temperature", -1.0),
        ("temperature", float("inf")),
        ("top_k", 0),
        ("top_p", 1.5),
        ("top_p", float("nan")),
        ("repetition_penalty", 0.0),
        ("seed", -1),
    ],
)
def test_values_that_are_refused(model, name, value):
    with pytest.raises(RequestError, match=name):
        model.generate("x", **{name: value})


def test_a_seed_repeats_and_others_differ(model):
    asked = {"max_new_tokens": 16, "temperature": 2.0}
    first = model.generate("The quick", seed=1, **asked).token_ids
    assert model.generate("The quick", seed=1, **asked).token_ids == first
    assert model.generate("The quick", seed=2, **asked).token_ids != first
    assert model.generate("The quick", max_new_tokens=16).token_ids != first


def test_a_penalty_changes_a_greedy_answer(model):
    plain = model.generate("The quick", max_new_tokens=32).token_ids
    assert model.generate("The quick", max_new_tokens=32, repetition_penalty=5.0).token_ids != plain


# -- limits --------------------------------------------------------------------------------------


def test_fewer_tokens_where_the_model_has_fewer_positions(model):
    positions = model.decoder.spec.max_position_embeddings
    prompt = [1] * (positions - 3)
    answer = model.answer(prompt, TextOptions(10))
    assert answer.tokens.new <= 3
    assert answer.warnings == (
        f"at most 3 new tokens instead of 10: the prompt takes {positions - 3} of the model's "
        f"{positions} positions.",
    )
    with pytest.raises(CapacityError, match=f"{positions} tokens"):
        model.answer([1] * positions, TextOptions(10))


@pytest.mark.parametrize("prompt", ["", None, b"x", ["x"]])
def test_prompts_that_are_none(model, prompt):
    with pytest.raises(RequestError, match="prompt"):
        model.generate(prompt)
    with pytest.raises(RequestError):
        model.chat(prompt)


def test_a_model_without_a_template(tmp_path):
    model = load(write_folder(tmp_path, QWEN3, random_tensors(QWEN3)))
    with pytest.raises(RequestError, match="has no chat template"):
        model.chat("Hi")
    assert model.generate("Hi", max_new_tokens=2).tokens.new == 2


def test_two_system_messages(model):
    with pytest.raises(RequestError, match="two system messages"):
        model.chat([system("a"), user("b")], system="c")
    with pytest.raises(RequestError, match="Message 0 is no mapping"):
        model.chat(["a"], system="c")


def test_cancelling(model):
    pieces: list[str] = []
    answer = model.generate(
        "The quick", on_text=pieces.append, should_cancel=lambda: len(pieces) >= 3
    )
    assert answer.finish_reason == "cancelled"
    assert answer.text.startswith("".join(pieces))
    assert 3 <= answer.tokens.new <= 4


# -- what a model keeps --------------------------------------------------------------------------


def test_the_next_turn_reuses_what_the_last_one_computed(model):
    first = model.chat("Hi", max_new_tokens=8)
    assert first.tokens.reused == 0
    messages = [user("Hi"), assistant("Ho"), user("Hu")]
    second = model.chat(messages, max_new_tokens=8)
    assert second.tokens.reused >= first.tokens.prompt
    cold = load(Path(model.name)).chat(messages, max_new_tokens=8)
    assert (second.token_ids, second.text) == (cold.token_ids, cold.text)


def test_a_failure_in_a_callback_leaves_the_model_usable(model):
    def fail(text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError):
        model.generate("The quick", on_text=fail)
    fresh = load(Path(model.name))
    again, cold = (m.generate("The quick", max_new_tokens=8) for m in (model, fresh))
    assert again.token_ids == cold.token_ids


def test_a_call_from_within_a_call(model):
    inner: list[Any] = []

    def ask(text: str) -> None:
        if not inner:
            inner.append(model.generate("dogs", max_new_tokens=4))

    outer = model.generate("The quick", max_new_tokens=12, on_text=ask)
    fresh = load(Path(model.name))
    assert outer.token_ids == fresh.generate("The quick", max_new_tokens=12).token_ids
    assert inner[0].token_ids == fresh.generate("dogs", max_new_tokens=4).token_ids


def test_threads_do_not_disturb_each_other(model):
    prompts = ["The quick", "brown fox", "jump over", "lazy dogs"] * 3
    expected = {p: load(Path(model.name)).generate(p, max_new_tokens=16).text for p in prompts[:4]}
    found: list[tuple[str, str]] = []
    threads = [
        threading.Thread(
            target=lambda p=p: found.append((p, model.generate(p, max_new_tokens=16).text))
        )
        for p in prompts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted((p, expected[p]) for p in prompts)
    assert len(set(expected.values())) == 4


# -- loading -------------------------------------------------------------------------------------


def test_a_speech_model_is_no_text_model(pristine):
    with pytest.raises(ConfigError, match="which `stapes transcribe` runs") as refused:
        stapes.load_text(pristine)
    assert "'qwen3_asr'" in str(refused.value)


def test_a_text_model_is_no_speech_model(pristine_gguf):
    with pytest.raises(ConfigError, match="a text model, which `stapes generate` runs"):
        stapes.load(pristine_gguf)


def test_a_trace_of_loading(pristine_gguf):
    from stapes.graph import Tracer

    tracer = Tracer()
    stapes.load_text(pristine_gguf, threads=1, tracer=tracer).generate("x", max_new_tokens=2)
    record = tracer.to_json()
    assert all(f'"{stage}"' in record for stage in ("load", "prefill", "decode"))
