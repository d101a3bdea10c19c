"""`stapes generate`: what goes where, and what is refused."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stapes
from chat_templates import PLAIN
from checkpoints import Sizes, write_checkpoint
from stapes.models.qwen_text import TextModel
from text_models import QWEN3, random_tensors, write_gguf

EXACT = ("--weights", "f32", "--kv", "f32", "--threads", "1")


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "model.gguf"
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={"tokenizer.chat_template": PLAIN})
    return path


@pytest.fixture(scope="session")
def loaded(file: Path) -> TextModel:
    return stapes.load_text(file, weights="f32", kv="f32", threads=1)


@pytest.fixture
def generate(run, file):
    """Runs the command on the tiny model."""
    return lambda *argv: run("generate", "--model", str(file), *EXACT, *argv)


@pytest.fixture
def stdin(monkeypatch):
    """Puts bytes into standard input."""

    def put(data: bytes) -> None:
        fake = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", fake)

    return put


def lines(text: str) -> str:
    """Text as it is printed: with a line break at its end."""
    return text if text.endswith("\n") else text + "\n"


# -- what goes where -----------------------------------------------------------------------------


def test_text_goes_to_stdout_and_one_line_of_statistics_to_stderr(generate, loaded):
    ran = generate("--prompt", "The quick", "--max-new-tokens", "12")
    answer = loaded.generate("The quick", max_new_tokens=12)
    assert (ran.code, ran.out) == (0, lines(answer.text))
    (line,) = ran.err.splitlines()
    assert line.startswith(f"stapes: {answer.tokens.prompt} prompt tokens in ")
    assert f", {answer.tokens.new} new tokens at " in line
    assert line.endswith(f", finish reason {answer.finish_reason}")


def test_json_is_one_object_and_nothing_else(generate, loaded):
    ran = generate("--prompt", "The quick", "--max-new-tokens", "12", "--json")
    answer = loaded.generate("The quick", max_new_tokens=12)
    (line,) = ran.out.splitlines()
    found = json.loads(line)
    assert (ran.code, ran.err) == (0, "")
    assert list(found) == ["text", "token_ids", "finish_reason", "tokens", "timings_s"]
    assert (found["text"], tuple(found["token_ids"])) == (answer.text, answer.token_ids)
    assert found["tokens"] == {"prompt": answer.tokens.prompt, "reused": 0, "new": 12}
    assert list(found["timings_s"]) == ["load", "prefill", "decode", "total"]
    assert all(seconds > 0 for seconds in found["timings_s"].values())


def test_a_chat(generate, loaded):
    ran = generate("--chat", "--prompt", "Hi", "--system", "Be short.", "--max-new-tokens", "9")
    assert ran.out == lines(loaded.chat("Hi", system="Be short.", max_new_tokens=9).text)
    without = generate("--chat", "--prompt", "Hi", "--max-new-tokens", "9")
    assert without.out == lines(loaded.chat("Hi", max_new_tokens=9).text)
    assert ran.out != without.out


def test_sampling_options_reach_the_model(generate, loaded):
    asked = {"temperature": 2.0, "top_k": 50, "top_p": 0.9, "seed": 3, "repetition_penalty": 1.3}
    argv = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    ran = generate("--prompt", "The quick", "--max-new-tokens", "9", *argv)
    assert ran.out == lines(loaded.generate("The quick", max_new_tokens=9, **asked).text)
    assert ran.out != lines(loaded.generate("The quick", max_new_tokens=9).text)


def test_text_is_flushed_as_it_comes(file):
    """Each piece is there before the next one is computed."""
    script = (
        "import stapes.cli, stapes.cli.stdout as o, os\n"
        "real = o.write\n"
        "def write(text, encoding=None):\n"
        "    real(text, encoding); os.write(1, b'\\x00')\n"
        "o.write = write\n"
        f"stapes.cli.main(['generate', '--model', {str(file)!r}, '--prompt', 'The quick',"
        " '--max-new-tokens', '9'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    pieces = done.stdout.split(b"\x00")
    assert len(pieces) > 4
    assert all(pieces[:-1])


def test_a_trace(generate, tmp_path):
    target = tmp_path / "trace.json"
    assert generate("--prompt", "x", "--max-new-tokens", "3", "--trace", str(target)).code == 0
    assert '"decode"' in target.read_text()


# -- the prompt ----------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [[], ["--prompt", "-"]])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_stdin_without_its_last_line_break(generate, stdin, loaded, argv, end):
    stdin("Größe\nüber".encode() + end)
    ran = generate(*argv, "--max-new-tokens", "5")
    assert ran.out == lines(loaded.generate("Größe\nüber", max_new_tokens=5).text)


def test_a_prompt_that_is_given_leaves_stdin_alone(generate, stdin, loaded):
    stdin(b"\xff")
    ran = generate("--prompt", "The quick", "--max-new-tokens", "5")
    assert ran.out == lines(loaded.generate("The quick", max_new_tokens=5).text)


@pytest.mark.parametrize(
    ("data", "argv", "sentence"),
    [
        (b"", [], "the prompt is empty"),
        (b"\n", [], "the prompt is empty"),
        (b"a", ["--prompt", ""], "the prompt is empty"),
        (b"ab\xff", [], "byte 2 is 0xff"),
    ],
)
def test_prompts_that_are_none(run, stdin, data, argv, sentence):
    stdin(data)
    ran = run("generate", "--model", "missing", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("argv", [[], ["--prompt", "-"]])
@pytest.mark.parametrize("closed", [True, False])
def test_a_terminal_is_no_prompt(run, monkeypatch, argv, closed):
    monkeypatch.setattr(sys, "stdin", None if closed else SimpleNamespace(isatty=lambda: True))
    ran = run("generate", "--model", "missing", *argv)
    assert ran.code == 2
    assert "give --prompt TEXT, or pipe a text" in ran.err


def test_a_long_prompt(generate):
    positions = QWEN3.max_position_embeddings
    ran = generate("--prompt", "x" * (positions + 1))
    assert (ran.code, ran.out) == (5, "")
    assert f"but the model has {positions}" in ran.err


def test_fewer_tokens_than_asked_for(generate, loaded):
    room = 2
    prompt = "x " * 10_000
    ids = loaded.encode(prompt)
    positions = QWEN3.max_position_embeddings
    shorter = loaded.tokenizer.decode(ids[: positions - room])
    assert len(loaded.encode(shorter)) == positions - room
    ran = generate("--prompt", shorter)
    assert ran.code == 0
    assert f"at most {room} new tokens instead of 512" in ran.err


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--temperature", "nan"], "temperature"),
        (["--temperature", "-1"], "temperature"),
        (["--top-k", "0"], "top_k"),
        (["--top-p", "2"], "top_p"),
        (["--seed", "-1"], "seed"),
        (["--repetition-penalty", "0"], "repetition_penalty"),
        (["--max-new-tokens", "0"], "--max-new-tokens"),
        (["--system", "x"], "--system needs --chat"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_usage_is_refused_before_the_model_is_looked_for(run, argv, sentence):
    ran = run("generate", "--model", "missing", "--prompt", "x", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_model_must_be_named(run):
    assert run("generate", "--prompt", "x").code == 2


def test_a_model_that_is_missing(run):
    ran = run("generate", "--model", "missing", "--prompt", "x")
    assert (ran.code, ran.out) == (4, "")
    assert "There is no model 'missing'" in ran.err


def test_the_other_kind_of_model(run, file, tmp_path):
    speech = write_checkpoint(tmp_path, Sizes(num_hidden_layers=1, encoder_layers=1))
    ran = run("generate", "--model", str(speech), "--prompt", "x")
    assert ran.code == 4
    assert "`stapes transcribe`" in ran.err
    ran = run("transcribe", "--model", str(file), "a.wav")
    assert ran.code == 4
    assert "`stapes generate`" in ran.err


def test_a_model_without_a_chat_template(run, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={"tokenizer.chat_template": None})
    ran = run("generate", "--model", str(path), "--prompt", "x", "--chat")
    assert ran.code == 2
    assert "has no chat template" in ran.err


# -- ends that others make -----------------------------------------------------------------------


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C comes with the third piece of text that is looked at."""
    real = TextModel.answer

    def answer(self: TextModel, ids: Any, options: Any, on_text: Any, should_cancel: Any) -> Any:
        if should_cancel is None:  # a test's own call
            return real(self, ids, options, on_text, should_cancel)
        asked = 0

        def cancel() -> bool:
            nonlocal asked
            asked += 1
            if asked == 3:
                signal.raise_signal(signal.SIGINT)
            return bool(should_cancel())

        return real(self, ids, options, on_text, cancel)

    monkeypatch.setattr(TextModel, "answer", answer)


