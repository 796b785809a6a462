"""Words on a command line: empty paths, odd numbers, values that a configuration refuses.

``put "" A x``, ``clean "" --hours 0`` and ``salvage ""`` (a script's unset variable) worked in the
current folder and deleted there; ``tail --start`` past the log's end ended with 70, and
``verify --delay-levels x`` with 3.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.command_line import lines, make_store, run

#: Every command that is given a store, with what it needs after the path.
COMMANDS: dict[str, tuple[Any, ...]] = {
    "info": (),
    "ls": (),
    "get": ("TopicA", 0),
    "find": ("--key", "k1"),
    "show": (0,),
    "scan": (),
    "tail": (),
    "verify": (),
    "clean": ("--hours", 0),
    "salvage": (),
    "put": ("TopicA", "x"),
}
SPARK: dict[str, tuple[Any, ...]] = {
    "stats": (),
    "fsck": (),
    "rebuild-queues": ("out",),
    "rebuild-index": ("out",),
    "export": ("out",),
    "replay": ("out",),
    "compact": ("out", "--topic", "T"),
    "load": ("out",),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is the current folder."""
    root = make_store(tmp_path / "store")
    monkeypatch.chdir(root)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("word", ["", "a\0b"])
def test_no_command_takes_such_a_path(here: Path, word: str) -> None:
    before = contents(here)
    for command, others in COMMANDS.items():
        assert "PATH" in run(command, word, *others, code=2).stderr, command
    for command, others in SPARK.items():
        run("spark", command, word, *others, code=2)
        if others:
            run("spark", command, ".", word, *others[1:], code=2)
    assert contents(here) == before


def test_no_option_takes_an_empty_path(here: Path) -> None:
    before = contents(here)
    for command, others in COMMANDS.items():
        for option in ("--commit-log", "--config"):
            reported = run(command, ".", *others, option, "", code=2).stderr
            assert f"'{option}'" in reported, command
    assert "'--lines'" in run("put", ".", "--lines", "", code=2).stderr
    assert "'--golden'" in run("demo", "--golden", "", code=2).stderr
    assert contents(here) == before


def test_the_current_folder_has_a_name(here: Path) -> None:
    for command, others in COMMANDS.items():
        run(command, ".", *others)


def test_odd_paths_are_paths(tmp_path: Path) -> None:
    """A line feed, bytes that are no UTF-8, and a name like an option's."""
    for name in ("a\nb", os.fsdecode(b"a\xff"), " ", "-x"):
        root = make_store(tmp_path / name)
        assert len(lines(run("scan", root))) == 42
        assert "\n  " not in run("scan", tmp_path / name / "none", code=3).stderr


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("verify", "--delay-levels", "x"), "--delay-levels"),
        (("verify", "--delay-levels", "1s -1m"), "--delay-levels"),
        (("verify", "--delay-levels", ""), "--delay-levels"),
        (("find", "--tags", ""), "--tags"),
        (("find", "--tags", " || "), "--tags"),
        (("find", "--topic", ""), "--topic"),
        (("find", "--key", ""), "--key"),
        (("find", "--unique-key", ""), "--unique-key"),
        (("find", "--body-contains", ""), "--body-contains"),
        (("get", "T", "0", "--tags", ""), "--tags"),
        (("scan", "--topic", "T", "--topic", ""), "--topic"),
        (("tail", "--key", ""), "--key"),
        (("clean", "--hours", 2**31), "--hours"),
        (("clean", "--config", "{bad}"), "--config"),
        (("scan", "--config", "{bad}"), "--config"),
        (("put", "T", "x", "--broker-version", "x"), "--broker-version"),
        (("put", "T", "x", "--broker-version", "99.1"), "--broker-version"),
        (("put", "T", "x", "--segment-size", "0"), "--segment-size"),
        (("put", "T", "x", "--segment-size", "32KiB"), "--segment-size"),
        (("put", "T", "x", "--config", "{other}"), "--config"),
        (("put", "T", "x", "--property", os.fsdecode(b"a=\xff")), "--property"),
        (("put", "T", "x", "--tags", os.fsdecode(b"\xff")), "--tags"),
        (("put", "T", "x", "--key", os.fsdecode(b"\xff")), "--key"),
        (("put", "T", "x", "--unique-key", "--property", "UNIQ_KEY=a"), "--unique-key"),
        (("scan", "--begin", "-1"), "--begin"),
        (("find", "--key", "k", "--end", "soon"), "--end"),
        (("get", "TopicA", "0", "--time", "noon"), "--time"),
        (("scan", "--start", 10**6), "--start"),
        (("tail", "--start", 10**6), "--start"),
        (("tail", "--start", 10**30), "--start"),
    ],
)
def test_a_value_that_is_refused_is_usage(
    here: Path, tmp_path: Path, arguments: tuple[Any, ...], option: str
) -> None:
    (tmp_path / "bad").write_text("fileReservedTime=x\n")
    (tmp_path / "other").write_text("mapedFileSizeCommitLog=4096\n")
    before = contents(here)
    command, *others = (
        str(word).replace("{bad}", f"{tmp_path}/bad").replace("{other}", f"{tmp_path}/other")
        for word in arguments
    )
    result = run(command, here, *others, code=2)
    assert option in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert contents(here) == before


