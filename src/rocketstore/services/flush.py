"""Flushing: the log for sync and async stores, and queues, index, checkpoint and state."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from rocketstore.commit_log import WritableCommitLog
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import ServiceFailedError, StoreFullError
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import WaitingRoom
from rocketstore.status import PutMessageStatus

_PAGE_NBYTES = 4096


class FlushedLog:
    """What of the log is on disk; one flusher at a time.

    Attributes
    ----------
    physic_timestamp : int
        Store time of the newest record known to be on disk.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        physic_timestamp: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.physic_timestamp = physic_timestamp
        self.waiting = WaitingRoom()
        self._log = log
        self._on_failure = on_failure
        self._error: OSError | None = None  # guarded by: _lock
        self._lock = threading.Lock()

    @property
    def offset(self) -> int:
        """The log is on disk up to here."""
        return self._log.queue.flushed_where

    def flush(self) -> int:
        """Sync all that is written now; return the flushed offset.

        Raises
        ------
        OSError
            The first time a sync fails.
        ServiceFailedError
            Ever after: the system may take pages that it could not write for clean, so that the
            next sync of them would succeed without their being on disk.
        """
        try:
            with self._lock:
                flushed = self._flush()
        except OSError as error:
            self._on_failure(error)
            raise
        self.waiting.wake_all()
        return flushed

    def _flush(self) -> int:
        if self._error is not None:
            raise ServiceFailedError(f"syncing the log failed: {self._error}") from self._error
        # The time is read first, so it never runs ahead of the bytes that are synced.
        timestamp = self._log.appender.last_store_timestamp
        try:
            flushed = self._log.flush(self._log.max_offset)
        except OSError as error:
            self._error = error
            raise
        self.physic_timestamp = max(self.physic_timestamp, timestamp)
        return flushed


class GroupCommitService(ServiceThread):
    """SYNC_FLUSH: one sync acknowledges every put that was written before it began.

    Notes
    -----
    Threading: ``wait`` is called by any number of putters. Source: RocketMQ
    ``store/CommitLog.java`` ``GroupCommitService``.
    """

    def __init__(
        self,
        flushed: FlushedLog,
        log: Callable[[], WritableCommitLog],
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("group-commit", 0.01, on_failure)
        self._flushed = flushed
        self._log = log
        self._timeout_s = config.sync_flush_timeout / 1000
        self._error: BaseException | None = None  # set once

    def run_once(self) -> bool:
        """Sync what was written since the last time."""
        if self._log().max_offset <= self._flushed.offset:
            return False
        self._flushed.flush()
        return True

    def wait(self, end_offset: int) -> int:
        """Return ``PUT_OK`` when the log is on disk up to ``end_offset``, else FLUSH_DISK_TIMEOUT.

        Raises
        ------
        ServiceFailedError
            When a sync failed; what was not confirmed before never will be.
        KeyboardInterrupt
            While waiting; the message's fate is then unknown.
        """
        if not self.is_running and self._error is None and self._flushed.offset < end_offset:
            with contextlib.suppress(OSError):  # the store is told of it, and so is the wait below
                self.step()
        deadline = time.monotonic() + self._timeout_s
        self.wakeup()
        while self._flushed.offset < end_offset:
            ticket = self._flushed.waiting.enter()
            if self._flushed.offset >= end_offset:
                break
            if self._error is not None:
                raise ServiceFailedError(
                    f"syncing the log failed ({self._error}); the message may not be on disk"
                ) from self._error
            left = deadline - time.monotonic()
            if left <= 0:
                return PutMessageStatus.FLUSH_DISK_TIMEOUT
            ticket.acquire(timeout=left)
        return PutMessageStatus.PUT_OK

    def abandon(self, error: BaseException) -> None:
        """Wake every waiter with ``error``."""
        self._error = error
        self._flushed.waiting.wake_all()


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
        """Sync when there is enough; never True, so that the interval is kept."""
        dirty = self._log().max_offset - self._flushed.offset
        due = time.monotonic() >= self._last_thorough + self._thorough_s
        if dirty > 0 and (due or dirty >= self._least_nbytes):
            self._flushed.flush()
        if due:
            self._last_thorough = time.monotonic()
        return False

    def drain(self) -> None:
        """Sync everything."""
        with self._step_lock:
            self._flushed.flush()


class FlushConsumeQueueService(ServiceThread):
    """Syncs queues and index; a thorough flush also writes checkpoint and state.

    Parameters
    ----------
    flush_queues : callable
        ``flush_queues(least_pages)`` syncs queues that have so many dirty pages.
    flush_thoroughly : callable
        Syncs everything and writes checkpoint and state.
    """

    def __init__(
        self,
        flush_queues: Callable[[int], None],
        flush_thoroughly: Callable[[], None],
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("flush-queues", config.flush_interval_consume_queue / 1000, on_failure)
        self._flush_queues = flush_queues
        self._flush_thoroughly = flush_thoroughly
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_s = config.flush_consume_queue_thorough_interval / 1000
        self._last_thorough = time.monotonic()

    def run_once(self) -> bool:
        """Sync what is due; never True, so that the interval is kept."""
        if time.monotonic() >= self._last_thorough + self._thorough_s:
            self._last_thorough = time.monotonic()
            with contextlib.suppress(StoreFullError):  # the old marks stay; tried again later
                self._flush_thoroughly()
        else:
            self._flush_queues(self._least_pages)
        return False
