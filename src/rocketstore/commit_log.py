"""The commit log: its segments, reading a record by offset, and appending through the native
appender."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import (
    ConfigError,
    CorruptMessageError,
    MappedFileError,
    StoreClosedError,
    StoreFullError,
)
from rocketstore.lock_order import LockRank
from rocketstore.mapped_file import MappedFile
from rocketstore.mapped_file_queue import MappedFileQueue
from rocketstore.message import StoredMessage
from rocketstore.status import PutMessageStatus, RecordFlags, RecordStatus
from rocketstore.unique_key import UniqueKeyMaker

if TYPE_CHECKING:
    from rocketstore.log_warm_up import LogWarmUp
    from rocketstore.store_lock import StoreLock
    from rocketstore.transient_store_pool import TransientStorePool

#: Disk blocks exist this far ahead of the write position.
ALLOCATE_AHEAD_NBYTES = 64 * 1024 * 1024
_CHECKED_PROPERTY_CRC = RecordFlags.CHECK_PROPERTY_CRC | RecordFlags.REQUIRE_PROPERTY_CRC
#: Records of a segment looked at to see whether they carry whole-record CRCs.
_SAMPLE_COUNT = 64
#: Errors of making a file that say nothing about the disk.
PASSING_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
#: Those of them that no sync ever reports.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


class RecordGoneError(CorruptMessageError):
    """What was a good record when it was checked is none now: another process wrote there."""


class LogWindow(NamedTuple):
    """One segment as the record kernels take it."""

    file: MappedFile
    buffer: Any
    base_offset: int
    segment_end: int
    stop: int
    flags: int

    def message(self, position: int) -> StoredMessage:
        """Return the record at ``position``, which was checked; see ``gone``."""
        try:
            return StoredMessage(self.buffer, position, self.base_offset, self.segment_end)
        except ValueError as error:
            raise self.gone(position) from error

    def gone(self, position: int) -> RecordGoneError:
        """Build the error for a record that was checked and is not there any more: beside a reader
        a writer cuts a torn end and writes over it."""
        return RecordGoneError(
            self.file.path,
            position,
            f"the record at log offset {self.base_offset + position} was overwritten by another "
            "process while it was read; look again",
        )


class CommitLog:
    """Reads records by physical offset.

    Parameters
    ----------
    queue : MappedFileQueue
        The segments, loaded.
    end_offset : int
        Physical offset behind the last record (a snapshot; see ``move_end``).
    record_flags : int
        ``RecordFlags`` of every strict check.

    Notes
    -----
    Threading: any number of readers. Source: RocketMQ ``store/CommitLog.java``.
    """

    def __init__(self, queue: MappedFileQueue, end_offset: int, record_flags: int) -> None:
        self.queue = queue
        self.record_flags = record_flags
        #: Damaged places that recovery found, by physical offset.
        self.damage: dict[int, RecordStatus] = {}
        #: What is known of some of them beyond their status.
        self.reasons: dict[int, str] = {}
        #: Why a segment that is there gives nothing, by the offset of its first byte.
        self.absent: dict[int, str] = {}
        self._end_offset = end_offset
        #: The window last asked for: readers mostly stay in one segment.
        self.recent: LogWindow | None = None
        self._segment_flags: dict[int, int] = {}

    @property
    def segment_size(self) -> int:
        """Bytes of a segment."""
        return self.queue.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first segment, -1 for an empty log."""
        first = self.queue.min_offset
        return min(first, *self.absent) if self.absent and first >= 0 else first

    @property
    def holes(self) -> list[tuple[int, int]]:
        """(start, stop) offsets of segments that are missing before others, or give nothing."""
        size, found = self.segment_size, []
        expected = max(self.min_offset, 0)
        for file in self.queue.files:
            if file.file_from_offset > expected:
                found.append((expected, file.file_from_offset))
            expected = file.file_from_offset + size
        last = max(self.absent, default=0) + size
        if self.absent and last > expected:
            found.append((expected, last))
        return found

    @property
    def max_offset(self) -> int:
        """Offset behind the last record."""
        return self._end_offset

    def move_end(self, offset: int) -> None:
        """Set the end of what is shown."""
        self._end_offset = offset
        self.recent = None

    def window(self, offset: int, stop_offset: int | None = None) -> LogWindow | None:
        """Return the segment that holds ``offset``, readable up to ``stop_offset``.

        The default is the log's end now, or any earlier end that lies behind ``offset``.
        """
        recent = self.recent
        if stop_offset is None and recent is not None:
            position = offset - recent.base_offset
            if 0 <= position < recent.stop:
                return recent
        file = self.queue.find_mapped_file_by_offset(offset)
        if file is None:
            return None
        stop = self.max_offset if stop_offset is None else stop_offset
        base = file.file_from_offset
        segment_end = base + self.queue.file_size
        stop = max(0, min(stop - base, file.file_size))
        view = file.view
        flags = self._segment_flags.get(base)
        if flags is None:
            flags = self._judge_flags(view, base, segment_end, stop)
        window = LogWindow(file, view, base, segment_end, stop, flags)
        if stop_offset is None:
            self.recent = window
            if base < self.queue.min_offset:
                self.recent = None  # deleted meanwhile: its space is not to be held
        return window

    def _judge_flags(self, view: Any, base_offset: int, segment_end: int, stop: int) -> int:
        """Flags of the strict check in one segment.

        Where its first records carry right whole-record CRCs, all CRCs that are there must be
        right; a segment without any may hold copied properties that say nothing.
        """
        flags = self.record_flags
        if stop > 0:
            if not flags & _CHECKED_PROPERTY_CRC and _carries_property_crc(
                view, base_offset, segment_end, stop
            ):
                flags |= RecordFlags.CHECK_PROPERTY_CRC
            self._segment_flags[base_offset] = flags
        return flags

    def demand_property_crc(self, base_offset: int) -> None:
        """Check whole-record CRCs in the segment that starts at ``base_offset``."""
        self._segment_flags[base_offset] = self.record_flags | RecordFlags.CHECK_PROPERTY_CRC
        self.recent = None

    def roll_next_file(self, offset: int) -> int:
        """Offset of the segment behind the one that holds ``offset``."""
        return offset + self.segment_size - offset % self.segment_size

    def check(self, offset: int, *, extra_flags: int = 0) -> tuple[RecordStatus, int]:
        """Strict check of the place ``offset``: status and bytes to skip."""
        return self._check_in(self.window(offset) if offset >= 0 else None, offset, extra_flags)

    def _check_in(
        self, window: LogWindow | None, offset: int, extra_flags: int
    ) -> tuple[RecordStatus, int]:
        if window is None or offset - window.base_offset > window.stop:
            return RecordStatus.END, 0
        damaged = self.damage.get(offset) if self.damage else None
        if damaged is not None:
            return damaged, 0
        status, size = kernels.message.check_record(
            window.buffer,
            offset - window.base_offset,
            window.stop,
            window.base_offset,
            window.segment_end,
            window.flags | extra_flags,
        )
        return RecordStatus(status), size

    def record_at(self, offset: int) -> tuple[RecordStatus, StoredMessage | None]:
        """Strict check of the place ``offset``, and its record, ``None`` without a complete one.
        Both are of one look: the segment may be deleted at any moment."""
        window = self.window(offset) if offset >= 0 else None
        status, _ = self._check_in(window, offset, 0)
        if window is None or not (status in _COMPLETE or status == RecordStatus.GHOST):
            return status, None
        try:
            return status, window.message(offset - window.base_offset)
        except RecordGoneError:
            return self._check_in(window, offset, 0)[0], None

    def look_message_by_offset(self, offset: int) -> StoredMessage | None:
        """Return the record at ``offset``; ``None`` when no record starts there.

        Raises
        ------
        CorruptMessageError
            When a record starts there by its own word but is damaged, damage is known to start
            there, or the segment is missing or may not be read.
        """
        status, message = self.record_at(offset)
        if status in _COMPLETE:
            return message
        claimed = status >= RecordStatus.FIRST_DAMAGE and self.claims(offset)
        if claimed or self.is_lost(offset):
            raise self.corruption(offset, status)
        return None

    def is_lost(self, offset: int) -> bool:
        """Whether the log is known to have had ``offset``, and nothing can be read there: damage
        begins there, its segment is missing, or so is the log's end."""
        if not self.damage or offset < self.min_offset:
            return False
        if offset in self.damage:
            return True
        if offset >= self.max_offset:
            return any(at >= self.max_offset for at in self.damage)
        return self.place(offset)[2] is not None

    def view(self, offset: int) -> StoredMessage:
        """Return the record at ``offset``, which was checked before."""
        window = self.window(offset)
        if window is None:
            raise MappedFileError(f"{self.queue.directory} has no file for offset {offset}")
        return window.message(offset - window.base_offset)

    def claims(self, offset: int) -> bool:
        """Whether the bytes at ``offset`` carry a record's magic and this very offset."""
        window = self.window(offset)
        head = formats.RECORD_HEAD
        if window is None or offset - window.base_offset + head.nbytes > window.stop:
            return False
        try:
            values = window.file.read(offset - window.base_offset, head.nbytes)
        except FileNotFoundError:
            return False  # the store's writer deleted it: nobody is told of what was damaged in it
        if len(values) < head.nbytes:
            return False
        fields = dict(zip((f.name for f in head.fields), head.struct.unpack(values), strict=True))
        return (
            fields["magic"] in (formats.MAGIC_V1, formats.MAGIC_V2)
            and fields["physical_offset"] == offset
        )

    def corruption(self, offset: int, status: int) -> CorruptMessageError:
        """Build the error for the damaged place ``offset``."""
        path, position, reason = self.place(offset)
        reason = f"log offset {offset}: {reason}" if reason else describe(status, offset)
        reason = self.reasons.get(offset, reason)
        return CorruptMessageError(path, position, reason)

    def place(self, offset: int) -> tuple[Path, int, str | None]:
        """Return the file that holds ``offset``, or would hold it, the position in it, and why
        nothing can be read there: ``None`` when there are bytes."""
        file = self.queue.find_mapped_file_by_offset(offset)
        position = offset % self.segment_size
        if file is None:
            start = offset - position
            path = self.queue.directory / formats.offset_to_file_name(start)
            return path, position, self.absent.get(start, "the segment is missing")
        if position >= file.file_size:
            reason = f"the file has {file.file_size} bytes instead of {self.segment_size}"
            return file.path, position, reason
        return file.path, position, None

    def delete_first(self, files: Sequence[MappedFile]) -> None:
        """Delete the log's first segments, see ``MappedFileQueue.delete_first``; messages in use
        stay valid."""
        try:
            self.queue.delete_first(files)
        finally:
            self.recent = None  # it would hold the space of a deleted segment
            start = self.queue.min_offset
            known: dict[int, Any]
            for known in (self._segment_flags, self.damage):
                for offset in list(known):
                    if offset < start:
                        del known[offset]

    def close(self) -> None:
        """Close all segments; messages in use stay valid."""
        self.recent = None
        self.queue.close()


