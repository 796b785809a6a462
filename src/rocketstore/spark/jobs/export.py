"""Export a store's messages as Parquet files: tasks write one file per split and topic.

A task writes under a unique name below ``_temporary``. After all tasks have finished, the driver
records the final names there and renames the files. Files of failed or repeated attempts never
become visible. The final names depend only on the splits, so a repeated run of the same log writes
the same names. A run that finds recorded names without ``_SUCCESS`` removes those files.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketstore.arrow.layout import (
    PARTITIONS,
    check_partitions,
    final_name,
    parquet_writer,
    partitioned,
)
from rocketstore.display.columns import resolve
from rocketstore.sources import Split
from rocketstore.spark.base.apart import check_apart
from rocketstore.spark.jobs.folders import Folder, open_folder
from rocketstore.spark.jobs.tasks import run_tasks
from rocketstore.spark.reading.selection import Selection, filter_of, plain, words

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
ROW_GROUP_BYTES = 128 << 20
#: Maximum number of open files per task; the one with the fewest waiting bytes is closed first.
_MAX_OPEN = 64
_TEMPORARY = "_temporary"
_SUCCESS = "_SUCCESS"
#: Final names of all files, written before the first rename.
_FINALS = f"{_TEMPORARY}/finals"
_FINAL = re.compile(r"([^/=]+=[^/]*/)*part-\d{20}(-\d+)?\.parquet")
_DDL = (
    "path string, topic string, queueId int, date string, rows bigint, bytes bigint, "
    "startPhysicalOffset bigint, stopPhysicalOffset bigint"
)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of an export.

    Attributes
    ----------
    path : str
        Relative to the destination.
    topic, queue_id, date
        Common values of its messages, if the export is partitioned by them; else None.
    rows, bytes : int
    start_physical_offset, stop_physical_offset : int
        The range of the log that the messages come from.
    """

    path: str
    topic: str | None
    queue_id: int | None
    date: str | None
    rows: int
    bytes: int
    start_physical_offset: int
    stop_physical_offset: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """The input of every task of an export, as plain values."""

    destination: str
    destination_options: dict[str, Any] | None
    job: str
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    compression: str
    row_group_bytes: int
    reading: dict[str, Any]  # keywords of read_batches


