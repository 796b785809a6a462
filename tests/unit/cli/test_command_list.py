"""The commands in the help, and what a command imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import rocketstore
from rocketstore.cli.app import app
from rocketstore.cli.command_list import SECTIONS
from support.command_line import ENVIRONMENT, CliRunner

NAMES = [name for commands in SECTIONS.values() for name in commands]
PROGRAM = """
import sys
from rocketstore.cli.app import app
try:
    app(sys.argv[1:])
finally:
    print(" ".join(sys.modules), file=sys.stderr)
"""


def modules_of(*arguments: str | Path) -> set[str]:
    """Return what is imported when a command has run."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=ENVIRONMENT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


def test_the_help_lists_all_commands_below_headings() -> None:
    assert len(NAMES) == len(set(NAMES))
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for heading, commands in SECTIONS.items():
        assert f"{heading}:\n" in shown
        for name, (_, text) in commands.items():
            assert f"  {name} " in shown
            assert text in shown, text  # fits on its line


@pytest.mark.parametrize("name", NAMES)
def test_each_command_is_found(name: str) -> None:
    group: Any = typer.main.get_command(app)
    command = group.commands[name]
    assert command.name == name
    assert command is group.commands.get(name)
    shown = CliRunner().invoke(app, [name, "-h"])
    assert shown.exit_code == 0
    assert f" {name} " in shown.stdout.splitlines()[0]
    assert "Install completion for" not in shown.stdout


def test_other_names_are_no_commands() -> None:
    group: Any = typer.main.get_command(app)
    assert "nothing" not in group.commands
    assert group.commands.get("nothing") is None
    assert len(group.commands) == len(NAMES)
    answer = CliRunner().invoke(app, ["verfy"])
    assert answer.exit_code == 2
    assert "Did you mean 'verify'?" in answer.stderr


def test_a_command_imports_no_other_one(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", "x") as store:
        store.put("T", b"x")
    assert not {one for one in modules_of("--help") if ".cli.commands" in one}
    loaded = modules_of("get", tmp_path / "store", "T", "0")
    assert {one for one in loaded if ".cli.commands." in one} == {"rocketstore.cli.commands.get"}
    assert not loaded & {"numpy", "pyarrow", "rocketstore.diagnosis", "rocketstore.verify"}


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rocketstore", "--version"],
        env=ENVIRONMENT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("rocketstore ")
