"""A table becomes a whole new store: staged by many tasks, placed by the driver, written by many.

Queue offsets and places in the log follow from the sizes and counts of what was staged, so the
driver works them out from the tasks' answers (and one look into each file that a segment's end
cuts), and a second job writes the segments in parallel. Queues, index and checkpoint are then made
by opening the new store once, on the driver; one rename publishes it.
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
    """What ``bulk_load`` made.

    Attributes
    ----------
    path : Path
        The store.
    rows, nbytes : int
        Messages, and bytes of their records.
    segments : int
        Files of the log.
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
    """One file of the log to be written; plain values, as it travels to a task.

    Attributes
    ----------
    base_offset : int
        Its physical offset.
    ranges : list of (StagedFile, int, int)
        Stretches of stage files, in their order.
    offsets : dict of (str, int) to int
        Queue offset of the first record of each queue that the segment has records of.
    is_last : bool
        Nothing follows: it gets no end marker.
    """

    base_offset: int
    ranges: list[tuple[StagedFile, int, int]] = field(default_factory=list)
    offsets: dict[Queue, int] = field(default_factory=dict)
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class _Order:
    """What a task needs to write a segment."""

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
        Of the store; it must not exist, or be an empty directory. It and the stage lie in a file
        system that the driver and all executors mount.
    topic : str, optional
        Of all rows, whatever the column says.
    queues : int
        A row without queueId gets its number in its partition modulo ``queues``.
    staging_dir : path, optional
        Where the tasks stage; by default beside ``path``. Needs the room of the whole log once.
    config : MessageStoreConfig, optional
        Of the new store: sizes, ``broker_version``.

    Returns
    -------
    LoadReport

    Raises
    ------
    ConfigError
        For a table or an option that makes no store, before any task runs.
    FileExistsError, FileNotFoundError
        When ``path`` is in use, or its parent is not there.
    PythonException
        From Spark, for a row that no store takes; nothing is left behind.

    Notes
    -----
    The log's order is that of the table's partitions. All store times are the time of the load.
    A task that writes a segment maps it, so its process needs the segment's size (1 GiB by
    default) as address space. Queues and index are written on the driver, which reads the log once
    and checks it thereby.
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
    """What a task of the first job does: stage its rows, and answer with the file."""
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
        With their counts.
    root : Path
    settings : dict
        With which they were staged.
    config, clock
        See ``rocketstore.open``; the clock gives the store time.

    Returns
    -------
    LoadReport

    Raises
    ------
    DecodeError
        When a file is not as it was staged.
    RocketStoreError
        When what was written is not what was planned.
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
            raise RocketStoreError(f"{root} does not hold the {wanted} messages that were staged")
    return LoadReport(root, wanted, nbytes, len(plans), counts)


def plan_segments(files: Iterable[StagedFile], segment_nbytes: int) -> list[SegmentPlan]:
    """Cut the files' records into segments, as an appender would.

    Parameters
    ----------
    files : iterable of StagedFile
        With their counts, in the order of the log.
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
    """Places staged records one behind the other."""

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
        """All segments."""
        if self._plans:
            self._plans[-1].is_last = True
        return self._plans


def _add(counts: dict[Queue, int], more: dict[Queue, int]) -> None:
    for queue, count in more.items():
        counts[queue] = counts.get(queue, 0) + count


def write_segment(order: _Order) -> int:
    """What a task of the second job does: write one file of the log; the number of records.

    The file is built under a temporary name, synced, and moved to its place; an attempt that comes
    second replaces it by the same bytes.
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
            f"the records for log offset {plan.base_offset} do not fit the segment they were "
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
                    raise RocketStoreError(f"staged records of {file.path} were refused")
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
            "bulk_load writes no whole-record CRCs, and no log outside the store's directory"
        )
    return encoder_settings(None, config)


def _sized(config: MessageStoreConfig | None, settings: dict[str, Any]) -> MessageStoreConfig:
    """The configuration with what the log's files alone do not tell."""
    return (config or MessageStoreConfig()).replace(
        mapped_file_size_commit_log=settings["segment_nbytes"],
        broker_version=settings["broker_version"],
        allow_newer=True,
    )
