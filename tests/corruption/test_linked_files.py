"""Files with other names: what is written under one name stands under all of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from corruption.crafted import Crafted, snapshot
from rocketstore import MappedFileError, StoreLockedError, UnsafePathError
from support.command_line import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")


def copy_by_links(source: Path, target: Path) -> Path:
    """What ``cp -al`` makes."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            os.link(path, place)
    return target


def writing_commands(root: Path) -> list[list[object]]:
    commands: list[list[object]] = [["put", root, "Orders", "x"], ["recover", root]]
    commands += [["recover", root, "--what-if"], ["salvage", root], ["salvage", root, "--what-if"]]
    return [*commands, ["clean", root, "--what-if"]]


def refused(root: Path, kind: type[Exception], match: str, code: int) -> None:
    """Every writer refuses the store and changes nothing; readers go on."""
    before = snapshot(root)
    for mode in ("r+", "a"):
        with pytest.raises(kind, match=match):
            rocketstore.open(root, mode)
    for command in writing_commands(root):
        result = run(*command, code=code)
        assert match in result.stderr.replace("\n", " "), result.stderr
    assert snapshot(root) == before
    with rocketstore.open(root) as store:
        assert sum(1 for _ in store.scan()) > 90


def notes_of_verify(root: Path) -> str:
    result = run("verify", root, "--format", "ndjson")
    return " ".join(json.loads(result.stdout.splitlines()[-1])["notes"])


# --- names outside the store ------------------------------------------------------------------


@pytest.mark.parametrize("which", ["copy", "original"])
def test_a_copy_by_hard_links_gets_no_writer(store: Crafted, tmp_path: Path, which: str) -> None:
    """Two writers confirmed, one over the other: their folders, and so their locks, are two."""
    (store.root / "lock").unlink()
    copy = copy_by_links(store.root, tmp_path / "copy")
    root = {"copy": copy, "original": store.root}[which]
    refused(root, UnsafePathError, "hard links elsewhere", 4)
    assert "hard links elsewhere" in notes_of_verify(root)
    assert "hard links elsewhere" in run("info", root).stdout


def test_a_copy_made_under_a_writer_gets_no_second_one(store: Crafted, tmp_path: Path) -> None:
    with rocketstore.open(store.root, "r+") as writer:
        copy = copy_by_links(store.root, tmp_path / "copy")
        with pytest.raises(StoreLockedError):
            rocketstore.open(copy, "r+")  # one lock file
        (copy / "lock").unlink()
        with pytest.raises(UnsafePathError):
            rocketstore.open(copy, "r+")
        assert writer.put("Orders", b"x").ok


def newest_segment(store: Crafted) -> Path:
    return store.segments()[-1]


def newest_queue_file(store: Crafted) -> Path:
    return max((store.root / "consumequeue" / "Orders" / "0").iterdir())


def oldest_queue_file(store: Crafted) -> Path:
    return min((store.root / "consumequeue" / "Orders" / "0").iterdir())


def newest_index_file(store: Crafted) -> Path:
    return max((store.root / "index").iterdir())


WRITTEN = (newest_segment, newest_queue_file, oldest_queue_file, newest_index_file)


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.__name__)
@pytest.mark.parametrize("place", ["elsewhere", "store/backup"])
def test_one_linked_file_that_may_be_written(
    store: Crafted, tmp_path: Path, file: Callable[[Crafted], Path], place: str
) -> None:
    path = file(store)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    os.link(path, tmp_path / place)
    before = (tmp_path / place).read_bytes()
    refused(store.root, UnsafePathError, str(path), 4)
    assert (tmp_path / place).read_bytes() == before
    # What the error advises.
    path.with_name("new").write_bytes(before)
    os.replace(path.with_name("new"), path)
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.put("Orders", b"x").ok
    assert (tmp_path / place).read_bytes() == before


def test_full_segments_may_have_other_names(store: Crafted, tmp_path: Path) -> None:
    """They are never written: a backup of them by links is a sound one."""
    links = [tmp_path / path.name for path in store.segments()[:-1]]
    for path, link in zip(store.segments(), links, strict=False):
        os.link(path, link)
    before = [link.read_bytes() for link in links]
    assert links
    assert "hard links" not in notes_of_verify(store.root)
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.put("Orders", b"x").ok
    run("recover", store.root)
    assert [link.read_bytes() for link in links] == before