def test_ctrl_c_ends_the_text_where_it_is(generate, interrupted, loaded):
    before = signal.getsignal(signal.SIGINT)
    ran = generate("--prompt", "The quick")
    assert ran.code == 130
    assert ran.out == lines(loaded.generate("The quick", max_new_tokens=2).text)
    assert "finish reason cancelled" in ran.err
    assert ran.err.endswith("stapes: error: interrupted.\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_with_json(generate, interrupted):
    ran = generate("--prompt", "The quick", "--json")
    found = json.loads(ran.out)
    assert ran.code == 130
    assert (found["finish_reason"], len(found["token_ids"])) == ("cancelled", 2)
    assert ran.err == "stapes: error: interrupted.\n"


def command(file: Path, *argv: str) -> list[str]:
    return [sys.executable, "-m", "stapes", "generate", "--model", str(file), *argv]


def test_a_reader_that_leaves_early_is_not_an_error(file):
    with subprocess.Popen(
        command(file, "--prompt", "The quick", "--max-new-tokens", "3000", "--seed", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(4)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(file):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(file, "--prompt", "The quick"), stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 5
    expected = b"stapes: error: cannot write to standard output: No space left on device.\n"
    assert done.stderr == expected


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from stapes.cli import main; main(['generate', '--help']);"
        "heavy = {'numpy', 'rich', 'tokenizers', 'jinja2'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
