"""``--where`` of every command that reads: verdicts, carets, notes and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from support.command_line import lines, run

OPTIONS = {"mapped_file_size_commit_log": 16384, "max_hash_slot_num": 20, "max_index_num": 60}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("where") / "store"
    with rocketstore.open(path, "x", **OPTIONS) as store:
        for n in range(60):
            store.put(
                "Orders", b"order %d" % n, 0, "A" if n % 2 else "B", f"c{n % 3}",
                properties={"total": str(n), "state": "PAID" if n % 5 == 0 else "NEW"},
            )  # fmt: skip
    return path


PAID = "state = 'PAID' AND total > 20"


@pytest.mark.parametrize(
    ("arguments", "totals"),
    [
        (("get", "STORE", "Orders", 0), [25, 30, 35, 40, 45, 50, 55]),
        (("get", "STORE", "Orders", 0, "--tags", "A"), [25, 35, 45, 55]),
        (("get", "STORE", "Orders", 0, "--count", 2, "--offset", 31), [35, 40]),
        (("scan", "STORE"), [25, 30, 35, 40, 45, 50, 55]),
        (("scan", "STORE", "--limit", 2), [25, 30]),
        (("scan", "STORE", "--records", "queues", "--tags", "B"), [30, 40, 50]),
        (("find", "STORE", "--key", "c0"), [30, 45]),
        (("find", "STORE", "--topic", "Orders", "--key", "c0"), [30, 45]),
        (("find", "STORE"), [25, 30, 35, 40, 45, 50, 55]),
        (("tail", "STORE", "-n", 3), [45, 50, 55]),
        (("tail", "STORE", "-n", 30), [25, 30, 35, 40, 45, 50, 55]),
        (("tail", "STORE", "--start", 0, "--follow", "--idle", 0), [25, 30, 35, 40, 45, 50, 55]),
    ],
)
def test_where(root: Path, arguments: tuple[object, ...], totals: list[int]) -> None:
    asked = [root if part == "STORE" else part for part in arguments]
    result = run(*asked, "--where", PAID)
    assert [int(line["properties"]["total"]) for line in lines(result)] == totals


COMMANDS = (
    ("get", "STORE", "Orders", 0),
    ("scan", "STORE"),
    ("find", "STORE"),
    ("tail", "STORE"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda parts: parts[0])
def test_a_syntax_error_has_a_caret(root: Path, arguments: tuple[object, ...]) -> None:
    asked = [root if part == "STORE" else part for part in arguments]
    result = run(*asked, "--where", "state = 'PAID' AND AND total > 5", code=2)
    assert result.stdout == ""
    *_, shown, caret = result.stderr.splitlines()
    assert shown == "  state = 'PAID' AND AND total > 5"
    assert caret.index("^") == shown.index("AND total")
    assert run(*asked, "--where", "", code=2).stdout == ""


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda parts: parts[0])
def test_what_rocketmq_ignores_is_said_once(root: Path, arguments: tuple[object, ...]) -> None:
    asked = [root if part == "STORE" else part for part in arguments]
    result = run(*asked, "--where", "total = 30 garbage")
    assert [int(line["properties"]["total"]) for line in lines(result)] == [30]
    assert result.stderr.count("RocketMQ accepts this, but") == 1
    assert result.stderr.count("from here on (column 12)") == 1
    assert run(*asked, "--where", "total = 30 garbage", "--quiet").stderr == ""


@pytest.mark.parametrize("command", ["export", "replay"])
def test_moving_says_once_what_rocketmq_ignores(root: Path, tmp_path: Path, command: str) -> None:
    more = ["--to", "ndjson"] if command == "export" else []
    out, again = tmp_path / "out", tmp_path / "again"
    result = run(command, root, out, *more, "--where", "total = 30 garbage")
    assert result.stderr.count("RocketMQ accepts this, but") == 1
    assert "Warning" not in result.stderr
    asked = [command, root, again, *more, "--where", "total = 30 garbage", "--quiet"]
    assert run(*asked).stderr == ""


def test_errors_are_counted(root: Path) -> None:
    result = run("scan", root, "--where", "state > 5", code=1)
    assert "60 evaluations failed, which matches nothing" in result.stderr
    assert "no message meets these conditions" in result.stderr
    assert run("scan", root, "--where", "state > 5", "--quiet", code=1).stderr == ""


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "total = 1 OR bodySize > 5",
            "bodySize is a column; --where compares properties of messages",
        ),
        ("total = 1 OR queueId = 0", "queueId is a column"),
        ("total = 1 OR tags = 'A'", "tags is no property of RocketMQ; TAGS is"),
        ("uniqKey IS NULL", "uniqKey is no property of RocketMQ; UNIQ_KEY is"),
    ],
)
def test_columns_are_named(root: Path, where: str, said: str) -> None:
    result = run("scan", root, "--where", where)
    assert result.stderr.count(said) == 1
    assert said not in run("scan", root, "--where", where, "--quiet").stderr


def test_properties_are_not_taken_for_columns(root: Path) -> None:
    assert run("scan", root, "--where", "TAGS = 'A' AND total = 1 AND state <> 'x'").stderr == ""


def test_control_characters_do_not_reach_the_terminal(root: Path) -> None:
    result = run("scan", root, "--where", "total = \x1b[31m'", code=2)
    assert "\x1b" not in result.stderr
