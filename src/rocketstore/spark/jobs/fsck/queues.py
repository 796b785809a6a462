"""The queue part of ``fsck``: compare checksums, then the units of queues that differ."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rocketstore import formats, kernels
from rocketstore.errors import MappedFileError
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.files.raw import data_ranges
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.sources.splits import Split
from rocketstore.sources.walk import walk
from rocketstore.spark.jobs.fsck.log import Key, LogSums, QueueSums, Reading
from rocketstore.spark.jobs.tasks import run_tasks
from rocketstore.verify.queue_check import Records
from rocketstore.verify.queues import QueuesCheck
from rocketstore.verify.report import VerifyReport
from rocketstore.verify.scope import VerifyScope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORD = 2**64
_CHUNK_NBYTES = UNIT_NBYTES * 65536
#: Maximum bytes and number of queue files per task.
_TASK_NBYTES = 256 << 20
_TASK_FILES = 2048
_ROW = np.dtype([*formats.CONSUME_QUEUE_UNIT.dtype.descr, ("store_timestamp", ">i8")])


class QueueFile(NamedTuple):
    """One file of a queue, as plain data for a task; ``queue`` is the queue's number."""

    queue: int
    path: str
    first_index: int
    file_size: int


class _Range(NamedTuple):
    """The part of a file that ``data_ranges`` needs."""

    path: str
    file_size: int


class FileSums(NamedTuple):
    """Sums over units, as returned by ``sum_units``."""

    unit_count: int = 0
    first_index: int = -1
    last_index: int = -1
    total: int = 0
    fillers: int = 0
    expired: int = 0
    last_passed: int = -1

    def join(self, other: FileSums) -> FileSums:
        """Add the sums of later units."""
        return FileSums(
            self.unit_count + other.unit_count,
            self.first_index if self.unit_count else other.first_index,
            other.last_index if other.unit_count else self.last_index,
            (self.total + other.total) % _WORD,
            self.fillers + other.fillers,
            self.expired + other.expired,
            max(self.last_passed, other.last_passed),
        )


