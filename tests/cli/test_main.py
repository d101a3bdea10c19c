"""The edge: errors to exit codes and one sentence, help, and what a start costs."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys

import pytest

import stapes
from stapes import errors
from stapes.cli.exits import exit_code


@pytest.mark.parametrize(
    "argv",
    [
        ["transcribe"],
        ["transcribe", "--nonsense", "a.wav"],
        ["transcribe", "--weights", "q2", "a.wav"],
        ["transcribe", "--kv", "q8", "a.wav"],
        ["transcribe", "--threads", "0", "a.wav"],
        ["transcribe", "--threads", "1025", "a.wav"],
        ["transcribe", "--max-new-tokens", "-1", "a.wav"],
        ["transcribe", "--format", "xml", "a.wav"],
        ["transcribe", "--model"],
        ["frobnicate"],
        ["--nonsense"],
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(run, model, argv):
    ran = run(*argv)
    assert (ran.code, ran.out, model.events) == (2, "", [])
    assert ran.err.startswith("stapes: error: ")
    assert len(ran.err.splitlines()) == 1
    assert "--help'" in ran.err


def test_no_command_shows_the_help_and_fails(run):
    ran = run()
    assert (ran.code, ran.out) == (2, "")
    assert "Commands:" in ran.err


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["transcribe", "--help"]])
def test_help_goes_to_stdout(run, argv):
    ran = run(*argv)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: stapes")


def test_version(run):
    assert run("--version").out == f"stapes {stapes.__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RequestError("x."), 2),
        (errors.CancelledError("x."), 130),
        (errors.AudioError("x."), 3),
        (errors.ModelError("x."), 4),
        (errors.TensorFileError("x."), 4),
        (errors.CheckpointError("x."), 4),
        (errors.ConfigError("x."), 4),
        (errors.NumericError("x."), 4),
        (errors.CapacityError("x."), 5),
        (MemoryError(), 5),
    ],
)
def test_every_error_has_its_exit_code(run, model, error, code):
    model.load_error = error
    ran = run("transcribe", "a.wav")
    assert ran.code == code
    assert ran.err == f"stapes: error: {str(error) or 'out of memory.'}\n"


def test_the_whole_tree_is_translated():
    def leaves(kind: type[BaseException]):
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]

    kinds = [k for k in leaves(errors.StapesError)[1:] if k.__module__ == errors.__name__]
    codes = {exit_code(kind("x.")) for kind in kinds}
    assert codes == {2, 3, 4, 5, 130}


def test_ctrl_c(run, model):
    model.answers = {"a.wav": KeyboardInterrupt()}
    ran = run("transcribe", "a.wav", "b.wav")
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.strip() == "stapes: error: interrupted."


def test_a_bug_is_not_dressed_up_as_a_mistake_of_the_user(run, model):
    model.answers = {"a.wav": ZeroDivisionError("bug")}
    with pytest.raises(ZeroDivisionError):
        run("transcribe", "a.wav")


# In processes of their own: what the real streams and a real start do.

FAKE = """
import sys
sys.path.insert(0, {folder!r})
import stapes, conftest
from stapes.cli import main
fake = conftest.FakeModel()
fake.answers = {{"many.wav": fake.said("x" * 100_000), "u.wav": fake.said("f\\u00fcnf \\u6570")}}
stapes.load = fake.load
sys.exit(main(sys.argv[1:]))
"""


def fake_command(*argv: str) -> list[str]:
    return [sys.executable, "-c", FAKE.format(folder=os.path.dirname(__file__)), *argv]


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    path = os.environ.get("PYTHONPATH")
    return kept | ({"PYTHONPATH": path} if path else {}) | changes


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"LANG": "C"}, "fünf 数\n".encode()),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, b"f\\xfcnf \\u6570\n"),
        ({"PYTHONIOENCODING": "latin-1"}, b"f\xfcnf \\u6570\n"),
    ],
)
def test_a_stdout_that_is_not_utf8(env, expected):
    done = subprocess.run(
        fake_command("transcribe", "u.wav"), env=environment(**env), capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def test_json_is_utf8_whatever_the_locale():
    done = subprocess.run(
        fake_command("transcribe", "--format", "json", "u.wav"),
        env=environment(PYTHONIOENCODING="latin-1"),
        capture_output=True,
    )
    assert "fünf 数" in done.stdout.decode("utf-8")


def test_a_file_name_that_is_not_utf8():
    done = subprocess.run(
        [*map(os.fsencode, fake_command("transcribe", "--format", "json")), b"\xff.wav"],
        env=environment(LANG="C.UTF-8"),
        capture_output=True,
    )
    assert done.returncode == 0
    assert b'"file": "\\udcff.wav"' in done.stdout


def test_a_reader_that_leaves_early_is_not_an_error():
    with subprocess.Popen(
        fake_command("transcribe", *["many.wav"] * 20),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            fake_command("transcribe", "a.wav"), env=environment(), stdout=full,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    assert done.returncode == 5
    expected = b"stapes: error: cannot write to standard output: No space left on device.\n"
    assert done.stderr == expected


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["info", "tiny-en"], ["models", "--json"], ["models"]]
)
def test_a_full_disk_behind_what_is_not_a_transcript(argv):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stapes", *argv], env=environment(), stdout=full,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    expected = b"stapes: error: cannot write to standard output: No space left on device.\n"
    assert (done.returncode, done.stderr) == (5, expected)


@pytest.mark.skipif(os.name == "nt", reason="needs a shell that closes standard output")
def test_a_closed_stdout_is_told():
    command = shlex.join(fake_command("transcribe", "a.wav"))
    done = subprocess.run(["sh", "-c", f"{command} >&-"], env=environment(), stderr=subprocess.PIPE)
    expected = b"stapes: error: standard output is closed; the answer was to go there.\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_a_folder_that_nobody_may_read_is_a_sentence(run, monkeypatch):
    def entries(cache: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/secret/hub")

    monkeypatch.setattr("stapes.models.library.entries", entries)
    ran = run("models")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "stapes: error: /secret/hub cannot be used: Permission denied.\n"


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "stapes", "--version"], env=environment(), capture_output=True
    )
    assert done.stdout.decode() == f"stapes {stapes.__version__}\n"


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from stapes.cli import main; main(['--help']);"
        "heavy = {'numpy', 'av', 'rich', 'soxr', 'tokenizers', 'huggingface_hub'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("after", ["import of stapes.cli", "call"])
def test_an_interrupt_at_the_very_beginning(after, tmp_path):
    """Ctrl-C may come before there is a command."""
    raising = "raise KeyboardInterrupt"
    if after == "call":
        raising = f"def main(): {raising}"
    package = tmp_path / "stapes_cli_stand_in.py"
    package.write_text(raising)
    program = (
        "import sys, importlib.abc, importlib.util\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'stapes.cli':\n"
        f"            return importlib.util.spec_from_file_location(name, {str(package)!r})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from stapes.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "stapes: error: interrupted.\n")
