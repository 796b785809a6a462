"""Something else stands in the place of a segment, a queue file, an index file or a mark.

A folder, FIFO, socket, device or dead link under a segment's name made every command refuse the
store, ``verify`` included; one under a queue file's name did so after an orderly stop. A folder
``consumequeue`` that may not be listed kept ``scan`` and ``tail`` from a log that they could read.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.cli.app import app
from rocketstore.sources.segments import list_log
from support.command_line import CliRunner, Result
from support.other_user import as_nobody, give_away, reachable_folder

MESSAGES = 294


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = golden_stores.unpack("plain-5.3.3", tmp_path_factory.mktemp("whole"))
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(before)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("needs the right to make a device")


def dead_link(path: Path) -> None:
    path.symlink_to("nothing")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def some_file(path: Path) -> None:
    path.write_bytes(b"notes")


def link_to_a_file(path: Path) -> None:
    some_file(path.with_name("notes"))
    path.symlink_to("notes")


KINDS = (folder, fifo, socket_file, device, dead_link, link_to_itself)
NO_FOLDERS = (some_file, link_to_a_file, *KINDS[1:])
Kind = Callable[[Path], None]


def put_in_place(root: Path, path: Path, kind: Kind) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    kind(path)


def run(command: str, root: Path, *words: str) -> Result:
    return CliRunner().invoke(
        app, [command, str(root), *words], env={"ROCKETSTORE_FORMAT": "ndjson"}
    )


def bodies(root: Path, **options: Any) -> list[int]:
    with rocketstore.open(root) as store:
        return [message.physical_offset for message in store.scan(**options)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [0, 65536, 131072])
def test_in_a_segment_s_place(kind: Kind, start: int, root: Path) -> None:
    whole = bodies(root)
    path = root / "commitlog" / f"{start:020d}"
    put_in_place(root, path, kind)
    left = [offset for offset in whole if not start <= offset < start + 65536]
    assert bodies(root, on_corruption="skip") == left
    with pytest.raises(rocketstore.CorruptionError, match=path.name):
        bodies(root)
    log = list_log(root, tolerate_unreadable=True, allow_holes=True)
    assert [segment.base_offset for segment in log.segments] == [
        one for one in (0, 65536, 131072) if one != start
    ]
    assert [(lost.start, lost.stop) for lost in log.unreadable] == [(start, start + 65536)]
    verified = run("verify", root)
    rows = [json.loads(line) for line in verified.stdout.splitlines()]
    assert verified.exit_code == 1
    assert {row["kind"] for row in rows} <= {"odd-file", "summary"}
    assert rows[0]["path"] == str(path)
    assert rows[-1]["records"] == len(left)
    for command in ("info", "scan", "get", "tail"):
        words = {"get": ["TopicA", "0"], "tail": ["--count", "3"]}.get(command, [])
        assert run(command, root, *words).exit_code in (0, 1, 3)
    for command in ("put", "recover", "salvage", "clean"):
        answer = run(command, root, *(["T", "x"] if command == "put" else []))
        assert answer.exit_code == 3
        assert path.name in answer.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["consumequeue/TopicA/0/" + "0" * 20, "index"])
def test_in_the_place_of_a_queue_s_or_an_index_file(kind: Kind, place: str, root: Path) -> None:
    path = root / place if place != "index" else sorted((root / place).iterdir())[1]
    with rocketstore.open(root) as store:
        keys = [m.keys for m in store.scan() if m.keys and m.topic == "TopicA"]
        key = keys[-1].split()[0]
        found = len(store.query_message("TopicA", key, 64, 0, 2**62).messages)
        pulled = [m.body for m in store.get_message("g", "TopicA", 0, 0, 32).messages]
    put_in_place(root, path, kind)
    with rocketstore.open(root) as store:
        assert sum(1 for _ in store.scan()) == MESSAGES
        assert [m.body for m in store.get_message("g", "TopicA", 0, 0, 32).messages] == pulled
        assert len(store.query_message("TopicA", key, 64, 0, 2**62).messages) == found
        assert any(str(path) in note for note in store.recovery_report.notes)
    answer = run("verify", root)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert answer.exit_code == 1
    assert [(row["kind"], row["path"]) for row in rows[:-1]] == [("odd-file", str(path))]
    assert run("put", root, "T", "x").exit_code == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["checkpoint", "config/topics.json", "config/consumerOffset.json"])
def test_in_the_place_of_a_small_file(kind: Kind, name: str, root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    put_in_place(root, root / name, kind)
    assert len(bodies(root)) == MESSAGES
    answer = run("verify", root)
    assert answer.exit_code == 1
    assert "odd-file" in answer.stdout
    if name == "checkpoint":
        assert run("put", root, "T", "x").exit_code == 3


@pytest.mark.parametrize("name", ["consumequeue", "consumequeue/TopicA", "index"])
@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_that_may_not_be_looked_into(name: str, mode: int, template: Path) -> None:
    def ask(store_root: Path) -> list[Any]:
        with rocketstore.open(store_root) as store:
            got = store.get_message("g", "TopicA", 0, 0, 3).messages
            words = "no read permission", "may not be read"
            notes = [n for n in store.recovery_report.notes if any(word in n for word in words)]
            return [sum(1 for _ in store.scan()), len(got), len(notes) > 0]

    with reachable_folder() as outside:
        root = Path(shutil.copytree(template, outside / "store"))
        give_away(root)
        (root / name).chmod(mode)
        assert as_nobody(ask, root, template) == [MESSAGES, 3, True]


FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config")


@pytest.mark.parametrize("aborted", [True, False])
@pytest.mark.parametrize("kind", [some_file, dead_link])
@pytest.mark.parametrize("name", FOLDERS)
def test_in_a_folder_s_place(name: str, kind: Kind, aborted: bool, root: Path) -> None:
    """With ``abort`` there was only a note, which claimed that the folder was rebuilt from the log.
    Otherwise the advice was ``recover``, which refused the store."""
    (root / "abort").touch() if aborted else (root / "abort").unlink(missing_ok=True)
    put_in_place(root, root / name, kind)
    answer = run("verify", root)
    *rows, summary = map(json.loads, answer.stdout.splitlines())
    assert answer.exit_code == 1
    odd = [row for row in rows if row["kind"] == "odd-file"]
    assert [row["path"] for row in odd] == [str(root / name)]
    assert odd[0]["reason"].endswith("in the place of a folder")
    assert {row["kind"] for row in rows} <= {"odd-file", "missing-folder"}
    assert summary["next"][0]["command"] == []
    assert "move away" in summary["next"][0]["why"]
    assert summary["units"] > 0 or name == "consumequeue"
    if name != "config":
        assert run("put", root, "T", "x").exit_code == run("recover", root).exit_code == 3
    (root / name).unlink()
    assert run("recover", root).exit_code == 0
    assert run("verify", root).exit_code == 0


@pytest.mark.parametrize("kind", [*NO_FOLDERS, folder])
def test_whatever_keeps_a_writer_out_is_a_finding(kind: Kind, template: Path, root: Path) -> None:
    refused = []
    for name in (*FOLDERS, "abort", "checkpoint", "lock", "rocketstore.state", "quarantine"):
        shutil.rmtree(root)
        shutil.copytree(template, root)
        put_in_place(root, root / name, kind)
        found = run("verify", root).exit_code
        if run("put", root, "T", "x").exit_code != 0:
            refused.append(name)
            assert found == 1, name
    assert len(refused) >= 4 or kind in (some_file, link_to_a_file, folder)
