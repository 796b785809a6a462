"""Flushing: the log for sync and async stores, and queues, index, checkpoint and state."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ServiceFailedError, StoreFullError, error_text
from rocketstore.files.durable import NO_DESCRIPTORS, is_interrupt
from rocketstore.flush.loop_waiters import LoopWaiters
from rocketstore.lock_order import LockRank
from rocketstore.log.writable_commit_log import SyncTarget, WritableCommitLog
from rocketstore.services.sampler import Sampler
from rocketstore.services.service_thread import ServiceThread

_PAGE_NBYTES = 4096


class FlushedLog:
    """Track how far the log is on disk; one thread flushes at a time.

    Attributes
    ----------
    physic_timestamp : int
        Store time of the newest record known to be on disk.
    waiting, loops
        Threads and event loops that wait for their puts to be on disk. ``with waiting`` keeps
        ``follow`` from syncing once it has returned, which it does at once.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        physic_timestamp: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.physic_timestamp = physic_timestamp
        self.waiting = kernels.waiting.OffsetWaiters()
        self.loops = LoopWaiters()
        self._log = log
        self._on_failure = on_failure
        self._error: OSError | None = None  # guarded by: _lock
        self._lock = kernels.locks.OrderedLock(LockRank.FLUSH)

    @property
    def offset(self) -> int:
        """Return the physical offset up to which the log is on disk."""
        reached: int = self.waiting.reached
        return max(reached, self._log.queue.flushed_where)

    @property
    def waiter_count(self) -> int:
        """Return the number of waiting puts."""
        return len(self.waiting) + len(self.loops)

    def flush(self) -> int:
        """Commit and sync everything put so far; return the flushed offset.

        Raises
        ------
        StoreFullError
            The disk had no room for a commit; the next call retries.
        OSError
            The first time a sync fails.
        ServiceFailedError
            In every later call. The system may mark pages as clean that it failed to write; a
            later sync would then succeed although they are not on disk.
        """
        try:
            with self.waiting, self._lock:
                flushed = self._flush()
        except StoreFullError:
            raise
        except OSError as error:
            if not is_interrupt(error):
                self._on_failure(error)
            raise
        self.let_go()
        return flushed

    def follow(self, timeout_s: float) -> bool:
        """Sync puts as they come, for as long as they go to one segment; each pause lasts
        ``timeout_s`` at most.

        Return whether there may be something to do for ``flush``, or for those who wait.
        """
        while True:
            if len(self.loops):
                self.waiting.ask_back()
            before = self.offset
            rang = self._follow(timeout_s)
            if self.offset == before:
                return rang
            self.loops.reached(self.offset)

    def _follow(self, timeout_s: float) -> bool:
        if self._error is None and not self.waiting.is_held:
            try:
                with self._lock:
                    target = self._log.sync_target()
                    if target is not None:
                        return self._follow_target(target, timeout_s)
            except OSError as error:
                self._on_failure(error)
                raise
        return bool(self.waiting.listen(timeout_s))

    def _follow_target(self, target: SyncTarget, timeout_s: float) -> bool:
        rang, flushed, timestamp, error = target.follow(self.waiting, timeout_s)
        target.file.flushed_position = flushed - target.file.file_from_offset
        self._log.queue.flushed_where = flushed
        self.physic_timestamp = max(self.physic_timestamp, timestamp)
        if error:
            target.file.mapping.refuse_syncs(error)
            self._error = OSError(error, os.strerror(error), str(target.file.path))
            raise self._error
        return rang

    def mark(self) -> tuple[int, int]:
        """Return the flushed offset, and the store time of the newest record known to be below it.

        Another thread may flush at any moment; both are of the same flush.
        """
        with self.waiting, self._lock:
            return self.offset, self.physic_timestamp

    def let_go(self) -> None:
        """Wake the waiters whose offset is on disk."""
        flushed = self.offset
        self.waiting.reach(flushed)
        self.loops.reached(flushed)

    def _flush(self) -> int:
        if self._error is not None:
            raise ServiceFailedError(
                f"syncing the log failed: {error_text(self._error)}"
            ) from self._error
        # Read the time first, so that it is never later than the synced records.
        timestamp = self._log.appender.last_store_timestamp
        try:
            flushed = self._log.flush()
        except StoreFullError:
            raise
        except OSError as error:
            if not is_interrupt(error):
                self._error = error
            raise
        self.physic_timestamp = max(self.physic_timestamp, timestamp)
        return flushed


class FlushRealTimeService(ServiceThread):
    """ASYNC_FLUSH: sync when enough pages are dirty, and all of them every thorough interval."""

    def __init__(
        self,
        flushed: FlushedLog,
        log: Callable[[], WritableCommitLog],
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("flush-log", config.flush_interval_commit_log / 1000, on_failure)
        self._flushed = flushed
        self._log = log
        self._least_nbytes = config.flush_commit_log_least_pages * _PAGE_NBYTES
        self._thorough_s = config.flush_commit_log_thorough_interval / 1000
        self._last_thorough = time.monotonic()

    def run_once(self) -> bool:
        """Sync if enough pages are dirty; return False always, to keep the interval."""
        dirty = self._log().max_offset - self._flushed.offset
        due = time.monotonic() >= self._last_thorough + self._thorough_s
        if dirty > 0 and (due or dirty >= self._least_nbytes):
            with contextlib.suppress(StoreFullError):  # raised by a commit; the next step retries
                self._flushed.flush()
        if due:
            self._last_thorough = time.monotonic()
        return False

    def drain(self) -> None:
        """Sync everything."""
        with self._step_lock:
            self._flushed.flush()


class FlushConsumeQueueService(ServiceThread):
    """Sync queues and index; a thorough flush also writes checkpoint and state.

    Parameters
    ----------
    flush_queues : callable
        ``flush_queues(least_pages)`` syncs queues with at least that many dirty pages.
    flush_thoroughly : callable
        Syncs everything and writes checkpoint and state.

    Attributes
    ----------
    sampler : Sampler or None
        Takes its samples here, since this service wakes about every second.
    """

    def __init__(
        self,
        flush_queues: Callable[[int], None],
        flush_thoroughly: Callable[[], None],
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("flush-queues", config.flush_interval_consume_queue / 1000, on_failure)
        self.sampler: Sampler | None = None
        self._flush_queues = flush_queues
        self._flush_thoroughly = flush_thoroughly
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_s = config.flush_consume_queue_thorough_interval / 1000
        self._last_thorough = time.monotonic()

    def run_once(self) -> bool:
        """Sync what is due; return False always, to keep the interval."""
        if self.sampler is not None:
            self.sampler.step()
        try:
            if time.monotonic() >= self._last_thorough + self._thorough_s:
                self._last_thorough = time.monotonic()
                self._flush_thoroughly()
            else:
                self._flush_queues(self._least_pages)
        except StoreFullError:
            pass  # checkpoint and state keep their old values; a later step retries
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
        return False
