"""Dropping the torn tail of a log: kept aside, overwritten with zeros, synced."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
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
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.damage import CutRange
from rocketstore.log.scan import has_content

_log = logging.getLogger(__name__)
_STEP_NBYTES = 1 << 20
#: Systems keep up to so many bytes of a file as one piece, and drop a piece as a whole or not.
_CACHED_PIECE_NBYTES = 1 << 21


def cut_tail(
    log: CommitLog, end: int, reason: str, root: Path, clock: Callable[[], int]
) -> list[CutRange]:
    """Drop everything behind ``end`` from the log's files, durably; a copy is kept aside.

    The files are cut from the last one backwards, so that a kill in between leaves a state that the
    next open cuts again. Raises ``StoreFullError`` before the first one where copies find no room.

    Parameters
    ----------
    log : CommitLog
    end : int
        Physical offset behind the last record that stays.
    reason : str
        What stands at ``end``, for the report.
    root : Path
        The store's root; copies go to its ``quarantine`` folder.
    clock : callable
        Epoch ms, for the copies' names.
    """
    cuts: list[CutRange] = []
    if not has_content(log, end):
        return cuts
    torn = list(_torn_parts(log, end))
    _ask_for_room(torn, root)
    for file, position, nbytes in torn:
        kept = _quarantine(file, position, nbytes, root, clock)
        _write_zeros(file, position, nbytes)
        _log.warning("cut %d bytes at position %d of %s", nbytes, position, file.path)
        start = file.file_from_offset + position
        why = reason if start == end else f"behind log offset {end}, where the log ends: {reason}"
        cuts.append(CutRange(str(file.path), position, start, nbytes, why, kept))
    return cuts[::-1]


def _torn_parts(log: CommitLog, end: int) -> Iterator[tuple[MappedFile, int, int]]:
    """Yield file, position and bytes of what stands behind ``end``, the last file first."""
    for file in reversed(log.queue.files):
        position = max(0, end - file.file_from_offset)
        if position < file.file_size and (nbytes := _content_nbytes(file, position)):
            yield file, position, nbytes


def _ask_for_room(torn: list[tuple[MappedFile, int, int]], root: Path) -> None:
    """Raise ``StoreFullError`` where the copies, and the marks of an opening, have no room; a cut
    without them would be all that an opening leaves behind."""
    room = RoomNeeded("a copy of the log's torn end and the marks of an opening for writing")
    room.add(root, (nbytes for _, _, nbytes in torn))
    room.add_marks(root)
    room.refuse_lack()


def _content_nbytes(file: MappedFile, position: int) -> int:
    """Bytes from ``position`` to the last one that is not zero."""
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
    """Keep a copy of the bytes, whatever they are; holes and zeros stay holes."""
    path = quarantine_path(root, f"{clock()}-{file.path.name}-{position}")
    stop = position + nbytes
    steps = range(position, stop, _STEP_NBYTES)
    write_file(path, (file.read(at, min(_STEP_NBYTES, stop - at)) for at in steps))
    return str(path)


def quarantine_path(root: Path, name: str) -> Path:
    """A path for ``name`` in the quarantine folder of the store, which is made when it is missing;
    a number is added to a name that is taken."""
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
    """Forget clean cached pages behind ``offset``, the one that holds it included: after an I/O
    error they may be newer than the disk. Pages that are mapped stay."""
    for file in log.queue.files:
        if file.end_offset > offset:
            drop_file_pages(file.path, max(0, offset - file.file_from_offset))


def drop_file_pages(path: Path, position: int) -> None:
    """Forget the clean cached pages of a file from the one that holds ``position`` on."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        advise(fd, position - position % _CACHED_PIECE_NBYTES, 0, os.POSIX_FADV_DONTNEED)
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
