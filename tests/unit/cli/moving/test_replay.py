"""``rocketstore replay``: formats of the answer, exit codes, words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketstore.cli.app import app
from rocketstore.cli.moving import replay as module
from support.command_line import CliRunner
from support.looked_stores import START, make_store, open_looked


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_answers_in_every_format(root: Path, tmp_path: Path) -> None:
    code, output, words = run("replay", root, tmp_path / "a", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"], document["messages"]) == (0, "rocketstore.replay/1", 150)
    assert (document["read"], words) == ([0, 32242], "")
    code, output, _ = run(
        "replay", root, tmp_path / "b", "--map", tmp_path / "map", "--topic", "Pays", "--begin",
        START + 1, "--where", "region = 'us'", "-f", "ndjson",
    )  # fmt: skip
    summary = json.loads(output)
    assert (code, summary["kind"], summary["messages"]) == (0, "summary", 20)
    assert len((tmp_path / "map").read_text().splitlines()) == 20
    with open_looked(root, "r+") as store:
        store.put("Orders", b"later", 0, delay_level=3)
    code, output, _ = run("replay", root, tmp_path / "c", "-f", "table")
    assert (code, "Stored 150 messages" in output) == (0, True)
    assert "Skipped 1 message of RocketMQ's own topics" in output
    code, output, _ = run("replay", root, tmp_path / "c", "--start", 32242, "-f", "csv")
    assert code == 0


def test_what_is_missing_is_listed(root: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.conf"
    small.write_text("maxMessageSize=100\n")
    code, output, _ = run("replay", root, tmp_path / "a", "--config-to", small, "-f", "table")
    assert (code, "the store answered MESSAGE_ILLEGAL" in output) == (1, True)
    sorted((root / "commitlog").iterdir())[1].unlink()
    code, _, words = run("replay", root, tmp_path / "b")
    assert (code, "--on-corruption skip goes on" in words) == (3, True)
    code, output, _ = run("replay", root, tmp_path / "b", "--on-corruption", "skip", "-f", "table")
    assert (code, "log offsets 16384 to" in output) == (1, True)


def test_refusals(root: Path, tmp_path: Path) -> None:
    there = make_store(tmp_path / "there", 3)
    with open_looked(there, "r+"):
        code, _, words = run("replay", root, there)
        assert (code, "open for writing" in words) == (4, True)
    assert not (tmp_path / "there.rocketstore-replay").exists()
    (tmp_path / "map").touch()
    assert run("replay", root, there, "--map", tmp_path / "map")[0] == 4
    assert run("replay", root, there, "--where", "a >")[0] == 2
    assert run("replay", root, root)[0] == 3
    assert run("replay", tmp_path / "nothing", there)[0] == 3


def test_an_interrupt_says_how_to_go_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[object] = []

    def interrupted(*_: object, begin: object, end: object, **__: object) -> None:
        times.extend((begin, end))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "replay_messages", interrupted)
    code, _, words = run("replay", root, tmp_path / "out", "--begin", "-2h", "--end", START)
    assert (code, f"the same command with --begin {times[0]} goes on" in words) == (130, True)
    assert "--end" not in words
    code, _, words = run("replay", root, tmp_path / "out")
    assert (code, "the same command goes on" in words) == (130, True)
