"""The command line. `main` is the one place where errors become exit codes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from stapes.cli import messages
from stapes.cli.exits import INTERRUPTED, USAGE, exit_code
from stapes.cli.root import root
from stapes.errors import StapesError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` defaults to the program's arguments."""
    try:
        code = root.main(args=argv, prog_name="stapes", standalone_mode=False)
    except click.exceptions.Abort:
        messages.error("interrupted.")
        return INTERRUPTED
    except click.ClickException as error:
        messages.error(_usage_sentence(error))
        return USAGE
    except (StapesError, MemoryError) as error:
        messages.error(str(error) or "out of memory.")
        return exit_code(error)
    return code if isinstance(code, int) else 0


def _usage_sentence(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "stapes"
    return f"{error.format_message()} See '{command} --help'."