def export_parquet(
    spark: SparkSession,
    path: str,
    dest: str,
    *,
    columns: str | Sequence[str] = "core",
    partition_by: Sequence[str] = ("topic",),
    compression: str = "snappy",
    topics: str | Iterable[str] | None = None,
    tags: str | Iterable[str] | None = None,
    keys: str | Iterable[str] | None = None,
    filter: str | Sql92Filter | None = None,
    begin: int | None = None,
    end: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    split_bytes: int = 256 << 20,
    min_partitions: int | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
    on_corruption: str = "fail",
    check_crc: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    destination_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Write messages to Parquet files below ``dest``; return when all files are written.

    Parameters
    ----------
    spark : SparkSession
        May be a Spark Connect session.
    path : str
        A store's root or its ``commitlog``: a path that driver and executors see, or a URI.
    dest : str
        An absent or empty folder: a path that driver and executors see, or a URI for fsspec. Files
        of a failed export are removed.
    columns : str or sequence of str
        A preset (``core``, ``full``, ``kafka``) or names.
    partition_by : sequence of str
        Any of ``topic``, ``queueId`` and ``date`` (the day of storeTimestamp in UTC). Each value
        gets a folder with Spark's naming (``topic=Orders``), and the files lack that column. Empty:
        one file per split.
    compression : str
        ``snappy``, ``zstd``, ``gzip``, ``lz4``, ``brotli`` or ``none``.
    topics, tags, keys : str or iterable of str, optional
        Only messages of these topics, with one of these tags and one of these keys.
    filter : str or Sql92Filter, optional
        An SQL92 expression of RocketMQ over the properties; a str is one of the newest dialect.
    begin, end : int, optional
        Epoch ms of storeTimestamp; the end is exclusive.
    start, stop : int, optional
        Physical offsets; the end is exclusive.
    split_bytes, min_partitions : int, optional
        Maximum bytes of the log per task, and the minimum number of tasks.
    row_group_bytes : int
        Arrow bytes that a task buffers before writing; its memory is about twice that.
    on_corruption : str
        ``fail``, ``skip`` (continue after the damage) or ``stop`` (export what lies before it).
    check_crc : bool
        Compare each body with its checksum.
    storage_options, destination_options : mapping, optional
        fsspec options for URIs.

    Returns
    -------
    DataFrame
        A row for each file: path, topic, queueId, date, rows, bytes, startPhysicalOffset,
        stopPhysicalOffset.

    Raises
    ------
    ValueError
        For an unknown column, partition or compression.
    FileExistsError
        If ``dest`` is not empty.
    CorruptMessageError
        For a corrupt record, with ``on_corruption="fail"``.

    Notes
    -----
    Read ``dest`` with ``spark.read.parquet(dest)``. Spark then reads topics that look like numbers
    as numbers, unless ``spark.sql.sources.partitionColumnTypeInference.enabled`` is false.
    """
    check_apart(path, dest)
    selection = Selection(
        topics=words(topics, "topics"),
        tags=words(tags, "tags"),
        keys=words(keys, "keys"),
        filter=filter_of(filter),
        begin=begin,
        end=end,
        start=start,
        stop=stop,
        split_bytes=split_bytes,
        min_partitions=min_partitions,
        on_corruption=on_corruption,
        check_crc=check_crc,
        storage_options=plain(storage_options),
    )
    files = export_files(
        spark,
        path,
        dest,
        selection,
        columns=columns,
        partition_by=partition_by,
        compression=compression,
        row_group_bytes=row_group_bytes,
        destination_options=destination_options,
    )
    rows = [tuple(getattr(file, name) for name in ExportedFile.__slots__) for file in files]
    return spark.createDataFrame(rows, _DDL)


def export_files(
    spark: SparkSession | None,
    path: str,
    dest: str,
    selection: Selection,
    *,
    columns: str | Sequence[str],
    partition_by: Sequence[str],
    compression: str,
    row_group_bytes: int = ROW_GROUP_BYTES,
    destination_options: Mapping[str, Any] | None = None,
) -> list[ExportedFile]:
    """Export like ``export_parquet``, in this process if ``spark`` is None; sorted by path."""
    names = tuple(resolve(columns))
    parts = check_partitions(partition_by, names)
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression {compression!r} is not one of {', '.join(COMPRESSIONS)}")
    splits = selection.plan(selection.list_log(path))
    folder = open_folder(dest, destination_options)
    folder.make()
    _clear(folder)
    plan = _Plan(
        # Absolute: tasks have other working directories than the driver.
        folder.uri,
        dict(destination_options) if destination_options else None,
        uuid.uuid4().hex,
        names,
        parts,
        compression,
        row_group_bytes,
        {**selection.filters, **selection.reading},
    )
    files: dict[str, ExportedFile] = {}
    temporary: dict[str, str] = {}
    try:
        for written in run_tasks(spark, write_split, [(plan, split) for split in splits]):
            for name, file in written:
                files[file.path], temporary[file.path] = file, name
        folder.write(_FINALS, json.dumps(sorted(files)).encode())
        for final in sorted(files):
            folder.rename(temporary[final], final)
        folder.write(_SUCCESS, b"")
        folder.remove(_FINALS)
    finally:
        folder.remove(f"{_TEMPORARY}/{plan.job}")
        folder.remove_empty(_TEMPORARY)
    return [files[final] for final in sorted(files)]


def _clear(folder: Folder) -> None:
    """Remove the files of a failed export; raise if the folder contains anything else."""
    if _SUCCESS not in folder.names():
        _take_back(folder)
    others = sorted(set(folder.names()) - {_TEMPORARY})
    if others:
        raise FileExistsError(
            17, f"the folder is not empty (it contains {others[0]}); give another one", folder.uri
        )
    folder.remove(_TEMPORARY)


def _take_back(folder: Folder) -> None:
    """Remove the files that an interrupted export had already renamed."""
    noted = folder.read(_FINALS)
    finals: list[str] = []
    if noted is not None:
        with contextlib.suppress(ValueError, TypeError):  # incomplete list: nothing was renamed
            finals = [final for final in json.loads(noted) if _FINAL.fullmatch(final)]
    places: set[str] = set()
    for final in finals:
        folder.remove(final)
        parts = final.split("/")[:-1]
        places.update("/".join(parts[: i + 1]) for i in range(len(parts)))
    for place in sorted(places, reverse=True):  # inner folders first
        folder.remove_empty(place)


def write_split(item: tuple[_Plan, Split]) -> list[tuple[str, ExportedFile]]:
    """Write one split's messages (a task); return (temporary name, file) of each file."""
    from rocketstore.arrow.reading import read_batches

    plan, split = item
    further = (PARTITIONS[part] for part in plan.partition_by)
    columns = list(dict.fromkeys((*plan.columns, *further)))
    writers = _Writers(plan, split)
    try:
        for batch in read_batches(split, columns, **plan.reading):
            writers.add(batch)
        return writers.finish()
    except BaseException:
        writers.abort()
        raise


class _Writers:
    """The files of one attempt at one split, by partition values."""

    def __init__(self, plan: _Plan, split: Split) -> None:
        self._plan = plan
        self._split = split
        self._folder = open_folder(plan.destination, plan.destination_options)
        self._attempt = f"{_TEMPORARY}/{plan.job}/{uuid.uuid4().hex}"
        self._open: dict[tuple[Any, ...], _File] = {}
        self._parts: dict[tuple[Any, ...], int] = {}
        self._waiting = 0
        self._done: list[tuple[str, ExportedFile]] = []

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Add the rows of a batch."""
        if not batch.num_rows:
            return
        for values, rows in partitioned(batch, self._plan.partition_by):
            rows = rows.select(
                [name for name in self._plan.columns if name not in self._plan.partition_by]
            )
            file = self._file(values)
            file.batches.append(rows)
            file.waiting += rows.nbytes
            self._waiting += rows.nbytes
        while self._waiting > self._plan.row_group_bytes:
            largest = max(self._open.values(), key=lambda file: file.waiting)
            self._waiting -= largest.waiting
            largest.flush()

    def _file(self, values: tuple[Any, ...]) -> _File:
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= _MAX_OPEN:
                self._close(min(self._open, key=lambda key: self._open[key].waiting))
            name = f"{self._attempt}/{len(self._done) + len(self._open)}-{uuid.uuid4().hex}"
            file = self._open[values] = _File(self._folder, name, self._plan.compression)
        return file

    def _close(self, values: tuple[Any, ...]) -> None:
        file = self._open.pop(values)
        self._waiting -= file.waiting
        nbytes = file.close()
        part = self._parts[values] = self._parts.get(values, -1) + 1
        known = dict(zip(self._plan.partition_by, values, strict=True))
        first = self._split.base_offset + self._split.start
        exported = ExportedFile(
            final_name(known, first, part),
            known.get("topic"),
            known.get("queueId"),
            known.get("date"),
            file.rows,
            nbytes,
            first,
            self._split.base_offset + self._split.stop,
        )
        self._done.append((file.name, exported))

    def finish(self) -> list[tuple[str, ExportedFile]]:
        """Close all files; return (temporary name, file) of each."""
        for values in list(self._open):
            self._close(values)
        return self._done

    def abort(self) -> None:
        """Remove all written files."""
        for file in self._open.values():
            file.drop()
        self._folder.remove(self._attempt)


class _File:
    """A Parquet file in progress; created with its first row group."""

    def __init__(self, folder: Folder, name: str, compression: str) -> None:
        self.name = name
        self.rows = 0
        self.waiting = 0
        self.batches: list[pyarrow.RecordBatch] = []
        self._folder = folder
        self._compression = compression
        self._sink: Any = None
        self._writer: Any = None

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        import pyarrow as pa

        if not self.batches:
            return
        table = pa.Table.from_batches(self.batches)
        self.batches, self.waiting = [], 0
        if self._writer is None:
            self._sink = self._folder.create(self.name)
            self._writer = parquet_writer(self._sink, table.schema, self._compression)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows

    def close(self) -> int:
        """Write the remaining rows, sync and close; return the file's bytes."""
        self.flush()
        self._writer.close()
        return self._folder.finish(self._sink)

    def drop(self) -> None:
        """Close without finishing the file."""
        if self._writer is not None:
            # The disk may be full; a dropped file need not be complete.
            with contextlib.suppress(OSError, ValueError):
                self._writer.close()
            with contextlib.suppress(OSError, ValueError):
                self._sink.close()
