"""Directories that hold something else than a store."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from rocketstore import UnsafePathError
from rocketstore.directory.place import is_there
from support.directory import files_below


def test_what_cannot_be_looked_at_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert is_there(tmp_path)
    assert is_there(tmp_path / "file")
    for name in ("none", "none/below", "file/below", "dangling"):
        assert not is_there(tmp_path / name)
    for name in ("circle", "x" * 300):
        with pytest.raises(OSError, match=name):
            is_there(tmp_path / name)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    root = tmp_path / "home"
    root.mkdir()
    (root / "letters").mkdir()
    (root / "notes.txt").write_text("mine")
    return root


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_other_files_are_no_empty_store(other: Path, mode: str) -> None:
    # Any directory was opened as a store without a message; "r+" was ready to write into it.
    with pytest.raises(FileNotFoundError, match="is not a store: it has no folder commitlog"):
        rocketstore.open(other, mode)
    assert files_below(other) == {"notes.txt": b"mine"}


def test_no_store_is_made_among_other_files(other: Path) -> None:
    with pytest.raises(UnsafePathError, match="not empty"):
        rocketstore.open(other, "a")
    assert files_below(other) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_an_empty_directory_is_an_empty_store(tmp_path: Path, mode: str) -> None:
    with rocketstore.open(tmp_path, mode) as store:
        assert store.topics() == []


@pytest.mark.parametrize("left", ["lock", "abort", "config"])
def test_what_a_killed_creation_left_is_no_other_file(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir() if left == "config" else (tmp_path / left).touch()
    with rocketstore.open(tmp_path, "a") as store:
        assert store.put("T", b"x").ok
