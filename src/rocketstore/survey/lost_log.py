"""Detect a missing log: a store without segments that had messages is not an empty store."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rocketstore import formats
from rocketstore.config_managers.files import (
    CONSUMER_OFFSETS_FILE,
    DELAY_OFFSETS_FILE,
    LMQ_CONSUMER_OFFSETS_FILE,
    config_path,
    read_config_file,
)
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.parts import rocksdb_queues
from rocketstore.directory.state import StoreState
from rocketstore.errors import CorruptionError, MappedFileError, UnsafePathError
from rocketstore.files.durable import READ_ONLY, is_zeros, open_regular_file
from rocketstore.files.mapped_file_queue import MAY_NOT_BE_READ, DirectoryListing, list_directory
from rocketstore.index.geometry import index_paths
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.directories import queue_directories

_STEP_NBYTES = 1 << 20
_BEHIND_TOPICS = (CONSUMER_OFFSETS_FILE, LMQ_CONSUMER_OFFSETS_FILE, DELAY_OFFSETS_FILE)
_MAX_SHOWN = 6


class Places(Protocol):
    """Paths of the parts of a store that show whether it had messages."""

    @property
    def root(self) -> Path:
        """Return the store's root."""

    @property
    def commit_log(self) -> Path:
        """Return the log's folder."""

    @property
    def consume_queue(self) -> Path:
        """Return the folder of the queues."""

    @property
    def batch_consume_queue(self) -> Path:
        """Return the folder of batch queues."""

    @property
    def consume_queue_ext(self) -> Path:
        """Return the folder of the queues' extension files."""

    @property
    def index(self) -> Path:
        """Return the folder of index files."""

    @property
    def checkpoint(self) -> Path:
        """Return the path of the checkpoint."""

    @property
    def state(self) -> Path:
        """Return the path of the state file."""


@dataclass(frozen=True, slots=True)
class PlacesBelow:
    """The paths that a broker uses below a root."""

    root: Path

    @property
    def commit_log(self) -> Path:
        """See ``Places``."""
        return self.root / formats.COMMIT_LOG_DIR

    @property
    def consume_queue(self) -> Path:
        """See ``Places``."""
        return self.root / formats.CONSUME_QUEUE_DIR

    @property
    def batch_consume_queue(self) -> Path:
        """See ``Places``."""
        return self.root / formats.BATCH_QUEUE_DIR

    @property
    def consume_queue_ext(self) -> Path:
        """See ``Places``."""
        return self.root / formats.CONSUME_QUEUE_EXT_DIR

    @property
    def index(self) -> Path:
        """See ``Places``."""
        return self.root / formats.INDEX_DIR

    @property
    def checkpoint(self) -> Path:
        """See ``Places``."""
        return self.root / formats.CHECKPOINT_FILE

    @property
    def state(self) -> Path:
        """See ``Places``."""
        return self.root / formats.STATE_FILE


#: How to configure the folder of a log outside its store.
ELSEWHERE = "name its folder: store_path_commit_log=DIR, on the command line --commit-log DIR"


def refuse_lost_log(
    paths: Places,
    listing: DirectoryListing,
    checkpoint: StoreCheckpoint,
    state: StoreState | None,
    elsewhere: str = ELSEWHERE,
) -> None:
    """Raise if the log's folder holds no segment although the store had a log.

    A new log in its place would assign the same offsets again and delete the old queues and keys;
    a reader would show an empty store. ``elsewhere`` is the advice for a log in another folder.

    Raises
    ------
    MappedFileError
        Names the folder, the evidence that there was a log, and what to do.
    PermissionError
        When the process has no permission to read any of the segments.
    """
    if any(nbytes for _, _, nbytes in listing.files):
        return
    if listing.unreadable:
        why = "no permission to read any segment of the log"
        path, reason = next(iter(listing.unreadable.items()))
        if reason != MAY_NOT_BE_READ:
            raise MappedFileError(f"no segment of the log can be read: {path} {reason}")
        raise PermissionError(errno.EACCES, why, str(path))
    found = list(proofs_of_a_log(paths, checkpoint, state))
    if not found:
        return
    more = len(found) - _MAX_SHOWN
    shown = found[:_MAX_SHOWN] + ([f"{more} more"] if more > 0 else [])
    raise MappedFileError(
        f"the log is missing: {paths.commit_log} {_what_is_there(paths.commit_log, listing)}, but "
        f"there was one: {'; '.join(shown)}. Mount its disk, or, if the log lies elsewhere (a "
        f"broker's storePathCommitLog), {elsewhere}. Nothing was changed; to start a new log, use "
        "another folder, or move the old store's files away"
    )


def _what_is_there(directory: Path, listing: DirectoryListing) -> str:
    if not directory.is_dir():
        return "does not exist"
    if listing.files:
        return f"holds only files of 0 bytes ({listing.files[0][1].name})"
    if listing.foreign:
        return f"holds no segment, only other entries ({listing.foreign[0].name})"
    return "is empty"


