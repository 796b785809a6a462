"""The writer's side of the commit log: allocating ahead of the appender, rolling, syncing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ConfigError, CorruptMessageError, StoreClosedError, StoreFullError
from rocketstore.files.durable import PASSING_ERRORS, NamedFile, is_interrupt
from rocketstore.files.mapped_file import SYNCS_DESCRIPTOR, MappedFile
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.lock_order import LockRank
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.unique_key import UniqueKeyMaker
from rocketstore.status import PutMessageStatus

if TYPE_CHECKING:
    from rocketstore.timer_rules import TimerRules

#: Disk blocks exist this far ahead of the write position.
ALLOCATE_AHEAD_NBYTES = 64 * 1024 * 1024


def check_put_switches(config: MessageStoreConfig, dialect: Dialect) -> None:
    """Raise ``ConfigError`` for options that the broker version does not support, or that would
    make the store reject its own records."""
    dialect.check_put(
        append_property_crc=config.enabled_append_prop_crc,
        light_queues=config.enable_lmq or config.enable_multi_dispatch,
    )
    if config.force_verify_prop_crc and not config.enabled_append_prop_crc:
        raise ConfigError(
            "force_verify_prop_crc would reject records written without "
            "enabled_append_prop_crc; set both to write a store"
        )


class LogLock(Protocol):
    """What a log needs of the lock of its store."""

    @property
    def named_file(self) -> NamedFile:
        """The file that ``check`` looks for."""

    def hold_folder(self, folder: Path) -> None:
        """Also lock the folder of the log's segments against other writers."""

    def check(self) -> None:
        """Raise ``ReplacedFileError`` if this process no longer holds the lock."""


class SyncTarget(NamedTuple):
    """The segment that is being written, and up to which physical offset it is on disk."""

    appender: Any
    file: MappedFile
    named_file: NamedFile
    lock: LogLock | None
    flushed: int

    def follow(self, waiting: Any, timeout_s: float) -> tuple[bool, int, int, int]:
        """See ``OffsetWaiters.follow``."""
        file = self.file
        names: tuple[NamedFile, ...] = (self.named_file,)
        if self.lock is not None:
            names = (self.named_file, self.lock.named_file)
        followed: tuple[bool, int, int, int] = waiting.follow(
            self.appender,
            file.mapping,
            file.file_from_offset,
            self.flushed,
            file.descriptor,
            names,
            timeout_s,
        )
        return followed


