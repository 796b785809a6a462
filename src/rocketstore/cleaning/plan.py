"""Find what has expired in a store, and why; change nothing."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import PASSING_ERRORS
from rocketstore.files.mapped_file import MappedFile
from rocketstore.index.index_file import IndexFile
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue, find_unit
from rocketstore.queues.consume_queue_ext import is_ext_address
from rocketstore.status import RecordStatus

#: Bytes of a segment's end searched for its last record: at first, and the factor of each retry.
_FIRST_LOOK_NBYTES = 64 * 1024
_LOOK_GROWTH = 16
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_HOUR_MS = 3_600_000


class CleanReason(StrEnum):
    """Why a file is deleted."""

    #: Its newest message is older than ``file_reserved_time``.
    EXPIRED = "expired"
    #: The disk is so full that segments are deleted whatever their age.
    FORCED = "forced"
    #: The log no longer has the messages that it refers to.
    FOLLOWS = "follows"


@dataclass(frozen=True, slots=True)
class CleanedFile:
    """A file that was deleted, or would be.

    Attributes
    ----------
    kind : str
        Its folder: ``commitlog``, ``consumequeue``, ``batchconsumequeue``, ``consumequeue_ext`` or
        ``index``.
    path : str
    nbytes, allocated_nbytes : int
        Its length, and its space on disk.
    oldest_store_timestamp, newest_store_timestamp : int or None
        Store times (epoch ms) of its first and last message; ``None`` if unknown.
    reason : CleanReason
    explanation : str
        The reason in a sentence.
    """

    kind: str
    path: str
    nbytes: int
    allocated_nbytes: int
    oldest_store_timestamp: int | None
    newest_store_timestamp: int | None
    reason: CleanReason
    explanation: str


@dataclass(slots=True)
class CleanReport:
    """What a cleanup deleted, or would delete.

    Attributes
    ----------
    what_if : bool
        Nothing was changed.
    files : list of CleanedFile
        In the order of deletion.
    min_offset : int
        Where the log begins afterwards.
    kept : str
        Why the first remaining segment is kept.
    used_ratio : float
        Used fraction of the log's disk before the cleanup, -1 if unknown.
    failures : list of str
        Files that could not be deleted, and why; they are retried.
    """

    what_if: bool
    files: list[CleanedFile] = field(default_factory=list)
    min_offset: int = -1
    kept: str = ""
    used_ratio: float = -1.0
    failures: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the files occupied on disk."""
        return sum(file.allocated_nbytes for file in self.files)


class SegmentTimes(NamedTuple):
    """Store times (epoch ms) of a segment's first and last message.

    If the segment holds no readable record, ``by_file`` is set and both are the file's
    modification time. It also replaces a newest store time that lies in the future.
    """

    oldest: int
    newest: int
    by_file: bool = False


