"""A what-if refuses what its command refuses, with the same exit status, and changes nothing.

``clean --what-if`` of a damaged store ended with 0 where ``clean`` ended with 3; so did all three
commands where ``lock`` was a folder or a link.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from golden import golden_stores
from rocketstore.cli.app import app
from support.command_line import CliRunner, Result


def run(command: str, root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [command, str(root), *words])


SECOND = f"{65536:020d}"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("whole"))
    return root


def damaged(root: Path) -> None:
    with (root / "commitlog" / SECOND).open("r+b") as file:
        file.seek(20_000)
        file.write(b"\xff" * 3000)


def missing(root: Path) -> None:
    (root / "commitlog" / SECOND).unlink()


def too_long(root: Path) -> None:
    os.truncate(max((root / "commitlog").iterdir()), 70_000)


def link_to_nothing(root: Path) -> None:
    missing(root)
    (root / "commitlog" / SECOND).symlink_to("nothing")


def folder_in_the_index(root: Path) -> None:
    (root / "index" / "20260101000000000").mkdir()


def lock_folder(root: Path) -> None:
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()


def lock_link(root: Path) -> None:
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").symlink_to("/etc/hostname")


def odd_table(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").unlink(missing_ok=True)
    os.mkfifo(root / "config" / "topics.json")


def found(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


CASES = [
    *((damaged, command) for command in ("clean", "recover")),
    *((missing, command) for command in ("clean", "recover")),
    *((too_long, command) for command in ("clean", "recover")),
    *((link_to_nothing, command) for command in ("clean", "recover", "salvage")),
    *((folder_in_the_index, command) for command in ("clean", "recover", "salvage")),
    *((lock_folder, command) for command in ("clean", "recover", "salvage")),
    *((lock_link, command) for command in ("clean", "recover", "salvage")),
    *((odd_table, command) for command in ("clean", "recover", "salvage")),
]


@pytest.mark.parametrize(("damage", "command"), CASES)
def test_a_what_if_refuses_as_its_command_does(
    damage: Callable[[Path], None], command: str, template: Path, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(template, root)
    damage(root)
    before = found(root)
    what_if, real = run(command, root, "--what-if"), run(command, root)
    assert what_if.exit_code == real.exit_code >= 3
    assert found(root) == before
    assert what_if.stderr.splitlines()[-1] == real.stderr.splitlines()[-1]


def test_without_room_salvage_refuses_in_both(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocketstore.files.disk_space import DiskSpace

    root = tmp_path / "store"
    shutil.copytree(template, root)
    damaged(root)
    monkeypatch.setattr(
        "rocketstore.files.disk_room.disk_space", lambda path: DiskSpace(1 << 20, 1 << 20, 4096)
    )
    for words in ([], ["--what-if"]):
        answer = run("salvage", root, *words)
        assert answer.exit_code == 3
        assert "4,096 are free; nothing was changed" in answer.stderr


@pytest.mark.parametrize("command", ["clean", "recover", "salvage"])
def test_beside_a_writer_a_what_if_answers(command: str, template: Path, tmp_path: Path) -> None:
    import rocketstore

    root = tmp_path / "store"
    shutil.copytree(template, root)
    with rocketstore.open(root, "r+") as store:
        store.put("T", b"x")
        assert run(command, root).exit_code == 4
        assert run(command, root, "--what-if").exit_code in (0, 1)
