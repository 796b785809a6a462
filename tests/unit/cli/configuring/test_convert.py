"""``rocketstore config convert``: a broker's file for another RocketMQ version."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import lines, run

FILE = b"# caf\xe9\nhaSlaveFallbehindMax = 5\nbrokerName=\xe9\ntypo=1\n"
NEW = (
    b"# caf\xe9\nhaMaxGapNotInSync=5\nbrokerName=\xe9\n"
    b"# RocketMQ 5.5.0 does not read this:\n# typo=1\n"
)


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_bytes(FILE)
    return path


def test_stdout_has_the_new_file_alone(broker: Path) -> None:
    result = run("config", "convert", broker, "--to", "5.x", code=1)
    assert result.stdout_bytes == NEW
    said = result.stderr.splitlines()
    assert said[0].startswith(
        f"rocketstore: {broker}:2: haSlaveFallbehindMax: is haMaxGapNotInSync"
    )
    assert said[1].startswith(f"rocketstore: {broker}:4: typo: RocketMQ 5.5.0 does not read it")
    assert broker.read_bytes() == FILE


def test_a_file_and_the_changes(broker: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.conf"
    *rows, summary = lines(run("config", "convert", broker, "--to", "5.x", "-o", new, code=1))
    assert new.read_bytes() == NEW
    assert [(row["kind"], row["line"], row["code"]) for row in rows] == [
        ("change", 2, "renamed"),
        ("change", 4, "unknown"),
    ]
    assert (summary["renamed"], summary["dropped"], summary["version"]) == (1, 1, "5.5.0")
    text = run(
        "config", "convert", broker, "--to", "5.x", "-o", tmp_path / "other", "-f", "table", code=1
    ).stdout
    assert "for RocketMQ 5.5.0; 1 key renamed, 1 made a comment." in text


def test_a_file_without_losses(broker: Path, tmp_path: Path) -> None:
    broker.write_bytes(b"haMaxGapNotInSync=5\nfileReservedTime=x\n")
    new = tmp_path / "new.conf"
    *rows, summary = lines(run("config", "convert", broker, "--to", "4.9", "-o", new))
    assert new.read_bytes() == b"haSlaveFallbehindMax=5\nfileReservedTime=x\n"
    assert [row["kind"] for row in rows] == ["change", "remark"]
    assert summary["errors"] == 1


def test_no_file_is_replaced(broker: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for there in (broker, link):
        said = run("config", "convert", broker, "--to", "5.x", "-o", there, code=4).stderr
        assert f"{there} is there already" in said
    assert broker.read_bytes() == FILE
    assert not (tmp_path / "nowhere").exists()
    run("config", "convert", broker, "--to", "5.x", "-o", tmp_path / "none" / "x", code=3)
    run("config", "convert", broker, "--to", "five", code=2)
    run("config", "convert", broker, code=2)