class SegmentAges:
    """Find the store times of full segments, and cache them.

    Notes
    -----
    RocketMQ uses the file's modification time, which copying and restoring change (D-32).
    Threading: one caller at a time.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._known: dict[int, SegmentTimes] = {}

    def of(self, file: MappedFile, following: MappedFile | None) -> SegmentTimes:
        """Return the times of ``file``, which is full; ``following`` is the next segment.

        Raises ``OSError`` if it cannot be read because of a temporary error, or cannot be examined.
        """
        base = file.file_from_offset
        times = self._known.get(base)
        if times is None:
            times = self._find(file, following)
            self._known[base] = times
        return times

    def forget_before(self, offset: int) -> None:
        """Forget the segments before ``offset``."""
        self._known = {base: times for base, times in self._known.items() if base >= offset}

    def _find(self, file: MappedFile, following: MappedFile | None) -> SegmentTimes:
        try:
            oldest, newest = self._first_in(file), self._last_of(file)
            limit = None if following is None else self._first_in(following)
        except (OSError, MappedFileError) as error:
            if isinstance(error, OSError) and error.errno in PASSING_ERRORS:
                raise  # the error is temporary, so do not fall back to the modification time
            oldest = newest = limit = None
        if oldest is None or newest is None:
            modified = os.stat(file.path).st_mtime_ns // 1_000_000
            return SegmentTimes(modified, modified, by_file=True)
        # A body may contain something like a record. Clamp the time between the first records of
        # this segment and the next, whose positions are certain.
        newest = max(newest, oldest)
        if limit is not None:
            newest = min(newest, max(limit, oldest))
        return SegmentTimes(oldest, newest)

    def _scan(self, file: MappedFile, position: int, capacity: int = 1024) -> LogScan:
        base = file.file_from_offset
        return LogScan(self._log, base + position, file.end_offset, 0, capacity=capacity)

    def _first_in(self, file: MappedFile) -> int | None:
        """Return the store time of the segment's first record, ``None`` without one."""
        for batch in self._scan(file, 0, capacity=1):
            return batch.row(0)["store_timestamp"]
        return None

    def _last_of(self, file: MappedFile) -> int | None:
        """Return the store time of the segment's last record.

        Search the segment's end, and larger parts only if no record begins there.
        """
        step = _FIRST_LOOK_NBYTES
        while True:
            start = max(0, file.file_size - step)
            found = self._last_after(file, start)
            if found is not None or start == 0:
                return found
            step *= _LOOK_GROWTH

    def _last_after(self, file: MappedFile, position: int) -> int | None:
        base, size, found = file.file_from_offset, file.file_size, None
        while position < size:
            place = kernels.message.find_record(file.view, position, size, base, base + size)
            if place < 0:
                break
            walk = self._scan(file, place)
            for batch in walk:
                found = batch.last()["store_timestamp"]
            position = max(walk.offset - base, place) + 1
        return found


@dataclass(frozen=True, slots=True)
class Retention:
    """The rule that decides which segments are deleted.

    Attributes
    ----------
    now : int
        Epoch ms.
    reserved_ms : int
        Milliseconds that a message is kept.
    at_once : bool
        Delete segments whatever their age.
    limit_offset : int
        Keep segments past it: they are not in the queues yet, or not on disk.
    most : int or None
        Most segments to delete.
    most_at_once : int or None
        Most segments to delete whatever their age.
    """

    now: int
    reserved_ms: int
    at_once: bool
    limit_offset: int
    most: int | None = None
    most_at_once: int | None = None


class DueSegment(NamedTuple):
    """A segment to be deleted."""

    file: MappedFile
    times: SegmentTimes
    reason: CleanReason


def due_segments(
    log: CommitLog, ages: SegmentAges, rule: Retention
) -> tuple[list[DueSegment], str]:
    """Return the segments to be deleted, the oldest first, and why the next one is kept.

    Notes
    -----
    The newest segment is always kept, and segments are deleted in order. Source: RocketMQ
    ``store/MappedFileQueue.java`` ``deleteExpiredFileByTime``.
    """
    due: list[DueSegment] = []
    for file, following in itertools.pairwise(log.queue.files):
        if rule.most is not None and len(due) >= rule.most:
            return due, "one check does not delete more segments"
        if file.end_offset > rule.limit_offset:
            return due, f"{file.path.name} is not in all queues and on disk yet"
        try:
            times = _sane(ages.of(file, following), file, rule.now)
        except FileNotFoundError:
            continue  # the writer deleted it meanwhile
        except OSError as error:
            return due, f"{file.path.name} cannot be read now: {error.strerror}"
        if rule.now >= times.newest + rule.reserved_ms:
            due.append(DueSegment(file, times, CleanReason.EXPIRED))
        elif rule.at_once:
            forced = sum(one.reason == CleanReason.FORCED for one in due)
            if rule.most_at_once is not None and forced >= rule.most_at_once:
                return due, "the disk is checked again before more unexpired segments are deleted"
            due.append(DueSegment(file, times, CleanReason.FORCED))
        else:
            left = (times.newest + rule.reserved_ms - rule.now) / _HOUR_MS
            return due, f"{file.path.name} has messages that are kept for another {left:.1f} hours"
    return due, "the newest segment is always kept"


