"""``rocketstore export``: formats of the answer, exit codes, words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli.app import app
from rocketstore.cli.moving import export as module
from support.command_line import CliRunner
from support.looked_stores import make_store, open_looked


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_answers_in_every_format(root: Path, tmp_path: Path) -> None:
    code, output, _ = run("export", root, tmp_path / "a", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"], document["rows"]) == (0, "rocketstore.export/1", [])
    assert (document["newMessages"], document["messages"], document["log"]) == (
        150,
        150,
        [0, 32242],
    )
    code, output, _ = run("export", root, tmp_path / "b", "--to", "ndjson", "-f", "ndjson")
    assert (code, json.loads(output)["kind"]) == (0, "summary")
    code, output, _ = run(
        "export", root, tmp_path / "c", "--partition-by", "topic, date", "-f", "csv"
    )
    assert (code, output) == (0, "")  # no finding
    assert (tmp_path / "c/topic=Orders/date=2023-11-14").is_dir()
    code, output, _ = run(
        "export", root, tmp_path / "d", "--to", "csv", "-t", "Pays", "-f", "table"
    )
    assert code == 0
    assert "Wrote 50 messages in 2 files" in output
    code, output, _ = run("export", root, tmp_path / "d", "--append", "-f", "table")
    assert (code, "Nothing to write" in output) == (0, True)
    with open_looked(root, "r+") as store:
        store.put("Pays", b"new", 0)
    code, output, _ = run("export", root, tmp_path / "d", "--append", "-f", "table")
    assert (code, "Appended 1 message in 1 file" in output) == (0, True)


def test_findings(root: Path, tmp_path: Path) -> None:
    segment = root / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[88] ^= 1  # the first body
    segment.write_bytes(content)
    code, _, words = run("export", root, tmp_path / "out")
    assert code == 3
    assert "--on-corruption skip goes on" in words
    code, output, _ = run(
        "export", root, tmp_path / "out", "--on-corruption", "skip", "-f", "table"
    )
    assert code == 1
    assert "It lacks 1 thing" in output
    assert "log offsets 0 to" in output
    code, output, _ = run("export", root, tmp_path / "b", "--on-corruption", "skip", "-f", "ndjson")
    kinds = [json.loads(line)["kind"] for line in output.splitlines()]
    assert (code, kinds) == (1, ["lost", "summary"])


def test_refusals(root: Path, tmp_path: Path) -> None:
    assert run("export", root, tmp_path / "out")[0] == 0
    code, _, words = run("export", root, tmp_path / "out")
    assert (code, "append to it" in words) == (4, True)
    code, _, words = run("export", root, tmp_path / "out", "--append", "--to", "csv")
    assert (code, "name another folder" in words) == (4, True)
    assert run("export", root, root / "out")[0] == 3
    assert run("export", tmp_path / "nothing", tmp_path / "b")[0] == 3
    for wrong in (["--to", "avro"], ["--columns", "x"], ["--where", "a ="], ["--partition-by", ""]):
        assert run("export", root, tmp_path / "b", *wrong)[0] == 2
    assert not (tmp_path / "b").exists()


def test_an_interrupt_says_how_to_go_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "export_store", interrupted)
    code, _, words = run("export", root, tmp_path / "out")
    assert (code, "the same command goes on" in words) == (130, True)


def test_without_pyarrow(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    code, _, words = run("export", root, tmp_path / "out")
    assert (code, "rocketstore[arrow]" in words) == (3, True)


@pytest.mark.parametrize("command", ["export", "replay"])
@pytest.mark.parametrize(
    "condition", [("--topic", "Typo"), ("--where", "no = 1"), ("--end", "1"), ("--start", "999999")]
)
def test_no_hit_is_told_by_the_exit_status(
    tmp_path: Path, command: str, condition: tuple[str, str]
) -> None:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=1 << 20) as store:
        store.put("T", b"x")
    code, _, errors = run(command, tmp_path / "s", tmp_path / "out", *condition)
    assert (code, "no message meets these conditions" in errors) == (1, True)
    rocketstore.open(tmp_path / "empty", "x", mapped_file_size_commit_log=1 << 20).close()
    assert run(command, tmp_path / "empty", tmp_path / "nothing")[0] == 0
