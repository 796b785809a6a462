"""``fsck``: check a store's log, queues and index against each other in a job's tasks."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import ConfigError
from rocketstore.log.commit_log import describe
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.sources.segments import LogFiles, list_log
from rocketstore.sources.splits import DEFAULT_SPLIT_BYTES, Split, plan_splits
from rocketstore.sources.walk import log_end
from rocketstore.spark.jobs.fsck.index import IndexCheck, IndexFindings
from rocketstore.spark.jobs.fsck.log import Key, LogSums, Reading, SplitSums, place_of, put_together
from rocketstore.spark.jobs.fsck.queues import FileSums, QueuesComparison, QueueSumming
from rocketstore.spark.jobs.fsck.split import look_at, work_on
from rocketstore.spark.jobs.index import store_root
from rocketstore.spark.jobs.progress import Progress, ProgressBar
from rocketstore.spark.jobs.tasks import run_tasks
from rocketstore.spark.reading.selection import nearest
from rocketstore.status import RecordStatus
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.store.verifying import dispatched_offset, indexed_offset, no_clock
from rocketstore.verify.beside.findings import begin_surroundings, finish_surroundings
from rocketstore.verify.beside.surroundings import Surroundings
from rocketstore.verify.check import (
    check_segments,
    note_another_log,
    note_foreign,
    note_lost_end,
    note_misnamed,
    note_tail,
    note_unseen_damage,
    verify_parts,
)
from rocketstore.verify.notes import write_notes
from rocketstore.verify.report import LEVELS, Finding, VerifyReport
from rocketstore.verify.scope import VerifyScope

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Parts of a store that ``fsck`` can compare with its log.
PARTS = (formats.CONSUME_QUEUE_DIR, formats.INDEX_DIR)
_QUEUE_KINDS = (
    *("queue-offset", "queue-file", "unit", "missing-unit", "missing-folder"),
    *("doubled-offset", "foreign-segment"),
)
_SCHEMA = (
    "kind string, severity string, path string, position bigint, physicalOffset bigint, "
    "topic string, queueId int, queueOffset bigint, reason string"
)
#: kind, severity, path, position, physical offset, topic, queue id, queue offset, reason.
FindingRow = tuple[str, str, str, int, int | None, str | None, int | None, int | None, str]


@dataclass
class FsckReport:
    """The result of ``fsck``.

    Attributes
    ----------
    rows : list of tuple
        The first ``max_findings`` findings, with the columns of ``findings``.
    finding_counts : dict
        Number of all findings, by kind.
    summary : dict
        ``records`` and ``bytes`` of the log between ``logStart`` and ``logEnd``, ``queues``,
        ``units`` that agree with their records, ``indexFiles``, ``keys`` that agree, and
        ``durationSeconds``.
    notes : list of str
        Descriptions of what is odd but allowed, or was not checked.
    level : str
    """

    rows: list[FindingRow]
    finding_counts: dict[str, int]
    summary: dict[str, int | float]
    notes: list[str]
    level: str
    _spark: SparkSession | None = None

    @property
    def ok(self) -> bool:
        """Return whether there are no findings."""
        return not self.finding_counts

    @property
    def findings(self) -> DataFrame:
        """Return the findings as a DataFrame.

        Columns: ``kind``, ``severity``, ``path``, ``position`` (in the file), ``physicalOffset``,
        ``topic``, ``queueId``, ``queueOffset`` and ``reason``; null if not applicable. Kinds are
        those of ``store.verify``.
        """
        if self._spark is None:
            raise RuntimeError("the report was created without Spark; its findings are in rows")
        return self._spark.createDataFrame(self.rows, _SCHEMA)


def fsck(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    level: str = "crc",
    cross_check: Sequence[str] | None = None,
    message_delay_level: str | None = None,
    max_findings: int = 100_000,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> FsckReport:
    """Check a store, split by split; change nothing.

    Every record's size, lengths, own offset and (``"crc"``) body are checked. Log and queue files
    are compared by checksums; only queues that differ are compared unit by unit. The keys of the
    log are compared with the entries of the index files. The findings are those of
    ``store.verify``.

    Parameters
    ----------
    spark : SparkSession
        May be a Spark Connect session.
    path : str or path-like
        The store's root or its ``commitlog`` folder: a path or URI that driver and executors see.
    level : {"crc", "structure"}
        ``"structure"``: lengths, offsets and references; ``"crc"``: every body's CRC as well.
    cross_check : sequence of str, optional
        ``"consumequeue"`` (needs a store on a mounted file system), ``"index"``. Default: all
        that can be checked.
    message_delay_level : str, optional
        The broker's delay levels, for deliver times in queues of delayed messages.
    max_findings : int
        Maximum number of findings to keep; all are counted.
    split_bytes : int
        Bytes of the log for one task.
    storage_options : mapping, optional
        fsspec options for a remote store.
    progress : callable, optional
        ``progress(done, total)``, in bytes of the log.

    Returns
    -------
    FsckReport

    Raises
    ------
    ValueError
        For an unknown level or part.
    ConfigError
        If ``cross_check`` names the queue files of a remote store.
    FileNotFoundError, MappedFileError
        As ``rocketstore.sources.list_log`` raises; ``MappedFileError`` also if a file was
        shortened meanwhile.

    Notes
    -----
    The driver needs 28 bytes of memory for each record of the queues that differ. In stores with
    batch queues or light queues it compares all queues itself, record by record.
    """
    report = check_store(
        spark,
        path,
        level=level,
        cross_check=cross_check,
        message_delay_level=message_delay_level,
        max_findings=max_findings,
        split_bytes=split_bytes,
        storage_options=storage_options,
        progress=progress,
    )
    report._spark = spark
    return report


def check_store(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    *,
    level: str = "crc",
    cross_check: Sequence[str] | None = None,
    message_delay_level: str | None = None,
    max_findings: int = 100_000,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> FsckReport:
    """Do the work of ``fsck``, in this process if ``spark`` is None."""
    if level not in LEVELS:
        raise ValueError(f"level {level!r}: {nearest(level, LEVELS)}")
    for part in cross_check or ():
        if part not in PARTS:
            raise ValueError(f"cross_check {part!r}: {nearest(part, PARTS)}")
    config = MessageStoreConfig()
    if message_delay_level is not None:
        config = config.replace(message_delay_level=message_delay_level)
    log = list_log(path, storage_options=storage_options, allow_holes=True)
    root = store_root(log)
    if root is None and formats.CONSUME_QUEUE_DIR in (cross_check or ()):
        raise ConfigError(
            f"the queue files of {log.root} cannot be compared: the store is not on a mounted file "
            'system; remove "consumequeue" from cross_check (--no-queues)'
        )
    parts = PARTS if cross_check is None else tuple(cross_check)
    check = _Check(spark, log, config, level, max_findings, split_bytes, progress)
    if root is None:
        check.run_remote(parts)
    else:
        check.run_local(root, parts)
    return check.result()


class _Check:
    """One check, and its findings so far."""

    def __init__(
        self,
        spark: SparkSession | None,
        log: LogFiles,
        config: MessageStoreConfig,
        level: str,
        max_findings: int,
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._log = log
        self._config = config
        self._split_bytes = split_bytes
        self._progress = progress
        self._began = time.monotonic()
        self._report = VerifyReport(level=level, max_findings=max_findings)
        self._counts: Counter[str] = Counter()
        self._of_queue: dict[int, tuple[str, int]] = {}
        self._index_rows: list[FindingRow] = []
        self._hidden: dict[int, int] = {}
        self._how = Reading(config.delay_ms, level == "crc", log.storage_options)

    def run_remote(self, parts: Sequence[str]) -> None:
        """Check a log that is not mounted, and its index."""
        report, log = self._report, self._log
        report.log_start, report.log_end = log.min_offset, log_end(log)
        for segment in log.segments:
            if segment.file_size != segment.segment_size:
                reason = f"{segment.file_size} bytes instead of {segment.segment_size}"
                end = segment.base_offset + segment.file_size
                report.add("log-file", segment.uri, segment.file_size, end, reason)
        splits = self._splits()
        index = self._index_check(splits, None) if formats.INDEX_DIR in parts else None
        _, keys, _ = self._look(splits, index, None)
        self._note_lost_end()
        if formats.CONSUME_QUEUE_DIR in parts:
            report.notes.append("the queue files of a remote store were not compared")
        write_notes(report, self._counts)
        if keys is not None:
            self._take_index(keys)

    def _note_lost_end(self) -> None:
        """Report damage after the last good record if the store's marks show that a record was
        there; for a local store recovery has detected it."""
        log, report = self._log, self._report
        if log.durable_offset <= report.log_end:
            return
        how = self._how._replace(check_crc=True)
        for split in plan_splits(log, start=report.log_end, aligned_start=True):
            for first, next_good, status in look_at((split, how, None)).sums.damaged:
                if next_good is None:
                    path, position = place_of(log, first)
                    reason = describe(RecordStatus(status), first)
                    reason += "; it had been written durably"
                    report.add("record", path, position, first, reason)
                return

    def run_local(self, root: Path, parts: Sequence[str]) -> None:
        """Check a store on a mounted file system."""
        report = self._report
        paths = StorePaths.of(root, self._config)
        around = Surroundings(paths)
        files = ReadOnlyParts(
            paths,
            self._config,
            derive="none",
            as_files=True,
            clock=no_clock,
            progress=None,
        )
        try:
            # A writer may have begun a segment since the log was listed.
            options = self._log.storage_options
            self._log = list_log(self._log.root, storage_options=options, allow_holes=True)
            scope = VerifyScope(files.log, report, root)
            scope.counts = self._counts
            begin_surroundings(around, scope)
            report.log_start, report.log_end = scope.start, scope.stop
            dispatched = dispatched_offset(files, around)
            check_segments(scope)
            damaged = note_another_log(scope, files.report.damaged)
            note_lost_end(scope, damaged)
            note_misnamed(scope, damaged)
            self._hidden = scope.hidden
            splits = self._splits()
            index = None
            if formats.INDEX_DIR in parts:
                indexed = indexed_offset(files, dispatched, around)
                index = self._index_check(splits, indexed, scope.damaged())
            in_files = files.rocksdb is None or files.rocksdb.beside_files
            with_queues = formats.CONSUME_QUEUE_DIR in parts and in_files
            queues = None
            if with_queues and not _has_batch_queues(files.queues):
                queues = QueueSumming(files.queues, scope.start)
            sums, keys, units = self._look(splits, index, queues)
            for start, stop in sums.damaged:
                scope.note_damage(start, stop)
            if with_queues and (queues is None or sums.named or sums.inner_batches):
                self._look_at_odd_queues(files, dispatched, around)
            elif with_queues:
                comparison = QueuesComparison(self._spark, scope, files.queues, dispatched)
                comparison.run(sums, units, splits, self._how)
                self._of_queue = comparison.of_finding
            scope.reported.update(one.offset for one in report.findings if one.offset is not None)
            note_unseen_damage(scope, damaged)
            note_tail(scope, damaged)
            note_foreign(scope)
            if keys is not None:
                self._take_index(keys)
            newest = files.report.newest_store_timestamp
            finish_surroundings(around, scope, files.queues if in_files else None, {}, newest)
            write_notes(report, self._counts)
            report.notes += files.report.notes
        finally:
            files.close()

    def _splits(self) -> list[Split]:
        return plan_splits(self._log, split_bytes=self._split_bytes, stop=self._report.log_end)

    def _index_check(
        self,
        splits: Sequence[Split],
        indexed: int | None,
        damaged: Sequence[tuple[int, int]] = (),
    ) -> IndexCheck:
        return IndexCheck(
            self._spark,
            self._log,
            splits,
            log_end=self._report.log_end,
            dispatched=indexed,
            damaged=damaged,
            storage_options=self._log.storage_options,
        )

    def _look(
        self, splits: Sequence[Split], index: IndexCheck | None, queues: QueueSumming | None
    ) -> tuple[LogSums, IndexFindings | None, dict[Key, FileSums]]:
        """Run one job for all parts: walk the log for records and keys, judge the index files, and
        sum up the queue files."""
        report = self._report
        nbytes = sum(split.nbytes for split in splits)
        bar = ProgressBar(self._progress, nbytes)
        wanted = [None] * len(splits) if index is None else index.items
        files = [] if index is None else index.files
        items: list[tuple[str, Any]] = [
            *(
                ("split", (split, self._how, one))
                for split, one in zip(splits, wanted, strict=True)
            ),
            *(("index", file) for file in files),
            *(("queues", portion) for portion in (() if queues is None else queues.items)),
        ]
        done = run_tasks(self._spark, work_on, items, watch=bar.part(nbytes))
        found, keys = [], []
        for split, one in zip(splits, done, strict=False):
            found.append((split, self._shown(split, one.sums)))
            keys.append(one.keys)
            bar.add(split.nbytes)
        judged = list(itertools.islice(done, len(files)))
        units = {} if queues is None else queues.join(done)
        sums = put_together(self._log, report.log_end, found, report, self._counts)
        if index is None:
            return sums, None, units
        again = index.judged(judged, keys)
        more = [(splits[number], self._how, index.items[number]) for number in again]
        for number, one in zip(again, run_tasks(self._spark, look_at, more), strict=True):
            keys[number] = one.keys
        return sums, index.finish(keys), units

    def _shown(self, split: Split, sums: SplitSums) -> SplitSums:
        """Return a split's sums without damage in a segment that was judged as a whole."""
        hides = any(start <= split.base_offset < stop for start, stop in self._hidden.items())
        return sums._replace(damaged=[]) if hides else sums

    def _look_at_odd_queues(
        self, files: ReadOnlyParts, dispatched: int, around: Surroundings
    ) -> None:
        """Compare batch and light queues here: their units do not depend on single records."""
        report = self._report
        found = verify_parts(
            files.log,
            files.queues,
            None,
            delay_ms=self._config.delay_ms,
            dispatched_offset=dispatched,
            damaged=files.report.damaged,
            around=around,
            level=report.level,  # a record with a corrupt body needs no unit, and names no queue
            max_findings=report.max_findings,
        )
        for finding in found.findings:
            if finding.kind in _QUEUE_KINDS:
                report.add(
                    finding.kind, finding.path, finding.position, finding.offset, finding.reason
                )
        for kind, count in found.finding_counts.items():
            if kind in _QUEUE_KINDS:
                report.finding_counts[kind] = count
        report.queues, report.units = found.queues, found.units
        report.notes.append(
            "the store has batch queues or light queues: all queues were compared on the driver"
        )

    def _take_index(self, found: IndexFindings) -> None:
        report = self._report
        room = max(0, report.max_findings - len(report.findings))
        self._index_rows = found.findings[:room]
        for kind, count in (+found.finding_counts).items():
            report.finding_counts[kind] = report.finding_counts.get(kind, 0) + count
        report.index_files = found.summary["index_files"]
        report.keys = found.summary["keys"]
        report.notes += found.notes
        counts = Counter(found.summary)
        del counts["index_files"], counts["keys"]
        write_notes(report, counts)

    def result(self) -> FsckReport:
        """Return the report."""
        report = self._report
        rows = [
            _row(finding, self._of_queue.get(number))
            for number, finding in enumerate(report.findings)
        ]
        summary: dict[str, int | float] = {
            "records": report.records,
            "bytes": report.nbytes,
            "logStart": report.log_start,
            "logEnd": report.log_end,
            "queues": report.queues,
            "units": report.units,
            "indexFiles": report.index_files,
            "keys": report.keys,
            "durationSeconds": time.monotonic() - self._began,
        }
        counts = dict(report.finding_counts)
        return FsckReport(rows + self._index_rows, counts, summary, report.notes, report.level)


def _has_batch_queues(queues: QueueTable) -> bool:
    is_odd = any(isinstance(queue, BatchConsumeQueue) for queue in queues)
    return is_odd or bool(queues.batch_topics)


def _row(finding: Finding, queue: tuple[str, int] | None) -> FindingRow:
    topic, queue_id = queue or (None, None)
    queue_offset = None
    start = formats.file_name_to_offset(Path(finding.path).name)
    if queue is not None and finding.kind in ("unit", "missing-unit") and start is not None:
        queue_offset = (start + finding.position) // formats.CONSUME_QUEUE_UNIT.nbytes
    return (
        *(finding.kind, "error", finding.path, finding.position, finding.offset),
        *(topic, queue_id, queue_offset, finding.reason),
    )