def proofs_of_a_log(
    paths: Places, checkpoint: StoreCheckpoint, state: StoreState | None
) -> Iterator[str]:
    """Yield evidence, in words, that the store had messages; at most one of each kind of file.

    The broker's table of topics is no evidence: a broker writes it before the first message.
    """
    if state is not None and state.flushed_offset > 0:
        yield f"{paths.state} says that the log was on disk up to offset {state.flushed_offset}"
    times = (checkpoint.physic_timestamp, checkpoint.logics_timestamp, checkpoint.index_timestamp)
    offsets = (
        checkpoint.master_flushed_offset,
        checkpoint.confirm_physical_offset,
        checkpoint.logics_physical_offset,
    )
    if max(times) > 0 or max(offsets) > 0:
        what = "times of messages" if max(times) > 0 else "offsets of messages"
        yield f"{paths.checkpoint} holds {what}"
    for directory, holds in (
        (paths.consume_queue, _has_unit),
        (paths.batch_consume_queue, _has_content),
        (paths.consume_queue_ext, _has_content),
    ):
        path = _first_of_queues(directory, paths.root, holds)
        if path is not None:
            yield f"{path} holds units"
    yield from _index_proofs(paths)
    yield from _rocksdb_proofs(paths.root)
    yield from _table_proofs(paths.root)


def _first_of_queues(directory: Path, root: Path, holds: Callable[[int], bool]) -> Path | None:
    """Return the first queue file below ``directory`` for which ``holds`` returns True."""
    for _, folder in queue_directories(directory, root, [], tolerant=True):
        listing = list_directory(folder, root, tolerate_unreadable=True, tolerate_odd=True)
        for _, path, nbytes in listing.files:
            if nbytes and _look(path, root, holds):
                return path
    return None


def _look(path: Path, root: Path, holds: Callable[[int], bool]) -> bool:
    try:
        fd = open_regular_file(path, READ_ONLY, root)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        return holds(fd)
    finally:
        os.close(fd)


def _chunks(fd: int, step: int) -> Iterator[bytes]:
    """Yield the parts of a file that are not holes, each starting at a multiple of ``step``."""
    seek = getattr(os, "SEEK_DATA", None)
    position, nbytes = 0, os.fstat(fd).st_size
    while position < nbytes:
        if seek is not None:
            try:
                at = os.lseek(fd, position, seek)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return  # only a hole up to the end
                at = position  # the file system does not support SEEK_DATA
            position = max(position, at - at % step)
        chunk = os.pread(fd, step, position)
        if not chunk:
            return
        yield chunk
        position += len(chunk)


def _has_content(fd: int) -> bool:
    return any(not is_zeros(chunk) for chunk in _chunks(fd, _STEP_NBYTES))


def _has_unit(fd: int) -> bool:
    """Return whether a queue file holds a unit other than fillers."""
    unit = formats.CONSUME_QUEUE_UNIT
    for chunk in _chunks(fd, unit.nbytes * 50_000):
        if is_zeros(chunk):
            continue
        whole = len(chunk) - len(chunk) % unit.nbytes
        for _, size, _ in unit.struct.iter_unpack(chunk[:whole]):
            if 0 < size < formats.FILLER_UNIT_SIZE:
                return True
    return False


def _index_proofs(paths: Places) -> Iterator[str]:
    header = formats.INDEX_HEADER
    names = [field.name for field in header.fields]

    def has_entry(fd: int) -> bool:
        try:
            values = header.struct.unpack(os.pread(fd, header.nbytes, 0))
        except struct.error:
            return False
        facts = dict(zip(names, values, strict=True))
        return bool(facts["index_count"] > 1 or facts["end_timestamp"] > 0)

    for path, _ in index_paths(paths.index, paths.root, [], tolerant=True):
        if _look(path, paths.root, has_entry):
            yield f"{path} holds keys"
            return


def _rocksdb_proofs(root: Path) -> Iterator[str]:
    """Yield a table or a non-empty journal; a broker creates the database without messages."""
    queues = rocksdb_queues(root)
    if queues is None:
        return
    for path in sorted(queues.directory.iterdir()):
        if path.suffix in (".sst", ".log") and path.is_file() and path.stat().st_size:
            yield f"{path} holds queues"
            return


def _table_proofs(root: Path) -> Iterator[str]:
    """Yield the tables with offsets of consumed or delivered messages."""
    for name in _BEHIND_TOPICS:
        try:
            table = read_config_file(config_path(root, name), root)
        except (CorruptionError, MappedFileError, UnsafePathError, PermissionError):
            continue  # an unreadable table proves nothing
        if table.content is not None and _has_positive(table.content.get("offsetTable")):
            yield f"{table.path} holds offsets of messages"


def _has_positive(value: Any) -> bool:
    """Return whether nested tables contain a number above zero."""
    if isinstance(value, dict):
        return any(_has_positive(one) for one in value.values())
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def refuse_another_log(old: CommitLog, new: CommitLog) -> None:
    """Raise ``MappedFileError`` if ``new`` cannot be a later state of the log ``old``.

    Then the log is gone, or another store is in its place.
    """
    if old.max_offset <= max(old.min_offset, 0):
        return
    directory = new.queue.directory
    if not new.queue.files:
        raise MappedFileError(
            f"the log is gone: {directory} held messages up to log offset {old.max_offset}, and "
            "holds no segment now. Check whether its disk is mounted, or whether it was moved"
        )
    first = max(old.min_offset, new.min_offset, 0)
    if new.max_offset < old.min_offset or _differs(old, new, first):
        raise MappedFileError(
            f"{directory} holds another log than when it was opened: its offsets hold other "
            "messages. Reopen the store"
        )


def _differs(old: CommitLog, new: CommitLog, offset: int) -> bool:
    """Return whether both logs have good records at ``offset`` that differ."""
    before, after = (log.record_at(offset)[1] for log in (old, new))
    return before is not None and after is not None and bytes(before.raw) != bytes(after.raw)
