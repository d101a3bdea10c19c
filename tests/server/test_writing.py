"""Chats and completions as OpenAI's own client asks for them."""

from __future__ import annotations

import threading

import openai
import pytest

from server.serving import client_of, serving
from stapes.server.served import Served
from text_models import QWEN3, random_tensors, write_folder

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say the word"}]
GREEDY = {"max_tokens": 12}


def chat(client: openai.OpenAI, messages=MESSAGES, **fields):
    return client.chat.completions.create(model="tiny-text", messages=messages, **(GREEDY | fields))


def complete(client: openai.OpenAI, prompt: str = "The word", **fields):
    return client.completions.create(model="tiny-text", prompt=prompt, **(GREEDY | fields))


def test_a_chat(openai_client, text):
    answer = chat(openai_client)
    alone = text.chat(MESSAGES, max_new_tokens=12)
    choice = answer.choices[0]
    assert (answer.object, answer.model) == ("chat.completion", "tiny-text")
    assert (choice.message.role, choice.message.content) == ("assistant", alone.text)
    assert choice.finish_reason == alone.finish_reason == "length"
    assert answer.usage.prompt_tokens == alone.tokens.prompt
    assert answer.usage.completion_tokens == alone.tokens.new == 12
    assert answer.usage.total_tokens == alone.tokens.prompt + 12
    assert chat(openai_client).usage.prompt_tokens_details.cached_tokens == alone.tokens.prompt - 1
    assert chat(openai_client).id != answer.id


def test_a_chat_as_a_stream(openai_client, text):
    alone = text.chat(MESSAGES, max_new_tokens=12)
    chunks = list(chat(openai_client, stream=True, stream_options={"include_usage": True}))
    *parts, end, counts = chunks
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content for part in parts) == alone.text
    assert len(parts) > 4
    assert {part.choices[0].finish_reason for part in parts} == {None}
    assert end.choices[0].finish_reason == "length"
    assert counts.choices == []
    assert counts.usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len(list(chat(openai_client, stream=True))) == len(chunks) - 1


def test_a_completion(openai_client, text):
    answer = complete(openai_client)
    alone = text.generate("The word", max_new_tokens=12)
    assert answer.object == "text_completion"
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (alone.text, "length")
    assert answer.usage.completion_tokens == 12
    chunks = list(complete(openai_client, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == alone.text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    default = openai_client.completions.create(model="tiny-text", prompt="The word")
    assert default.usage.completion_tokens <= 16


def test_an_answer_that_the_model_ends(tmp_path):
    """Its last id is an EOS, so that it ends by itself."""
    import stapes

    sizes = QWEN3
    folder = write_folder(tmp_path / "ends", sizes, random_tensors(sizes))
    probe = stapes.load_text(folder, threads=1)
    third = probe.generate("The word", max_new_tokens=8).token_ids[3]
    folder = write_folder(
        tmp_path / "early", sizes, random_tensors(sizes), eos_token_id=[int(third)]
    )
    model = stapes.load_text(folder, threads=1)
    with serving(Served({}, {"tiny-text": model})) as running, client_of(running) as client:
        answer = complete(client)
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens == 3
        assert list(complete(client, stream=True))[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_list", [False, True])
def test_stop_sequences(openai_client, text, stream, as_list):
    whole = text.generate("The word", max_new_tokens=40).text
    stop = whole[8:11]
    fields = {"stop": [stop, "\0never"] if as_list else stop, "max_tokens": 40, "stream": stream}
    answer = complete(openai_client, **fields)
    if stream:
        chunks = list(answer)
        given = "".join(chunk.choices[0].text for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        given, reason = answer.choices[0].text, answer.choices[0].finish_reason
        assert answer.usage.completion_tokens < 40
    assert (given, reason) == (whole[: whole.find(stop)], "stop")


def test_sampling(openai_client, text):
    one = complete(openai_client, seed=7, temperature=1.5, top_p=0.9)
    again = complete(openai_client, seed=7, temperature=1.5, top_p=0.9)
    other = complete(openai_client, seed=8, temperature=1.5, top_p=0.9)
    alone = text.generate("The word", max_new_tokens=12, seed=7, temperature=1.5, top_p=0.9)
    assert one.choices[0].text == again.choices[0].text == alone.text
    assert other.choices[0].text != one.choices[0].text
    ours = {"top_k": 3, "repetition_penalty": 1.3}
    given = complete(openai_client, seed=7, extra_body=ours).choices[0].text
    assert given == text.generate("The word", max_new_tokens=12, seed=7, **ours).text


def test_what_is_the_default_may_be_said(openai_client):
    answer = chat(
        openai_client,
        n=1,
        frequency_penalty=0,
        presence_penalty=0.0,
        logprobs=False,
        response_format={"type": "text"},
        stop=None,
        stream=False,
    )
    assert answer.choices[0].message.content == chat(openai_client).choices[0].message.content
    assert complete(openai_client, echo=False, best_of=1, n=1, suffix=None).choices[0].text


def test_contents_of_parts_and_the_developer_role(openai_client):
    plain = chat(openai_client).choices[0].message.content
    parts = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "the word"}],
        },
    ]
    assert chat(openai_client, parts).choices[0].message.content == plain


