"""``rebuild_consume_queues``: rebuild a store's queue files from its log, byte for byte."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import DEFAULT_CONSUME_QUEUE_FILE_SIZE, MessageStoreConfig
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import begin_writing, sync_directory
from rocketstore.sources.policy import plan_reading
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import DEFAULT_SPLIT_BYTES, Split
from rocketstore.sources.walk import log_end, walk
from rocketstore.spark.jobs.index import store_root
from rocketstore.spark.jobs.outputs import new_directory
from rocketstore.spark.jobs.progress import Progress, ProgressBar
from rocketstore.spark.jobs.queues import (
    UNIT_NBYTES,
    FilePlan,
    Queue,
    QueuePlanner,
    Run,
    plan_files,
)
from rocketstore.spark.jobs.tasks import run_tasks
from rocketstore.spark.reading.listing import list_to_read
from rocketstore.spark.reading.selection import check_corruption
from rocketstore.survey.facts import examine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_SCHEMA = (
    "topic string, queueId int, minOffset bigint, maxOffset bigint, units bigint, fillers bigint, "
    "refused bigint, files int"
)
#: Maximum bytes of units, and number of files, that one task writes.
_TASK_NBYTES = 32 << 20
_TASK_FILES = 4096
#: Number of files kept open between write and sync.
_WRITTEN_FILES = 64
_FILLER = formats.CONSUME_QUEUE_UNIT.struct.pack(0, formats.FILLER_UNIT_SIZE, 0)


class QueueRow(NamedTuple):
    """One rebuilt queue.

    Attributes
    ----------
    topic : str
    queue_id : int
    min_offset, max_offset : int
        Queue offset of the first unit, and the one after the last.
    units, fillers : int
        Units of records, and fillers for queue offsets between them that no record has.
    refused : int
        Records whose queue offset is invalid; they have no unit.
    files : int
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    units: int
    fillers: int
    refused: int
    files: int


@dataclass(frozen=True, slots=True)
class Gathering:
    """The settings for tasks that gather units, as plain data.

    Attributes
    ----------
    directory : str
        Where tasks put the units.
    delay_ms : tuple of int
    multi_dispatch : int
        ``MultiDispatch`` flags.
    on_corruption : str
    check_crc : bool
    storage_options : dict or None
    """

    directory: str
    delay_ms: tuple[int, ...]
    multi_dispatch: int
    on_corruption: str
    check_crc: bool
    storage_options: dict[str, Any] | None


class Gathered(NamedTuple):
    """The result of gathering one split."""

    runs: list[Run]
    damaged: list[tuple[int, int | None]]
    inner_batch_offset: int


