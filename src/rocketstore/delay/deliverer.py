"""Delivers delayed messages that are due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.delay.levels import Unit
from rocketstore.delay.progress import DelayProgress, LevelProgress
from rocketstore.delay.redelivery import BadDelayedError, LostDelayedError, redelivery
from rocketstore.dialect import Dialect
from rocketstore.errors import CorruptMessageError, StoreClosedError, StoreFullError
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.queues.consume_queue import UNIT_NBYTES
from rocketstore.status import KernelStatus, PutMessageStatus

_log = logging.getLogger(__name__)
#: The record is in the log (D-42).
_STORED = frozenset(
    {
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    }
)
#: The store takes no puts now; this says nothing about the message.
_PASSING = frozenset(
    {
        PutMessageStatus.SERVICE_NOT_AVAILABLE,
        PutMessageStatus.OS_PAGE_CACHE_BUSY,
        PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
    }
)
#: The message breaks a limit; no later attempt can succeed.
_HOPELESS = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})
_FIRST_RETRY_MS, _LONGEST_RETRY_MS = 100, 10_000
_STEP_COUNT = 8192


class Retry(NamedTuple):
    """A message whose put failed: the next attempt, and how many there were."""

    at: int
    attempts: int
    pause_ms: int


class Deliverer:
    """Puts delayed messages on their real topics.

    Parameters
    ----------
    log : WritableCommitLog
    progress : DelayProgress
    config : MessageStoreConfig
    dialect : Dialect
    clock : callable
        Epoch ms.

    Notes
    -----
    Threading: one caller at a time. Source: RocketMQ ``schedule/ScheduleMessageService.java``.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        progress: DelayProgress,
        config: MessageStoreConfig,
        dialect: Dialect,
        clock: Callable[[], int],
    ) -> None:
        self._log = log
        self._progress = progress
        self._config = config
        self._dialect = dialect
        self._clock = clock
        self._gives_offsets = config.enable_lmq or config.enable_multi_dispatch
        self._encoder = kernels.deliveries.DeliveryEncoder(
            broker_version=dialect.name,
            max_message_size=config.max_message_size,
            segment_nbytes=log.segment_size,
            append_property_crc=config.enabled_append_prop_crc,
            gives_offsets=self._gives_offsets,
        )
        self._retries: dict[int, Retry] = {}
        #: Levels whose put failed in the current call: it does not try them again.
        self._failed_now: set[int] = set()
        #: Log offset from which on an interrupted put may have delivered messages.
        self._doubtful_from: int | None = None

    # --- what is due --------------------------------------------------------------------------

    def next_due(self, now: int) -> int | None:
        """Return when the next message is due or retried, epoch ms; ``None`` if none waits."""
        times = (self._next_of(level, now, end) for level, end in self._ends().items())
        return min((at for at in times if at is not None), default=None)

    def _ends(self) -> dict[int, int]:
        """Return where the queue of each level ends.

        Asked for before the clock is: a message put after the time that it is compared with would
        be due a whole delay too early, since its time looks like that of a clock that was set back.
        """
        return {level: one.queue.max_offset for level, one in self._progress.levels.items()}

    def _next_of(self, level: int, now: int, end: int) -> int | None:
        progress = self._progress.levels[level]
        queue = progress.queue
        if progress.offset >= end:
            return None
        retry = self._retries.get(level)
        if retry is not None and now < retry.at <= now + _LONGEST_RETRY_MS:
            return retry.at
        unit = queue.unit(progress.offset)
        return now if unit is None else queue.corrected(queue.due(unit), now)

    # --- delivering ---------------------------------------------------------------------------

    def deliver(self, max_count: int | None = None) -> int:
        """Deliver what is due now, of each level in the order of its queue.

        Parameters
        ----------
        max_count : int, optional
            Most messages to deliver.

        Returns
        -------
        int
            Messages delivered.

        Raises
        ------
        StoreFullError
            The disk is full; the rest stays due.
        OSError, ServiceFailedError, StoreClosedError
            As ``put``.
        """
        self._settle_doubts()
        self._failed_now.clear()
        ends, now = self._ends(), self._clock()
        total = 0
        while max_count is None or total < max_count:
            times = [(self._next_of(level, now, end), level) for level, end in ends.items()
                     if level not in self._failed_now]  # fmt: skip
            due = [(at, level) for at, level in times if at is not None and at <= now]
            if not due:
                return total
            for _, level in sorted(due):
                left = _STEP_COUNT if max_count is None else min(_STEP_COUNT, max_count - total)
                if left > 0:
                    total += self._deliver_level(level, ends[level], now, left)
        return total

    def _settle_doubts(self) -> None:
        """Find in the log what a put delivered before it raised."""
        if self._doubtful_from is not None:
            self._log.commit()
            self._progress.match(self._doubtful_from)
            self._doubtful_from = None

    def _deliver_level(self, level: int, end: int, now: int, most: int) -> int:
        """Deliver up to ``most`` messages of a level before ``end`` from one queue file and one
        segment."""
        progress = self._progress.levels[level]
        queue = progress.queue
        if progress.offset < queue.min_offset:
            self._skip(progress, queue.min_offset - progress.offset)
        units = None if queue.queue is None else queue.queue.units_from(progress.offset)
        unit = queue.unit(progress.offset)
        if units is None or unit is None:
            if progress.offset < end:
                progress.advance(1)  # a filler
            return 0
        buffer, position, stop = units
        count = progress.undone(min(most, end - progress.offset))
        window = self._log.window(unit[0])
        if window is None or unit[0] < self._log.min_offset:
            return self._deliver_alone(level, unit, now)
        self._encoder.take()  # what a call that raised left
        _, status = self._encoder.stage(
            buffer, position, min(stop, position + count * UNIT_NBYTES), progress.offset,
            level - 1, now, -1 if queue.delay_ms is None else queue.delay_ms,
            window.buffer, window.stop, window.base_offset, window.segment_end, window.flags,
        )  # fmt: skip
        if self._encoder.rows:
            return self._put_staged(level, self._encoder.rows, self._encoder.take())
        if status == KernelStatus.MISMATCH:
            return self._deliver_alone(level, unit, now)
        return 0

    def _put_staged(self, level: int, rows: int, staged: bytes) -> int:
        """Append staged records; count those that are in the log."""
        result = self._put(self._log.appender.put_staged, staged, 0)
        if result.ok:
            self._delivered(level, rows)
            self._doubtful_from = None
            return rows
        done = [status in _STORED for status in result.statuses]
        first = done.index(False) if False in done else rows
        progress = self._progress.levels[level]
        progress.ahead |= {progress.offset + at for at in range(first, rows) if done[at]}
        count = self._delivered(level, first) + sum(done[first:])
        self._doubtful_from = None
        if first < rows:
            self._failed(level, PutMessageStatus(result.statuses[first]))
        return count

    def _put(self, put: Callable[..., Any], *arguments: Any) -> Any:
        """Put; until ``_doubtful_from`` is cleared, the log shows what was appended.

        Cleared when the deliveries are counted: an interrupt may come in between.
        """
        self._doubtful_from = self._log.appender.write_offset
        return put(*arguments)

    def _delivered(self, level: int, count: int) -> int:
        if count:
            progress = self._progress.levels[level]
            self._retries.pop(level, None)
            progress.delivered += count
            progress.advance(count)
        return count

    # --- messages that need care --------------------------------------------------------------

    def _deliver_alone(self, level: int, unit: Unit, now: int) -> int:
        """Deliver, skip or park the next message of a level, if it is due."""
        progress = self._progress.levels[level]
        queue = progress.queue
        if unit[0] < self._log.min_offset:
            self._skip(progress, 1)
            return 0
        if queue.corrected(queue.due(unit), now) > now:
            return 0
        try:
            message = self._log.look_message_by_offset(unit[0])
            if message is None or message.store_size != unit[1]:
                raise BadDelayedError(f"its unit names no record at log offset {unit[0]}")
            put, argument = redelivery(
                message, level - 1, progress.offset, self._config, self._dialect
            )
        except (BadDelayedError, CorruptMessageError) as error:
            if unit[0] < self._log.min_offset or isinstance(error, LostDelayedError):
                self._skip(progress, 1)
            else:
                self._park(level, str(error))
            return 0
        return self._put_alone(level, put, argument)

    def _put_alone(self, level: int, name: str, argument: Any) -> int:
        appender = self._log.appender
        try:
            if name == "put_staged":
                statuses: Sequence[int] = self._put(appender.put_staged, argument, 0).statuses
            else:
                statuses = [self._put(appender.put_message, argument).status]
        except StoreClosedError:
            raise
        except ValueError as error:  # no put takes such a message; nothing was appended
            self._doubtful_from = None
            self._park(level, str(error))
            return 0
        status = PutMessageStatus(statuses[0])
        count = self._delivered(level, 1 if status in _STORED else 0)
        self._doubtful_from = None
        if not count:
            self._failed(level, status)
        return count

    def _skip(self, progress: LevelProgress, count: int) -> None:
        progress.skipped += count
        _log.warning(
            "delay level %d: %d messages from offset %d on are gone from the log, not delivered",
            progress.queue.level, count, progress.offset,
        )  # fmt: skip
        progress.advance(count)

    def _park(self, level: int, reason: str) -> None:
        progress = self._progress.levels[level]
        progress.parked[progress.offset] = reason
        self._retries.pop(level, None)
        _log.error(
            "delay level %d: the message at offset %d of %s cannot be delivered: %s",
            level, progress.offset, formats.TOPIC_SCHEDULE, reason,
        )  # fmt: skip
        progress.advance(1)

    def _failed(self, level: int, status: PutMessageStatus) -> None:
        """Plan the next attempt of the level's next message, or park it after the last one."""
        if status in _HOPELESS:
            self._park(level, f"the put answered {status.name}")
            return
        retry = self._retries.get(level)
        attempts = 0 if retry is None else retry.attempts
        pause = _FIRST_RETRY_MS if retry is None else min(2 * retry.pause_ms, _LONGEST_RETRY_MS)
        if status not in _PASSING:
            attempts += 1
        if attempts >= self._config.delay_max_attempts:
            self._park(level, f"{status.name} after {attempts} attempts")
            return
        if retry is None:
            _log.warning("delay level %d: a delivery failed: %s", level, status.name)
        self._retries[level] = Retry(self._clock() + pause, attempts, pause)
        self._failed_now.add(level)

    def pause_after(self, error: OSError) -> None:
        """Plan the next attempt of all levels after an error that may pass, such as a full disk."""
        for level in self._progress.levels:
            self._failed(level, PutMessageStatus.SERVICE_NOT_AVAILABLE)
        reason = "the disk is full" if isinstance(error, StoreFullError) else str(error)
        _log.warning("delayed messages wait: %s", reason)
