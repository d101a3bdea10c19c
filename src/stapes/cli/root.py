"""The `stapes` command and the table of its subcommands, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

from stapes import __version__
from stapes.cli.exits import USAGE

# name -> module with a click command called `command`. A module must be cheap to import (it is,
# for the list that --help prints); what it runs imports what it needs inside.
COMMANDS: dict[str, str] = {
    "align": "stapes.cli.align",
    "batch": "stapes.cli.batch",
    "bench": "stapes.cli.bench",
    "convert": "stapes.cli.convert",
    "convert-voice": "stapes.cli.convert_voice",
    "generate": "stapes.cli.generate",
    "info": "stapes.cli.info",
    "listen": "stapes.cli.listen",
    "models": "stapes.cli.models",
    "serve": "stapes.cli.serve",
    "speak": "stapes.cli.speak",
    "transcribe": "stapes.cli.transcribe",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,  # to show the help, and fail
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="stapes", message="%(prog)s %(version)s")
@click.pass_context
def root(context: click.Context) -> None:
    """Run speech language models on this machine.

    Exit codes: 0 done, 2 bad usage, 3 bad audio, 4 bad model, 5 does not fit, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)
