"""What a command says of a path that is no store."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import make_store, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opening")
    root = make_store(folder / "store")
    (folder / "lone").mkdir()
    (folder / "lone" / "00000000000000000000").write_bytes(
        (root / "commitlog" / "00000000000000000000").read_bytes()
    )
    (folder / "empty").mkdir()
    return folder


def test_a_bare_log_is_led_to_the_commands_that_read_it(folder: Path) -> None:
    said = run("info", folder / "lone", code=3).stderr
    assert "it has segments of a log, which doctor, du," in said
    for other in ("du", "volume", "capacity", "retention"):
        run(other, folder / "lone")


@pytest.mark.parametrize(
    ("command", "lacks"),
    [("lag", "its queues and config/consumerOffset.json"), ("keys", "its folder index")],
)
def test_what_a_bare_log_lacks_is_named(command: str, lacks: str, folder: Path) -> None:
    said = run(command, folder / "lone", code=3).stderr
    assert f"is a log alone, without {lacks}: pass the store's directory" in said


@pytest.mark.parametrize("command", [("du",), ("volume",), ("grep", "TRUE"), ("trace", "0")])
def test_commands_of_a_log_know_where_the_store_is(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    name, *others = command
    assert "there is a store in store" in run(name, ".", *others, code=3).stderr
    said = run(name, "empty", *others, code=3).stderr
    assert said.splitlines()[-1] == (
        "rocketstore: empty is not a store: it has no folder commitlog"
    )
    assert "folder consumequeue of the store" in (
        run(name, "store/consumequeue", *others, code=3).stderr
    )


def test_damage_is_named_as_the_path_was_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with open("lone/00000000000000000000", "r+b") as file:
        file.seek(4000)
        file.write(bytes(500))
    text = run("du", "lone", "-f", "table", code=1).stdout
    assert "Damaged: lone/00000000000000000000 at position" in text
