"""``rocketstore clean``: what would go, what went, and nothing else."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli.app import app
from support.command_line import CliRunner
from support.directory import files_below
from support.expired_stores import SEGMENT, make

START = 1_709_294_400_000


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Messages that were stored long ago."""
    make(tmp_path / "store", "5.3.3", clock=lambda: START)
    return tmp_path / "store"


def segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


def test_what_would_go_then_goes(root: Path) -> None:
    before, names = files_below(root), segments(root)
    code, output = run("clean", root, "--what-if", "--format", "ndjson")
    *files, summary = [json.loads(line) for line in output.splitlines()]
    assert (code, files_below(root)) == (0, before)
    assert [Path(file["path"]).name for file in files if file["kind"] == "commitlog"] == names[:-1]
    assert {file["reason"] for file in files} == {"expired", "follows"}
    assert files[0]["newestStoreTimestamp"] == files[0]["oldestStoreTimestamp"] == START
    assert files[0]["bytes"] == SEGMENT
    assert (summary["kind"], summary["whatIf"], summary["files"]) == ("summary", True, len(files))
    assert summary["logStart"] == int(names[-1])
    code, output = run("clean", root, "--format", "json")
    done = json.loads(output)
    assert (code, done["whatIf"], done["failures"]) == (0, False, [])
    assert [file["path"] for file in done["files"]] == [file["path"] for file in files]
    assert segments(root) == names[-1:]
    with rocketstore.open(root) as store:
        assert store.verify().ok


def test_hours_and_a_brokers_file(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("fileReservedTime=9999999\ndeleteWhen=04\n")
    before = files_below(root)
    code, output = run("clean", root, "--config", config, "--format", "csv")
    assert (code, list(csv.reader(io.StringIO(output)))) == (0, [])
    assert segments(root)
    assert {name for name in files_below(root) if name.startswith("commitlog")} == {
        name for name in before if name.startswith("commitlog")
    }
    code, output = run("clean", root, "--config", config, "--hours", 0, "--format", "table")
    assert code == 0
    assert "its newest message was stored" in " ".join(output.split())
    assert "the newest segment is always kept" in " ".join(output.split())
    assert len(segments(root)) == 1


def test_what_is_no_store(tmp_path: Path) -> None:
    assert run("clean", tmp_path)[0] == 3
    assert run("clean", tmp_path / "none")[0] == 3
    # It took an empty folder, a wrong or unmounted one, for a store, and wrote marks into it.
    assert run("salvage", tmp_path)[0] == 3
    assert run("salvage", tmp_path, "--what-if")[0] == 3
    assert list(tmp_path.iterdir()) == []
