"""An opening that is refused before the first message leaves what it found."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.salvaging import tree
from golden import golden_stores
from rocketstore.files import durable as durable_file
from rocketstore.files.disk_space import DiskSpace
from rocketstore.files.mapped_file import MappedFile


def no_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def no_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def no_queues_and_no_index(root: Path) -> None:
    no_index(root)
    no_queues(root)


def one_queue_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "TopicA")


def as_it_was(root: Path) -> None:
    pass


def found(root: Path) -> dict[str, Any]:
    """Files with their content, and folders."""
    folders = {str(path.relative_to(root)): None for path in root.rglob("*") if path.is_dir()}
    return {**folders, **tree(root)}


@pytest.mark.parametrize(
    ("damage", "code", "with_state"),
    [
        pytest.param(damage, code, with_state, id=f"{damage.__name__}-{code}-{with_state}")
        for row, damage in enumerate([no_index, no_queues, no_queues_and_no_index, one_queue_gone])
        for column, code in enumerate([errno.ENOSPC, errno.EACCES, errno.EMFILE])
        for with_state in [(row + column) % 2 == 0]
    ],
)
def test_a_file_that_cannot_be_made(
    damage: Callable[[Path], None],
    with_state: bool,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No space for the index: ``abort`` remained, so after an orderly stop the broker ran its long
    recovery."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    if with_state:
        rocketstore.open(root, "r+").close()
    damage(root)
    before = found(root)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code), "a file that is new")

    monkeypatch.setattr(MappedFile, "create", refuse)
    for opening in (
        lambda: rocketstore.open(root, "r+"),
        lambda: rocketstore.recover(root),
        lambda: rocketstore.salvage(root),
    ):
        with pytest.raises(OSError, match="new"):
            opening()
        after = found(root)
        assert after.keys() - before.keys() == set()
        assert {name for name in before if after.get(name) != before[name]} <= {"rocketstore.state"}


@pytest.mark.parametrize("step", range(6))
def test_a_mark_that_cannot_be_written(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``abort``, state file and checkpoint are three small files; each may find no room."""
    root = golden_stores.unpack("plain-4.9.8", tmp_path)
    before = found(root)
    calls = []
    real = durable_file.write_file

    def write(path: Path, content: Any) -> None:
        calls.append(path)
        if len(calls) > step:
            raise rocketstore.StoreFullError(errno.ENOSPC, f"no room for {path}")
        real(path, content)

    for module in ("store.writer", "directory.state", "directory.checkpoint"):
        monkeypatch.setattr(f"rocketstore.{module}.write_file", write, raising=False)
    try:
        rocketstore.open(root, "r+", start=False).close()
    except OSError:
        if len(calls) <= 2:
            assert found(root) == before
    assert calls


