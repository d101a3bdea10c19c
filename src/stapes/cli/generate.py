"""`stapes generate`: text models continue a text, or answer in a chat."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stapes.cli import messages, stdout
from stapes.cli.exits import DONE, INTERRUPTED
from stapes.cli.interrupt import interruptible
from stapes.cli.parameters import kv_option, threads_option, trace_option, weights_option
from stapes.cli.progress import reporter_for_stderr
from stapes.cli.tracing import tracing
from stapes.errors import RequestError
from stapes.options import KvFormat, RuntimeOptions, WeightFormat
from stapes.output.files import STDIN

if TYPE_CHECKING:
    from stapes.graph import Tracer
    from stapes.models.qwen_text import Answer, TextModel, TextOptions


@dataclass(frozen=True)
class Job:
    """What one call of the command asks for."""

    prompt: str
    model: str
    chat: bool
    system: str | None
    as_json: bool
    runtime: RuntimeOptions
    options: TextOptions
    trace: Path | None


@click.command("generate", short_help="Continue a text, or answer in a chat.")
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="A folder with a Qwen2 or Qwen3 text model, a GGUF file, a converted file, or a name of "
    "the Hugging Face hub: OWNER/NAME, OWNER/NAME/FILE.gguf.",
)
@click.option(
    "--prompt",
    metavar="TEXT",
    show_default="standard input, without its last line break",
    help="The text, or - for standard input.",
)
@click.option("--chat", is_flag=True, help="Answer the text, by the model's chat template.")
@click.option("--system", metavar="TEXT", help="With --chat: tell the model how to be.")
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    metavar="N",
    help="Most new tokens; fewer where the model has fewer positions left.",
)
@click.option(
    "--temperature",
    type=float,
    metavar="T",
    show_default="0, or 1 with --top-k, --top-p or --seed",
    help="Sample with this temperature; 0 takes the likeliest token each time.",
)
@click.option("--top-k", type=int, metavar="K", help="Sample from the K likeliest tokens.")
@click.option(
    "--top-p",
    type=float,
    metavar="P",
    help="Sample from the likeliest tokens that together have the probability P.",
)
@click.option("--seed", type=int, metavar="N", help="Make sampling repeat exactly.")
@click.option(
    "--repetition-penalty",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Above 1: make tokens that have occurred less likely.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@weights_option
@kv_option
@threads_option
@trace_option
def command(
    prompt: str | None,
    model: str,
    chat: bool,
    system: str | None,
    as_json: bool,
    weights: WeightFormat | None,
    kv: KvFormat,
    threads: int | None,
    trace: Path | None,
    **sampling: Any,
) -> int:
    """Continue a text with a text model, or answer it with --chat.

    The new text goes to standard output as it comes, a line of statistics to standard error.
    Ctrl-C ends the text where it is. Names of control tokens in the prompt are plain text.
    """
    from stapes.models.qwen_text import TextOptions

    if system is not None and not chat:
        raise RequestError("--system needs --chat: a text that is continued has no system message.")
    options = TextOptions(**sampling)
    runtime = RuntimeOptions(weights, kv, threads)
    return run(Job(_text(prompt), model, chat, system, as_json, runtime, options, trace))


def run(job: Job) -> int:
    """Do the job; what could be refused without the model has been."""
    with tracing(job.trace) as tracer:
        model = _load(job, tracer)
        ids = model.encode_chat(job.prompt, job.system) if job.chat else model.encode(job.prompt)
        with interruptible() as is_interrupted:
            on_text = None if job.as_json else stdout.write
            answer = model.answer(ids, job.options, on_text, is_interrupted)
    _finish(job, answer)
    if answer.finish_reason != "cancelled":
        return DONE
    messages.error("interrupted.")
    return INTERRUPTED


def _text(prompt: str | None) -> str:
    """The prompt itself, or what standard input holds."""
    text = _from_stdin(prompt) if prompt in (None, STDIN) else prompt
    if not text:
        raise RequestError("the prompt is empty.")
    return text


def _from_stdin(prompt: str | None) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        given = "standard input (-) holds no text" if prompt == STDIN else "there is no prompt"
        raise RequestError(f"{given}: give --prompt TEXT, or pipe a text into the command.")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"standard input is not UTF-8 text: byte {error.start} is "
            f"0x{error.object[error.start]:02x}."
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def _load(job: Job, tracer: Tracer | None) -> TextModel:
    import stapes
    from stapes.cli.ready import ready_model
    from stapes.models.registry import TEXT

    runtime = job.runtime
    path = ready_model(job.model, runtime, TEXT)
    with reporter_for_stderr().loading(job.model):
        return stapes.load_text(
            path,
            weights=runtime.weights,
            kv=runtime.kv,
            threads=runtime.threads,
            tracer=tracer,
        )


def _finish(job: Job, answer: Answer) -> None:
    """What comes behind the text, or the object that holds it."""
    if job.as_json:
        stdout.write(json.dumps(to_object(answer), ensure_ascii=False) + "\n", "utf-8")
    elif not answer.text.endswith("\n"):
        stdout.write("\n")
    for sentence in answer.warnings:
        messages.warning(job.model, sentence)
    if not job.as_json:
        messages.note(_statistics(answer))


def to_object(answer: Answer) -> dict[str, object]:
    """The object of an answer; names and order of its fields are part of the interface."""
    return {
        "text": answer.text,
        "token_ids": list(answer.token_ids),
        "finish_reason": answer.finish_reason,
        "tokens": asdict(answer.tokens),
        "timings_s": asdict(answer.timings_s),
    }


def _statistics(answer: Answer) -> str:
    tokens, timings = answer.tokens, answer.timings_s
    speed = timings.tokens_per_s(tokens.new)
    return (
        f"{tokens.prompt} prompt tokens in {timings.prefill:.2f} s, {tokens.new} new tokens"
        + (f" at {speed:.1f} tokens/s" if speed else "")
        + f", finish reason {answer.finish_reason}"
    )