class WritableCommitLog(CommitLog):
    """A commit log that appends: it owns the native appender and allocates its space.

    Parameters
    ----------
    queue, end_offset, record_flags
        As in ``CommitLog``.
    config : MessageStoreConfig
    dialect : Dialect
    wait : callable or None
        ``wait(end_offset) -> PutMessageStatus value`` for SYNC_FLUSH.
    clock : callable or None
        Epoch ms of every record; ``None`` reads the system's clock natively.
    before_roll : callable or None
        Called before a new segment is created; may block until dispatch catches up.
    on_failure : callable or None
        Called if a segment cannot be made durable.
    lock : LogLock or None
        Checked with every sync; it also locks the log's folder.
    is_congested : callable or None
        Asked for the time of a slot, in epoch ms: whether it takes no more timer messages.

    Attributes
    ----------
    pool : TransientStorePool or None
        If set, puts write to memory. Readers, dispatch and flush see records once they are
        committed. ``None``: they see them at once.

    Notes
    -----
    Threading: any number of threads may put. ``_roll_lock`` orders those that need a new segment
    or more blocks.
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
        is_congested: Callable[[int], bool] | None = None,
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
        self._target: Any = None  # buffer that the appender writes to; guarded by: _roll_lock
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
            timer_rules=_timer_rules(config, is_congested),
        )
        last = queue.last()
        if last is not None and not last.is_full:
            self._attach(last)

    @property
    def max_offset(self) -> int:
        """Offset after the last record that is in the files."""
        if self.pool is not None:
            return self.pool.committed_offset
        return max(self.appender.write_offset, self._end_offset)

    @property
    def wrote_offset(self) -> int:
        """Offset after the last record that was put."""
        return max(self.appender.write_offset, self._end_offset)

    def commit(self) -> int:
        """Copy records that are in memory only to the files; return the log's end after that.

        Raises ``StoreFullError`` if the disk is full: the caller may retry. An ``OSError`` is
        final.
        """
        if self.pool is not None:
            try:
                self.pool.commit(self.wrote_offset)
            except StoreFullError:
                raise
            except OSError as error:
                if not is_interrupt(error):
                    self._on_failure(error)
                raise
        return self.max_offset

    def _prepare(self, file: MappedFile) -> Any:
        """Return the buffer for the records of ``file``; ``None`` if no buffer is free."""
        file.keep_descriptor()
        file.allocate(file.wrote_position + ALLOCATE_AHEAD_NBYTES, used=file.wrote_position)
        if self.pool is None:
            return file.mapping
        target = self.pool.assign(file)
        if target is None and not self._fails_without_buffer:
            self.commit()  # frees the buffer of the full segment
            target = self.pool.assign(file)
        return target

    def _is_attached(self, file: MappedFile) -> bool:
        """Return whether the appender writes to ``file``.

        The appender itself is asked: an interrupt could separate its state from a copy kept here.
        """
        return self.appender.is_attached and self.appender.base_offset == file.file_from_offset

    def _attach(self, file: MappedFile) -> bool:
        """Continue appending in ``file``; return False if no buffer is free.

        Raises ``CorruptMessageError`` if no end marker fits, which no broker writes.
        """
        left = file.file_size - file.wrote_position
        if 0 < left < formats.BLANK.nbytes:
            raise CorruptMessageError(
                file.path,
                file.wrote_position,
                f"the log ends {left} bytes before its segment does, which leaves no room for the "
                f"end marker of {formats.BLANK.nbytes} bytes that every segment needs. Read the "
                "store in mode 'r' and copy its messages into a new one",
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
        """Give the appender the next segment; or return the status of the put.

        Every step can be repeated, so after an interrupt the next call does the rest.
        """
        with self._roll_lock:
            if self._is_closed:  # another process may write the store by now
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
            self._refuse_replaced(last)  # else a new log would begin in place of a moved folder
        file = self._spare
        if file is not None and (file.file_from_offset != start or not file.is_in_place()):
            file.close()
            file = None
        if file is None:
            file = self._spare = self._make_segment(start)
        # All steps that can fail come first: a listed segment that is never written would be a
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
            passes = isinstance(error, StoreFullError) or error.errno in PASSING_ERRORS
            if not passes and not is_interrupt(error):
                self._on_failure(error)  # the state on disk is unknown
            raise
        if self._lock is not None:
            self._lock.hold_folder(self.queue.directory)  # the folder may be new
        if self._warm_up is not None:
            self._warm_up.add(file)
        return file

    def _refuse_replaced(self, *files: MappedFile) -> None:
        """Raise ``ReplacedFileError``, which is final, if one of ``files`` or the lock was
        replaced."""
        try:
            for file in files:
                file.check_name()
            if self._lock is not None:
                self._lock.check()
        except OSError as error:
            if not is_interrupt(error):
                self._on_failure(error)
            raise

    def check_names(self) -> None:
        """Raise ``ReplacedFileError``, which is final, if another process deleted, moved, replaced
        or truncated a segment or the lock."""
        self._refuse_replaced(*self.queue.files)

    def check_newest_name(self) -> None:
        """Raise as ``check_names``, but check only the lock and the segment being written."""
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
        """Reserve blocks ``ALLOCATE_AHEAD_NBYTES`` ahead; return whether any were added."""
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
        """Make the next ``step_nbytes`` of pages resident, at most ``ahead_nbytes`` ahead; return
        whether the whole step was made resident."""
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
        """Create the next segment, and a buffer for it, once this one is three quarters full;
        return whether there was work to do."""
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
        """Warm up the next pages of new segments; return whether there were any."""
        return self._warm_up is not None and self._warm_up.step()

    def flush(self, offset: int | None = None) -> int:
        """Sync the log up to ``offset``; return the flushed offset.

        The default is everything that was put (see ``commit``).

        Raises ``StoreFullError`` if a commit finds the disk full, which is not final. Any other
        ``OSError`` is, see ``MappedFile.flush``.
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

    def sync_target(self) -> SyncTarget | None:
        """Return the segment that is being written, if everything before it is on disk and syncing
        its mapping is enough."""
        file, flushed = self.queue.last(), self.queue.flushed_where
        if self.pool is not None or SYNCS_DESCRIPTOR or file is None or not self._is_attached(file):
            return None
        named_file = file.named_file
        if named_file is None or not file.file_from_offset <= flushed < file.end_offset:
            return None
        return SyncTarget(self.appender, file, named_file, self._lock, flushed)

    def _empty_rest(self, file: MappedFile) -> None:
        """Empty the pages that were mapped for records to come: the next opening would read them
        all to see that nothing follows the last record."""
        if self.queue.flushed_where == self._end_offset:
            with contextlib.suppress(OSError):  # the zeros do no harm
                file.empty_rest(self._end_offset - file.file_from_offset)

    def close(self) -> None:
        """Release the appender, then the segments."""
        self._end_offset = self.max_offset
        with self._roll_lock:
            self._is_closed = True
            spare, self._spare = self._spare, None
            last = self.queue.last()
            is_attached = last is not None and self._is_attached(last)
        self.appender.close()
        if last is not None and is_attached and self.pool is None:
            self._empty_rest(last)
        if self.pool is not None:
            self.pool.close()
        with self._roll_lock:
            self._target = None  # else the buffer would stay mapped
        if spare is not None and spare not in self.queue.files:
            spare.close()
            if spare.is_in_place():
                spare.destroy()
        super().close()


def _timer_rules(
    config: MessageStoreConfig, is_congested: Callable[[int], bool] | None
) -> TimerRules | None:
    """Return the rules for timer messages, ``None`` if the timer is off; 4.9 asks none."""
    if not config.timer_wheel_enable:
        return None
    from rocketstore.timer_rules import TimerRules

    max_delay_ms = config.timer_max_delay_sec * 1000
    return TimerRules(config.timer_precision_ms, max_delay_ms, is_congested)
