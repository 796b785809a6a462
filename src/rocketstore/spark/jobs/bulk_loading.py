"""Create a new store from a table: many tasks stage rows, the driver places them, many tasks write.

The sizes and counts of the staged files determine queue offsets and log positions. The driver
computes them from the tasks' answers, and reads only the files that cross a segment boundary. A
second job then writes the segments in parallel. Opening the new store once, on the driver, derives
queues, index and checkpoint; a rename publishes the store.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ConfigError, RocketStoreError
from rocketstore.files.durable import READ_WRITE, TEMPORARY_PREFIX, reserve_blocks, sync_descriptor
from rocketstore.spark.base.worker import begin_task
from rocketstore.spark.jobs.outputs import new_directory
from rocketstore.spark.jobs.tasks import run_tasks
from rocketstore.spark.sink.stage import (
    DEFAULT_QUEUES,
    StagedFile,
    encoder_settings,
    read_pieces,
    read_range,
    write_stage,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = "file binary"
Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of ``bulk_load``.

    Attributes
    ----------
    path : Path
        The store.
    rows, nbytes : int
        Number of messages, and bytes of their records.
    segments : int
        Number of log files.
    queues : dict of (str, int) to int
        Messages by topic and queue id.
    """

    path: Path
    rows: int
    nbytes: int
    segments: int
    queues: dict[Queue, int]


@dataclass(slots=True)
class SegmentPlan:
    """One log file to write, as plain values that travel to a task.

    Attributes
    ----------
    base_offset : int
        Physical offset of its first byte.
    ranges : list of (StagedFile, int, int)
        Ranges of stage files, in order.
    offsets : dict of (str, int) to int
        Queue offset of the segment's first record, for each queue with records in it.
    is_last : bool
        Whether it is the last segment, which gets no blank.
    """

    base_offset: int
    ranges: list[tuple[StagedFile, int, int]] = field(default_factory=list)
    offsets: dict[Queue, int] = field(default_factory=dict)
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class _Order:
    """The input of a task that writes a segment."""

    plan: SegmentPlan
    root: str
    settings: dict[str, Any]
    store_timestamp: int


def bulk_load(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    queues: int = DEFAULT_QUEUES,
    staging_dir: str | os.PathLike[str] | None = None,
    config: MessageStoreConfig | None = None,
) -> LoadReport:
    """Write a table as a new store.

    Parameters
    ----------
    df : DataFrame
        Columns as for the sink: body (string or binary), and any of topic, tags, keys, queueId,
        properties, flag, bornTimestamp, delayLevel.
    path : path
        Path of the new store; it must not exist, or be an empty directory. The store and the stage
        must be on a file system that the driver and all executors mount.
    topic : str, optional
        Topic of all rows; overrides the column.
    queues : int
        A row without queueId gets its row number in its partition modulo ``queues``.
    staging_dir : path, optional
        Where the tasks stage; by default beside ``path``. It needs disk space for the whole log.
    config : MessageStoreConfig, optional
        Configuration of the new store: sizes, ``broker_version``.

    Returns
    -------
    LoadReport

    Raises
    ------
    ConfigError
        For an invalid table or option, before any task runs.
    FileExistsError, FileNotFoundError
        If ``path`` is in use, or its parent does not exist.
    PythonException
        From Spark, for a row that the store cannot accept; all partial files are deleted.

    Notes
    -----
    The log has the order of the table's partitions. All store times are the time of the load. A
    task that writes a segment maps it, so it needs the segment's size (1 GiB by default) as address
    space. The driver writes queues and index; to do so it reads the log once, which also checks it.
    """
    from rocketstore.spark.base.shipping import shipped_function
    from rocketstore.spark.sink.writer import check_schema

    check_schema(df.schema, topic)
    root = Path(os.path.abspath(path))
    settings = _settings(config)
    kernels.staged_records.StageEncoder(topic=topic, queues=queues, **settings)
    with new_directory(root) as building:
        stage = Path(staging_dir) if staging_dir is not None else root.parent
        folder = os.path.abspath(stage / f".{root.name}-stage-{uuid.uuid4().hex}")
        try:
            call = shipped_function(stage_rows, folder, topic, queues, settings)
            files = [pickle.loads(row.file) for row in df.mapInArrow(call, _SCHEMA).collect()]
            report = write_store(df.sparkSession, files, building, settings, config)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return LoadReport(root, report.rows, report.nbytes, report.segments, report.queues)