def _carries_property_crc(view: Any, base_offset: int, segment_end: int, stop: int) -> bool:
    """Whether one of a segment's first records carries a right whole-record CRC."""
    row = formats.PARSED_RECORD
    rows = bytearray(_SAMPLE_COUNT * row.nbytes)
    count, _, _ = kernels.message.scan_records(
        view,
        0,
        stop,
        base_offset,
        segment_end,
        RecordFlags.CHECK_BODY_CRC | RecordFlags.REPORT_PROPERTY_CRC,
        rows,
    )
    judged = memoryview(rows).cast("i")[row.at("property_crc") // 4 :: row.nbytes // 4]
    return 1 in judged[:count].tolist()


_REASONS = {
    RecordStatus.END: "nothing is stored here",
    RecordStatus.EMPTY: "zeros where a record should be",
    RecordStatus.INCOMPLETE: "the record is longer than what is there to be read",
    RecordStatus.GHOST: "a record that carries another, lower offset",
    RecordStatus.NUL_PROPERTIES: "NULs in the properties",
    RecordStatus.BAD_SIZE: "the total size is no record's, or larger than the segment's rest",
    RecordStatus.BAD_MAGIC: "the magic is none of a record",
    RecordStatus.BAD_BLANK: "an end-of-segment marker that does not span the segment's rest",
    RecordStatus.BAD_PHYSICAL_OFFSET: "the record's own offset is not its place",
    RecordStatus.BAD_QUEUE_ID: "the queue id is negative",
    RecordStatus.BAD_QUEUE_OFFSET: "the queue offset is negative",
    RecordStatus.BAD_BODY_LENGTH: "the body length does not fit the record",
    RecordStatus.BAD_BODY_CRC: "the body's CRC-32 is not the stored one",
    RecordStatus.BAD_TOPIC_LENGTH: "the topic length does not fit the record",
    RecordStatus.BAD_TOPIC: "the topic begins or ends with NUL",
    RecordStatus.BAD_PROPERTIES_LENGTH: "the properties length does not fit the record",
    RecordStatus.BAD_LENGTH_SUM: "the inner lengths do not add up to the total size",
    RecordStatus.BAD_PROPERTIES: "a stretch of the properties was overwritten with zeros",
    RecordStatus.BAD_PROPERTY_CRC: "the record's CRC-32 property does not match its bytes",
    RecordStatus.FAULT: "the file was shortened or its disk failed while it was read",
}


def describe(status: int, offset: int) -> str:
    """Say in words what a strict check found at ``offset``."""
    reason = _REASONS.get(RecordStatus(status), RecordStatus(status).name)
    return f"log offset {offset}: {reason} ({RecordStatus(status).name})"


def record_flags(config: MessageStoreConfig) -> int:
    """Flags of the strict check under ``config``."""
    flags = int(RecordFlags.CHECK_BODY_CRC)
    if config.force_verify_prop_crc:
        flags |= RecordFlags.REQUIRE_PROPERTY_CRC
    elif config.enabled_append_prop_crc:
        flags |= RecordFlags.CHECK_PROPERTY_CRC
    return flags


def check_put_switches(config: MessageStoreConfig, dialect: Dialect) -> None:
    """Raise ``ConfigError`` for switches that the version written does not know, or that would
    make the store refuse its own records."""
    if config.enabled_append_prop_crc and not dialect.property_crc:
        raise ConfigError(
            f"RocketMQ {dialect.name} knows no property CRC; enabled_append_prop_crc needs 5.2.0"
        )
    if config.force_verify_prop_crc and not config.enabled_append_prop_crc:
        raise ConfigError(
            "force_verify_prop_crc would refuse the records written without "
            "enabled_append_prop_crc; a store that is written needs both"
        )
    if (config.enable_lmq or config.enable_multi_dispatch) and not dialect.light_offsets:
        raise ConfigError(f"RocketMQ {dialect.name} knows no light queues; they need 4.9.3")


class WritableCommitLog(CommitLog):
    """Appends; owns the native appender and gives it room.

    Parameters
    ----------
    queue, end_offset, record_flags
        As in ``CommitLog``.
    config : MessageStoreConfig
    dialect : Dialect
    wait : callable or None
        ``wait(end_offset) -> PutMessageStatus value`` of SYNC_FLUSH.
    clock : callable or None
        Epoch ms of every record; ``None`` reads the system's clock natively.
    before_roll : callable or None
        Called before a new segment is made (may block to let dispatch catch up).
    on_failure : callable or None
        Told when a segment could not be made durable.
    lock : StoreLock or None
        Looked at with every sync; it also holds the log's folder.

    Attributes
    ----------
    pool : TransientStorePool or None
        What is put is written in memory, and is in the log, for readers, dispatch and flush, once
        it is committed; ``None``: it is at once.

    Notes
    -----
    Threading: any number of putters; ``_roll_lock`` orders those that need a new segment or blocks.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        end_offset: int,
        record_flags: int,
        config: MessageStoreConfig,
        dialect: Dialect,
        *,
        wait: Callable[[int], int] | None,
        clock: Callable[[], int] | None,
        before_roll: Callable[[], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        lock: StoreLock | None = None,
    ) -> None:
        super().__init__(queue, end_offset, record_flags)
        self._lock = lock
        self._roll_lock = kernels.locks.OrderedLock(LockRank.ROLL)
        self._on_failure = on_failure if on_failure is not None else lambda error: None
        self.pool: TransientStorePool | None = None
        if config.transient_store_pool_enable:
            from rocketstore.transient_store_pool import TransientStorePool, is_pool_effective

            if is_pool_effective(config, dialect):
                size = config.transient_store_pool_size
                self.pool = TransientStorePool(size, queue.file_size, end_offset)
        self._warm_up: LogWarmUp | None = None
        if config.warm_maped_file_enable:
            from rocketstore.log_warm_up import LogWarmUp

            self._warm_up = LogWarmUp(config, self._on_failure)
        self._fails_without_buffer = config.fast_fail_if_no_buffer_in_store_pool
        self._populated = 0  # guarded by: _roll_lock
        self._target: Any = None  # what the appender writes into; guarded by: _roll_lock
        self._spare: MappedFile | None = None  # guarded by: _roll_lock
        self._is_closed = False  # guarded by: _roll_lock
        self.appender = kernels.commit_log.Appender(
            roll=self._roll,
            extend=self._extend,
            wait=wait,
            clock=clock,
            store_host=config.store_host,
            broker_version=dialect.name,
            max_message_size=config.max_message_size,
            segment_nbytes=queue.file_size,
            delay_ms=config.delay_ms,
            append_property_crc=config.enabled_append_prop_crc,
            enable_lmq=config.enable_lmq,
            enable_multi_dispatch=config.enable_multi_dispatch,
            max_lmq_consume_queue_num=config.max_lmq_consume_queue_num,
            enable_lmq_quota=config.enable_lmq_quota,
            unique_key_maker=UniqueKeyMaker(config.store_host, clock, config.zone),
            before_roll=before_roll,
        )
        last = queue.last()
        if last is not None and not last.is_full:
            self._attach(last)

    @property
    def max_offset(self) -> int:
        """Offset behind the last record that is in the files."""
        if self.pool is not None:
            return self.pool.committed_offset
        return max(self.appender.write_offset, self._end_offset)

    @property
    def wrote_offset(self) -> int:
        """Offset behind the last record that was put."""
        return max(self.appender.write_offset, self._end_offset)

    def commit(self) -> int:
        """Copy to the files what was put and is in memory only; return the log's end then.

        Raises ``StoreFullError`` without room, which passes, and ``OSError``, which is final.
        """
        if self.pool is not None:
            try:
                self.pool.commit(self.wrote_offset)
            except StoreFullError:
                raise
            except OSError as error:
                self._on_failure(error)
                raise
        return self.max_offset

    def _prepare(self, file: MappedFile) -> Any:
        """Return what records of ``file`` are written into; ``None`` without a buffer."""
        file.keep_descriptor()
        file.allocate(file.wrote_position + ALLOCATE_AHEAD_NBYTES, used=file.wrote_position)
        if self.pool is None:
            return file.mapping
        target = self.pool.assign(file)
        if target is None and not self._fails_without_buffer:
            self.commit()  # the segment that was full gives its buffer back
            target = self.pool.assign(file)
        return target

    def _is_attached(self, file: MappedFile) -> bool:
        """Whether the appender writes into ``file``: its own word, as an interrupt may strike
        between the appender's step and a note of it here."""
        return self.appender.is_attached and self.appender.base_offset == file.file_from_offset

    def _attach(self, file: MappedFile) -> bool:
        """Let the appender go on in ``file``; False without a buffer.

        Raises ``CorruptMessageError`` where no end marker fits any more: no broker leaves that.
        """
        left = file.file_size - file.wrote_position
        if 0 < left < formats.BLANK.nbytes:
            raise CorruptMessageError(
                file.path,
                file.wrote_position,
                f"the log ends {left} bytes before its segment does, which leaves no room for the "
                f"end marker of {formats.BLANK.nbytes} bytes that every segment has; read it "
                "in mode 'r', and copy its messages into a new one",
            )
        target = self._prepare(file)
        if target is None:
            return False
        frontier = file.allocated_position
        self._populated = file.wrote_position
        self._target = target
        self.appender.attach(target, file.file_from_offset, file.wrote_position, frontier)
        return True

    def _roll(self, needed_nbytes: int) -> PutMessageStatus | None:
        """Give the appender the next segment; the answer to the put where there is none to give.

        Every step may be repeated, so an interrupt anywhere leaves the rest to the next call.
        """
        with self._roll_lock:
            if self._is_closed:  # others may write the store by now
                raise StoreClosedError("the store is closed")
            last = self.queue.last()
            if last is not None and self._is_attached(last):
                if self.appender.write_position < self.segment_size:
                    return None  # another putter rolled in the meantime
                last.wrote_position = last.file_size
            if last is None or last.is_full:
                last = self._append_segment(last)
            if last is None or not self._attach(last):
                return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            return None

    def _append_segment(self, last: MappedFile | None) -> MappedFile | None:
        start = last.end_offset if last is not None else 0
        if last is not None:
            self._refuse_replaced(last)  # else a new log would begin where its folder was
        file = self._spare
        if file is not None and (file.file_from_offset != start or not file.is_in_place()):
            file.close()
            file = None
        if file is None:
            file = self._spare = self._make_segment(start)
        # Whatever can fail comes first: a segment in the list that is never written would be a
        # hole in the log.
        if self._prepare(file) is None:
            return None
        self.queue.append(file)
        self._spare = None
        return file

    def _make_segment(self, start: int) -> MappedFile:
        try:
            file = self.queue.create_spare(start, allocated=ALLOCATE_AHEAD_NBYTES)
        except OSError as error:
            if not isinstance(error, StoreFullError) and error.errno not in PASSING_ERRORS:
                self._on_failure(error)  # what is on disk cannot be known any more
            raise
        if self._lock is not None:
            self._lock.hold_folder(self.queue.directory)  # it may be new
        if self._warm_up is not None:
            self._warm_up.add(file)
        return file

    def _refuse_replaced(self, *files: MappedFile) -> None:
        """Raise ``ReplacedFileError``, which is final, when one of ``files`` or the lock is not
        what it was."""
        try:
            for file in files:
                file.check_name()
            if self._lock is not None:
                self._lock.check()
        except OSError as error:
            self._on_failure(error)
            raise

    def check_names(self) -> None:
        """Raise ``ReplacedFileError``, which is final, when a segment or the lock was deleted,
        moved, replaced, or cut by somebody else."""
        self._refuse_replaced(*self.queue.files)

    def check_newest_name(self) -> None:
        """The same of the lock and the segment that is written."""
        self._refuse_replaced(*self.queue.files[-1:])

    def _extend(self, end_position: int) -> None:
        with self._roll_lock:
            last = self.queue.last()
            if last is None or not self._is_attached(last):
                return
            self.appender.set_frontier(
                last.allocate(end_position + ALLOCATE_AHEAD_NBYTES, used=last.allocated_position)
            )

    def allocate_ahead(self) -> bool:
        """Keep blocks ``ALLOCATE_AHEAD_NBYTES`` ahead; True when some were added (for a
        service)."""
        with self._roll_lock:
            last = self.queue.last()
            if last is None or not self._is_attached(last):
                return False
            wanted = min(self.appender.write_position + ALLOCATE_AHEAD_NBYTES // 2, last.file_size)
            if last.allocated_position >= wanted:
                return False
            position = self.appender.write_position + ALLOCATE_AHEAD_NBYTES
            self.appender.set_frontier(last.allocate(position, used=last.allocated_position))
            return True

    def populate_ahead(self, step_nbytes: int, ahead_nbytes: int) -> bool:
        """Make the next ``step_nbytes`` of pages present, at most ``ahead_nbytes`` ahead; True if
        any."""
        with self._roll_lock:
            file = self.queue.last()
            if file is None or not self._is_attached(file):
                return False
            written = self.appender.write_position
            start = max(self._populated, written)
            stop = min(start + step_nbytes, written + ahead_nbytes, file.allocated_position)
            if stop <= start or not self._target.populate(start, stop - start):
                return False
            self._populated = stop
            self.appender.set_populated(stop)
            return stop - start == step_nbytes

    def prepare_next(self) -> bool:
        """Create the next segment once three quarters of this one are written, and have a buffer
        for it; True when there was something to do."""
        with self._roll_lock:
            last = self.queue.last()
            if last is None or not self._is_attached(last):
                return False
            if self.appender.write_position < last.file_size - last.file_size // 4:
                return False
            if self._spare is None or self._spare.file_from_offset != last.end_offset:
                self._refuse_replaced(last)  # as in _append_segment
                self._spare = self._make_segment(last.end_offset)
                return True
        return self.pool is not None and self.pool.prepare()

    def warm_next(self) -> bool:
        """Warm the next pages of new segments up; True when there were any."""
        return self._warm_up is not None and self._warm_up.step()

    def flush(self, offset: int | None = None) -> int:
        """Sync the log up to ``offset`` (at most its end; default: all that was put, see
        ``commit``); return the flushed offset.

        Raises ``OSError``; the error is final, see ``MappedFile.flush``, unless it is the
        ``StoreFullError`` of a commit.
        """
        offset = self.commit() if offset is None else min(offset, self.max_offset)
        for file in self.queue.files:
            if file.end_offset <= self.queue.flushed_where:
                continue
            if file.file_from_offset >= offset:
                break
            file.flush(min(offset - file.file_from_offset, file.file_size))
            if self._lock is not None:
                self._lock.check()
            self.queue.flushed_where = min(offset, file.end_offset)
            if self.queue.flushed_where == file.end_offset:
                file.release_descriptor()
        return self.queue.flushed_where

    def close(self) -> None:
        """Release the appender, then the segments."""
        self._end_offset = self.max_offset
        with self._roll_lock:
            self._is_closed = True
            spare, self._spare = self._spare, None
        self.appender.close()
        if self.pool is not None:
            self.pool.close()
        with self._roll_lock:
            self._target = None  # else it would stay mapped
        if spare is not None and spare not in self.queue.files:
            spare.close()
            if spare.is_in_place():
                spare.destroy()
        super().close()
