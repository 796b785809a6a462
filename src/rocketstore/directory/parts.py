"""The entries of a store's root, and stores that keep their log or queues in another format.

A broker keeps more below its root than a message store: timer wheels, compacted topics, tables,
RocksDB databases, files of a controller. They are recognized by their names and ignored.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import READ_ONLY, TEMPORARY_PREFIX, no_folder

READ_AND_WRITTEN = "read and written"
READ_ONLY_PART = "read, never written"
DERIVED = "not read: queues are derived from the log, for reading only"
LEFT_ALONE = "ignored"
MOVED_ASIDE = "not read; moved to quarantine when the store is opened for writing"
IN_A_QUEUE_S_PLACE = "ignored until a queue needs its place, then moved to quarantine"
REMOVED = "removed when the store is opened for writing"
REFUSED = "not supported: the messages are in it, not in commitlog"


class StorePart(NamedTuple):
    """One entry of a store's root.

    Attributes
    ----------
    name : str
        Its path below the root, with ``/``.
    kind : str
        A short stable identifier, such as ``"timerWheel"``; ``"foreign"`` for an entry that does
        not belong to a store.
    what : str
        What it is, in words.
    treatment : str
        What rocketstore does with it.
    """

    name: str
    kind: str
    what: str
    treatment: str


#: Names below the root (regular expressions), kinds, descriptions and treatments.
_PARTS: tuple[tuple[str, str, str, str], ...] = (
    (formats.COMMIT_LOG_DIR, "commitLog", "the log of all messages", READ_AND_WRITTEN),
    (formats.CONSUME_QUEUE_DIR, "consumeQueue", "consume queues", READ_AND_WRITTEN),
    (
        "consumequeue_ext",
        "consumeQueueExt",
        "consume queue extensions (enableConsumeQueueExt)",
        READ_AND_WRITTEN,
    ),
    (
        "batchconsumequeue",
        "batchConsumeQueue",
        "batch consume queues (queue.type=BatchCQ)",
        READ_AND_WRITTEN,
    ),
    (formats.INDEX_DIR, "index", "index of keys", READ_AND_WRITTEN),
    (formats.CHECKPOINT_FILE, "checkpoint", "times of what is on disk", READ_AND_WRITTEN),
    (formats.ABORT_FILE, "abort", "marker of a store in use or not closed", READ_AND_WRITTEN),
    (r"abort\.bak", "abort", "abort file renamed by 5.x", LEFT_ALONE),
    (formats.LOCK_FILE, "lock", "lock file of the writer", READ_AND_WRITTEN),
    (re.escape(formats.STATE_FILE), "state", "rocketstore's state file", READ_AND_WRITTEN),
    (
        formats.QUARANTINE_DIR,
        "quarantine",
        "records that recovery truncated, and files that were moved away",
        READ_AND_WRITTEN,
    ),
    (re.escape(formats.SPARK_DIR), "spark", "stages and ledger of the Spark sink", LEFT_ALONE),
    (
        "config",
        "config",
        "the broker's tables (topics, consumer offsets, subscriptions)",
        "read for topics' queue types; rocketstore.config_managers reads and writes them",
    ),
    ("consumequeue_rocksdb", "rocksdbQueue", "consume queues in RocksDB", DERIVED),
    ("rocksdbstore", "rocksdbStore", "RocksDB files of 5.4 and later", LEFT_ALONE),
    ("kvStore", "popStore", "RocksDB files of POP consumption", LEFT_ALONE),
    ("compaction", "compaction", "compacted topics", LEFT_ALONE),
    ("timerwheel", "timerWheel", "timer wheel", READ_ONLY_PART),
    (r"timerwheel\.\d+(\.tmp)?", "timerWheel", "snapshot of the timer wheel", READ_ONLY_PART),
    ("timerlog", "timerLog", "timer log", READ_ONLY_PART),
    (r"epochFileCheckpoint(\.bak)?", "controller", "epochs of controller mode", LEFT_ALONE),
    ("brokerIdentity(-temp)?", "controller", "broker identity of controller mode", LEFT_ALONE),
    ("transaction", "transaction", "transaction tables of old versions", LEFT_ALONE),
)
#: A directory with a part of one of these kinds is a store.
_SIGNS = frozenset(
    (
        *("commitLog", "consumeQueue", "batchConsumeQueue", "rocksdbQueue", "dledger"),
        *("checkpoint", "state"),
    )
)
_DLEDGER_DIR = "(?s:dledger-.+)"
#: Regular files that occur only in a RocksDB database.
_ROCKSDB_FILE = r"CURRENT|MANIFEST-\d{6,}|\d{6,}\.sst"
_ROCKSDB_CURRENT = b"MANIFEST-"
#: The beginning of a DLedger entry: magic, size, index, term, its own position.
_DLEDGER_HEAD = struct.Struct(">iiqqq")
_DLEDGER_MAGIC = 1
_DLEDGER_HEADER_NBYTES = 48


def store_parts(root: Path) -> list[StorePart]:
    """List every entry of a store's root, and RocksDB queues in the folder of queue files.

    Parameters
    ----------
    root : Path

    Returns
    -------
    list of StorePart
        By name.

    Raises
    ------
    OSError
        If ``root`` cannot be listed.
    """
    parts = [_part(root, name) for name in sorted(os.listdir(root))]
    queues = rocksdb_queues(root)
    if queues is not None and queues.directory.name == formats.CONSUME_QUEUE_DIR:
        what = "consume queues in RocksDB"
        what += ", beside queue files" if queues.beside_files else ""
        parts = [part for part in parts if part.name != queues.directory.name]
        parts.append(StorePart(queues.directory.name, "rocksdbQueue", what, DERIVED))
    return sorted(parts)


def is_store(parts: list[StorePart]) -> bool:
    """Return whether a directory with these parts is a store."""
    return not _SIGNS.isdisjoint(part.kind for part in parts)


def _part(root: Path, name: str) -> StorePart:
    for pattern, kind, what, treatment in _PARTS:
        if re.fullmatch(pattern, name):
            return StorePart(name, kind, what, treatment)
    if re.fullmatch(_DLEDGER_DIR, name):
        what = "a DLedger commit log, which replaces commitlog"
        if _has_segments(root / name / "data"):
            return StorePart(name, "dledger", what, REFUSED)
        return StorePart(name, "dledger", f"{what}, without a message", LEFT_ALONE)
    if name.startswith(TEMPORARY_PREFIX):
        return StorePart(name, "temporary", "incomplete file of a killed writer", REMOVED)
    return StorePart(name, "foreign", "not part of a store", LEFT_ALONE)


# --- RocksDB ----------------------------------------------------------------------------------


class RocksdbQueues(NamedTuple):
    """Consume queues in a RocksDB database.

    Attributes
    ----------
    directory : Path
        The database.
    beside_files : bool
        Whether ``consumequeue`` also has folders of topics: the broker wrote both
        (rocksdbCQDoubleWriteEnable), or used one after the other.
    """

    directory: Path
    beside_files: bool


def rocksdb_queues(root: Path) -> RocksdbQueues | None:
    """Return the RocksDB database with the store's consume queues, ``None`` without one.

    A database is recognized by any of CURRENT, a manifest or a table. Only names and the beginning
    of CURRENT are read.
    """
    folder = root / formats.CONSUME_QUEUE_DIR
    for directory in (root / "consumequeue_rocksdb", folder):
        if _is_rocksdb(directory):
            return RocksdbQueues(directory, _has_folder(folder))
    return None


def _is_rocksdb(directory: Path) -> bool:
    if no_folder(directory):
        return False
    try:
        with os.scandir(directory) as entries:
            return any(
                re.fullmatch(_ROCKSDB_FILE, entry.name)
                and entry.is_file(follow_symlinks=False)
                and (
                    entry.name != "CURRENT"
                    or _beginning(Path(entry.path), len(_ROCKSDB_CURRENT)) == _ROCKSDB_CURRENT
                )
                for entry in entries
            )
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False


def _has_folder(directory: Path) -> bool:
    if no_folder(directory):
        return False
    try:
        with os.scandir(directory) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False


# --- DLedger ----------------------------------------------------------------------------------


def refuse_dledger(root: Path, *log_folders: Path) -> None:
    """Raise ``MappedFileError`` if the messages are in a DLedger log.

    Parameters
    ----------
    root : Path
        The store's root, or a DLedger folder; its log is in ``dledger-<id>/data`` or ``data``.
    *log_folders : Path
        The log to be read; refused if a folder's first file holds DLedger entries.
    """
    try:
        names = sorted(name for name in os.listdir(root) if re.fullmatch(_DLEDGER_DIR, name))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        names = []
    for directory in (*(root / name / "data" for name in names), root / "data", *log_folders):
        named = directory.parent.name in names
        if _has_segments(directory) if named else _holds_dledger_entries(directory):
            raise dledger_refusal(directory)


def _segments(directory: Path) -> list[str]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return sorted(name for name in names if formats.file_name_to_offset(name) is not None)


def _has_segments(directory: Path) -> bool:
    return bool(_segments(directory))


def _holds_dledger_entries(directory: Path) -> bool:
    """Return whether the first segment begins with a DLedger entry for its own position."""
    for name in _segments(directory)[:1]:
        head = _beginning(directory / name, _DLEDGER_HEAD.size)
        return is_dledger_head(head, formats.file_name_to_offset(name))
    return False


def is_dledger_head(head: bytes, start: int | None) -> bool:
    """Return whether a segment's first bytes are a DLedger entry for its position ``start``."""
    if len(head) < _DLEDGER_HEAD.size:
        return False
    magic, size, index, term, position = _DLEDGER_HEAD.unpack_from(head)
    if magic == _DLEDGER_MAGIC and size >= _DLEDGER_HEADER_NBYTES and position == start:
        return bool(index >= 0 and term >= 0)
    return False


