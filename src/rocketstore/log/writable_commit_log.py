"""The commit log as its writer sees it: room ahead of the appender, rolling, syncing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ConfigError, CorruptMessageError, StoreClosedError, StoreFullError
from rocketstore.files.durable import PASSING_ERRORS
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.lock_order import LockRank
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.unique_key import UniqueKeyMaker
from rocketstore.status import PutMessageStatus

#: Disk blocks exist this far ahead of the write position.
ALLOCATE_AHEAD_NBYTES = 64 * 1024 * 1024


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


class LogLock(Protocol):
    """What a log asks of the lock of its store."""

    def hold_folder(self, folder: Path) -> None:
        """Keep other writers from the folder of the log's segments, too."""

    def check(self) -> None:
        """Raise ``ReplacedFileError`` when the lock is no longer this process's."""


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
    lock : LogLock or None
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
        lock: LogLock | None = None,
    ) -> None:
        super().__init__(queue, end_offset, record_flags)
        self._lock = lock
        self._roll_lock = kernels.locks.OrderedLock(LockRank.ROLL)
        self._on_failure = on_failure if on_failure is not None else lambda error: None
        self.pool: TransientStorePool | None = None
        if config.transient_store_pool_enable:
            from rocketstore.log.transient_store_pool import TransientStorePool, is_pool_effective

            if is_pool_effective(config, dialect):
                size = config.transient_store_pool_size
                self.pool = TransientStorePool(size, queue.file_size, end_offset)
        self._warm_up: LogWarmUp | None = None
        if config.warm_maped_file_enable:
            from rocketstore.log.warm_up import LogWarmUp

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