def _sane(times: SegmentTimes, file: MappedFile, now: int) -> SegmentTimes:
    """Return the times; replace a newest time in the future by the file's modification time.

    Such a time comes from a wrong clock, and would keep this segment and all later ones forever.
    """
    if times.newest <= now:
        return times
    modified = os.stat(file.path).st_mtime_ns // 1_000_000
    if modified > now:
        return times
    return SegmentTimes(min(times.oldest, modified), modified, by_file=True)


# --- what follows the log -------------------------------------------------------------------------


def expired_queue_files(queue: ConsumeQueue, log_min_offset: int) -> list[MappedFile]:
    """Return the queue's first files whose messages the log no longer has; never its last file.

    Notes
    -----
    Source: RocketMQ ``store/MappedFileQueue.java`` ``deleteExpiredFileByOffset``. If the last unit
    is a filler, which names no message, the whole file is searched.
    """
    gone: list[MappedFile] = []
    layout = _layout(queue)
    for file in queue.queue.files[:-1]:
        used = file.file_size - file.file_size % layout.nbytes
        if queue.readable_units(file) * layout.nbytes < used:
            break
        try:
            content = file.read(used - layout.nbytes, layout.nbytes)
        except FileNotFoundError:
            gone.append(file)  # the writer deleted it meanwhile
            continue
        if len(content) < layout.nbytes:
            break
        offset, size = layout.struct.unpack(content)[:2]
        if offset >= log_min_offset:
            break
        is_filler = offset == 0 and size == formats.FILLER_UNIT_SIZE
        if is_filler and _holds_from(file, used, log_min_offset):
            break
        gone.append(file)
    return gone


def _holds_from(file: MappedFile, used: int, offset: int) -> bool:
    """Return whether a ConsumeQueue's file has a unit of a message at or after ``offset``."""
    return find_unit(file, used, offset) < used


def _layout(queue: ConsumeQueue) -> formats.Layout:
    is_batch = isinstance(queue, BatchConsumeQueue)
    return formats.BATCH_QUEUE_UNIT if is_batch else formats.CONSUME_QUEUE_UNIT


def expired_ext_files(queue: ConsumeQueue, gone: Iterable[MappedFile] = ()) -> list[MappedFile]:
    """Return the first ext files without a reference from the queue's files other than ``gone``.

    The last ext file is never returned.
    """
    if queue.ext is None or len(queue.ext.queue.files) < 2:
        return []
    left = set(map(id, gone))
    for file in queue.queue.files:
        if id(file) in left:
            continue
        try:
            address = _first_address(file, queue.readable_units(file))
        except FileNotFoundError:
            continue
        if address is not None:
            start = address - formats.EXT_ADDRESS_BASE
            return [one for one in queue.ext.queue.files[:-1] if one.end_offset <= start]
    return []


def _first_address(file: MappedFile, count: int) -> int | None:
    """Return the first tags code in a queue file that is an ext address."""
    layout = formats.CONSUME_QUEUE_UNIT
    content = file.read(0, count * layout.nbytes)
    whole = len(content) - len(content) % layout.nbytes
    for _, _, tags_code in layout.struct.iter_unpack(content[:whole]):
        if is_ext_address(tags_code):
            return int(tags_code)
    return None


def expired_index_files(index: IndexService, log_min_offset: int) -> list[IndexFile]:
    """Return the first index files whose messages the log no longer has; never the newest file.

    Source: RocketMQ ``store/index/IndexService.java`` ``deleteExpiredFile``.
    """
    return list(
        itertools.takewhile(
            lambda file: (
                isinstance(file.file, MappedFile)
                and not file.file.private
                and file.header.end_physical_offset < log_min_offset
            ),
            index.files[:-1],
        )
    )


# --- the report -----------------------------------------------------------------------------------