def sum_files(item: tuple[tuple[QueueFile, ...], int]) -> list[tuple[int, FileSums]]:
    """Sum up queue files, without reading holes (a task)."""
    files, log_start = item
    found = []
    for one in files:
        sums = FileSums()
        place: Any = _Range(one.path, one.file_size)
        with Path(one.path).open("rb", buffering=0) as file:
            end = 0
            for start, stop in data_ranges(place, 0):
                first = max(start - start % UNIT_NBYTES, end)
                end = min(-(-stop // UNIT_NBYTES) * UNIT_NBYTES, one.file_size)
                for position in range(first, end, _CHUNK_NBYTES):
                    nbytes = min(_CHUNK_NBYTES, end - position)
                    file.seek(position)
                    units = file.read(nbytes)
                    if len(units) < nbytes:
                        raise MappedFileError(f"{one.path} was shortened while it was read")
                    index = one.first_index + position // UNIT_NBYTES
                    part = kernels.passes_fsck.sum_units(units, index, log_start)
                    sums = sums.join(FileSums(*part))
        found.append((one.queue, sums))
    return found


class QueueSumming:
    """Divides the files of plain queues into portions for tasks, and joins their sums.

    Parameters
    ----------
    queues : QueueTable
    log_start : int
        Records before this physical offset have expired.
    """

    def __init__(self, queues: QueueTable, log_start: int) -> None:
        plain = [queue for queue in queues if not isinstance(queue, BatchConsumeQueue)]
        self._keys = [(queue.topic_bytes, queue.queue_id) for queue in plain]
        self.items: list[tuple[tuple[QueueFile, ...], int]] = []
        portion: list[QueueFile] = []
        nbytes = 0
        for number, queue in enumerate(plain):
            for file in queue.queue.files:
                assert isinstance(file, MappedFile)
                first = file.file_from_offset // UNIT_NBYTES
                portion.append(QueueFile(number, str(file.path), first, file.file_size))
                nbytes += os.stat(file.path).st_blocks * 512 if hasattr(os, "SEEK_DATA") else 0
                if nbytes >= _TASK_NBYTES or len(portion) >= _TASK_FILES:
                    self.items.append((tuple(portion), log_start))
                    portion, nbytes = [], 0
        if portion:
            self.items.append((tuple(portion), log_start))

    def join(self, found: Iterable[Sequence[tuple[int, FileSums]]]) -> dict[Key, FileSums]:
        """Return the sums of each queue from the results of ``sum_files``."""
        joined: dict[Key, FileSums] = {}
        for number, sums in itertools.chain.from_iterable(found):
            key = self._keys[number]
            joined[key] = joined.get(key, FileSums()).join(sums)
        return joined


class QueuesComparison:
    """Compares the log's queues with the queue files of an open store.

    Parameters
    ----------
    spark : SparkSession or None
    scope : VerifyScope
        Its damage must be noted already.
    queues : QueueTable
    dispatched : int
        Records from this physical offset on may lack units.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        scope: VerifyScope,
        queues: QueueTable,
        dispatched: int,
    ) -> None:
        self.of_finding: dict[int, tuple[str, int]] = {}
        self._spark = spark
        self._scope = scope
        self._queues = queues
        self._dispatched = dispatched
        self._check = QueuesCheck(scope, queues, dispatched, lambda _batch, _rows: None)

    @property
    def _report(self) -> VerifyReport:
        return self._scope.report

    def run(
        self, sums: LogSums, found: dict[Key, FileSums], splits: Sequence[Split], how: Reading
    ) -> None:
        """Compare the log's sums with those of the files; add findings and counts to the scope's
        report."""
        files = {(queue.topic_bytes, queue.queue_id): queue for queue in self._plain_queues()}
        differing = []
        agreeing = set()
        for key in sorted({*sums.queues, *files}):
            records, units = sums.queues.get(key), found.get(key, FileSums())
            if self._agree(records, units, files.get(key)):
                self._count(records, units)
                agreeing.add(key)
            elif self._has_new_files(key):
                differing.append(key)
            elif records is not None and units == FileSums() and self._is_simple(records):
                if records.first_physical >= self._dispatched:
                    self._scope.counts["behind_units"] += records.count
                    self._report.queues += 1
                elif records.end_physical <= self._dispatched:
                    self._add_missing(key, records)
                else:
                    differing.append(key)
            else:
                differing.append(key)
        if differing:
            self._note_fit(sums, agreeing)
            self._look_closely(differing, splits, how)

    def _note_fit(self, sums: LogSums, agreeing: set[Key]) -> None:
        """Note segments with records of agreeing queues: they do not belong to another store."""
        size = self._scope.log.segment_size
        for base, parts in sums.in_segments.items():
            if any(not agreeing.isdisjoint(keys) for keys in parts):
                self._scope.fit.take_units(np.array([base]), size, right=True)

    def _plain_queues(self) -> list[ConsumeQueue]:
        return self._check.plain_queues()

    def _has_new_files(self, key: Key) -> bool:
        """Load files that a writer has created since the store was opened."""
        topic = key[0].decode("utf-8", "surrogateescape")
        folder = self._queues.directory / topic / str(key[1])
        if not folder.is_dir():
            return False
        listing = list_directory(folder, self._scope.root, tolerate_unreadable=True)
        size = self._queues.file_size
        listing.files = [row for row in listing.files if row[2] == size and row[0] % size == 0]
        queue = self._queues.get(topic, key[1])
        known = len(queue.queue.files) if isinstance(queue, ConsumeQueue) else 0
        if len(listing.files) <= known:
            return False
        queue = self._queues.get_or_create(topic, key[1])
        queue.queue.load(listing)
        return True

    # --- comparing sums -----------------------------------------------------------------------

    def _agree(
        self, records: QueueSums | None, units: FileSums, queue: ConsumeQueue | None
    ) -> bool:
        """Return whether records and units agree, and neither is odd."""
        start = 0
        if queue is not None and queue.queue.files:
            start = queue.queue.files[0].file_from_offset // UNIT_NBYTES
        if records is None:
            whole = units.fillers + units.expired == units.last_passed + 1 - start
            return units == FileSums() or (units.unit_count == 0 and whole)
        if not self._is_simple(records):
            return False
        return (
            (units.unit_count, units.total) == (records.count, records.total)
            and (units.first_index, units.last_index)
            == (records.first_offset, records.next_offset - 1)
            and units.last_passed < records.first_offset
            and units.fillers + units.expired == records.first_offset - start
        )

    def _is_simple(self, records: QueueSums) -> bool:
        """Return whether the queue offsets are consecutive from a plausible start."""
        if records.breaks or (records.first_offset > 0 and self._scope.start == 0):
            return False
        return records.first_offset <= records.first_physical // formats.RECORD_MIN_NBYTES

    def _count(self, records: QueueSums | None, units: FileSums) -> None:
        self._report.queues += 1
        self._report.units += records.count if records is not None else 0
        self._scope.counts["filler_units"] += units.fillers
        self._scope.counts["expired_units"] += units.expired

    def _add_missing(self, key: Key, records: QueueSums) -> None:
        """Report that all units of a queue are missing."""
        if self._scope.is_absent(formats.CONSUME_QUEUE_DIR):
            self._report.queues += 1
            self._scope.counts["absent_units"] += records.count
            return
        around = self._scope.around
        topic = key[0].decode("utf-8", "surrogateescape")
        if around is not None and around.is_deleted_topic(topic):
            self._report.queues += 1
            around.deleted_topics[topic] = around.deleted_topics.get(topic, 0) + records.count
            return
        queue_id, size = key[1], self._queues.file_size
        start = records.first_offset * UNIT_NBYTES
        name = formats.offset_to_file_name(start - start % size)
        path = self._queues.directory / topic / str(queue_id) / name
        last = records.next_offset - 1
        which = f"{records.first_offset}" + (f" to {last}" if records.count > 1 else "")
        self._report.queues += 1
        with self._of_queue(key):
            self._report.add(
                "missing-unit", path, start % size, records.first_physical,
                f"{key[0].decode('utf-8', 'replace')} queue {queue_id}: no unit for queue offset "
                f"{which}, whose records are in the log",
            )  # fmt: skip

    @contextmanager
    def _of_queue(self, key: Key) -> Iterator[None]:
        """Assign the findings made in the block to one queue."""
        before = len(self._report.findings)
        yield
        name = (key[0].decode("utf-8", "replace"), key[1])
        for number in range(before, len(self._report.findings)):
            self.of_finding[number] = name

    # --- comparing units ----------------------------------------------------------------------

    def _look_closely(
        self, differing: Sequence[Key], splits: Sequence[Split], how: Reading
    ) -> None:
        """Compare queues unit by unit, like ``verify``."""
        wanted = tuple(differing)
        items = [(split, how, wanted) for split in splits]
        gathered: dict[Key, list[tuple[int, bytes]]] = {}
        for runs in run_tasks(self._spark, gather, items):
            for topic, queue_id, first, rows in runs:
                gathered.setdefault((topic, queue_id), []).append((first, rows))
        for key in wanted:
            check = self._check.check_of(*key)
            runs_of_it = gathered.pop(key, [])
            with self._of_queue(key):
                if runs_of_it:
                    check.take(_records(runs_of_it))
                check.finish()
        self._report.queues += len(wanted)


def _records(runs: Sequence[tuple[int, bytes]]) -> Records:
    """Return the records of runs."""
    rows = np.frombuffer(b"".join(content for _, content in runs), _ROW)
    counts = (len(content) // _ROW.itemsize for _, content in runs)
    firsts = (first for first, _ in runs)
    offsets = [np.arange(first, first + n) for first, n in zip(firsts, counts, strict=True)]
    names = ("physical_offset", "size", "tags_code", "store_timestamp")
    return Records(np.concatenate(offsets), *(rows[name].astype("i8") for name in names))


def gather(
    item: tuple[Split, Reading, tuple[Key, ...]],
) -> list[tuple[bytes, int, int, bytes]]:
    """Gather the units and store times that the given queues must have (a task)."""
    split, how, queues = item
    consumer = kernels.passes_queue_units.QueueUnitsPass(
        delay_ms=how.delay_ms, queues=queues, with_times=True
    )
    found = []
    for _ in walk(
        split,
        consumer,
        on_corruption="skip",
        check_crc=how.check_crc,
        storage_options=how.storage_options,
    ):
        found += [(run[0], run[1], run[3], run[6]) for run in consumer.take()]
    return found
