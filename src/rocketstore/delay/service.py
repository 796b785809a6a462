"""The thread that delivers delayed messages when they are due."""

from __future__ import annotations

from collections.abc import Callable

from rocketstore.config import MessageStoreConfig
from rocketstore.delay.deliverer import Deliverer
from rocketstore.delay.offset_table import DelayOffsetTable
from rocketstore.delay.progress import DelayProgress
from rocketstore.dialect import Dialect
from rocketstore.errors import ReentrantCallError, StoreFullError
from rocketstore.files.durable import PASSING_ERRORS
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.services.service_thread import ServiceThread

#: Longest pause while messages wait: the store's clock may be set.
_LONGEST_PAUSE_S = 1.0
#: Pause of an idle service; an arriving delayed message ends it.
_IDLE_PAUSE_S = 3600.0


class DelayService(ServiceThread):
    """Delivers messages when they are due, and persists how far each level is delivered.

    Parameters
    ----------
    log : WritableCommitLog
    progress : DelayProgress
    table : DelayOffsetTable
    config : MessageStoreConfig
    dialect : Dialect
    clock : callable
        Epoch ms.
    sync_log : callable
        Syncs the log; delivered messages must be durable before the offsets are.
    on_failure : callable

    Notes
    -----
    Threading: ``deliver_due`` may be called from any thread; one delivery runs at a time. While
    nothing waits, the thread sleeps until ``note_dispatch`` sees a delayed message.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        progress: DelayProgress,
        table: DelayOffsetTable,
        config: MessageStoreConfig,
        dialect: Dialect,
        clock: Callable[[], int],
        sync_log: Callable[[], object],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("delay", _IDLE_PAUSE_S, on_failure)
        self.progress = progress
        self._log = log
        self._table = table
        self._dialect = dialect
        self._clock = clock
        self._sync_log = sync_log
        self._persist_ms = config.flush_delay_offset_interval
        self._deliverer = Deliverer(log, progress, config, dialect, clock)
        state = progress.state()
        is_new = not table.exists and not any(any(values) for values in state.values())
        self._persisted = state if is_new or table.log_offset is not None else {}
        self._persisted_at = clock()
        #: Ends of the levels' queues as the service knows them.
        self._known_ends = self._ends()

    # --- arrival ------------------------------------------------------------------------------

    def note_dispatch(self) -> None:
        """Wake the thread if delayed messages were dispatched; called by the dispatching thread."""
        ends = self._ends()
        if ends != self._known_ends:
            self._known_ends = ends
            self.wakeup()

    def _ends(self) -> list[int]:
        return [progress.queue.max_offset for progress in self.progress.levels.values()]

    # --- steps --------------------------------------------------------------------------------

    def run_once(self) -> bool:
        """Deliver what is due, and persist the offsets if their time has come."""
        try:
            delivered = self._deliverer.deliver()
        except OSError as error:
            _raise_lasting(error)
            self._deliverer.pause_after(error)
            return False
        if self._persist_left() <= 0:
            try:
                self.persist()
            except OSError as error:
                _raise_lasting(error)
                self._persisted_at = self._clock()
                self._deliverer.pause_after(error)
        return delivered > 0

    def deliver_due(self, max_count: int | None = None) -> int:
        """Deliver what is due now; see ``Deliverer.deliver``.

        Raises ``ReentrantCallError`` if the call interrupted a delivery of the same thread.
        """
        if self.is_held_here:
            raise ReentrantCallError()
        with self.paused():
            count = self._deliverer.deliver(max_count)
        self.wakeup()  # the next due time has changed
        return count

    def _persist_left(self) -> float:
        """Return the milliseconds until offsets must be persisted; infinite if none changed."""
        if self.progress.state() == self._persisted:
            return float("inf")
        since = self._clock() - self._persisted_at
        return self._persist_ms - since if since >= 0 else 0.0

    def _listen(self, timeout_s: float) -> bool:
        """Pause until the next message is due, or the offsets must be persisted."""
        now = self._clock()
        due = self._deliverer.next_due(now)
        left = self._persist_left()
        if due is not None:
            left = min(left, due - now, 1000 * _LONGEST_PAUSE_S)
        if left <= 0:
            return True
        self._bell.listen(min(left / 1000, timeout_s))
        return True

    # --- offsets ------------------------------------------------------------------------------

    def persist(self) -> None:
        """Write the offsets if they changed, after the deliveries that they count are durable.

        Raises ``StoreFullError`` if the disk is full; the file is unchanged.
        """
        with self.paused():
            state = self.progress.state()
            end = max(0, self._log.appender.write_offset)
            log_offset = self.progress.counted_offset(end)
            if state == self._persisted and not self._has_advanced(log_offset):
                return
            changed = self.progress.fill(self._table)
            self._sync_log()
            self._table.save(self._dialect, log_offset, changed)
            self._persisted, self._persisted_at = state, self._clock()

    def _has_advanced(self, log_offset: int | None) -> bool:
        """Return whether less of the log is unknown than the file says, while messages wait."""
        waits = any(
            progress.offset < progress.queue.max_offset
            for progress in self.progress.levels.values()
        )
        return waits and log_offset != self._table.log_offset


def _raise_lasting(error: OSError) -> None:
    """Raise an error that does not pass, unlike a full disk or a lack of file descriptors."""
    if not isinstance(error, StoreFullError) and error.errno not in PASSING_ERRORS:
        raise error
