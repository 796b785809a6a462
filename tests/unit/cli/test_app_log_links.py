"""``commitlog`` is a link to nothing, or out of the store: one exit status and one advice.

All commands ended with 4 and said nothing of ``--commit-log``; ``info`` ended with 1 or 3.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from golden import golden_stores
from rocketstore.cli.app import app
from support.command_line import CliRunner

COMMANDS = {
    "info": (), "ls": (), "verify": (), "scan": (), "get": ("TopicA", "0"),
    "find": ("--topic", "TopicA", "--key", "k"), "tail": ("--count", "1"), "put": ("T", "x"),
    "clean": ("--what-if",), "recover": ("--what-if",), "salvage": ("--what-if",),
}  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("whole"))
    return root


def outside(root: Path) -> Path:
    return root.parent / "log"


def nowhere(root: Path) -> Path:
    return root.parent / "not" / "mounted"


def nowhere_inside(root: Path) -> Path:
    return root / "nothing"


@pytest.mark.parametrize(("target", "code"), [(outside, 4), (nowhere, 4), (nowhere_inside, 3)])
def test_one_refusal_and_one_exit_status(
    target: Callable[[Path], Path], code: int, template: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(template, tmp_path / "store"))
    (root / "commitlog").rename(tmp_path / "log")
    (root / "commitlog").symlink_to(target(root))
    for command, words in COMMANDS.items():
        answer = CliRunner().invoke(app, [command, str(root), *words])
        assert answer.exit_code == code, command
        assert "--commit-log" in answer.output + answer.stderr, command
    answer = CliRunner().invoke(app, ["scan", str(root), "--commit-log", str(tmp_path / "log")])
    assert answer.exit_code == 0
