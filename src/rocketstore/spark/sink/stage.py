"""Staging: write one task's rows so that one commit can append them.

A stage file holds records in the log's format, in pieces that end at a record's end. Nothing here
needs Spark.
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

#: Columns that the sink accepts, and the Arrow types that the encoder takes.
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
#: The page cache drops at least so much at once: the largest page of x86-64 and arm64.
_CACHE_UNIT_NBYTES = 2 << 20
_NAME = re.compile(r"\d{6,}-\d+-[0-9a-f]{12}\.seg")
#: Attempts to create a folder that another write may remove, as empty, at the same time.
_CREATING_TRIES = 5


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished stage file, as plain values that travel to the driver.

    Attributes
    ----------
    path : str
    partition : int
        Partition of the table; files are appended in this order.
    rows : int
    pieces : tuple of (int, int)
        Bytes and CRC-32 of each piece; each ends at a record's end.
    counts : dict or None
        Records by (topic, queue id), if requested.
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
    """Return the store's settings that ``StageEncoder`` needs: version and limits.

    Parameters
    ----------
    root : path or None
        Root of the store; None or a path without a store: settings of a new store.
    config : MessageStoreConfig, optional

    Raises
    ------
    ConfigError, MappedFileError, UnsafePathError
        As opening the store would raise.
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
        paths.refuse_several_logs()
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
    """Return a file name that is unique among the attempts of the task."""
    return f"{partition:06d}-{attempt}-{os.urandom(6).hex()}.seg"


def remove_stage(folder: str) -> None:
    """Delete the stage files of a folder, and the folder if it is then empty.

    The folder's name may come from another process's ledger, so only stage files are deleted.
    """
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()
        os.rmdir(folder)


def last_written(folder: Path) -> float:
    """Return when a task last created or wrote a file of this stage, in epoch seconds."""
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
        Columns of ``COLUMN_TYPES``; integers of any width whose values fit.
    directory : str
        Created if it does not exist.
    partition, attempt : int
        Of the task; the file name is unique to this call.
    settings : dict
        The result of ``encoder_settings``.
    topic : str, optional
        Topic of all rows; overrides the column.
    queues : int
        A row without queueId gets its row number in this partition modulo ``queues``.
    counted : bool
        Count the records by queue.

    Returns
    -------
    StagedFile

    Raises
    ------
    ValueError, TypeError
        For a row that the store cannot accept; the message names partition and row.
    StoreFullError, OSError
        If the file cannot be written. The partial file is deleted.
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
    """Create a file and its parent folders, which an aborted write may remove concurrently."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    for _ in range(_CREATING_TRIES):
        with contextlib.suppress(FileNotFoundError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, 0o644)


class _StageWriter:
    """Writes a stage file piece by piece."""

    def __init__(self, fd: int, *, counted: bool) -> None:
        self.pieces: list[tuple[int, int]] = []
        self.counts: dict[tuple[str, int], int] = {}
        self._fd = fd
        self._counted = counted
        self._position = 0
        # Data not yet written; it begins at a multiple of the cache unit.
        self._held: list[memoryview] = []
        self._held_nbytes = 0

    def add(self, encoder: Any, batch: Any) -> None:
        """Encode a batch; write each complete piece."""
        row, count = 0, batch.num_rows
        while row < count:
            row = encoder.encode(batch, row)
            if encoder.waiting_nbytes >= PIECE_NBYTES:
                self.write(encoder)

    def write(self, encoder: Any) -> None:
        """Write the encoder's output as one piece."""
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
        """Write the remaining data."""
        self._store(self._held_nbytes)

    def _store(self, nbytes: int) -> None:
        """Write the first ``nbytes`` held bytes.

        Whole units get large pages, which a commit can free one by one; see ``_forget``.
        """
        start = self._position - self._held_nbytes
        self._held_nbytes -= nbytes
        views, self._held = _split(self._held, nbytes)
        while views:
            _, views = _split(views, os.writev(self._fd, views))
        begin_writing(self._fd, start, nbytes)


