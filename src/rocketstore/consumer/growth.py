"""Watching a log that another process writes, for the reads that wait in mode ``"r"``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rocketstore import kernels
from rocketstore.consumer.hold import HeldPull, Key, PullRequestHoldService, Ticket
from rocketstore.errors import (
    ReentrantCallError,
    ServiceFailedError,
    StoreClosedError,
    error_text,
)
from rocketstore.lock_order import LockRank, ReentrantLock
from rocketstore.log.commit_log import CommitLog
from rocketstore.query.store_reader import NoRecordError
from rocketstore.query.tail import LogTail, StoreToFollow, start_of_newest
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.services.service_thread import ServiceThread

#: Pauses between two looks: after one that found something, and the longest of an idle log.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.025
#: A pause is at least so many times as long as the look before it took.
_LOOKS_PER_PAUSE = 3
#: How long the thread stays when no read waits.
_LINGER_S = 2.0
#: Selects no record: following a log then reads what it needs of each, and makes no message.
_NOTHING = {"topics": ("",)}


class GrowingStore(StoreToFollow, Protocol):
    """What the watch needs of a store in mode ``"r"``, besides what ``LogTail`` needs."""

    @property
    def covered_offset(self) -> int:
        """Return the physical offset up to which the queues cover the log."""

    def cover(self) -> bool:
        """Bring the queues up to the log's end; return whether they may have changed.

        Replace the opened parts if the queues cannot follow otherwise.
        """


class GrowthWatch(ServiceThread):
    """Looks whether the log grew, brings the queues up to its end, and wakes the reads.

    Parameters
    ----------
    hold : WatchedHold
    on_failure : callable
        Called with the error that ended it.

    Notes
    -----
    Pauses between looks grow while nothing is written. The thread ends when no read has waited for
    some seconds.
    """

    def __init__(self, hold: WatchedHold, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__("growth", SHORTEST_PAUSE_S, on_failure, LONGEST_PAUSE_S)
        self._hold = hold
        self._waited_at = time.monotonic()

    def run_once(self) -> bool:
        """Look once; return whether the log or the queues changed."""
        begun = time.monotonic()
        if self._hold.held:
            self._waited_at = begun
        elif begun - self._waited_at > _LINGER_S and self._hold.let_end(self):
            self._stopping = True
            return False
        try:
            has_changed = self._hold.look()
        except StoreClosedError:
            self._stopping = True
            return False
        took = time.monotonic() - begun
        if has_changed:
            self._listen(max(SHORTEST_PAUSE_S, took * _LOOKS_PER_PAUSE))
        return has_changed


class WatchedHold(PullRequestHoldService):
    """Holds the reads of a store in mode ``"r"``, and watches the log while there are any.

    Parameters
    ----------
    store : GrowingStore

    Notes
    -----
    Threading: any thread waits; one thread, started with the first read, watches and announces.
    """

    def __init__(self, store: GrowingStore) -> None:
        def queues() -> Mapping[Key, ConsumeQueue]:
            return store.reader.queues.table

        def log() -> CommitLog:
            return store.reader.log

        super().__init__(queues, lambda: store.covered_offset, log)
        self._store = store
        self._watch: GrowthWatch | None = None  # guarded by: _watch_lock
        self._watch_lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._failure: Callable[[], Exception] | None = None
        self._looking = ReentrantLock()
        self._tail: LogTail | None = None  # guarded by: _looking

    def look(self) -> bool:
        """Follow the log, and announce what its queues got; return whether anything changed.

        Raises
        ------
        CorruptionError, MappedFileError, FileNotFoundError
            The log cannot be followed, or is gone; the next look begins with the newest message.
        ReentrantCallError
            A filter, or an interrupt, called it within a look of the same thread.

        Notes
        -----
        Threading: any thread; one looks at a time.
        """
        if self._looking._is_owned():  # type: ignore[attr-defined]
            raise ReentrantCallError()
        with self._looking:
            try:
                return self._look_once()
            except BaseException:
                self._tail = None
                raise

    def _look_once(self) -> bool:
        reader = self._store.reader
        if self._tail is None:
            self._tail = self._new_tail()
        tail, position = self._tail, self._tail.position
        if tail.must_refresh() or self._store.max_physical_offset > position:
            for _ in tail.poll():
                pass
        has_grown = tail.position != position
        has_changed = self._store.cover()
        is_replaced = self._store.reader is not reader
        if has_changed or is_replaced:
            self.announce(self._store.covered_offset, all_queues=is_replaced)
        return has_changed or has_grown or is_replaced

    def _new_tail(self) -> LogTail:
        """Return what follows the log, from its last message on: if that changes, the log was
        truncated."""
        start = min(start_of_newest(self._store, 1), self._store.max_physical_offset)
        try:
            return LogTail(self._store, start=start, select=_NOTHING, on_corruption="skip")
        except NoRecordError:  # it is being written again
            return LogTail(self._store, select=_NOTHING, on_corruption="skip")

    def _enter(self, pulls: Sequence[HeldPull], ticket: Ticket) -> None:
        self._forget_failure()
        super()._enter(pulls, ticket)
        with self._watch_lock:
            if self._watch is None:
                watch = GrowthWatch(self, self._fail)
                watch.start()
                self._watch = watch

    def let_end(self, watch: GrowthWatch) -> bool:
        """Return whether the watch may end, because no read waits."""
        with self._watch_lock:
            if self.held or self._watch is not watch:
                return self._watch is not watch
            self._watch = None
            return True

    def _fail(self, error: BaseException) -> None:
        """End all waits; the next one starts another watch."""

        def failure() -> Exception:
            failed = ServiceFailedError(f"the log cannot be followed: {error_text(error)}")
            failed.__cause__ = error
            return failed

        with self._watch_lock:
            self._watch = None
        self._failure = failure
        super().close(failure)

    def _forget_failure(self) -> None:
        with self._lock:
            if self._failure is not None and self._end is self._failure:
                self._end = self._failure = None

    def close(self, error: Callable[[], Exception]) -> None:
        """See ``PullRequestHoldService.close``; the watch ends too."""
        self._forget_failure()
        super().close(error)
        with self._watch_lock:
            watch = self._watch
        if watch is not None:
            with contextlib.suppress(ServiceFailedError):  # the reads that waited raised it
                watch.shutdown()
