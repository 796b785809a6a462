"""Options that all commands share: ``--config`` above all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

import rocketstore
from rocketstore.cli.app import app
from support.command_line import lines, make_store, run

#: What a command needs after the path, if anything.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "get": ("TopicA", 0),
    "find": ("--key", "k1"),
    "show": (0,),
    "put": ("TopicA", "x"),
    "consume": ("TopicA", "--group", "g"),
    "repair": ("--undo", "undo"),
    "trace": (0,),
    "prove": (0, "-o", "out"),
    "clone": ("out",),
    "export": ("out",),
    "replay": ("out",),
    "split": ("out", "--topic", "T"),
    "plan": ("-o", "plan.json"),
    "report": ("-o", "page.html"),
    "spark rebuild-queues": ("out",),
    "spark rebuild-index": ("out",),
    "spark export": ("out",),
    "spark replay": ("out",),
    "spark compact": ("out", "--topic", "T"),
}


def commands_of_a_store() -> dict[str, Any]:
    """Every command with an argument PATH, by its name."""
    found = {}
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        for below, one in getattr(command, "commands", {"": command}).items():
            if any(parameter.name == "path" for parameter in one.params):
                found[f"{name} {below}".strip()] = one
    return found


COMMANDS = commands_of_a_store()


def test_commands_are_found() -> None:
    assert {"info", "put", "clean", "recover", "delay", "spark stats"} <= COMMANDS.keys()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("options") / "store")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_a_store_takes_a_brokers_file(
    name: str, untouched: Path, tmp_path: Path
) -> None:
    names = {word for parameter in COMMANDS[name].params for word in parameter.opts}
    assert "--config" in names
    root = untouched
    bad = tmp_path / "broker.conf"
    bad.write_text("# one\nfileReservedTime=two days\n")
    missing, folder = tmp_path / "none.conf", tmp_path
    words = name.split()
    others = ARGUMENTS.get(name, ())
    store = (tmp_path / "rows", root) if name in ("spark load", "import") else (root,)
    for file, reason in (
        (bad, f"{bad}:2: fileReservedTime: 'two days' is not a whole number"),
        (missing, f"{missing}: No such file"),
        (folder, "it is not a regular file"),
    ):
        (line,) = run(*words, *store, *others, "--config", file, code=2).stderr.splitlines()
        assert line.startswith("rocketstore: --config: ")
        assert reason in line


def test_notes_of_a_brokers_file(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={root}\nfileReservedTimes=1\nfoo=bar\n")
    (line,) = run("ls", root, "--config", file).stderr.splitlines()
    assert line == f"rocketstore: {file}:2: fileReservedTimes is unknown; did you mean " + (
        "fileReservedTime?"
    )
    assert run("ls", root, "--config", file, "--quiet").stderr == ""
    file.write_text("storePathRootDir=/data/other\n")
    (line,) = run("ls", "--config", file, root).stderr.splitlines()
    assert "/data/other" in line
    assert str(root) in line
    assert run("ls", root, "--config", file, "-q").stderr == ""


def test_a_copy_is_cleaned_without_the_originals_log(tmp_path: Path) -> None:
    root, copy, log = make_store(tmp_path / "store"), tmp_path / "copy", tmp_path / "log"
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n")
    shutil.copytree(root, copy)
    names = lines(run("ls", copy, "--files", "--config", file))
    assert len(names) == len(lines(run("ls", root, "--files", "--config", file)))
    (root / "commitlog").rename(log)
    (copy / "commitlog").rename(tmp_path / "copied-log")
    file.write_text(f"storePathRootDir={root}\nstorePathCommitLog={log}\n")
    for words in (("clean", copy, "--hours", 0), ("salvage", copy), ("put", copy, "T", "x")):
        assert "--commit-log" in run(*words, "--config", file, code=2).stderr
    run("verify", root, "--config", file)
    run("verify", copy, "--config", file, "--commit-log", tmp_path / "copied-log")


def test_options_win_over_the_file(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    file = tmp_path / "broker.conf"
    file.write_text("messageIndexEnable=false\nmessageDelayLevel=1s\n")
    shutil.rmtree(root / "index")
    config = ("--config", file)
    kinds = {one["kind"] for one in lines(run("verify", root, code=1))}
    assert "missing-folder" in kinds
    run("verify", root, *config)
    run("verify", root, *config, "--index", code=1)
    run("recover", root, *config)
    assert not (root / "index").exists()
    # A stale index is not asked; the log is read.
    assert lines(run("find", root, "--topic", "TopicA", "--key", "k1", *config))
    run("recover", root, *config, "--index")
    assert list((root / "index").iterdir())


def test_sizes_of_the_file_are_compared_with_the_files(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    file = tmp_path / "broker.conf"
    file.write_text("mappedFileSizeCommitLog=1073741824\n")
    assert "mapped_file_size_commit_log" in run("scan", root, "--config", file, code=2).stderr


@pytest.mark.parametrize("command", ["plan", "reindex"])
def test_the_broker_that_is_to_read_what_is_built(tmp_path: Path, command: str) -> None:
    root = tmp_path / "store"
    with rocketstore.open(root, "x", broker_version="4.9.8") as store:
        store.put("T", b"x", keys="k")
    for name in ("consumequeue", "index", "rocketstore.state"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    rest = ("-o", tmp_path / "plan.json") if command == "plan" else ()
    given = (
        *(command, root, *rest, "--broker-version", "5.4.0"),
        *("--broker-option", "mappedFileSizeConsumeQueue=4000"),
        *("--broker-option", "maxHashSlotNum=100", "--broker-option", "maxIndexNum=400"),
    )
    run(*given, code=1 if command == "plan" else 0)
    if command == "plan":
        run("repair", root, "--plan", tmp_path / "plan.json")
    (queue,) = (root / "consumequeue" / "T" / "0").iterdir()
    (index,) = (root / "index").iterdir()
    assert (queue.stat().st_size, index.stat().st_size) == (4000, 40 + 100 * 4 + 400 * 20)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("mappedFileSizeConsumeQueue", "is not NAME=VALUE"),
        ("mappedFileSizeConsumeQueue=x", "number"),
        ("mapedFileSizeConsumQueue=4000", "no such option"),
        ("sendMessageThreadPoolNums=4", "means nothing here"),
        ("enableDLegerCommitLog=true", "DLedger"),
    ],
)
def test_wrong_options_of_a_broker(tmp_path: Path, option: str, why: str) -> None:
    shown = run("reindex", tmp_path, "--broker-option", option, code=2)
    assert why in " ".join(shown.stderr.split())
