"""``rebuild_index``: rebuild a store's index files from its log, byte for byte."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM, MessageStoreConfig
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import MappedFileError
from rocketstore.files.mapped_file import MappedFile
from rocketstore.index.index_file import IndexFile
from rocketstore.index.index_service import next_index_name
from rocketstore.sources.files import local_path
from rocketstore.sources.policy import plan_reading
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import DEFAULT_SPLIT_BYTES, Split
from rocketstore.sources.walk import walk
from rocketstore.spark.jobs.outputs import new_directory
from rocketstore.spark.jobs.progress import Progress, ProgressBar
from rocketstore.spark.jobs.tasks import run_tasks
from rocketstore.spark.reading.listing import list_to_read
from rocketstore.spark.reading.selection import check_corruption
from rocketstore.survey.facts import examine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Keys between two marks of a count: the most that a file's task reads and skips.
MARK_KEYS = 1 << 17
#: A file name has four digits for the year, and a zone may be hours ahead.
_LAST_NAMED_MS = 253_402_214_400_000  # 9999-12-31
_ROWS_SCHEMA = (
    "path string, keys bigint, beginTimestamp bigint, endTimestamp bigint, "
    "beginPhysicalOffset bigint, endPhysicalOffset bigint"
)


class IndexFileRow(NamedTuple):
    """One rebuilt index file.

    Attributes
    ----------
    path : str
    keys : int
        Number of its entries.
    begin_timestamp, end_timestamp : int
        Store times of the first and the last entry's record, epoch ms.
    begin_physical_offset, end_physical_offset : int
        Physical offsets of these records.
    """

    path: str
    keys: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int


@dataclass(frozen=True, slots=True)
class Reading:
    """How tasks read the log: plain data.

    Attributes
    ----------
    index_tags : bool
        Whether tags get a key, too.
    on_corruption : str
        ``fail`` or ``skip``.
    check_crc : bool
    storage_options : dict or None
    mark_keys : int
        Keys between two marks of a count.
    """

    index_tags: bool
    on_corruption: str
    check_crc: bool
    storage_options: dict[str, Any] | None
    mark_keys: int = MARK_KEYS

    def walk(self, split: Split, keys: Any) -> Iterator[None]:
        """Walk a split with a pass."""
        return walk(
            split,
            keys,
            on_corruption=self.on_corruption,
            check_crc=self.check_crc,
            storage_options=self.storage_options,
        )


class KeyCount(NamedTuple):
    """The number of keys in one split, and (keys before it, physical offset) of some records."""

    key_count: int
    marks: tuple[tuple[int, int], ...]


class FilePlan(NamedTuple):
    """The input of one task: a file of ``key_count`` keys to build.

    The task skips ``skip`` keys of the first split. With ``follows`` the next one is the last key
    of the previous file; the new header begins with its record's time and offset (D-2).
    """

    splits: tuple[Split, ...]
    skip: int
    follows: bool
    key_count: int
    slots: int
    entries: int
    path: str
    reading: Reading


def rebuild_index(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    max_hash_slot_num: int | None = None,
    max_index_num: int | None = None,
    broker_version: str | None = None,
    timezone: str | None = None,
    on_corruption: str = "fail",
    check_crc: bool = True,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DataFrame:
    """Rebuild a store's index files from its log; the store itself is not changed.

    Every byte equals what the store writes when it dispatches the same log. Only names may differ:
    a store names a file by its machine's clock. Here the name is the store time of the file's
    first record, at most the end of the year 9999. A name that does not sort after the previous
    one gets one millisecond more.

    Parameters
    ----------
    spark : SparkSession
    path : str or path-like
        The store's root or its ``commitlog`` folder: a path or URI.
    out : str or path-like
        The new ``index`` folder. It must be absent or empty, on a file system that the driver and
        all executors see under this path. It appears once all files are complete, or not at all.
    max_hash_slot_num, max_index_num : int, optional
        Slots of a file, and entry numbers (a file holds one key less). Give both or neither;
        default: those of the store's index files, else RocketMQ's 5,000,000 and 20,000,000.
    broker_version : str, optional
        5.4.0 and later also index tags. Default: the version detected from the store's files, or
        5.5.0 for a remote store.
    timezone : str, optional
        Time zone of the names; default: the driver's.
    on_corruption : {"fail", "skip"}
        Whether a corrupt range is an error or skipped.
    check_crc : bool
        Compare every body with its CRC.
    split_bytes : int
        Maximum bytes of the log that one task counts.
    storage_options : mapping, optional
        fsspec options for a remote store.
    progress : callable, optional
        Called with (done, total) bytes of the log.

    Returns
    -------
    DataFrame
        One row for each file: path, keys, first and last time (epoch ms) and physical offset.

    Raises
    ------
    FileExistsError
        If ``out`` is not empty.
    CorruptMessageError
        At a corrupt range, with file and position.
    ConfigError
        For invalid sizes, version or zone, or if ``out`` is remote.
    FileNotFoundError, MappedFileError, UnsafePathError
        As ``list_log`` raises.
    StoreFullError
        If the disk is full.

    Notes
    -----
    The log is read twice. The first pass counts the keys of every split, which determines where
    each file begins. In the second pass one task builds each file, and reads only that file's part
    of the log. The parallelism is thus limited to the number of files (20 million keys each at
    RocketMQ's size). A task needs the memory of one file's pages, 400 MB of page cache.
    """
    rows = build_index(
        spark,
        path,
        out,
        max_hash_slot_num=max_hash_slot_num,
        max_index_num=max_index_num,
        broker_version=broker_version,
        timezone=timezone,
        on_corruption=on_corruption,
        check_crc=check_crc,
        split_bytes=split_bytes,
        storage_options=storage_options,
        progress=progress,
    )
    return spark.createDataFrame([tuple(row) for row in rows], _ROWS_SCHEMA)


def build_index(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    max_hash_slot_num: int | None = None,
    max_index_num: int | None = None,
    broker_version: str | None = None,
    timezone: str | None = None,
    on_corruption: str = "fail",
    check_crc: bool = True,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    mark_keys: int = MARK_KEYS,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[IndexFileRow]:
    """Do the work of ``rebuild_index``, in this process if ``spark`` is None; return plain rows.

    ``mark_keys`` is the number of keys between two marks of a count.
    """
    check_corruption(on_corruption, ("fail", "skip"))
    config = MessageStoreConfig(
        max_hash_slot_num=max_hash_slot_num,
        max_index_num=max_index_num,
        broker_version=broker_version,
        timezone=timezone,
    )
    log = list_to_read(path, on_corruption, storage_options=storage_options)
    (slots, entries), dialect = _habits(log, config)
    options = dict(storage_options) if storage_options else None
    reading = Reading(dialect.index_tags, on_corruption, check_crc, options, mark_keys)
    with new_directory(out) as building:
        splits = plan_reading(log, on_corruption, check_crc=check_crc, split_bytes=split_bytes)
        nbytes = sum(split.nbytes for split in splits)
        bar = ProgressBar(progress, 2 * nbytes)
        counts = []
        items = [(split, reading) for split in splits]
        counted = run_tasks(spark, count_keys, items, watch=bar.part(nbytes))
        for split, count in zip(splits, counted, strict=True):
            counts.append(count)
            bar.add(split.nbytes)
        plans = plan_files(splits, counts, slots, entries, building, reading)
        rows = []
        made = run_tasks(spark, make_file, plans, watch=bar.part(nbytes))
        for plan, row in zip(plans, made, strict=True):
            rows.append(row)
            bar.add(sum(split.nbytes for split in plan.splits))
        named = _name_files(building, rows, config.zone)
        bar.end()
    target = local_path(out)
    assert target is not None
    return [row._replace(path=str(Path(os.path.abspath(target)) / row.path)) for row in named]


def _habits(log: LogFiles, config: MessageStoreConfig) -> tuple[tuple[int, int], Dialect]:
    """Return the geometry and the dialect of the new files."""
    given = None
    if config.max_hash_slot_num is not None and config.max_index_num is not None:
        given = config.max_hash_slot_num, config.max_index_num
    root = store_root(log)
    if root is not None:
        plain = config.replace(max_hash_slot_num=None, max_index_num=None)
        facts = examine(StorePaths.of(root, plain), plain)
        return given or facts.index.pair, facts.dialect
    version = config.broker_version or DEFAULT_VERSION
    return given or (DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM), Dialect.for_version(version)


def store_root(log: LogFiles) -> Path | None:
    """Return the root of a local store, or ``None`` for a remote store or a log without a store."""
    path = local_path(log.root)
    if path is None:
        return None
    path = Path(os.path.abspath(path))
    if (path / formats.COMMIT_LOG_DIR).is_dir():
        return path
    return path.parent if path.name == formats.COMMIT_LOG_DIR else None


# --- first pass: count the keys ---------------------------------------------------------------


def count_keys(item: tuple[Split, Reading]) -> KeyCount:
    """Count the keys of a split (a task)."""
    split, reading = item
    keys = kernels.passes_index_keys.IndexKeysPass(
        index_tags=reading.index_tags, counts_only=True, capacity=reading.mark_keys
    )
    count = 0
    marks: list[tuple[int, int]] = []
    for _ in reading.walk(split, keys):
        is_full = keys.count >= reading.mark_keys
        count += keys.take_count()
        if is_full:
            marks.append((count, keys.next_offset))
    return KeyCount(count, tuple(marks))


def plan_files(
    splits: Sequence[Split],
    counts: Sequence[KeyCount],
    slots: int,
    entries: int,
    folder: Path,
    reading: Reading,
) -> list[FilePlan]:
    """Plan the files by the position of their keys; every file but the first needs its
    predecessor's last key."""
    firsts = []
    total = 0
    for one in counts:
        firsts.append(total)
        total += one.key_count
    room = entries - 1
    if reading.on_corruption == "fail":
        # The count has already checked every CRC.
        reading = dataclasses.replace(reading, check_crc=False)
    plans = []
    for number in range(-(-total // room)):
        start = number * room
        stop = min(start + room, total)
        from_key = max(0, start - 1)
        holding = [
            n
            for n, one in enumerate(counts)
            if firsts[n] + one.key_count > from_key and firsts[n] < stop
        ]
        chosen = [splits[n] for n in holding]
        skip = from_key - firsts[holding[0]]
        mark = max(
            (mark for mark in counts[holding[0]].marks if mark[0] <= skip), default=(0, None)
        )
        if mark[1] is not None:
            position = mark[1] - chosen[0].base_offset
            chosen[0] = dataclasses.replace(chosen[0], start=position, aligned=True)
        plans.append(
            FilePlan(
                tuple(chosen),
                skip - mark[0],
                number > 0,
                stop - start,
                slots,
                entries,
                str(folder / f"{number}"),
                reading,
            )
        )
    return plans


# --- second pass: build the files -------------------------------------------------------------


def make_file(plan: FilePlan) -> IndexFileRow:
    """Build one index file under a unique name (a task, which Spark may retry)."""
    path = Path(f"{plan.path}.{os.urandom(6).hex()}")
    nbytes = formats.index_file_nbytes(plan.slots, plan.entries)
    used = formats.index_file_nbytes(plan.slots, plan.key_count + 1)
    file = MappedFile.create(path, 0, nbytes, path.parent, allocated=used)
    try:
        left = plan.key_count
        follows = plan.follows
        for hashes, offsets, times in _keys_of(plan):
            at = 0
            if follows and len(hashes):
                follows = False
                at = 1
                kernels.index_file.init_header(file.mapping, times[0], offsets[0])
            stop = min(len(hashes), at + left)
            left -= kernels.index_file.put_hashes(
                file.mapping,
                plan.slots,
                plan.entries,
                hashes[at:stop],
                offsets[at:stop],
                times[at:stop],
            )
            if left == 0:
                break
        if left:
            raise MappedFileError(
                f"{plan.splits[-1].uri} has {left} keys less than when they were counted: the log "
                "was changed during the rebuild; stop its writer and run it again"
            )
        file.flush(used)
        header = IndexFile(file, plan.slots, plan.entries).header
    finally:
        file.close()
    return IndexFileRow(
        path.name,
        plan.key_count,
        header.begin_timestamp,
        header.end_timestamp,
        header.begin_physical_offset,
        header.end_physical_offset,
    )


def _keys_of(plan: FilePlan) -> Iterator[tuple[memoryview, memoryview, memoryview]]:
    """Yield the plan's keys in pieces, without the skipped ones."""
    keys = kernels.passes_index_keys.IndexKeysPass(index_tags=plan.reading.index_tags)
    skip = plan.skip
    for split in plan.splits:
        for _ in plan.reading.walk(split, keys):
            columns = keys.take()
            passed = min(skip, len(columns[0]))
            skip -= passed
            hashes, offsets, times = (column[passed:] for column in columns)
            yield hashes, offsets, times


def _name_files(
    folder: Path, rows: Sequence[IndexFileRow], zone: datetime.tzinfo | None
) -> list[IndexFileRow]:
    """Rename the files to their final names, and remove files of repeated attempts."""
    made = {row.path for row in rows}
    for path in sorted(folder.iterdir()):
        if path.name not in made:
            path.unlink()
    named = []
    last = ""
    for row in rows:
        last = next_index_name(min(max(row.begin_timestamp, 0), _LAST_NAMED_MS), last, zone)
        os.rename(folder / row.path, folder / last)
        named.append(row._replace(path=last))
    return named
