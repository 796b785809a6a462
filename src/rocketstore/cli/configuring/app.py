"""``rocketstore config``: what a broker's file means, what is odd in it, and rewriting it."""

from __future__ import annotations

import os
from typing import Any

import typer
from typer.core import TyperGroup

from rocketstore.cli.common.outcome import reporting
from rocketstore.cli.configuring.convert import convert
from rocketstore.cli.configuring.lint import lint
from rocketstore.cli.configuring.show import show

_HELP = """Show, check and convert a broker's configuration file.

FILE alone shows what each key means for a store, as "config show FILE" does. A file that is called
like a command is ./lint.

\b
Examples:
  rocketstore config broker.conf
  rocketstore config lint broker.conf --for 5.3.3
  rocketstore config convert broker.conf --to 5.x -o new.conf
"""
_DEFAULT = "show"


class ConfigGroup(TyperGroup):
    """Takes a file where a command is expected: ``config FILE`` is ``config show FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command before a word that names no command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            is_other_command = (
                len(args) > 1
                and not any(word.startswith("-") for word in args[:2])
                and not os.path.lexists(args[0])
            )
            if not is_other_command:  # else the group says which commands there are
                args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="config",
    help=_HELP,
    cls=ConfigGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    subcommand_metavar="[COMMAND] FILE [OPTIONS]",
)

for _name, _command in (("show", show), ("lint", lint), ("convert", convert)):
    app.command(_name, no_args_is_help=True)(reporting(_command))
