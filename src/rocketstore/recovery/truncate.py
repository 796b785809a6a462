"""Truncate the torn tail of a log: copy it to quarantine, overwrite it with zeros, sync."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.files.disk_room import RoomNeeded
from rocketstore.files.durable import (
    READ_WRITE,
    make_directories,
    naming,
    open_regular_file,
    sync_descriptor,
    sync_directory,
    write_file,
)
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.raw import data_ranges
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.damage import CutRange
from rocketstore.log.scan import has_content

_log = logging.getLogger(__name__)
_STEP_NBYTES = 1 << 20
#: The largest piece of a file in the page cache; the kernel drops a piece as a whole or not at all.
_CACHED_PIECE_NBYTES = 1 << 21


def truncate_tail(
    log: CommitLog, end: int, reason: str, root: Path, clock: Callable[[], int]
) -> list[CutRange]:
    """Truncate the log's files at ``end`` durably, and keep a copy of the tail.

    Files are truncated from the last one backwards, so that the next open can finish after a kill.
    Raises ``StoreFullError`` before it changes anything if the copies have no room.

    Parameters
    ----------
    log : CommitLog
    end : int
        Physical offset of the end of the last record that stays.
    reason : str
        What was found at ``end``, for the report.
    root : Path
        The store's root; copies go to its ``quarantine`` folder.
    clock : callable
        Epoch ms, for the copies' names.
    """
    truncated: list[CutRange] = []
    if not has_content(log, end):
        return truncated
    torn = list(_torn_parts(log, end))
    _ask_for_room(torn, root)
    for file, position, nbytes in torn:
        kept = _quarantine(file, position, nbytes, root, clock)
        _write_zeros(file, position, nbytes)
        _log.warning("truncated %d bytes at position %d of %s", nbytes, position, file.path)
        start = file.file_from_offset + position
        why = reason if start == end else f"past log offset {end}, where the log ends: {reason}"
        truncated.append(CutRange(str(file.path), position, start, nbytes, why, kept))
    return truncated[::-1]


def _torn_parts(log: CommitLog, end: int) -> Iterator[tuple[MappedFile, int, int]]:
    """Yield file, position and length of the bytes past ``end``, the last file first."""
    for file in reversed(log.queue.files):
        position = max(0, end - file.file_from_offset)
        if position < file.file_size and (nbytes := _content_nbytes(file, position)):
            yield file, position, nbytes


def _ask_for_room(torn: list[tuple[MappedFile, int, int]], root: Path) -> None:
    """Raise ``StoreFullError`` if the copies, or the files written by an opening, have no room.

    Otherwise the opening would fail after it has truncated the log.
    """
    room = RoomNeeded("a copy of the log's torn end and the marks of an opening for writing")
    room.add(root, (nbytes for _, _, nbytes in torn))
    room.add_marks(root)
    room.refuse_lack()


def _content_nbytes(file: MappedFile, position: int) -> int:
    """Return the number of bytes from ``position`` up to the last non-zero byte."""
    stop = file.file_size
    while stop > position:
        start = max(position, stop - _STEP_NBYTES)
        chunk = file.read(start, stop - start).rstrip(b"\0")
        if chunk:
            return start + len(chunk) - position
        stop = start
    return 0


def _quarantine(
    file: MappedFile, position: int, nbytes: int, root: Path, clock: Callable[[], int]
) -> str:
    """Copy the bytes to quarantine; zeros become holes."""
    path = quarantine_path(root, f"{clock()}-{file.path.name}-{position}")
    stop = position + nbytes
    steps = range(position, stop, _STEP_NBYTES)
    write_file(path, (file.read(at, min(_STEP_NBYTES, stop - at)) for at in steps))
    return str(path)


def quarantine_path(root: Path, name: str) -> Path:
    """Return a free path for ``name`` in the store's quarantine folder, created if missing.

    A number is appended to a name that exists.
    """
    directory = root / formats.QUARANTINE_DIR
    make_directories(directory, root)
    path = directory / name
    number = 1
    while os.path.lexists(path):
        number += 1
        path = path.with_name(f"{path.name.split('~')[0]}~{number}")
    return path


def _write_zeros(file: MappedFile, position: int, nbytes: int) -> None:
    fd = open_regular_file(file.path, READ_WRITE, file.root)
    try:
        zeros = bytes(min(nbytes, _STEP_NBYTES))
        stop = position + nbytes
        with naming(file.path):
            while position < stop:
                position += os.pwrite(fd, zeros[: stop - position], position)
            sync_descriptor(fd)
    finally:
        os.close(fd)


def drop_cached_pages(log: CommitLog, offset: int) -> None:
    """Drop clean cached pages from the one that holds ``offset`` on.

    After an I/O error they may be newer than the disk. Mapped pages stay.
    """
    for file in log.queue.files:
        if file.end_offset > offset:
            drop_file_pages(file.path, max(0, offset - file.file_from_offset))


def drop_file_pages(path: Path, position: int) -> None:
    """Drop the clean cached pages of a file from the one that holds ``position`` on."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        advise(fd, position - position % _CACHED_PIECE_NBYTES, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def renew_cached_pages(files: Iterable[MappedFile]) -> None:
    """Drop the clean cached pages of whole files, and begin to read their data again.

    A later look through a mapping would read megabytes around it, and holes too.
    """
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    for file in files:
        drop_file_pages(file.path, 0)
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for start, stop in data_ranges(file, 0):
                advise(fd, start, stop - start, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)


def sync_log(log: CommitLog, offset: int, end: int) -> None:
    """Sync the segments that hold bytes of ``offset`` .. ``end``, and their directory."""
    for file in log.queue.files:
        if max(offset, file.file_from_offset) < min(end, file.end_offset):
            fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                with naming(file.path):
                    sync_descriptor(fd)
            finally:
                os.close(fd)
    if log.queue.files:
        sync_directory(log.queue.directory)