def test_numbers_past_the_end_are_no_hit(here: Path) -> None:
    end = lines(run("scan", here))[-1]
    following = end["physicalOffset"] + end["storeSize"]
    run("scan", here, "--start", following, code=1)
    run("tail", here, "--start", following, code=1)
    for number in (1000, 2**63 - 1, 10**30):
        run("get", here, "TopicA", 0, "--offset", number, code=1)
        run("get", here, "TopicA", number, code=1)
        run("show", here, number, code=1)
        run("tail", here, "-n", number)
    for inside in (1, following - 6, following - 90):
        assert "no record begins" in run("scan", here, "--start", inside, code=2).stderr
        assert "no record begins" in run("tail", here, "--start", inside, code=2).stderr


def test_the_log_may_lie_elsewhere(tmp_path: Path) -> None:
    """``--commit-log``, or a broker's file with ``storePathCommitLog``, in every command."""
    root, log = make_store(tmp_path / "store"), tmp_path / "log"
    (root / "commitlog").rename(log)
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir=/nowhere\nstorePathCommitLog={log}\n")
    for words in (("--commit-log", log), ("--config", config)):
        for command, others in COMMANDS.items():
            run(command, root, *others, *words)
        assert len(lines(run("scan", root, *words))) > 40
    assert not (root / "commitlog").exists()


# --- one refusal, one exit code -------------------------------------------------------------------


def damaged(root: Path) -> None:
    with open(root / "commitlog" / ("0" * 20), "r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 50)


def without_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def linked_out(root: Path) -> None:
    (root / "index").rename(root.parent / "index")
    (root / "index").symlink_to(root.parent / "index")


def with_fifo(root: Path) -> None:
    os.mkfifo(root / "abort")


def in_rocksdb(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_bytes(b"MANIFEST-000001\n")


@pytest.mark.parametrize(
    ("change", "code"),
    [(damaged, 3), (without_log, 3), (linked_out, 4), (with_fifo, 3), (in_rocksdb, 3)],
)
def test_writing_commands_refuse_with_one_code(tmp_path: Path, change: Any, code: int) -> None:
    """``put`` said 4 where ``clean`` said 3."""
    root = make_store(tmp_path / "store")
    change(root)
    before = contents(root)
    (tmp_path / "lines").write_text('{"topic": "T"}\n')
    for words in (("put", "T", "x"), ("put", "--lines", tmp_path / "lines"), ("clean",)):
        run(words[0], root, *words[1:], code=code)
    assert contents(root) == before