def stage_rows(
    folder: str,
    topic: str | None,
    queues: int,
    settings: dict[str, Any],
    batches: Iterator[pyarrow.RecordBatch],
) -> Iterator[pyarrow.RecordBatch]:
    """Stage the rows of a task of the first job, and yield the stage file."""
    import pyarrow as pa
    from pyspark import TaskContext

    begin_task()
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    attempt = context.taskAttemptId() if context is not None else 0
    file = write_stage(
        batches,
        folder,
        partition=partition,
        attempt=attempt,
        settings=settings,
        topic=topic,
        queues=queues,
        counted=True,
    )
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(file)], pa.binary())], ["file"])


def write_store(
    spark: SparkSession | None,
    files: Iterable[StagedFile],
    root: Path,
    settings: dict[str, Any],
    config: MessageStoreConfig | None = None,
    clock: Callable[[], int] | None = None,
) -> LoadReport:
    """Write staged files as a store into the empty folder ``root``.

    Parameters
    ----------
    spark : SparkSession or None
        None writes the segments in this process.
    files : iterable of StagedFile
        The stage files with their counts.
    root : Path
    settings : dict
        The settings with which they were staged.
    config, clock
        See ``rocketstore.open``; the clock provides the store time.

    Returns
    -------
    LoadReport

    Raises
    ------
    DecodeError
        If a file differs from what was staged.
    RocketStoreError
        If the store does not contain what was planned.
    """
    from rocketstore.store.default_message_store import open as open_store

    ordered = sorted((f for f in files if f.rows), key=lambda file: file.partition)
    plans = plan_segments(ordered, settings["segment_nbytes"])
    (root / formats.COMMIT_LOG_DIR).mkdir()
    now = time.time_ns() // 1_000_000 if clock is None else clock()
    orders = [_Order(plan, str(root), settings, now) for plan in plans]
    rows = sum(run_tasks(spark, write_segment, orders))
    counts: dict[Queue, int] = {}
    for file in ordered:
        _add(counts, file.counts or {})
    wanted = sum(file.rows for file in ordered)
    with open_store(root, "a", config=_sized(config, settings), clock=clock) as store:
        store.wait_dispatched()
        nbytes = sum(file.nbytes for file in ordered)
        found = {
            queue: store.max_offset_in_queue(*queue) - store.min_offset_in_queue(*queue)
            for queue in counts
        }
        if rows != wanted or found != counts or store.recovery_report.cut:
            raise RocketStoreError(
                f"{root} does not contain the {wanted} staged messages; load them again"
            )
    return LoadReport(root, wanted, nbytes, len(plans), counts)


def plan_segments(files: Iterable[StagedFile], segment_nbytes: int) -> list[SegmentPlan]:
    """Divide the files' records into segments, as an appender would.

    Parameters
    ----------
    files : iterable of StagedFile
        The stage files with their counts, in log order.
    segment_nbytes : int

    Returns
    -------
    list of SegmentPlan
    """
    planner = _Planner(segment_nbytes)
    for file in files:
        planner.add(file)
    return planner.finish()


