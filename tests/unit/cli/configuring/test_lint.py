"""``rocketstore config lint``: remarks on a broker's file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.command_line import lines, run

FILE = "brokerName=a\nfileReservedTime=24\nfileReservedTime=48 \nflushDiskTyp=SYNC_FLUSH\n"


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    return path


def test_remarks_are_rows(broker: Path) -> None:
    *rows, summary = lines(run("config", "lint", broker, code=1))
    assert [(row["line"], row["option"], row["code"]) for row in rows] == [
        (2, "fileReservedTime", "contradicts"),
        (3, "fileReservedTime", "ignored"),
        (4, "flushDiskTyp", "unknown"),
    ]
    assert {row["severity"] for row in rows} == {"warning"}
    assert summary["schema"] == "rocketstore.config-lint/1"
    assert (summary["errors"], summary["warnings"], summary["notes"]) == (0, 3, 0)
    document = json.loads(run("config", "lint", broker, "-f", "json", code=1).stdout)
    assert document["rows"] == rows
    head = run("config", "lint", broker, "-f", "csv", code=1).stdout.splitlines()[0]
    assert head == "kind,line,option,severity,code,reason"


def test_the_version_decides(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("timerWheelEnable=true\n")
    run("config", "lint", path)
    run("config", "lint", path, "--for", "5.x")
    (row, summary) = lines(run("config", "lint", path, "--for", "4.9", code=1))
    assert (row["code"], row["option"]) == ("unknown", "timerWheelEnable")
    assert summary["version"] == "4.9"
    run("config", "lint", path, "--for", "six", code=2)


def test_notes_alone_are_no_findings(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("mappedFileSizeConsumeQueue=1001\n")
    assert "1 note." in run("config", "lint", path, "-f", "table").stdout
    path.write_text("brokerName=a\n")
    assert run("config", "lint", path, "-f", "table").stdout == "Nothing to remark.\n"
    path.write_text("")
    run("config", "lint", path)


@pytest.mark.parametrize("command", [("lint",), ("convert", "--to", "5.x")])
def test_what_is_no_configuration_is_refused_by_name(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    run("config", *command, path, code=3)
    for content, place in ((b"a=1\nb=\0", f"{path}"), (b"a=1\nb=\\uXY\n", f"{path}:2")):
        path.write_bytes(content)
        (line,) = run("config", *command, path, code=2).stderr.splitlines()
        assert line.startswith(f"rocketstore: {place}:")
    os.mkfifo(tmp_path / "fifo")
    (line,) = run("config", *command, tmp_path / "fifo", code=2).stderr.splitlines()
    assert line == f"rocketstore: {tmp_path / 'fifo'}: it is not a regular file"
    run("config", *command, tmp_path, code=2)


def test_keys_and_values_are_no_commands_to_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"\x1b[31mkey=\x1b[2Jvalue\nstorePathRootDir=$A\x1b[2J\n")
    text = run("config", "lint", path, "--format", "table", code=1).stdout
    assert "\x1b" not in text
