"""The command line. `main` is the one place where errors become exit codes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from stapes.cli import messages, stdout
from stapes.cli.exits import INTERRUPTED, USAGE, exit_code
from stapes.cli.root import root
from stapes.errors import CapacityError, RequestError, StapesError
from stapes.output.files import storage_is_full


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
    except OSError as error:
        failure = _failure(error)
        if failure is None:
            raise
        messages.error(str(failure))
        return exit_code(failure)
    return code if isinstance(code, int) else 0


def _usage_sentence(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "stapes"
    return f"{error.format_message()} See '{command} --help'."


def _failure(error: OSError) -> StapesError | None:
    """The sentence for what no command has looked for: a folder that nobody may read, for one."""
    if error.filename is not None:
        kind = CapacityError if storage_is_full(error) else RequestError
        return kind(f"{os.fsdecode(error.filename)} cannot be used: {error.strerror or error}.")
    # Without a name it is standard output, to which click writes --help and --version.
    return stdout.failure(error) if storage_is_full(error) else None
