"""The directive ``command-options``: every command with its arguments and options, as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from rocketstore.cli.app import app


def _parameters(command: Any) -> list[str]:
    """A definition list of a command's parameters."""
    lines = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        names = ", ".join(f"``{name}``" for name in [*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = f"``{parameter.name.upper()}``"
        text = " ".join((getattr(parameter, "help", None) or "").split())
        lines += [names, f"   {text}", ""]
    return lines


def _commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Name and command; the commands of a group follow it, prefixed with its name."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        yield name, command
        if hasattr(command, "commands"):
            yield from ((f"{name} {below}", one) for below, one in _commands(command))


class CommandOptions(Directive):
    """One section for each command of ``rocketstore``."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        group: Any = typer.main.get_command(app)
        found: list[nodes.Node] = []
        for name, command in _commands(group):
            summary = (command.help or "").split("\n\n")[0]
            lines = [" ".join(summary.split()), "", *_parameters(command)]
            anchor = f"command-{name.replace(' ', '-')}"
            section = nodes.section(ids=[anchor], names=[f"command {name}"])
            section += nodes.title(text=f"rocketstore {name}")
            self.state.nested_parse(StringList(lines, source=name), 0, section)
            found.append(section)
        return found


def setup(sphinx: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    sphinx.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
