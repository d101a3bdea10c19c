"""What goes to standard error: one line for each message."""

from __future__ import annotations

import click


def error(sentence: str) -> None:
    """Why something was not done."""
    _say(f"stapes: error: {sentence}")


def warning(subject: str, sentence: str) -> None:
    """Something to know about the result for `subject`."""
    _say(f"stapes: warning: {subject}: {sentence}")


def note(sentence: str) -> None:
    """What was done, where the answer itself went elsewhere."""
    _say(f"stapes: {sentence}")


def about(subject: str, sentence: str) -> str:
    """The sentence, led by its subject unless it names it already."""
    return sentence if subject in sentence else f"{subject}: {sentence}"


def _say(line: str) -> None:
    click.echo("".join(map(_printable, line)), err=True)


def _printable(character: str) -> str:
    # File names may hold line breaks and terminal control sequences.
    if character.isprintable():
        return character
    return character.encode("unicode_escape", errors="backslashreplace").decode("ascii")