def test_both_names_of_the_limit(openai_client):
    new = openai_client.chat.completions.create(
        model="tiny-text", messages=MESSAGES, max_completion_tokens=3
    )
    assert new.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 5}, "max_tokens"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"tools": []}, "tools"),
        ({"user": "me"}, "user"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": ""}, "stop.0"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
        ({"extra_body": {"min_p": 0.1}}, "min_p"),
    ],
)
def test_what_is_wrong_is_named(openai_client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(openai_client, **fields)
    error = caught.value.body
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param or param is None
    assert repr(error["param"]) in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 2}, "logprobs"),
    ],
)
def test_what_is_wrong_in_a_completion(openai_client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(openai_client, **fields)
    assert caught.value.body["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'"text"', b"\xff", b"null"])
def test_bodies_that_are_no_object(server, body):
    with server.client() as client:
        answer = client.post("/v1/chat/completions", content=body)
        assert answer.status_code == 400
        assert "JSON" in answer.json()["error"]["message"]


def test_a_body_that_is_too_large(server):
    with server.client() as client:
        answer = client.post("/v1/completions", content=b" " * (9 * 2**20))
        assert answer.status_code == 413


def test_prompts_that_do_not_fit(openai_client):
    with pytest.raises(openai.BadRequestError, match="positions") as caught:
        complete(openai_client, "word " * 3000)
    assert caught.value.body["code"] == "does_not_fit"
    with pytest.raises(openai.BadRequestError, match="positions"):
        list(complete(openai_client, "word " * 3000, stream=True))
    answer = complete(openai_client, max_tokens=100_000, stop=["e", "a", "o", "i", " "])
    assert "instead of 100000" in answer.warnings[0]


def test_models_of_the_other_kind(openai_client):
    with pytest.raises(openai.BadRequestError, match="writes no text"):
        openai_client.completions.create(model="tiny-en", prompt="a")
    with pytest.raises(openai.NotFoundError):
        openai_client.chat.completions.create(model="gpt-4o", messages=MESSAGES)


def test_a_model_without_a_chat_template(tmp_path):
    import stapes

    folder = write_folder(tmp_path / "plain", QWEN3, random_tensors(QWEN3))
    model = stapes.load_text(folder, threads=1)
    model.chat_template = None
    with serving(Served({}, {"tiny-text": model})) as running, client_of(running) as client:
        with pytest.raises(openai.BadRequestError, match="no chat template"):
            chat(client)
        assert complete(client).choices[0].text


def test_many_chats_each_get_their_own_answer(server, text):
    """16 clients, 5 rounds, prompts of their own; some leave midway, some are wrong."""
    expected = {
        f"Tell {n} of {r}": text.chat(f"Tell {n} of {r}", max_new_tokens=10).text
        for n in range(16)
        for r in range(5)
    }
    wrong: list[str] = []

    def ask(number: int) -> None:
        with client_of(server) as client:
            for turn in range(5):
                prompt = f"Tell {number} of {turn}"
                messages = [{"role": "user", "content": prompt}]
                if number % 4 == 3 and turn % 2:
                    stream = chat(client, messages, stream=True, max_tokens=200)
                    next(iter(stream))
                    stream.close()
                    continue
                if number % 4 == 2 and turn == 1:
                    try:
                        chat(client, [{"role": "user", "content": "word " * 3000}])
                    except openai.BadRequestError:
                        continue
                given = chat(client, messages, max_tokens=10).choices[0].message.content
                if given != expected[prompt]:
                    wrong.append(prompt)

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(100)
    assert wrong == []