def rebuild_consume_queues(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    broker_version: str | None = None,
    mapped_file_size_consume_queue: int | None = None,
    message_delay_level: str | None = None,
    enable_multi_dispatch: bool = False,
    on_corruption: str = "fail",
    check_crc: bool = True,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DataFrame:
    """Rebuild a store's queue files from its log; the store itself is not changed.

    Every byte equals what the store writes when it dispatches the same log. This includes file
    sizes, fillers for missing queue offsets, light queues and deliver times of delayed messages.
    Records whose queue offset is invalid get no unit.

    Parameters
    ----------
    spark : SparkSession
        May be a Spark Connect session.
    path : str or path-like
        The store's root or its ``commitlog`` folder: a path or URI.
    out : str or path-like
        The new ``consumequeue`` folder. It must be absent or empty, on a file system that the
        driver and all executors see under this path. Its parent needs free space for the units
        twice. It appears once all files are complete, or not at all.
    broker_version : str, optional
        RocketMQ version whose rules apply. Default: detected from the store's files, else the
        newest.
    mapped_file_size_consume_queue : int, optional
        Bytes of a queue file. Default: the size of the store's queue files, else 6,000,000.
    message_delay_level : str, optional
        The broker's delay levels (``"1s 5s 10s ..."``), for deliver times of delayed messages.
    enable_multi_dispatch : bool
        As in the store's configuration: also dispatch records to queues that they name and that
        are not light queues (4.9).
    on_corruption : {"fail", "skip"}
        At a corrupt range in the log: fail, or continue after it.
    check_crc : bool
        Compare bodies with their CRCs.
    split_bytes : int
        Bytes of the log for one task.
    storage_options : mapping, optional
        fsspec options for a remote log.
    progress : callable, optional
        ``progress(done, total)``, in bytes of the log.

    Returns
    -------
    DataFrame
        One row for each queue: ``topic``, ``queueId``, ``minOffset``, ``maxOffset`` (after the
        last unit), ``units``, ``fillers``, ``refused`` (records without a unit) and ``files``.

    Raises
    ------
    FileExistsError, FileNotFoundError, ConfigError
        If ``out`` cannot be created, or a setting is invalid.
    CorruptMessageError
        At a corrupt range, with ``"fail"``.
    MappedFileError
        For a DLedger log, for inner batches (their topics have batch consume queues), and for a
        store with ``consumequeue_ext`` files. Move the queues of such a store away and open it for
        writing, which rebuilds them.
    """
    rows = build_queues(
        spark,
        path,
        out,
        broker_version=broker_version,
        mapped_file_size_consume_queue=mapped_file_size_consume_queue,
        message_delay_level=message_delay_level,
        enable_multi_dispatch=enable_multi_dispatch,
        on_corruption=on_corruption,
        check_crc=check_crc,
        split_bytes=split_bytes,
        storage_options=storage_options,
        progress=progress,
    )
    return spark.createDataFrame([tuple(row) for row in rows], _ROWS_SCHEMA)


def build_queues(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    broker_version: str | None = None,
    mapped_file_size_consume_queue: int | None = None,
    message_delay_level: str | None = None,
    enable_multi_dispatch: bool = False,
    on_corruption: str = "fail",
    check_crc: bool = True,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[QueueRow]:
    """Do the work of ``rebuild_consume_queues``, here if ``spark`` is None; return plain rows."""
    check_corruption(on_corruption, ("fail", "skip"))
    config = MessageStoreConfig(
        broker_version=broker_version,
        mapped_file_size_consume_queue=mapped_file_size_consume_queue,
        enable_multi_dispatch=enable_multi_dispatch,
    )
    if message_delay_level is not None:
        config = config.replace(message_delay_level=message_delay_level)
    log = list_to_read(path, on_corruption, storage_options=storage_options)
    habits = store_habits(log, config)
    if habits.has_ext:
        raise MappedFileError(
            f"{log.root} has consumequeue_ext files, which this job does not rebuild; move both "
            "queue folders away and open the store for writing, which rebuilds them"
        )
    splits = plan_reading(log, on_corruption, check_crc=check_crc, split_bytes=split_bytes)
    nbytes = sum(split.nbytes for split in splits)
    bar = ProgressBar(progress, nbytes)
    with (
        new_directory(out) as building,
        tempfile.TemporaryDirectory(prefix=f"{building.name}-units-", dir=building.parent) as units,
    ):
        gathering = Gathering(
            units,
            config.delay_ms,
            int(habits.dialect.multi_dispatch(any_name=enable_multi_dispatch)),
            on_corruption,
            check_crc,
            log.storage_options,
        )
        runs: list[Run] = []
        damaged: list[tuple[int, int]] = []
        items = [(split, gathering) for split in splits]
        gathered = run_tasks(spark, gather_units, items, watch=bar.part(nbytes))
        for split, found in zip(splits, gathered, strict=True):
            _refuse_inner_batch(log, found.inner_batch_offset)
            runs += found.runs
            stop = split.base_offset + split.file_size
            damaged += [(first, stop if last is None else last) for first, last in found.damaged]
            bar.add(split.nbytes)
        queues = _plan(log, runs, damaged, habits.file_size // UNIT_NBYTES)
        _refuse_batch_topics(log, queues, habits.batch_topics)
        plans = [(queue, list(plan_files(queue, building, habits.file_size))) for queue in queues]
        portions = list(_portions(plan for _, files in plans for plan in files))
        for _ in run_tasks(spark, write_files, portions):
            pass
        bar.end()
    return [_row(queue, files) for queue, files in plans if files or queue.refused]


class Habits(NamedTuple):
    """The queue settings that a store's files show."""

    file_size: int
    dialect: Dialect
    has_ext: bool
    batch_topics: tuple[str, ...]


def store_habits(log: LogFiles, config: MessageStoreConfig) -> Habits:
    """Examine the store that a log belongs to; without one use the given settings."""
    size = config.mapped_file_size_consume_queue
    root = store_root(log)
    if root is None:
        version = config.broker_version or DEFAULT_VERSION
        dialect = Dialect.for_version(version)
        return Habits(size or DEFAULT_CONSUME_QUEUE_FILE_SIZE, dialect, False, ())
    plain = config.replace(mapped_file_size_consume_queue=None)
    facts = examine(StorePaths.of(root, plain), plain)
    return Habits(
        size or facts.consume_queue_file_size,
        facts.dialect,
        bool(facts.ext_file_size),
        tuple(facts.queue_types.batch),
    )


def _refuse_inner_batch(log: LogFiles, offset: int) -> None:
    if offset >= 0:
        raise MappedFileError(
            f"the record at log offset {offset} of {log.root} is an inner batch, so its topic has "
            "batch consume queues, which this job does not rebuild; move the store's queues away "
            "and open it for writing, which rebuilds them"
        )


def _refuse_batch_topics(
    log: LogFiles, queues: Sequence[Queue], batch_topics: Sequence[str]
) -> None:
    for queue in queues:
        if queue.name[0] in batch_topics:
            raise MappedFileError(
                f"the topic {queue.name[0]} of {log.root} has batch consume queues, which this job "
                "does not rebuild; move the store's queues away and open it for writing, which "
                "rebuilds them"
            )


def _plan(
    log: LogFiles, runs: list[Run], damaged: list[tuple[int, int]], units_per_file: int
) -> list[Queue]:
    """Return the planned queues, sorted by name."""
    ends: list[int] = []

    def end() -> int:
        if not ends:
            ends.append(log_end(log))
        return ends[0]

    planner = QueuePlanner(runs, log.min_offset, end, damaged, units_per_file=units_per_file)
    return sorted(planner.plan().values(), key=lambda queue: queue.name)


def _portions(plans: Iterator[FilePlan]) -> Iterator[tuple[FilePlan, ...]]:
    """Group the files into portions, one per task."""
    portion: list[FilePlan] = []
    nbytes = 0
    for plan in plans:
        portion.append(plan)
        nbytes += plan.used_count * UNIT_NBYTES
        if nbytes >= _TASK_NBYTES or len(portion) >= _TASK_FILES:
            yield tuple(portion)
            portion, nbytes = [], 0
    if portion:
        yield tuple(portion)


def _row(queue: Queue, files: list[FilePlan]) -> QueueRow:
    units = sum(piece.unit_count for piece in queue.pieces)
    first = queue.pieces[0].start if queue.pieces else 0
    last = queue.next_index if queue.pieces else 0
    fillers = last - first - units
    return QueueRow(*queue.name, first, last, units, fillers, queue.refused, len(files))


# --- tasks --------------------------------------------------------------------------------------


def gather_units(item: tuple[Split, Gathering]) -> Gathered:
    """Gather the units of one split into a new file."""
    split, how = item
    consumer = kernels.passes_queue_units.QueueUnitsPass(
        delay_ms=how.delay_ms, multi_dispatch=how.multi_dispatch
    )
    damaged: list[tuple[int, int | None]] = []
    # Spark may run a task twice at the same time: each attempt has its own file.
    path = Path(how.directory) / uuid.uuid4().hex
    runs: list[Run] = []
    position = 0
    with path.open("xb") as file:
        for _ in walk(
            split,
            consumer,
            on_corruption=how.on_corruption,
            check_crc=how.check_crc,
            storage_options=how.storage_options,
            on_damage=lambda first, following, _: damaged.append((first, following)),
        ):
            for run in consumer.take():
                units = run[6]
                runs.append(Run(*run[:6], str(path), position, len(units) // UNIT_NBYTES))
                file.write(units)
                position += len(units)
            if consumer.inner_batch_offset >= 0:
                break
    return Gathered(runs, damaged, consumer.inner_batch_offset)


def write_files(plans: tuple[FilePlan, ...]) -> None:
    """Write queue files and sync them."""
    sources: dict[str, int] = {}
    written: list[int] = []
    folders = set()
    try:
        for plan in plans:
            folder = os.path.dirname(plan.path)
            if folder not in folders:
                os.makedirs(folder, exist_ok=True)
                folders.add(folder)
            _write_file(plan, sources, written)
            if len(written) == _WRITTEN_FILES:
                _sync_all(written)
        _sync_all(written)
    finally:
        for fd in (*sources.values(), *written):
            os.close(fd)
    for folder in folders:
        sync_directory(Path(folder))


def _sync_all(written: list[int]) -> None:
    """Sync files and close them."""
    while written:
        os.fsync(written[-1])
        os.close(written.pop())


def _write_file(plan: FilePlan, sources: dict[str, int], written: list[int]) -> None:
    """Write a queue file; append its descriptor to ``written``, for a later sync."""
    content = bytearray(_FILLER * plan.used_count)
    for piece in plan.pieces:
        fd = sources.get(piece.source)
        if fd is None:
            fd = sources[piece.source] = os.open(piece.source, os.O_RDONLY)
        units = os.pread(fd, piece.unit_count * UNIT_NBYTES, piece.position)
        if len(units) < piece.unit_count * UNIT_NBYTES:
            raise MappedFileError(
                f"{piece.source} ends at position {piece.position + len(units)}: units "
                "that a task gathered are missing; run the job again"
            )
        start = piece.start * UNIT_NBYTES
        content[start : start + len(units)] = units
    # Not truncated: another attempt, which may be killed here, rewrites a complete file equally.
    fd = os.open(plan.path, os.O_WRONLY | os.O_CREAT, 0o644)
    written.append(fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.truncate(fd, plan.nbytes)
    begin_writing(fd, 0, len(content))
