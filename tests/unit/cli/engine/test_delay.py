"""``rocketstore delay``: levels, what is due, and delivery."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli.app import app
from support.command_line import CliRunner
from support.delayed_stores import NOW, DelayedStore, bodies, put_raw
from support.directory import files_below


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three messages that were due long ago."""
    delayed = DelayedStore(tmp_path / "store")
    with delayed.open() as store:
        for number in range(3):
            store.put("T", b"%d" % number, number, None, f"k{number}", delay_level=1 + number % 2)
    return tmp_path / "store"


def test_levels(root: Path) -> None:
    before = files_below(root)
    code, output = run("delay", root, "-f", "json")
    document = json.loads(output)
    assert (code, document["pending"], document["overdue"]) == (1, 3, 3)
    assert [one["level"] for one in document["levels"]] == [1, 2]
    assert document["levels"][0]["nextDue"] == NOW + 1000
    code, output = run("delay", root, "-f", "table", "--level", 7)
    assert (code, "7" in output, "0 overdue" in output) == (0, True, True)
    code, output = run("delay", root, "-f", "table")
    assert (code, output.splitlines()[-1]) == (1, "3 messages pending, 3 overdue.")
    assert files_below(root) == before


def test_what_is_due(root: Path) -> None:
    code, output = run("delay", root, "--due", "-f", "ndjson")
    rows = [json.loads(line) for line in output.splitlines()]
    assert code == 1
    assert [(row["level"], row["due"] - NOW, row["keys"]) for row in rows] == [
        (1, 1000, "k0"), (1, 1000, "k2"), (2, 5000, "k1"),
    ]  # fmt: skip
    assert {row["topic"] for row in rows} == {"T"}
    code, output = run("delay", root, "--due", "--level", 2, "-f", "csv")
    (row,) = csv.DictReader(io.StringIO(output))
    assert (row["overdue"], row["queueId"]) == ("true", "1")
    code, output = run("delay", root, "--due", "-f", "table")
    assert (code, output.count("overdue")) == (1, 3)


def test_delivery(root: Path) -> None:
    code, output = run("delay", root, "--deliver", "-f", "json")
    document = json.loads(output)
    assert (code, document["delivered"], document["pending"]) == (0, 3, 0)
    code, output = run("delay", root, "--deliver", "-f", "table")
    assert (code, output.splitlines()[-1]) == (
        0, "0 messages delivered; 0 messages pending, 0 overdue.",
    )  # fmt: skip
    with rocketstore.open(root) as store:
        assert sorted(bodies(store)) == [b"0", b"1", b"2"]
    code, output = run("info", root, "-f", "json")
    assert json.loads(output)["delays"]["pending"] == 0


def test_delivery_until_a_time(tmp_path: Path) -> None:
    root = tmp_path / "live"
    with rocketstore.open(root, "x") as store:
        store.put("T", b"x", delay_level=1)
    until = time.time_ns() // 1_000_000 + 1500
    code, output = run("delay", root, "--deliver", "--until", until, "-f", "json")
    assert (code, json.loads(output)["delivered"]) == (0, 1)


def test_poison_and_info_and_verify(tmp_path: Path) -> None:
    delayed = DelayedStore(tmp_path / "s")
    with delayed.open() as store:
        put_raw(store, REAL_TOPIC="T", REAL_QID="x")
        store.put("T", b"x", delay_level=2)
    code, output = run("info", delayed.root, "-f", "json")
    assert json.loads(output)["delays"] == {
        "pending": 2, "overdue": 2, "parked": 0, "nextDue": NOW + 1000,
    }  # fmt: skip
    code, output = run("delay", delayed.root, "--deliver", "-f", "table")
    assert code == 1
    assert "Level 1, offset 0: not delivered: its REAL_QID is 'x'." in output
    code, output = run("verify", delayed.root, "-f", "json")
    assert (code, "delayed messages that cannot be delivered: 1" in output) == (0, True)
    code, output = run("info", delayed.root, "-f", "table")
    assert "0 messages pending, 0 overdue, 1 undeliverable" in output


@pytest.mark.parametrize(
    "arguments",
    [("--until", "1"), ("--due", "--deliver"), ("--deliver", "--level", "1"), ("--level", "0"),
     ("--level", "99"), ("--delay-levels", "1x")],
)  # fmt: skip
def test_wrong_usage(arguments: tuple[str, ...], root: Path) -> None:
    assert run("delay", root, *arguments)[0] == 2


def test_no_store(tmp_path: Path) -> None:
    for arguments in ((), ("--deliver",)):
        assert run("delay", tmp_path / "none", *arguments)[0] == 3
        assert run("delay", tmp_path, *arguments)[0] == 3


def test_a_slave_delivers_nothing(root: Path) -> None:
    config = root.parent / "broker.conf"
    config.write_text("brokerRole=SLAVE\n")
    code, output = run("delay", root, "--deliver", "--config", config)
    assert (code, "a slave delivers nothing" in output) == (2, True)
    assert run("delay", root, "--config", config)[0] == 1


def test_a_level_table_that_cannot_be_used(root: Path) -> None:
    for text in ("1x", "9" * 30 + "d"):
        code, output = run("delay", root, "--delay-levels", text)
        assert (code, "message_delay_level" in output) == (2, True)
