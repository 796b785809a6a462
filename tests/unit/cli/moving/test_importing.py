"""``rocketstore import``: formats of the answer, exit codes, words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketstore.cli.app import app
from rocketstore.cli.moving import importing as module
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
    run("export", root, tmp_path / "out")
    code, output, _ = run("import", tmp_path / "out", tmp_path / "a", "-f", "json")
    document = json.loads(output)
    assert (code, document["schema"], document["messages"]) == (0, "rocketstore.import/1", 150)
    code, output, _ = run(
        "import", tmp_path / "out", tmp_path / "b", "--map", tmp_path / "map", "-f", "ndjson"
    )
    assert (code, json.loads(output)["kind"]) == (0, "summary")
    assert len((tmp_path / "map").read_text().splitlines()) == 150
    run("export", root, tmp_path / "exact", "--columns", "topic,raw")
    code, output, _ = run(
        "import", tmp_path / "exact", tmp_path / "c", "--offsets", "keep", "-f", "table"
    )
    assert (code, "Stored 150 messages" in output) == (0, True)


def test_refusals(root: Path, tmp_path: Path) -> None:
    run("export", root, tmp_path / "out")
    code, _, words = run("import", tmp_path / "out", tmp_path / "new", "--offsets", "keep")
    assert (code, "no column raw" in words) == (4, True)
    assert not (tmp_path / "new").exists()
    with open_looked(root, "r+"):
        assert run("import", tmp_path / "out", root)[0] == 4
    code, _, _ = run("import", tmp_path / "out", root, "--offsets", "keep", "--map", "m")
    assert code == 2
    assert run("import", tmp_path / "nothing", tmp_path / "new")[0] == 3
    (tmp_path / "file.ndjson").write_text('{"topic":"A","body":"x","sysFlag":4}\n{"topic":"a b",'
                                          '"body":"x"}\n')  # fmt: skip
    code, output, _ = run("import", tmp_path / "file.ndjson", tmp_path / "new", "-f", "table")
    assert (code, "refused 1 message" in output, "Skipped 1 message" in output) == (1, True, True)


def test_an_interrupt_says_how_to_go_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "import_messages", interrupted)
    code, _, words = run("import", root, tmp_path / "out")
    assert (code, "the same command goes on" in words) == (130, True)
