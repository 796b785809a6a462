"""After an I/O error the system may hold pages that are newer than the disk and call them clean."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.directory.state import StoreState
from rocketstore.recovery.recover_log import recover_log

SEGMENT_NBYTES = 1 << 20
PAGE_NBYTES = mmap.PAGESIZE


def write_and_stop(root: Path) -> None:
    """A store that was not closed. All of its log after the durable offset is in the page that
    holds this offset."""
    with rocketstore.open(root, "x", mapped_file_size_commit_log=SEGMENT_NBYTES) as store:
        while store.max_physical_offset < 2 * PAGE_NBYTES:
            store.put("T", b"durable" * 20)
    marks = {name: (root / name).read_bytes() for name in ("rocketstore.state", "checkpoint")}
    with rocketstore.open(root, "r+") as store:
        store.put("T", b"not synced")
    for name, content in marks.items():
        (root / name).write_bytes(content)
    (root / "abort").touch()


def present(path: Path, position: int) -> bool:
    """Whether the system has the page of the file in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        view = (ctypes.c_char * len(mapping)).from_buffer(mapping)
        found = (ctypes.c_ubyte * 1)()
        start = position - position % PAGE_NBYTES
        address = ctypes.c_void_p(ctypes.addressof(view) + start)
        if libc.mincore(address, ctypes.c_size_t(1), found) != 0:
            pytest.skip("the system does not show which pages it has in memory")
        del view
        return bool(found[0] & 1)


def open_to_write(root: Path) -> None:
    rocketstore.open(root, "r+").close()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped here")
@pytest.mark.parametrize(
    ("reopen", "module"),
    [(open_to_write, "store.taking_over"), (rocketstore.salvage, "mending.salvage_damage")],
)
def test_the_page_of_the_durable_mark_is_dropped_too(
    reopen: Callable[[Path], object], module: str, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems drop only whole pages. The page that holds the durable offset stayed, with records
    whose sync had failed. They counted as durable, and became damage below the durable offset with
    the next power failure. Salvage dropped no page at all."""
    root = disk_path / "s"
    write_and_stop(root)
    state = StoreState.read(root / "rocketstore.state", root)
    assert state is not None
    assert state.flushed_offset % PAGE_NBYTES
    segment = root / "commitlog" / f"{0:020}"
    dropped: list[bool] = []
    advise = os.posix_fadvise

    def look_after(fd: int, offset: int, length: int, advice: int) -> None:
        os.fsync(fd)  # dirty pages stay in any case
        advise(fd, offset, length, advice)
        if advice == os.POSIX_FADV_DONTNEED and os.path.samestat(os.fstat(fd), os.stat(segment)):
            dropped.append(not present(segment, state.flushed_offset))

    copy = shutil.copy(segment, disk_path / "copy")
    with copy.open("r+b") as file:
        os.fsync(file.fileno())
        advise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if present(copy, 0):
        pytest.skip("this file system keeps its files in memory")

    def check(*given: Any, **named: Any) -> Any:
        assert dropped == [True]
        return recover_log(*given, **named)

    monkeypatch.setattr(os, "posix_fadvise", look_after)
    monkeypatch.setattr(f"rocketstore.{module}.recover_log", check)
    reopen(root)
    assert dropped[0]