def describe_segment(due: DueSegment, now: int) -> CleanedFile:
    """Describe a segment to be deleted."""
    hours = (now - due.times.newest) / _HOUR_MS
    clock = "it was modified" if due.times.by_file else "its newest message was stored"
    text = f"{clock} {hours:.1f} hours ago"
    if due.reason == CleanReason.FORCED:
        text = f"the disk is too full; {text}"
    return _describe(
        formats.COMMIT_LOG_DIR, due.file.path, due.times.oldest, due.times.newest, due.reason, text
    )


def describe_queue_file(log: CommitLog, queue: ConsumeQueue, file: MappedFile) -> CleanedFile:
    """Describe a queue file to be deleted, with the times of its messages that still exist."""
    is_batch = isinstance(queue, BatchConsumeQueue)
    layout = _layout(queue)
    used = file.file_size - file.file_size % layout.nbytes
    times = []
    for position in (0, used - layout.nbytes):
        unit = layout.struct.unpack(file.read(position, layout.nbytes))
        times.append(unit[3] if is_batch else _store_timestamp(log, unit[0], unit[1]))
    kind = formats.BATCH_QUEUE_DIR if is_batch else formats.CONSUME_QUEUE_DIR
    text = f"the log no longer has its messages ({queue.topic} queue {queue.queue_id})"
    return _describe(kind, file.path, times[0], times[1], CleanReason.FOLLOWS, text)


def describe_ext_file(queue: ConsumeQueue, file: MappedFile) -> CleanedFile:
    """Describe an ext file to be deleted."""
    text = f"units of {queue.topic} queue {queue.queue_id} no longer refer to it"
    return _describe(
        formats.CONSUME_QUEUE_EXT_DIR, file.path, None, None, CleanReason.FOLLOWS, text
    )


def describe_index_file(file: IndexFile) -> CleanedFile:
    """Describe an index file to be deleted."""
    header = file.header
    text = f"the log no longer has the messages of its {file.entry_count} keys"
    times = header.begin_timestamp, header.end_timestamp
    return _describe(formats.INDEX_DIR, file.path, *times, CleanReason.FOLLOWS, text)


def _store_timestamp(log: CommitLog, offset: int, size: int) -> int | None:
    if size == formats.FILLER_UNIT_SIZE or offset < log.min_offset:
        return None
    status, message = log.record_at(offset)
    return message.store_timestamp if message is not None and status in _COMPLETE else None


def _describe(
    kind: str, path: Path, oldest: int | None, newest: int | None, reason: CleanReason, text: str
) -> CleanedFile:
    about = os.stat(path)
    allocated = getattr(about, "st_blocks", -(-about.st_size // 512)) * 512
    return CleanedFile(kind, str(path), about.st_size, allocated, oldest, newest, reason, text)


def plan(
    log: CommitLog,
    queues: Iterable[ConsumeQueue],
    index: IndexService,
    ages: SegmentAges,
    rule: Retention,
) -> CleanReport:
    """Return a report of what ``rule`` would delete, and why."""
    due, kept = due_segments(log, ages, rule)
    minimum = due[-1].file.end_offset if due else log.min_offset
    calls: Iterable[Callable[[], CleanedFile]] = itertools.chain(
        (partial(describe_segment, one, rule.now) for one in due),
        _followers(log, queues, index, minimum),
    )
    report = CleanReport(True, [], minimum, kept)
    for describe in calls:
        with contextlib.suppress(FileNotFoundError):  # the writer deleted it meanwhile
            report.files.append(describe())
    return report


def _followers(
    log: CommitLog, queues: Iterable[ConsumeQueue], index: IndexService, minimum: int
) -> Iterator[Callable[[], CleanedFile]]:
    """Yield the description of each file that is deleted with the log's first segments."""
    for queue in queues:
        gone = expired_queue_files(queue, minimum)
        for file in gone:
            yield partial(describe_queue_file, log, queue, file)
        for file in expired_ext_files(queue, gone):
            yield partial(describe_ext_file, queue, file)
    for index_file in expired_index_files(index, minimum):
        yield partial(describe_index_file, index_file)
