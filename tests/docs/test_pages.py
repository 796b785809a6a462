"""The site builds without a warning, and names everything public."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import rocketstore
import rocketstore.spark
from docs.examples import ROOT
from rocketstore.cli.app import app

DOCS = ROOT / "docs"
REFERENCE = "\n".join(
    page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md"))
)
COMMAND_LINE = "\n".join(
    page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("command-line*.md"))
)
CLASSES = [
    value
    for name in rocketstore.__all__
    if inspect.isclass(value := getattr(rocketstore, name)) and not issubclass(value, Exception)
]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, str(DOCS), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = (tmp_path / "html" / "reference" / "store.html").read_text(encoding="utf-8")
    # What is documented from the code is really there.
    for name in ("open", "DefaultMessageStore.get_message", "DefaultMessageStore.put"):
        assert f'id="rocketstore.{name}"' in built


@pytest.mark.parametrize("name", rocketstore.spark.__all__)
def test_every_name_of_the_spark_package_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^\.\. auto\w+:: rocketstore\.spark\.{name}$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("name", rocketstore.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    if inspect.isclass(value := getattr(rocketstore, name)) and issubclass(value, Exception):
        assert value.__module__ == "rocketstore.errors"  # the page shows that module whole
    else:
        assert re.search(rf"^\.\. auto\w+:: rocketstore\.{name}$", REFERENCE, re.MULTILINE)


#: Modules whose names users may import, besides ``rocketstore`` itself.
PUBLIC_MODULES = {
    *("arrow", "config_managers", "errors", "filter", "formats", "kernels", "message", "sources"),
    *("sources.walk", "spark", "status", "config", "dialect", "testing", "testing.fixtures"),
    "looking",
}


def is_public(directive: str, path: str) -> bool:
    """Return whether users may import what ``directive`` documents by that very path."""
    modules = {"rocketstore", *(f"rocketstore.{module}" for module in PUBLIC_MODULES)}
    if directive == "automodule":
        return path in modules
    module, _, name = path.rpartition(".")
    return module in modules and name in importlib.import_module(module).__all__


@pytest.mark.parametrize(
    ("directive", "path"), re.findall(r"^\s*\.\. (auto\w+):: (\S+)", REFERENCE, re.MULTILINE)
)
def test_the_reference_names_things_by_public_paths(directive: str, path: str) -> None:
    assert is_public(directive, path)


@pytest.mark.parametrize(
    "path",
    [
        "rocketstore.log.damage.DamagedRange",
        "rocketstore.store.writer.DefaultMessageStore",
        "rocketstore.sources.walk._Walker",
        "rocketstore.spark.reading.scanning.scan",
        "rocketstore.spark.no_such_name",
    ],
)
def test_a_public_name_does_not_make_another_path_public(path: str) -> None:
    """The last part of the path alone decided: internal paths of public names passed."""
    assert not is_public("autoclass", path)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_member_says_what_it_is(kind: Any) -> None:
    assert inspect.getdoc(kind)
    reported = inspect.getdoc(kind) or ""
    silent = [
        name
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_")
        and not (inspect.getdoc(member) or "").strip()
        and not re.search(rf"\b{name}\b", reported)
    ]
    assert not silent


def commands() -> dict[str, Any]:
    """Every command by its name; those of a group begin with its name."""
    group: Any = typer.main.get_command(app)
    found = dict(group.commands)
    for name, command in group.commands.items():
        below = getattr(command, "commands", {})
        found.update({f"{name} {one}": command for one, command in below.items()})
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_is_shown_and_every_option_explained(name: str) -> None:
    """The page of options is made from the help texts; examples are written by hand."""
    command = commands()[name]
    assert f"rocketstore {name}" in COMMAND_LINE
    assert command.help
    silent = [parameter.name for parameter in command.params if not parameter.help]
    assert not silent