@pytest.mark.parametrize("damaged", [False, True])
def test_a_salvage_without_room_changes_nothing(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left an empty folder in ``quarantine``, and a state file."""
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    (root / "commitlog" / f"{65536:020d}").unlink()
    before = found(root)
    if damaged:
        monkeypatch.setattr(
            "rocketstore.mending.salvage.SalvageJob.write_segment",
            lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")),
        )
    else:
        monkeypatch.setattr(
            "rocketstore.files.disk_room.disk_space",
            lambda path: DiskSpace(1 << 20, 1 << 20, 4096),
        )
    with pytest.raises(rocketstore.StoreFullError, match="no room for"):
        rocketstore.salvage(root)
    assert found(root) == before
    monkeypatch.undo()
    assert rocketstore.salvage(root).was_needed


def real_disk_space(path: Path) -> DiskSpace:
    """What the system says of a disk; elsewhere tests see disks that are half full."""
    about = os.statvfs(path)
    total, usable = about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize
    return DiskSpace(total, total - usable, usable)


@contextlib.contextmanager
def small_disk(place: Path, *, kib: int = 1200) -> Iterator[Path]:
    """A file system of its own with so much room."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(place: Path, *, but: int) -> None:
    """Leave ``but`` bytes of a disk free."""
    about = os.statvfs(place)
    (place / "ballast").write_bytes(bytes(about.f_bavail * about.f_frsize - but))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A tmpfs with 24 KiB left."""
    with small_disk(tmp_path / "disk") as place:
        root = golden_stores.unpack("plain-5.3.3", place)
        no_index(root)
        fill(place, but=24 * 1024)
        before = found(root)
        with pytest.raises(rocketstore.StoreFullError):
            rocketstore.open(root, "r+", max_hash_slot_num=5_000_000, max_index_num=20_000_000)
        assert found(root) == before
        with rocketstore.open(root) as store:
            assert store.recovery_report.clean


def lost_segment(root: Path) -> None:
    (root / "commitlog" / f"{65536:020d}").unlink()


def damaged_segment(root: Path) -> None:
    with (root / "commitlog" / f"{65536:020d}").open("r+b") as file:
        file.seek(20_000)
        file.write(b"\xff" * 3000)


def torn(root: Path) -> None:
    log = max((root / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(len(log.read_bytes().rstrip(b"\0")))
        file.write(b"\xff" * 60)
    (root / "abort").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "attempt", "free"),
    [
        *((damage, "salvage", 40) for damage in (lost_segment, damaged_segment)),
        *((as_it_was, attempt, 8) for attempt in ("open", "recover", "salvage")),
        *((torn, attempt, 8) for attempt in ("open", "recover", "salvage")),
        *((lost_segment, "salvage", 20), (no_queues, "recover", 40)),
    ],
)
def test_what_a_full_disk_refuses_leaves_no_name_and_no_byte(
    damage: Callable[[Path], None],
    attempt: str,
    free: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A salvage stopped halfway with an error about ``lock``. The refusal left a new ``lock`` and a
    truncated log."""
    monkeypatch.setattr("rocketstore.files.disk_room.disk_space", real_disk_space)
    with small_disk(tmp_path / "disk", kib=4000) as place:
        root = golden_stores.unpack("plain-5.3.3", place)
        damage(root)
        fill(place, but=free * 1024)
        before = found(root)
        calls: dict[str, Callable[[Path], Any]] = {
            "open": lambda path: rocketstore.open(path, "r+"),
            "recover": rocketstore.recover,
            "salvage": rocketstore.salvage,
        }
        with pytest.raises(rocketstore.StoreFullError, match="no room for") as caught:
            calls[attempt](root)
        assert "lock:" not in str(caught.value)
        if damage not in (as_it_was, no_queues):
            assert re.search(r"needs [\d,]+ bytes for it, [\d,]+ are free", str(caught.value))
        assert found(root) == before
        (place / "ballast").unlink()
        calls[attempt](root)


def test_a_salvage_whose_queues_find_no_room_says_that_the_log_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_stores.unpack("plain-5.3.3", tmp_path)
    lost_segment(root)
    shutil.rmtree(root / "consumequeue")
    real = MappedFile.create

    def refuse(path: Path, *arguments: Any, **others: Any) -> MappedFile:
        if "consumequeue" in str(path):
            raise rocketstore.StoreFullError(errno.ENOSPC, f"no room for {path}")
        return real(path, *arguments, **others)

    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "create", refuse)
        with pytest.raises(rocketstore.StoreFullError, match=r"repaired.*rocketstore recover"):
            rocketstore.salvage(root)
    assert not rocketstore.recover(root).left


@pytest.mark.parametrize("left", [1, 3, 5, 7])
def test_salvage_never_writes_beyond_a_segment(left: int, tmp_path: Path) -> None:
    """The log ended fewer than eight bytes before its segment did; the end-of-segment marker was
    written over the file's end, and neither ``open`` nor ``salvage`` worked from then on."""
    root = tmp_path / "s"
    with rocketstore.open(
        root, "x", mapped_file_size_commit_log=4096, broker_version="5.3.3"
    ) as store:
        store.put("T", b"x" * 1000)
        at = store.put("T", b"y" * 10).physical_offset
        while store.put("T", b"z" * 500).physical_offset < 4096:
            pass
    path = root / "commitlog" / ("0" * 20)
    log = bytearray(path.read_bytes())
    (size,) = struct.unpack_from(">i", log, at)
    record, body = log[at : at + size], b"y" * (4096 - left - at - size + 10)
    where = record.index(b"y" * 10)
    record[where - 4 : where + 10] = struct.pack(">i", len(body)) + body
    struct.pack_into(">i", record, 0, len(record))
    struct.pack_into(">i", record, 8, zlib.crc32(body) & 0x7FFFFFFF)
    path.write_bytes(log[:at] + record + bytes(left))
    rocketstore.salvage(root)
    assert {one.stat().st_size for one in (root / "commitlog").iterdir()} == {4096}
    with rocketstore.open(root, "r+") as store:
        assert [m.body[:1] for m in store.scan()][:1] == [b"x"]
        assert store.put("T", b"new").ok
    assert not rocketstore.salvage(root, what_if=True).was_needed
