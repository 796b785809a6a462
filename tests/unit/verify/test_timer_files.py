"""The timer's files: with which a broker starts, as ``TimerMessageStore`` of 5.3.3 and 5.5.0 said.

It starts timers by default, so a wheel of a wrong length prevents it from starting.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from golden import golden_stores
from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.verify.beside.judgement import Judgement
from rocketstore.verify.beside.timer_files import judge_timer_files
from support.command_line import run

WHEEL = 38_707_200
LOG = 104_857_600


def sized(path: Path, nbytes: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, nbytes)
    return path


def log_file(root: Path, start: int, nbytes: int) -> Path:
    return sized(root / "timerlog" / formats.offset_to_file_name(start), nbytes)


def found(root: Path, version: str = "5.3.3", flushed: int | None = 0) -> list[Judgement]:
    judged = judge_timer_files(root, Dialect.for_version(version), flushed)
    return [one for one in judged if one.is_finding]


@pytest.mark.parametrize("version", ["5.0.0", "5.5.0"])
@pytest.mark.parametrize("nbytes", [1, 100, 5000, WHEEL - 1, WHEEL + 2])
def test_a_wheel_of_another_length(tmp_path: Path, version: str, nbytes: int) -> None:
    path = sized(tmp_path / "timerwheel", nbytes)
    (one,) = found(tmp_path, version)
    assert (one.kind, one.path) == ("timer-file", str(path))
    assert f"{nbytes} bytes instead of {WHEEL}" in one.reason


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_something_else_in_its_place(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "timerwheel")
    (one,) = found(tmp_path)
    assert (one.kind, one.path) == ("odd-file", str(tmp_path / "timerwheel"))


def test_a_file_in_the_folder_s_place(tmp_path: Path) -> None:
    (tmp_path / "timerlog").write_bytes(b"x")
    (one,) = found(tmp_path)
    assert (one.kind, one.path) == ("odd-file", str(tmp_path / "timerlog"))


@pytest.mark.parametrize(
    ("lengths", "wrong"),
    [
        ((), None),
        ((LOG,), None),
        ((LOG, LOG), None),
        ((LOG, LOG, 0), None),
        ((0,), None),
        ((5200,), None),
        ((5200, 5200), None),
        ((5199,), 0),
        ((5201,), 0),
        ((LOG, 5200), 1),
        ((100, LOG), 0),
        ((LOG, LOG - 1, LOG), 1),
        ((LOG, 0, LOG), 1),
    ],
)
def test_lengths_of_log_files(tmp_path: Path, lengths: tuple[int, ...], wrong: int | None) -> None:
    sized(tmp_path / "timerwheel", WHEEL)
    step = 5200 if lengths and max(lengths) == 5200 else LOG
    paths = [log_file(tmp_path, at * step, nbytes) for at, nbytes in enumerate(lengths)]
    findings = found(tmp_path)
    assert [one.path for one in findings] == ([] if wrong is None else [str(paths[wrong])])
    assert {one.kind for one in findings} <= {"timer-file"}
    assert found(tmp_path, "4.9.8") == []


def test_a_log_that_is_shorter_than_what_was_flushed(tmp_path: Path) -> None:
    path = log_file(tmp_path, LOG, 1024)
    (one,) = found(tmp_path, flushed=LOG + 2048)
    assert one.path == str(path)
    path.unlink()
    log_file(tmp_path, 0, 5200)
    assert found(tmp_path, flushed=5200) == []
    (note,) = judge_timer_files(tmp_path, Dialect.for_version("5.3.3"), None)
    assert not note.is_finding
    assert "mappedFileSizeTimerLog" in note.reason


@pytest.mark.parametrize("name", ["notes", ".DS_Store", f"{0:020}.bak"])
def test_what_is_no_file_of_its_log(tmp_path: Path, name: str) -> None:
    log_file(tmp_path, 0, LOG)
    (tmp_path / "timerlog" / name).write_bytes(b"x")
    (one,) = found(tmp_path)
    assert (one.kind, one.path) == ("foreign-file", str(tmp_path / "timerlog" / name))


@pytest.mark.parametrize("name", ["timerwheel", "timerlog"])
def test_a_link_to_itself_is_not_taken_for_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / name)
    (one,) = found(tmp_path)
    assert (one.kind, one.path) == ("unreadable", str(tmp_path / name))


def test_commands_name_it_and_what_to_do(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    sized(root / "timerwheel", WHEEL)
    sized(root / "config" / "timercheck", 4096)
    log_file(root, 0, LOG)
    run("verify", root)
    (root / "config" / "timercheck").write_bytes(
        struct.pack(">4q", 1, 520, 0, 0).ljust(4096, b"\0")
    )
    log_file(root, 0, 104)
    sized(root / "timerwheel", 5000)
    answer = json.loads(run("verify", root, "--json", code=1).stdout)
    assert answer["findingCounts"] == {"timer-file": 2}
    assert [one for one in answer["next"] if "timerwheel, timerlog" in one["why"]]
    facts = json.loads(run("info", root, "-f", "json", code=1).stdout)
    assert [text for text in facts["findings"] if f"5000 bytes instead of {WHEEL}" in text]
