"""The commands that look into a store: formats, exit codes, escapes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli.app import app
from rocketstore.cli.looking import usage as usage_command
from rocketstore.looking import usage
from support.command_line import CliRunner, lines
from support.command_line import run as ask
from support.directory import files_below
from support.looked_stores import HOUR_MS, START, make_store

AT = str(START + 20 * HOUR_MS)
COMMANDS = {
    "du": ["--by", "topic,queue"],
    "volume": ["--per", "day"],
    "lag": ["--at", AT],
    "grep": ["region = 'eu'"],
    "trace": ["k7"],
    "keys": [],
    "capacity": ["--at", AT],
    "retention": ["--at", AT, "--what-if", "fileReservedTime=1"],
}


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def without(row: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_store(tmp_path_factory.mktemp("looked") / "store")
    (root / "config").mkdir()
    table = {"offsetTable": {"Orders@billing": {"0": 3}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    return root


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_format(command: str, root: Path) -> None:
    before = files_below(root)
    given = (command, root, *COMMANDS[command])
    code, output, _ = run(*given, "-f", "json")
    document = json.loads(output)
    expected = 1 if command == "retention" else 0  # the group loses unread messages
    assert (code, document["schema"]) == (expected, f"rocketstore.{command}/1")
    assert document["rows"]
    code, output, _ = run(*given, "-f", "ndjson")
    lines = [json.loads(line) for line in output.splitlines()]
    assert [line["kind"] for line in lines[-1:]] == ["summary"]
    assert lines[-1]["schema"] == document["schema"]
    # The disk fills and empties between two calls.
    moving = {"at", "leftBytes", "days", "time"} if command == "capacity" else {"at"}
    assert [without(row, moving) for row in lines[:-1]] == [
        without(row, moving) for row in document["rows"]
    ]
    code, output, _ = run(*given, "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert len(rows) == len(document["rows"])
    assert set(document["rows"][0]) <= set(rows[0])
    code, output, _ = run(*given, "-f", "table")
    assert code == expected
    assert output.strip()
    assert files_below(root) == before


@pytest.mark.parametrize("command", [*sorted(COMMANDS), "prove"])
def test_no_store(command: str, tmp_path: Path) -> None:
    options = COMMANDS.get(command, ["0", "-o", str(tmp_path / "out")])
    (tmp_path / "text").write_text("no store")
    (tmp_path / "folder").mkdir()
    for place in ("absent", "text", "folder"):
        code, output, error = run(command, tmp_path / place, *options)
        assert (code, output) == (3, "")
        assert place in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("du", "--by", "colour"),
        ("du", "--by", ""),
        ("du", "--limit", "0"),
        ("volume", "--per", "week"),
        ("volume", "--by", "hour"),
        ("lag", "--at", "yesterday"),
        ("grep",),
        ("grep", "a >"),
        ("grep", "--body-regex", "a["),
        ("grep", "--body-json", "a..b=1"),
        ("trace", ""),
        ("retention", "--what-if", "fileReservedTime"),
        ("retention", "--what-if", "fileReservedTime=x"),
        ("retention", "--what-if", "colour=1"),
        ("prove", "0", "-o", ""),
        ("prove", str(10**12), "-o", "out"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, error = run(arguments[0], root, *arguments[1:])
    assert (code, output) == (2, "")
    assert error
    assert not (tmp_path / "out").exists()


def test_expressions_show_where(root: Path) -> None:
    for arguments in (["a >"], ["--body-regex", "ab["], ["--body-json", "a..b"]):
        _, _, error = run("grep", root, *arguments)
        caret = error.rstrip().splitlines()[-1]
        assert caret.strip() == "^"


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x") as store:
        store.put("T", b"\x1b[31mred", tags="\x1b]0;x\x07", keys="\x1b[2J")
    for command, *options in (
        ("du", "--by", "tag,property:KEYS"),
        ("grep", "--topic", "T"),
        ("trace", "0"),
    ):
        for form in ("table", "json", "ndjson"):
            _, output, _ = run(command, root, *options, "-f", form)
            assert "\x1b" not in output
            assert "\x07" not in output


def test_counts(root: Path) -> None:
    given = ("grep", root, "region = 'eu'", "--count", "-f")
    assert run(*given, "table")[1] == "60\n"
    assert json.loads(run(*given, "json")[1])["matches"] == 60
    assert run(*given, "csv")[1] == "matches\n60\n"
    assert run("grep", root, "region = 'mars'", "--count", "-f", "table")[:2] == (1, "0\n")


def test_nothing_found(root: Path) -> None:
    assert run("trace", root, "absent", "-q")[0] == 1
    code, _, error = run("lag", root, "--group", "absent")
    assert (code, "absent" in error) == (1, True)


def test_damage_is_a_finding(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    path = root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[4:8] = bytes(4)
    path.write_bytes(content)
    code, output, _ = run("du", root, "-f", "table")
    assert code == 1
    assert "(damaged)" in output
    code, output, error = run("grep", root, "region = 'us'", "-f", "json")
    assert (code, len(json.loads(output)["damaged"])) == (1, 1)
    assert "skipped" in error


def test_prove(root: Path, tmp_path: Path) -> None:
    code, output, _ = run("prove", root, 0, "-o", tmp_path / "out", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"], document["findings"]) == (0, "rocketstore.prove/1", [])
    assert {row["name"] for row in document["rows"]} == {"record.bin", "body.bin", "after.bin"}
    assert run("prove", root, 0, "-o", tmp_path / "out")[0] == 3  # not empty
    code, output, _ = run("prove", root, 1, "-o", tmp_path / "other", "-f", "table")
    assert code == 1
    assert "no good record" in output


def test_a_log_alone_is_used_or_what_is_missing_is_said(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", 400)
    log = shutil.copytree(root / "commitlog", tmp_path / "log")
    whole = lines(ask("retention", root, "--what-if", "fileReservedTime=1"))
    bare = lines(ask("retention", log, "--what-if", "fileReservedTime=1"))
    assert [one["start"] for one in bare[:-1]] == [one["start"] for one in whole[:-1]]
    assert [one["messages"] for one in bare[:-1]] == [one["messages"] for one in whole[:-1]]
    assert bare[-1]["path"] == str(log)
    assert "only a log was given" in bare[-1]["notes"][0]
    segment = min(log.iterdir())
    for command, needed in (("lag", "consumerOffset.json"), ("keys", "folder index")):
        for place, what in ((log, "a log alone"), (segment, "one segment alone")):
            (sentence,) = ask(command, place, code=3).stderr.splitlines()
            assert what in sentence
            assert needed in sentence
    inside = ask("lag", root / "commitlog", code=3).stderr
    assert f"the folder commitlog of the store {root}" in inside
    assert "one segment alone" in ask("retention", segment, code=3).stderr


def test_keys_of_an_index_that_is_only_in_memory(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    whole = ask("keys", root, "-f", "table").stdout
    assert "in memory" not in whole
    shutil.rmtree(root / "index")
    shown = ask("keys", root, "-f", "table", code=1).stdout
    assert "(in memory)" in shown
    assert "which the index on disk lacks" in shown
    (*rows, summary) = lines(ask("keys", root, code=1))
    assert all(one["inMemory"] for one in rows)
    assert summary["inMemory"] == summary["files"] == len(rows)


@pytest.mark.parametrize("command", ["du", "volume"])
def test_an_interrupted_sum_says_how_to_go_on(
    root: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]

    def interrupt(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(usage_command, "progress_bar", lambda **_: nullcontext(interrupt))
    monkeypatch.setattr(usage, "_STEP_NBYTES", 1)
    shown = ask(command, root, "--jobs", "1", "--format", "ndjson", code=130)
    summary = json.loads(shown.stdout.splitlines()[-1])
    assert f"--start {summary['log'][1]} continues here" in shown.stderr
    rest = ask(command, root, "--start", str(summary["log"][1]), "--format", "ndjson").stdout
    whole = ask(command, root, "--format", "ndjson").stdout
    numbers = [json.loads(text.splitlines()[-1])["messages"] for text in (rest, whole)]
    assert 0 < summary["messages"] == numbers[1] - numbers[0]
