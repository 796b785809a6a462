"""``rocketstore config``: the report on a broker's file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.command_line import lines, run

FILE = """\
brokerName=broker-a
fileReservedTime=24
fileReservedTime=48
storePathRootDir=/data/store
maxHashSlotNum=7
fileReservedTimes=1
brokerIP1=10.0.0.5
"""


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    return path


def test_json_has_every_key(broker: Path) -> None:
    document = json.loads(run("config", broker, "--format", "json", code=1).stdout)
    counts = {name: document[name] for name in ("used", "ignored", "unknown", "overridden")}
    assert counts == {"used": 4, "ignored": 1, "unknown": 1, "overridden": 1}
    rows = {row["line"]: row for row in document["entries"]}
    assert sorted(rows) == list(range(1, 8))
    wanted = {"use": "used", "key": "fileReservedTime", "value": 48, "default": 72}
    assert wanted.items() <= rows[3].items()
    assert rows[3]["option"] == "file_reserved_time"
    assert rows[6]["suggestion"] == "fileReservedTime"
    assert rows[7]["note"] == "the address is 10.0.0.5:10911"


def test_the_table_says_the_same(broker: Path) -> None:
    text = run("config", broker, "--format", "table", code=1).stdout
    words = [line.split() for line in text.splitlines()]
    assert ["used", "fileReservedTime", "48", "72", "3"] in words
    assert ["used", "storePathRootDir", "/data/store", "PATH", "4"] in words
    assert "did you mean fileReservedTime?" in text
    assert "4 keys used, 1 ignored, 1 unknown, 1 overridden." in text


def test_all_lists_what_the_file_does_not_set(broker: Path) -> None:
    few = lines(run("config", broker, code=1))
    many = lines(run("config", broker, "--all", code=1))
    assert many[: len(few) - 1] == few[:-1]
    others = {row["key"]: row["value"] for row in many[len(few) - 1 : -1]}
    assert others["cleanResourceEnable"] is True
    assert others["maxIndexNum"] == 20_000_000
    assert "fileReservedTime" not in others


def test_exit_codes(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=a\nmaxMessageSize=1\n")
    run("config", path)
    path.write_text("brokerName=a\nmaxMessageSize=x\n")
    (line,) = run("config", path, code=2).stderr.splitlines()
    assert line == f"rocketstore: {path}:2: maxMessageSize: 'x' is not a whole number"
    assert "not a regular file" in run("config", tmp_path, code=2).stderr
    run("config", tmp_path / "none", code=3)
    os.mkfifo(tmp_path / "fifo")
    run("config", tmp_path / "fifo", code=2)
    path.write_bytes(b"\0\1\2")
    run("config", path, code=2)


def test_keys_and_values_are_no_commands_to_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"\x1b[31mkey=\x1b[2Jvalue\nstorePathRootDir=[bold]\x1b[2J\n")
    text = run("config", path, "--format", "table", code=1).stdout
    assert "\x1b" not in text
    assert "[bold]" in text


def test_a_file_in_a_commands_place_is_shown(broker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = run("config", "show", broker, code=1).stdout
    assert run("config", broker, code=1).stdout == wanted
    assert run("config", "--format", "ndjson", broker, code=1).stdout == wanted
    monkeypatch.chdir(broker.parent)
    broker.rename("lint")
    assert run("config", "./lint", code=1).stdout == wanted.replace(str(broker), "lint")


def test_misspelt_commands_are_named(broker: Path) -> None:
    said = run("config", "lnit", broker, code=2).stderr
    assert "No such command 'lnit'" in said
    assert "lint" in said.partition("No such command")[2]
    for command in ("show", "lint", "convert"):
        text = run("config", command, "--help").stdout
        assert f"\n    rocketstore config {command}" in text