class _Planner:
    """Places staged records one after another."""

    def __init__(self, segment_nbytes: int) -> None:
        self._size = segment_nbytes
        self._plans: list[SegmentPlan] = []
        self._left = 0  # bytes of the last segment
        self._next: dict[Queue, int] = {}

    def add(self, file: StagedFile) -> None:
        """Place all records of a file."""
        if file.nbytes + formats.BLANK.nbytes <= self._left:
            self._place(file, 0, file.nbytes, file.counts or {})
            return
        tally = kernels.staged_records.tally
        for position, piece in read_pieces(file):
            at = 0
            while at < len(piece):
                stop, rows, counts = tally(piece, at, len(piece), position, self._left)
                if rows:
                    self._place(file, position + at, position + stop, counts)
                if stop < len(piece):
                    self._begin()
                at = stop

    def _place(self, file: StagedFile, start: int, stop: int, counts: dict[Queue, int]) -> None:
        plan = self._plans[-1]
        last = plan.ranges[-1] if plan.ranges else None
        if last is not None and last[0] is file and last[2] == start:
            plan.ranges[-1] = (file, last[1], stop)
        else:
            plan.ranges.append((file, start, stop))
        for queue in counts:
            plan.offsets.setdefault(queue, self._next.get(queue, 0))
        _add(self._next, counts)
        self._left -= stop - start

    def _begin(self) -> None:
        if self._plans and not self._plans[-1].ranges:
            raise RocketStoreError(f"a staged record does not fit {self._size} bytes")
        self._plans.append(SegmentPlan(len(self._plans) * self._size))
        self._left = self._size

    def finish(self) -> list[SegmentPlan]:
        """Return all segments."""
        if self._plans:
            self._plans[-1].is_last = True
        return self._plans


def _add(counts: dict[Queue, int], more: dict[Queue, int]) -> None:
    for queue, count in more.items():
        counts[queue] = counts.get(queue, 0) + count


def write_segment(order: _Order) -> int:
    """Write one log file (a task of the second job); return the number of records.

    The file is built under a temporary name, synced, and renamed. A repeated attempt replaces it
    with the same bytes.
    """
    plan, root, settings = order.plan, Path(order.root), order.settings
    size = settings["segment_nbytes"]
    temporary = root / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
    name = formats.offset_to_file_name(plan.base_offset)
    target = root / formats.COMMIT_LOG_DIR / name
    fd = os.open(temporary, READ_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.ftruncate(fd, size)
        needed = sum(stop - start for _, start, stop in plan.ranges) + formats.BLANK.nbytes
        reserve_blocks(fd, 0, min(needed, size), target, used=0)
        with mmap.mmap(fd, size) as mapping:
            rows = _fill_segment(mapping, order)
            mapping.flush()
        sync_descriptor(fd)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return rows


def _fill_segment(mapping: mmap.mmap, order: _Order) -> int:
    plan, size = order.plan, order.settings["segment_nbytes"]

    def refuse(_: int) -> None:
        raise RocketStoreError(
            f"the records for log offset {plan.base_offset} do not fit into the segment they were "
            "planned for"
        )

    appender = kernels.commit_log.Appender(
        roll=refuse, extend=refuse, clock=lambda: order.store_timestamp, **order.settings
    )
    rows = 0
    appender.attach(mapping, plan.base_offset, 0, size)
    try:
        for (topic, queue_id), offset in plan.offsets.items():
            appender.set_next_queue_offset(topic, queue_id, offset)
        for file, start, stop in plan.ranges:
            for position, content in read_range(file, start, stop):
                result = appender.put_staged(content, position)
                if not result.ok:
                    raise RocketStoreError(f"the new store refused staged records of {file.path}")
                rows += len(result)
        end = appender.write_position
    finally:
        appender.close()
    if not plan.is_last:
        mapping[end : end + formats.BLANK.nbytes] = formats.BLANK.struct.pack(
            size - end, formats.BLANK_MAGIC
        )
    return rows


def _settings(config: MessageStoreConfig | None) -> dict[str, Any]:
    if config is not None and (config.enabled_append_prop_crc or config.store_path_commit_log):
        raise ConfigError(
            "bulk_load does not support enabled_append_prop_crc or store_path_commit_log"
        )
    return encoder_settings(None, config)


def _sized(config: MessageStoreConfig | None, settings: dict[str, Any]) -> MessageStoreConfig:
    """Return the configuration with the settings that log files alone do not show."""
    return (config or MessageStoreConfig()).replace(
        mapped_file_size_commit_log=settings["segment_nbytes"],
        broker_version=settings["broker_version"],
        allow_newer=True,
    )
