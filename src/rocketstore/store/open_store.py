"""An open store: its parts, its state and its lifetime."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.place import refuse_vanished
from rocketstore.errors import ForkedStoreError, StoreClosedError
from rocketstore.filter.message_filter import filter_cache
from rocketstore.lock_order import LockRank
from rocketstore.store.arguments import now_ms

if TYPE_CHECKING:
    from rocketstore.arguments import Mode, Progress
    from rocketstore.consumer.hold import PullRequestHoldService
    from rocketstore.consumer.open_consumers import OpenConsumers
    from rocketstore.delay.service import DelayService
    from rocketstore.dispatch.reput_service import ArrivingListener
    from rocketstore.flush.async_appends import AsyncAppends
    from rocketstore.message import Message, PutCall, PutMessageResult
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.services.sampler import Sampler
    from rocketstore.store.engine.incoming import Incoming
    from rocketstore.store.group_filters import GroupFilters
    from rocketstore.store.read_only import Gap, ReadOnlyParts
    from rocketstore.store.writer import StoreWriter
    from rocketstore.survey.facts import StoreFacts
    from rocketstore.transaction.live import StoreTransactions

#: Attempts to read a directory whose files are deleted at the same time: that meet the same missing
#: file, and in all.
_READING_TRIES, _MOST_TRIES = 10, 100
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def _sampler(writer: StoreWriter, reader: StoreReader) -> Sampler:
    """Return what samples puts and gets; it holds no reference to the store."""
    from rocketstore.services.sampler import Sampler

    appender = writer.log.appender
    return Sampler(lambda: (appender.put_times, *reader.pull_totals), lambda: appender.times)


class OpenStore:
    """Base of the parts of ``DefaultMessageStore``: the opened files, and checks before each use.

    Attributes
    ----------
    path : Path
        The store's root.
    mode : str
    put, put_message : callable
        Put one message: the appender's own methods, without a wrapper.
    """

    put: PutCall
    put_message: Callable[[Message], PutMessageResult]

    def __init__(
        self,
        root: Path,
        mode: Mode,
        config: MessageStoreConfig,
        *,
        clock: Callable[[], int] | None,
        arriving_listener: ArrivingListener | None,
        start: bool,
        derive: str,
        progress: Progress | None,
    ) -> None:
        self.path = root
        self.mode: Mode = mode
        self._config = config
        self._closed = False
        self._forks = _forks
        self._derive = derive
        self._progress = progress
        self._clock = clock if clock is not None else now_ms
        self._opened_at = time.monotonic()
        #: Totals of each second, for the rates; mode "r" makes it when they are first asked for.
        self._sampler: Sampler | None = None
        self._boot_timestamp = self._clock()
        #: What came into the log since it was opened, once metrics ask for it.
        self._incoming: Incoming | None = None
        self._writer: StoreWriter | None = None
        self._async_appends: AsyncAppends | None = None
        self._transactions: StoreTransactions | None = None
        self._transactions_lock = threading.Lock()
        self._hold_lock = kernels.locks.OrderedLock(LockRank.WAITING)
        self._hold: PullRequestHoldService | None = None
        self._consumers: OpenConsumers | None = None
        self._consumers_lock = threading.Lock()
        self._start = start
        self._stored_filters: GroupFilters | None = None
        self._compiled = filter_cache()
        self._refresh_lock = kernels.locks.OrderedLock(LockRank.REFRESH)
        from rocketstore.directory.paths import StorePaths

        self._paths = StorePaths.of(root, config)
        if mode == "r":
            self._open_parts()
            self._opened_end = self._reader.log.max_offset
            self.put = self.put_message = self._refuse_put
            return
        self._paths.refuse_several_logs()
        if mode == "r+":
            self._paths.refuse_named_nothing()
        self._paths = self._paths.absolute()
        self._open_writer(clock, arriving_listener, start=start)
        self._opened_end = self._reader.log.max_offset

    def _open_writer(
        self,
        put_clock: Callable[[], int] | None,
        listener: ArrivingListener | None,
        *,
        start: bool,
    ) -> None:
        from rocketstore.query.store_reader import StoreReader
        from rocketstore.store.writer import StoreWriter, create_root

        if not self.path.exists():
            create_root(self.path)
        self._writer = writer = StoreWriter(
            self._paths,
            self._config,
            clock=self._clock,
            put_clock=put_clock,
            listener=listener,
            progress=self._progress,
            start=start,
        )
        self._reader = StoreReader(
            writer.log,
            writer.queues,
            writer.index,
            self._config,
            writer.dialect,
        )
        writer.flush_queues.sampler = self._sampler = _sampler(writer, self._reader)
        self.put = writer.log.appender.put
        self.put_message = writer.log.appender.put_message

    def _open_parts(self, old: ReadOnlyParts | None = None) -> None:
        from rocketstore.query.store_reader import StoreReader

        parts = self._read_parts()
        parts.come_after(old)
        reader = StoreReader(
            parts.log,
            parts.queues,
            parts.index,
            self._config,
            parts.dialect,
        )
        if old is not None:
            reader.count_on_from(self._reader)
        self._parts = parts
        self._reader = reader

    def _read_parts(self) -> ReadOnlyParts:
        """Read the directory.

        Retry if its writer meanwhile deleted a file, truncated the log, or dispatched between the
        loading of two queues.
        """
        from rocketstore.log.commit_log import RecordGoneError
        from rocketstore.store.read_only import QueuesMovedError, ReadOnlyParts

        missing: list[str] = []
        seen: list[list[Gap]] = []

        def accept_gaps(gaps: list[Gap]) -> bool:
            """Return whether the same gaps were seen before: then no writer caused them."""
            seen.append(gaps)
            return gaps in seen[:-1] or len(seen) >= _READING_TRIES

        while True:
            try:
                return ReadOnlyParts(
                    self._paths,
                    self._config,
                    derive=self._derive,
                    clock=self._clock,
                    progress=self._progress,
                    accept_gaps=accept_gaps,
                )
            except QueuesMovedError:
                continue
            except (FileNotFoundError, RecordGoneError) as error:
                missing.append(str(error))
                vain = missing[-_READING_TRIES:].count(missing[-1]) == _READING_TRIES
                if vain or len(missing) == _MOST_TRIES or not self.path.is_dir():
                    raise

    def _use(self) -> StoreReader:
        """Return the reader; raise if the store is closed or this is a forked child."""
        if self._closed:
            raise self._closed_error()
        if self._forks != _forks:
            raise ForkedStoreError(
                f"the store {self.path} was opened by the parent process; open it again by its path"
            )
        return self._reader

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"the store {self.path} is closed")

    def _group_filters(self) -> GroupFilters:
        """Return the consumer groups' filters: the writer's, if it has any, or the file's."""
        if self._writer is not None and self._writer.filters is not None:
            return self._writer.filters
        if self._stored_filters is None:
            from rocketstore.store.group_filters import GroupFilters

            self._stored_filters = GroupFilters(self.path, self._config, lambda: self.facts)
        return self._stored_filters

    def _writing(self) -> StoreWriter:
        self._use()
        if self._writer is None:
            raise io.UnsupportedOperation(f'the store {self.path} is open with mode "r"')
        return self._writer

    def _refuse_put(self, *_: Any, **__: Any) -> Any:
        self._writing()

    def close(self) -> None:
        """Stop the services, sync everything and mark the stop as clean. Idempotent.

        Messages and views in use stay valid. Raises ``ServiceFailedError`` if a service failed
        before; the store is closed anyway and ``abort`` stays.
        """
        if self._closed or self._forks != _forks:
            return
        if self._writer is not None:
            self._writer.refuse_interrupted_close()
        try:
            if self._transactions is not None:
                self._transactions.stop()  # first: callbacks that run use the store
        finally:
            self._close()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._hold is not None:
                self._hold.close(self._closed_error)
            if self._consumers is not None:
                self._consumers.close(f"the store {self.path} is closed")
            if self._transactions is not None:
                self._transactions.close()
            if self._async_appends is not None:
                self._async_appends.close()
        finally:  # also after an interrupt: a second close does nothing
            if self._writer is not None:
                self._writer.close()
            else:
                self._parts.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @property
    def config(self) -> MessageStoreConfig:
        """The options that the store was opened with."""
        return self._config

    @property
    def clock(self) -> Callable[[], int]:
        """The store's clock: returns epoch ms."""
        return self._clock

    @property
    def delay_service(self) -> DelayService | None:
        """What delivers delayed messages (for tools); ``None`` if nothing does."""
        return None if self._writer is None else self._writer.delay

    @property
    def facts(self) -> StoreFacts:
        """What the files showed at opening: sizes, dialect and its reason, checkpoint."""
        return self._writer.facts if self._writer is not None else self._parts.facts

    @property
    def broker_version(self) -> str:
        """The RocketMQ version whose file formats and answers the store follows."""
        return self.facts.dialect.name

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening found and did."""
        return self._writer.report if self._writer is not None else self._parts.report

    @property
    def min_physical_offset(self) -> int:
        """Offset of the log's first byte, -1 for an empty log."""
        return self._use().log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Offset after the log's last record."""
        return self._use().log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Offset up to which the log is known to be on disk."""
        return self._writing().flushed.offset

    @property
    def dispatch_behind_nbytes(self) -> int:
        """Bytes of the log that queues and index do not have yet."""
        self._use()
        if self._writer is None:
            return self._parts.behind_nbytes
        return max(0, self._writer.log.max_offset - self._writer.dispatcher.reput_offset)

    def refresh(self) -> None:
        """Mode "r": read the directory again to show what was written since.

        Reads that are under way continue on the former state. The store keeps that state too if the
        directory is gone or holds another store (``FileNotFoundError``, ``MappedFileError``).
        """
        self._use()
        if self._writer is not None:
            raise io.UnsupportedOperation('refresh() is for mode "r"')
        with self._refresh_lock:  # two at once would abandon only one of the replaced parts
            old = self._parts
            refuse_vanished(self.path)
            self._open_parts(old)
        old.abandon()

    @property
    def is_dispatching_here(self) -> bool:
        """Whether this thread runs a step of dispatch, for example in an arriving listener."""
        return self._writer is not None and self._writer.reput.is_held_here

    @property
    def covered_offset(self) -> int:
        """Physical offset up to which the queues cover the log."""
        if self._writer is not None:
            return self._writer.dispatcher.reput_offset
        return self._parts.covered_offset

    def cover(self) -> bool:
        """Mode "r": bring the queues up to the log's end, which was moved past new records.

        Return whether they may have changed. The store is refreshed if that is necessary.
        """
        self._use()
        with self._refresh_lock:
            parts = self._parts
            has_changed = parts.follow()
        if has_changed is None:
            self.refresh()
            return self._parts.covered_offset != parts.covered_offset
        return has_changed

    @property
    def reader(self) -> StoreReader:
        """The opened parts: log, queues and index (for tools)."""
        return self._use()
