"""``--config``: every command that reads a store follows the broker's ``storePathCommitLog``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typer

from golden.golden_stores import unpack
from rocketstore.cli.app import app
from support.command_line import run

#: Reading commands and what they need beside the store; ``OUT`` is a new path.
COMMANDS = {
    **dict.fromkeys(("info", "ls", "stats", "doctor", "verify", "lag", "keys", "capacity"), ()),
    **dict.fromkeys(("groups", "delay", "timer", "transactions", "scan", "tail"), ()),
    **{name: ("--what-if",) for name in ("recover", "salvage", "clean", "reindex")},
    **{name: ("-o", "OUT") for name in ("report", "plan")},
    "prove": ("0", "-o", "OUT"),
    "get": ("Mix0", "1"),
    "find": ("--topic", "Mix0"),
    "grep": ("TRUE", "--count"),
    "show": ("0",),
    "trace": ("0",),
    "du": ("--by", "topic"),
    "volume": ("--per", "hour"),
    "retention": ("--what-if", "fileReservedTime=1"),
    "clone": ("OUT",),
    "export": ("OUT", "--to", "ndjson"),
    "replay": ("OUT",),
    "split": ("OUT", "--topic", "Mix0"),
}
#: Commands that write the store that they are given, or take two, or none.
OTHERS = {
    *("repair", "put", "consume", "import", "diff", "merge", "spark", "config", "bench", "demo"),
    "completion",
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A whole store, the same one with its log elsewhere, and the broker's file of that."""
    folder = tmp_path_factory.mktemp("config")
    whole = unpack("broker-5.3.3", folder)
    root = shutil.copytree(whole, folder / "root")
    log = shutil.move(root / "commitlog", folder / "disk2")
    conf = folder / "broker.conf"
    conf.write_text(f"storePathRootDir={root}\nstorePathCommitLog={log}\n", encoding="utf-8")
    return whole, root, conf


@pytest.mark.parametrize("name", COMMANDS)
def test_a_log_elsewhere_is_read(
    name: str, stores: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    whole, root, conf = stores
    code = 1 if name == "delay" else 0  # the golden store has overdue messages
    found = []
    for number, (place, options) in enumerate(((whole, ()), (root, ("--config", conf)))):
        words = [tmp_path / str(number) if one == "OUT" else one for one in COMMANDS[name]]
        found.append(run(name, place, *words, *options, code=code).stdout.splitlines())
    assert len(found[0]) == len(found[1])


def test_every_command_is_known_here() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == set(COMMANDS) | OTHERS
    for name in COMMANDS:
        options = {word for one in commands[name].params for word in one.opts}
        assert {"--config", "--commit-log", "--quiet"} <= options, name