@pytest.mark.parametrize("name", [".rocketstore-new-1-2", "quarantine/1-00000000000000000000"])
def test_names_that_the_store_gave_itself(store: Crafted, name: str) -> None:
    """A kill while a file is made, or while a salvage keeps one, leaves it with two."""
    (store.root / "quarantine").mkdir()
    os.link(store.segments()[-1], store.root / name)
    run("recover", store.root)
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.put("Orders", b"x").ok


# --- two names in one store -------------------------------------------------------------------


def other_queue(store: Crafted) -> tuple[Path, Path]:
    queues = sorted((store.root / "consumequeue" / "Orders").iterdir())
    return min(queues[0].iterdir()), min(queues[1].iterdir())


def other_topic(store: Crafted) -> tuple[Path, Path]:
    topics = sorted(p for p in (store.root / "consumequeue").iterdir() if p.name != "Orders")
    return oldest_queue_file(store), min(next(topics[0].iterdir()).iterdir())


def same_queue(store: Crafted) -> tuple[Path, Path]:
    path = newest_queue_file(store)
    return path, path.with_name(f"{int(path.name) + 320:020d}")


def index_to_index(store: Crafted) -> tuple[Path, Path]:
    path = newest_index_file(store)
    return path, path.with_name(f"{int(path.name) + 1:017d}")


def queue_to_segment(store: Crafted) -> tuple[Path, Path]:
    return newest_segment(store), newest_queue_file(store)


def index_to_segment(store: Crafted) -> tuple[Path, Path]:
    return newest_segment(store), newest_index_file(store)


PAIRS = (other_queue, other_topic, same_queue, index_to_index, queue_to_segment, index_to_segment)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)
@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_two_files_that_are_one(
    store: Crafted, pair: Callable[[Crafted], tuple[Path, Path]], link: str
) -> None:
    """One queue's units were written over the other's at each opening, and ``recover`` never came
    to an end of it."""
    target, path = pair(store)
    path.unlink(missing_ok=True)
    if link == "hard":
        os.link(target, path)
    else:
        path.symlink_to(os.path.relpath(target, path.parent))
    refused(store.root, MappedFileError, "are one file", 3)
    found = run("verify", store.root, code=1).stdout
    assert "is the same file as" in found
    assert str(path) in found
    run("info", store.root, code=1)


def test_a_queue_file_elsewhere_in_the_store(store: Crafted) -> None:
    path = newest_queue_file(store)
    path.rename(store.root / "elsewhere")
    path.symlink_to("../../../elsewhere")
    with rocketstore.open(store.root, "r+") as writer:
        assert writer.put("Orders", b"x", 0).ok
    assert path.is_symlink()
    run("verify", store.root)


# --- the lock file ----------------------------------------------------------------------------

LOCKS: dict[str, Callable[[Crafted, Path], object]] = {
    "link to a segment": lambda store, lock: lock.symlink_to(newest_segment(store)),
    "link to the checkpoint": lambda store, lock: lock.symlink_to("checkpoint"),
    "link to nothing": lambda store, lock: lock.symlink_to("nothing"),
    "link to itself": lambda store, lock: lock.symlink_to("lock"),
    "hard link of a segment": lambda store, lock: os.link(newest_segment(store), lock),
    "hard link of a queue file": lambda store, lock: os.link(newest_queue_file(store), lock),
    "hard link of the state": lambda store, lock: os.link(store.root / "rocketstore.state", lock),
    "a moved file": lambda store, lock: lock.write_bytes(newest_segment(store).read_bytes()),
}


@pytest.mark.parametrize("make", LOCKS.values(), ids=LOCKS.keys())
def test_nothing_is_written_through_the_lock_file(
    store: Crafted, make: Callable[[Crafted, Path], object]
) -> None:
    """``lock`` was written over the first bytes of the log's first record."""
    lock = store.root / "lock"
    lock.unlink()
    make(store, lock)
    refused(store.root, MappedFileError, str(lock), 3)
    assert str(lock) in run("verify", store.root, code=1).stdout
    run("info", store.root, code=1)
    lock.unlink()
    run("put", store.root, "Orders", "x")
    assert lock.read_bytes() == b"lock"


def test_one_lock_file_of_two_stores(template: Path, tmp_path: Path) -> None:
    """Each keeps the other's writers away, and nothing is written into it."""
    one, two = (Crafted(template, tmp_path / name).root for name in ("one", "two"))
    (two / "lock").unlink()
    os.link(one / "lock", two / "lock")
    with rocketstore.open(one, "r+") as writer:
        with pytest.raises(StoreLockedError):
            rocketstore.open(two, "r+")
        assert writer.put("Orders", b"x").ok
    rocketstore.open(two, "r+").close()