def dledger_refusal(directory: str | os.PathLike[str]) -> MappedFileError:
    """Return the error for a folder that is a DLedger log."""
    return MappedFileError(
        f"{os.fspath(directory)} is a DLedger log (enableDLegerCommitLog): it contains the "
        f"messages, not {formats.COMMIT_LOG_DIR}, wrapped in DLedger entries, which rocketstore "
        "neither reads nor writes"
    )


def is_dledger_name(name: str) -> bool:
    """Return whether a folder of this name in a store's root belongs to DLedger."""
    return re.fullmatch(_DLEDGER_DIR, name) is not None


def _beginning(path: Path, nbytes: int) -> bytes:
    """Return the first bytes of a regular file; empty if it is missing, unreadable or another
    kind."""
    if path.is_symlink() or not path.is_file():
        return b""
    try:
        fd = os.open(path, READ_ONLY)
    except (FileNotFoundError, PermissionError):
        return b""
    try:
        return os.read(fd, nbytes)
    finally:
        os.close(fd)


def refuse_rocksdb_queues(paths: StorePaths) -> None:
    """Raise ``MappedFileError`` if the queues are in RocksDB, where units that are written to
    files would be missing."""
    found = rocksdb_queues(paths.root)
    if found is not None:
        raise MappedFileError(
            f"{found.directory} is a RocksDB database with the store's consume queues, which "
            'rocketstore does not write. Open the store with mode "r", which derives the queues '
            "from the log in memory"
        )
