"""Wrong usage and unreadable stores: one clear sentence and the exit code of the contract."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore.cli.app import app
from support.command_line import NASTY_TOPIC, CliRunner, make_store, run

#: Every command that opens a store for reading, with what it needs after the path.
READERS: dict[str, tuple[Any, ...]] = {
    "info": (),
    "ls": (),
    "get": ("TopicA", 0),
    "find": ("--key", "k1"),
    "show": (0,),
    "scan": (),
    "tail": (),
    "verify": (),
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("usage") / "store")


def one_sentence(result: Any) -> str:
    """The complaint, which is one line without a traceback."""
    assert result.stdout in ("", "[]\n")
    (line,) = result.stderr.splitlines()
    assert line.startswith("rocketstore: ")
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize("command", READERS)
def test_a_path_that_is_not_there(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path / "none", *READERS[command], code=3)
    assert str(tmp_path / "none") in one_sentence(result)


@pytest.mark.parametrize("command", READERS)
def test_a_file_in_place_of_a_directory(command: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    assert str(file) in one_sentence(run(command, file, *READERS[command], code=3))


@pytest.mark.parametrize("command", [name for name in READERS if name != "info"])
def test_a_directory_that_is_no_store(command: str, pristine: Path, tmp_path: Path) -> None:
    """An empty answer would be taken for an empty store."""
    (tmp_path / "other").write_bytes(b"x")
    result = run(command, tmp_path, *READERS[command], code=3)
    assert "store: it has no folder commitlog" in one_sentence(result)
    result = run(command, pristine / "commitlog", *READERS[command], code=3)
    if command != "verify":
        assert one_sentence(result).endswith(f"it is the folder commitlog of the store {pristine}")


def test_put_makes_no_store_of_another_directory(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x")
    assert "--create creates one" in run("put", tmp_path, "T", "body", code=3).stderr
    refused = run("put", tmp_path, "T", "body", "--create", code=4)
    assert "holds other files" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    (tmp_path / "empty").mkdir()
    run("put", tmp_path / "empty", "T", "body", code=3)
    run("put", tmp_path / "empty", "T", "body", "--create", "--segment-size", "1MiB")


@pytest.mark.parametrize("command", READERS)
def test_a_directory_that_may_not_be_read(
    command: str, pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests may run as root, whom no mode stops: the refusal is made."""

    def refuse(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", os.fspath(path))

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    line = one_sentence(run(command, pristine, *READERS[command], code=3))
    assert line.endswith(": Permission denied")


@pytest.mark.parametrize("command", [name for name in READERS if name != "info"])
def test_a_dledger_log(command: str, tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (root / "dledger-n0").mkdir()
    (root / "commitlog").rename(root / "dledger-n0" / "data")
    line = one_sentence(run(command, root, *READERS[command], code=3))
    assert "DLedger" in line


def test_info_of_a_dledger_log(tmp_path: Path) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (root / "dledger-n0").mkdir()
    (root / "commitlog").rename(root / "dledger-n0" / "data")
    text = run("info", root, "-f", "table", code=1).stdout
    assert "dledger-n0: a DLedger commit log" in text
    assert "Could not be read:" in text
    assert "No such file" not in text


def test_put_into_what_cannot_be_written(tmp_path: Path) -> None:
    root = golden_stores.unpack("rocksdb-5.5.0", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert "RocksDB" in run("put", root, "T", "body", code=3).stderr
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert "no store" in run("put", tmp_path / "none", "T", "body", code=3).stderr
    (tmp_path / "file").write_bytes(b"")
    run("put", tmp_path / "file", "T", "body", code=3)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("scan", "--begin", "yesterday"), "'yesterday' is not a time"),
        (("find", "--end", "-2y"), "'-2y' is not a time"),
        (("get", "TopicA", "0", "--time", "noon"), "'noon' is not a time"),
        (("get", "TopicA", "0", "--time", "1", "--offset", "1"), "not both"),
        (("get", "TopicA", "-1"), ""),
        (("get", "TopicA", "x"), "QUEUE"),
        (("get", "TopicA", "0", "--count", "0"), "--count"),
        (("show", "12x"), "neither a log offset nor a message id"),
        (("scan", "--start", "-5"), "--start"),
        (("scan", "--limit", "0"), "--limit"),
        (("tail", "--interval", "0"), "--interval"),
        (("ls", "--format", "xml"), "xml"),
        (("verify", "--level", "deep"), "deep"),
        (("put", "T", "b", "--create", "--segment-size", "64XB"), "'64XB' is not a size"),
        (("put", "T", "b", "--broker-version", "9.9"), "9.9"),
        (("put", "T", "b", "--segment-size", "1MiB"), "1048576"),
        (("put", "T", "b", "--property", "a"), "NAME=VALUE"),
    ],
)
def test_wrong_values(pristine: Path, arguments: tuple[str, ...], reported: str) -> None:
    command, *others = arguments
    result = run(command, pristine, *others, code=2)
    assert reported in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_help_needs_no_store() -> None:
    for command in [*READERS, "put", "completion", "demo"]:
        text = run(command, "--help").stdout
        assert "Usage:" in text
        assert text.count("\n") < 70


def test_a_store_without_a_message_is_a_store(tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "new", "x", mapped_file_size_commit_log=1 << 20).close()
    assert "no message" in run("scan", tmp_path / "new", code=1).stderr
    assert "there is no queue here" in run("ls", tmp_path / "new", code=1).stderr
    run("tail", tmp_path / "new", code=1)
    run("info", tmp_path / "new")
    run("verify", tmp_path / "new")
    run("put", tmp_path / "new", "T", "body")


# --- completion -------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str) -> None:
    text = run("completion", shell).stdout
    assert f"complete_{shell}" in text
    assert "_ROCKETSTORE_COMPLETE" in text
    run("completion", "dos", code=2)
    assert "--install-completion" in run("--help").stdout


def complete(words: str, number: int) -> list[str]:
    environment = {
        "_ROCKETSTORE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(number),
    }
    result = CliRunner().invoke(app, [], prog_name="rocketstore", env=environment)
    return result.stdout.split()


def test_commands_options_and_topics_are_completed(pristine: Path) -> None:
    assert {"scan", "show"} <= set(complete("rocketstore s", 1))
    assert "--on-corruption" in complete(f"rocketstore scan {pristine} --on", 3)
    assert complete(f"rocketstore scan {pristine} --on-corruption s", 4) == ["skip", "stop"]
    topics = ["TopicA", "TopicB", NASTY_TOPIC]
    assert complete(f"rocketstore get {pristine} Topic", 3) == topics
    assert complete(f"rocketstore scan {pristine} --topic TopicB", 4) == ["TopicB"]
    assert complete("rocketstore get /nowhere/at/all T", 3) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_the_script(tmp_path: Path, pristine: Path) -> None:
    """The script itself, in a shell, with the command that it calls."""
    import sys

    program = tmp_path / "rocketstore"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{_RUN}" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(run("completion", "bash").stdout)
    shell = (
        f"source script && COMP_WORDS=(rocketstore get {pristine} TopicB) COMP_CWORD=3 && "
        '_rocketstore_completion rocketstore && echo "${COMPREPLY[@]}"'
    )
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(rocketstore.__file__).parent.parent),
    }
    done = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["TopicB"], done.stderr


_RUN = "import sys; sys.argv[0] = 'rocketstore'; from rocketstore.cli import main; main()"
