"""Staging: what one task writes, so that one commit can append it.

A stage file is a stretch of records in the log's format, written in pieces that end where a record
ends. Nothing here needs Spark.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import DecodeError
from rocketstore.files.durable import begin_writing, reporting_full_disk, sync_descriptor

#: What a table of the sink's rows may hold, and the Arrow type that the encoder takes.
COLUMN_TYPES = {
    "body": "string or binary",
    "topic": "string",
    "tags": "string",
    "keys": "string",
    "queueId": "int",
    "properties": "map<string,string>",
    "flag": "int",
    "bornTimestamp": "timestamp, or bigint of epoch milliseconds",
    "delayLevel": "int",
}
DEFAULT_QUEUES = 4
PIECE_NBYTES = 4 << 20
#: The cache drops no less than this at once: the largest page of x86-64 and arm64.
_CACHE_UNIT_NBYTES = 2 << 20
_NAME = re.compile(r"\d{6,}-\d+-[0-9a-f]{12}\.seg")
#: Times a folder is made that another write removes as empty at the same time.
_CREATING_TRIES = 5


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished stage file; plain values, as it travels to the driver.

    Attributes
    ----------
    path : str
    partition : int
        Of the table; files are appended in this order.
    rows : int
    pieces : tuple of (int, int)
        Bytes and CRC-32 of each stretch that was written at once; each ends where a record ends.
    counts : dict or None
        Records by (topic, queue id), where they were asked for.
    """

    path: str
    partition: int
    rows: int
    pieces: tuple[tuple[int, int], ...]
    counts: dict[tuple[str, int], int] | None = None

    @property
    def nbytes(self) -> int:
        """Length of the file."""
        return sum(nbytes for nbytes, _ in self.pieces)


def encoder_settings(
    root: str | os.PathLike[str] | None, config: MessageStoreConfig | None = None
) -> dict[str, Any]:
    """Return what ``StageEncoder`` must know of the store: its version, its limits.

    Parameters
    ----------
    root : path or None
        Of the store; None or a path without a store: those of a new one.
    config : MessageStoreConfig, optional

    Raises
    ------
    ConfigError, MappedFileError, UnsafePathError
        As opening the store would.
    """
    from rocketstore.config import DEFAULT_COMMIT_LOG_FILE_SIZE
    from rocketstore.dialect import DEFAULT_VERSION, Dialect
    from rocketstore.directory.parts import refuse_rocksdb_queues
    from rocketstore.directory.paths import StorePaths
    from rocketstore.directory.place import check_root
    from rocketstore.queues.queue_types import refuse_contradictions
    from rocketstore.survey.facts import examine

    given = config or MessageStoreConfig()
    if root is None or not Path(root).exists():
        version = given.broker_version
        dialect = Dialect.for_version(version or DEFAULT_VERSION, allow_newer=given.allow_newer)
        size = given.mapped_file_size_commit_log or DEFAULT_COMMIT_LOG_FILE_SIZE
    else:
        check_root(Path(root), "a")
        paths = StorePaths.of(Path(root), given)
        refuse_rocksdb_queues(paths)
        facts = examine(paths, given)
        refuse_contradictions(facts.queue_types)
        dialect, size = facts.dialect, facts.commit_log_file_size
    return {
        "store_host": given.store_host,
        "broker_version": dialect.name,
        "max_message_size": given.max_message_size,
        "segment_nbytes": size,
        "delay_ms": tuple(given.delay_ms),
        "append_property_crc": given.enabled_append_prop_crc,
    }


def unique_name(partition: int, attempt: int) -> str:
    """Return a file name that no other attempt of the same task has."""
    return f"{partition:06d}-{attempt}-{os.urandom(6).hex()}.seg"


def remove_stage(folder: str) -> None:
    """Delete the stage files of a folder, and the folder unless anything else is in it.

    Its name may come from a ledger that others wrote: what is no stage is never deleted.
    """
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()
        os.rmdir(folder)


def last_written(folder: Path) -> float:
    """When a task last made a file of this stage or wrote to one, in epoch seconds."""
    times = [folder.stat().st_mtime]
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times)