def _split(views: Sequence[memoryview], nbytes: int) -> tuple[list[memoryview], list[memoryview]]:
    """Split views into the first ``nbytes`` and the rest, without a copy."""
    first, rest = [], []
    for view in views:
        if nbytes:
            first.append(view[:nbytes])
        if nbytes < len(view):
            rest.append(view[nbytes:])
        nbytes = max(nbytes - len(view), 0)
    return first, rest


def as_encoded(batch: Any) -> Any:
    """Return the batch with its columns cast to the types that the encoder takes.

    Raises
    ------
    ValueError
        For a number that is too large; the message names its column.
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
    """Yield position and content of each piece, after a CRC check.

    Parameters
    ----------
    file : StagedFile
    last : bool
        The file is not read again: the system may drop each piece from its cache afterwards.

    Yields
    ------
    (int, memoryview)
        The next piece overwrites the content.

    Raises
    ------
    DecodeError
        If the file differs from what was written.
    FileNotFoundError
        If the file is missing.
    """
    yield from _read_pieces(file, 0, file.nbytes, last=last)


def _read_pieces(
    file: StagedFile, start: int, stop: int, *, last: bool
) -> Iterator[tuple[int, memoryview]]:
    """Yield the pieces that overlap the positions ``start`` to ``stop``."""
    position = 0
    buffer = memoryview(bytearray(max((nbytes for nbytes, _ in file.pieces), default=0)))
    with open(file.path, "rb", buffering=0) as source:
        for nbytes, crc in file.pieces:
            if position + nbytes > start and position < stop:
                source.seek(position)
                content = buffer[:nbytes]
                if not _read_whole(source, content) or kernels.message.crc32(content) != crc:
                    raise DecodeError(
                        f"{file.path} at position {position}: the staged records were changed "
                        "after they were written; write the batch again"
                    )
                yield position, content
                if last:
                    _forget(source.fileno(), start, min(position + nbytes, stop))
            position += nbytes


def _forget(fd: int, start: int, stop: int) -> None:
    """Let the system drop the file's pages between two positions from its cache.

    The commit writes a copy of the same length, which reuses the freed pages. New pages would
    cost several times more, especially in virtual machines, and evict other pages from the cache.
    """
    advise = getattr(os, "posix_fadvise", None)
    first, end = -(-start // _CACHE_UNIT_NBYTES), stop // _CACHE_UNIT_NBYTES
    if advise is not None and first < end:
        unit = _CACHE_UNIT_NBYTES
        with contextlib.suppress(OSError):  # a file system may not support this advice
            advise(fd, first * unit, (end - first) * unit, os.POSIX_FADV_DONTNEED)


def _read_whole(source: Any, view: memoryview) -> bool:
    """Fill the view; return False if the file ends earlier."""
    done = 0
    while done < len(view):
        count = source.readinto(view[done:])
        if not count:
            return False
        done += count
    return True


def read_records(files: Iterable[StagedFile], row: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield each staged record from row ``row`` of all files on.

    Each item is the file's index in ``files``, the position, and the content.
    """
    for place, file in enumerate(files):
        if row >= file.rows:
            row -= file.rows
            continue
        for position, piece in read_pieces(file):
            at = 0
            while at < len(piece):
                size = int.from_bytes(piece[at : at + 4], "big")
                if size <= 0:
                    raise DecodeError(f"{file.path} at position {position + at}: not a record")
                if row == 0:
                    yield place, position + at, bytes(piece[at : at + size])
                else:
                    row -= 1
                at += size


def read_range(file: StagedFile, start: int, stop: int) -> Iterator[tuple[int, memoryview]]:
    """Yield position and content of the records between two record boundaries, for the last time.

    See ``read_pieces`` for "last". Raises ``DecodeError`` if a piece differs from what was written.
    """
    for position, piece in _read_pieces(file, start, stop, last=True):
        first, end = max(start - position, 0), min(stop - position, len(piece))
        yield position + first, piece[first:end]