def write_stage(
    batches: Iterable[Any],
    directory: str,
    *,
    partition: int,
    attempt: int,
    settings: dict[str, Any],
    topic: str | None = None,
    queues: int = DEFAULT_QUEUES,
    counted: bool = False,
) -> StagedFile:
    """Write the rows of record batches as one synced stage file.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Columns of ``COLUMN_TYPES``; integers of any width that fit.
    directory : str
        Made when it is not there.
    partition, attempt : int
        Of the task; the file's name is unique to this call.
    settings : dict
        Of ``encoder_settings``.
    topic : str, optional
        Of all rows, whatever the column says.
    queues : int
        A row without queueId gets its number in this partition modulo ``queues``.
    counted : bool
        Count the records by queue.

    Returns
    -------
    StagedFile

    Raises
    ------
    ValueError, TypeError
        For a row that no store takes; the message names partition and row.
    StoreFullError, OSError
        When the file cannot be written. Nothing is left behind.
    """
    path = Path(directory) / unique_name(partition, attempt)
    with reporting_full_disk(path):
        fd = _create(path)
        try:
            stage = _StageWriter(fd, counted=counted)
            encoder = kernels.staged_records.StageEncoder(
                topic=topic, queues=queues, capacity=PIECE_NBYTES, **settings
            )
            try:
                for batch in batches:
                    stage.add(encoder, as_encoded(batch))
            except TypeError as error:
                raise TypeError(f"partition {partition}, {error}") from None
            except ValueError as error:
                raise ValueError(f"partition {partition}, {error}") from None
            stage.write(encoder)
            stage.finish()
            sync_descriptor(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        finally:
            os.close(fd)
    pieces, counts = tuple(stage.pieces), stage.counts if counted else None
    return StagedFile(str(path), partition, encoder.rows, pieces, counts)


def _create(path: Path) -> int:
    """Create a file, and the folders above it, which a write that is given up may just remove."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    for _ in range(_CREATING_TRIES):
        with contextlib.suppress(FileNotFoundError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, 0o644)


class _StageWriter:
    """The pieces of a file that is being written."""

    def __init__(self, fd: int, *, counted: bool) -> None:
        self.pieces: list[tuple[int, int]] = []
        self.counts: dict[tuple[str, int], int] = {}
        self._fd = fd
        self._counted = counted
        self._position = 0
        # What is not in the file yet; it begins at a multiple of the cache's unit.
        self._held: list[memoryview] = []
        self._held_nbytes = 0

    def add(self, encoder: Any, batch: Any) -> None:
        """Encode a batch; write whatever makes a whole piece."""
        row, count = 0, batch.num_rows
        while row < count:
            row = encoder.encode(batch, row)
            if encoder.waiting_nbytes >= PIECE_NBYTES:
                self.write(encoder)

    def write(self, encoder: Any) -> None:
        """Write what waits as one piece."""
        content = encoder.take()
        if not content:
            return
        if self._counted:
            _, _, counts = kernels.staged_records.tally(
                content, 0, len(content), self._position, formats.MAX_COMMIT_LOG_FILE_NBYTES
            )
            for queue, count in counts.items():
                self.counts[queue] = self.counts.get(queue, 0) + count
        self.pieces.append((len(content), kernels.message.crc32(content)))
        self._position += len(content)
        self._held.append(memoryview(content))
        self._held_nbytes += len(content)
        self._store(self._held_nbytes // _CACHE_UNIT_NBYTES * _CACHE_UNIT_NBYTES)

    def finish(self) -> None:
        """Write what is still held back."""
        self._store(self._held_nbytes)

    def _store(self, nbytes: int) -> None:
        """Write the first bytes of what is held. Whole units get large pages, which a commit can
        set free one by one, see ``_forget``."""
        start = self._position - self._held_nbytes
        self._held_nbytes -= nbytes
        views, self._held = _split(self._held, nbytes)
        while views:
            _, views = _split(views, os.writev(self._fd, views))
        begin_writing(self._fd, start, nbytes)


def _split(views: Sequence[memoryview], nbytes: int) -> tuple[list[memoryview], list[memoryview]]:
    """The first bytes of what views show, and the rest; nothing is copied."""
    first, rest = [], []
    for view in views:
        if nbytes:
            first.append(view[:nbytes])
        if nbytes < len(view):
            rest.append(view[nbytes:])
        nbytes = max(nbytes - len(view), 0)
    return first, rest


def as_encoded(batch: Any) -> Any:
    """Return the batch with columns of the types that the encoder takes.

    Raises
    ------
    ValueError
        For a number that is too large, naming its column.
    """
    import pyarrow
    from pyarrow import types

    for place, field in enumerate(batch.schema):
        kind = field.type
        wanted = kind
        if field.name in ("queueId", "flag", "delayLevel") and types.is_integer(kind):
            wanted = pyarrow.int32()
        elif field.name == "bornTimestamp" and types.is_integer(kind):
            wanted = pyarrow.int64()
        elif field.name == "bornTimestamp" and types.is_timestamp(kind):
            wanted = pyarrow.timestamp("us", kind.tz)
        if wanted != kind:
            try:
                column = batch.column(place).cast(wanted)
            except pyarrow.ArrowInvalid as error:
                raise ValueError(f"column {field.name}: {error}") from None
            batch = batch.set_column(place, field.name, column)
    return batch


def read_pieces(file: StagedFile, *, last: bool = False) -> Iterator[tuple[int, memoryview]]:
    """Position and content of each piece, compared with its CRC.

    Parameters
    ----------
    file : StagedFile
    last : bool
        Nobody reads the file again: the system may forget each piece once the next is asked for.

    Yields
    ------
    (int, memoryview)
        The next piece overwrites the content.

    Raises
    ------
    DecodeError
        When the file is not what was written.
    FileNotFoundError
        When it is gone.
    """
    yield from _read_pieces(file, 0, file.nbytes, last=last)


def _read_pieces(
    file: StagedFile, start: int, stop: int, *, last: bool
) -> Iterator[tuple[int, memoryview]]:
    """The pieces that hold something between the positions ``start`` and ``stop``."""
    position = 0
    buffer = memoryview(bytearray(max((nbytes for nbytes, _ in file.pieces), default=0)))
    with open(file.path, "rb", buffering=0) as source:
        for nbytes, crc in file.pieces:
            if position + nbytes > start and position < stop:
                source.seek(position)
                content = buffer[:nbytes]
                if not _read_whole(source, content) or kernels.message.crc32(content) != crc:
                    raise DecodeError(
                        f"{file.path} at position {position}: the staged records are not those "
                        "that were written; write the batch again"
                    )
                yield position, content
                if last:
                    _forget(source.fileno(), start, min(position + nbytes, stop))
            position += nbytes


def _forget(fd: int, start: int, stop: int) -> None:
    """Let the system drop the file's pages between two positions from its cache.

    A copy of a stretch of the same length is being written: it takes the pages that this sets
    free. Otherwise it takes ones that nobody has used, which cost several times more, most of all
    in virtual machines, and push others' pages out of the cache.
    """
    advise = getattr(os, "posix_fadvise", None)
    first, behind = -(-start // _CACHE_UNIT_NBYTES), stop // _CACHE_UNIT_NBYTES
    if advise is not None and first < behind:
        unit = _CACHE_UNIT_NBYTES
        with contextlib.suppress(OSError):  # advice: a file system may not take it
            advise(fd, first * unit, (behind - first) * unit, os.POSIX_FADV_DONTNEED)


def _read_whole(source: Any, view: memoryview) -> bool:
    """Fill the view; False when the file ends before that."""
    done = 0
    while done < len(view):
        count = source.readinto(view[done:])
        if not count:
            return False
        done += count
    return True


def read_records(files: Iterable[StagedFile], row: int) -> Iterator[tuple[int, int, bytes]]:
    """Place of the file among ``files``, position and content of each staged record, from row
    ``row`` of all files on."""
    for place, file in enumerate(files):
        if row >= file.rows:
            row -= file.rows
            continue
        for position, piece in read_pieces(file):
            at = 0
            while at < len(piece):
                size = int.from_bytes(piece[at : at + 4], "big")
                if size <= 0:
                    raise DecodeError(f"{file.path} at position {position + at}: no record")
                if row == 0:
                    yield place, position + at, bytes(piece[at : at + size])
                else:
                    row -= 1
                at += size


def read_range(file: StagedFile, start: int, stop: int) -> Iterator[tuple[int, memoryview]]:
    """Position and content of the records between two positions where records begin, for the last
    time (see ``read_pieces``).

    Raises ``DecodeError`` when a piece that is read is not what was written.
    """
    for position, piece in _read_pieces(file, start, stop, last=True):
        first, behind = max(start - position, 0), min(stop - position, len(piece))
        yield position + first, piece[first:behind]
