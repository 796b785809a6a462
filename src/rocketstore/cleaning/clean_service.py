"""CleanCommitLogService and CleanConsumeQueueService: decide when to delete expired files."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable

from rocketstore.cleaning.cleaner import StoreCleaner
from rocketstore.cleaning.plan import Retention
from rocketstore.config import MessageStoreConfig, parse_hours
from rocketstore.errors import error_text
from rocketstore.files.disk_space import SpaceJudgement, SpaceWatch
from rocketstore.files.durable import NO_DESCRIPTORS
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import Wakeup

_log = logging.getLogger(__name__)
#: Seconds from the start of a store to the first check.
FIRST_LOOK_S = 60.0
#: Checks that delete segments at any hour after a manual request.
MANUAL_LOOKS = 20


#: A clock that jumped forward is accepted after this time.
_ACCEPTED_AFTER_S = 86_400.0
#: Smaller jumps are not logged.
_LOGGED_FROM_MS = 60_000


class AgingClock:
    """The time that decides how old messages are; it ignores forward jumps of the clock.

    The clock is accepted when the store is opened, and whenever it is earlier than expected. A
    clock that is later than expected is accepted only as far as it was ahead for a whole day.
    Until then the monotonic clock advances the time. So a clock that jumps (a dead battery, a bad
    answer of a time server) expires no message.

    Sleep of the machine counts as a jump, too: the monotonic clock stops meanwhile, and only the
    suspect clock shows the duration. Messages are then kept for up to a day longer.

    Parameters
    ----------
    clock : callable
        Return epoch ms. Other results and exceptions count as a failure of the clock.
    monotonic : callable
        Return seconds.
    """

    def __init__(
        self, clock: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._failed = ""
        #: Accepted difference of the clock and the monotonic one.
        self._ahead_ms = self._ahead() or 0
        #: The minimum that the clock was ahead of the accepted time since ``_since_s``.
        self._further_ms = 0
        self._since_s = 0.0
        self._warned = False

    def now(self) -> int:
        """Return the accepted time in epoch ms."""
        ahead, now_s = self._ahead(), self._monotonic()
        if ahead is not None:
            self._judge(ahead - self._ahead_ms, now_s)
        return self._ahead_ms + int(now_s * 1000)

    def wall(self) -> int | None:
        """Return the clock's time; ``None`` if the clock fails, which is logged once."""
        try:
            now = self._clock()
            if not isinstance(now, int) or isinstance(now, bool):
                raise TypeError(f"it returned {now!r}, not milliseconds as an integer")
        except Exception as error:  # noqa: BLE001 - a failing clock must not delete anything
            if self._failed != (words := error_text(error)):
                self._failed = words
                _log.warning("the clock fails (%s): messages age by the monotonic clock", words)
            return None
        self._failed = ""
        return now

    def _ahead(self) -> int | None:
        wall = self.wall()
        return None if wall is None else wall - int(self._monotonic() * 1000)

    def _judge(self, further: int, now_s: float) -> None:
        """Adjust the accepted time to a clock that is ``further`` ahead of it."""
        if further <= 0:
            self._ahead_ms += further
            self._further_ms, self._warned = 0, False
            return
        if self._further_ms == 0:
            self._further_ms, self._since_s = further, now_s
        self._further_ms = min(self._further_ms, further)
        if now_s - self._since_s >= _ACCEPTED_AFTER_S:
            self._ahead_ms += self._further_ms
            self._further_ms, self._warned = 0, False
        elif further >= _LOGGED_FROM_MS and not self._warned:
            self._warned = True
            _log.warning(
                "the clock jumped %.1f hours forward; messages that only this jump makes old "
                "enough to delete are kept until the clock has been ahead for a day, or "
                "clean_expired() is called",
                further / 3_600_000,
            )


class _CleanService(ServiceThread):
    """Check every ``clean_resource_interval``, the first time after a minute."""

    def __init__(
        self, name: str, config: MessageStoreConfig, on_failure: Callable[[BaseException], None]
    ) -> None:
        super().__init__(name, config.clean_resource_interval / 1000, on_failure)
        self._between = Wakeup()

    def run_once(self) -> bool:
        """Check once; return False always, to keep the interval."""
        try:
            self._look()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            _log.warning("deleting stopped until the next check: %s", error)
        return False

    def _look(self) -> None:
        raise NotImplementedError

    def _step_and_pause(self) -> None:
        self._bell.listen(FIRST_LOOK_S)
        super()._step_and_pause()

    def stop(self) -> None:
        """Stop the service; also end its pause between two files."""
        super().stop()
        self._between.ring()

    def _pause(self, interval_ms: int) -> bool:
        """Pause between deletions, unless a caller steps the service; return False to stop."""
        if self.is_running and not self._stopping:
            self._between.listen(interval_ms / 1000)
        return not self._stopping


class CleanCommitLogService(_CleanService):
    """Delete expired segments; refuse puts while the disk is nearly full.

    Segments are deleted at the hours of ``delete_when``, when the disk gets full, and on request.

    Parameters
    ----------
    cleaner : StoreCleaner
    watch : SpaceWatch
    config : MessageStoreConfig
    clock : callable
        Epoch ms; see ``AgingClock``.
    limit : callable
        Log offset up to which segments may be deleted, see ``StoreToClean.expirable_end``.
    set_disk_full : callable
        Called with whether to refuse puts.

    Notes
    -----
    Source: RocketMQ ``store/DefaultMessageStore.java`` ``CleanCommitLogService``.
    """

    def __init__(
        self,
        cleaner: StoreCleaner,
        watch: SpaceWatch,
        config: MessageStoreConfig,
        clock: Callable[[], int],
        limit: Callable[[], int],
        set_disk_full: Callable[[bool], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("clean-log", config, on_failure)
        self.watch = watch
        self.manual_looks = 0
        self._cleaner = cleaner
        self._config = config
        self._clock = clock
        self._aging = AgingClock(clock)
        self._limit = limit
        self._set_disk_full = set_disk_full
        self._hours = parse_hours(config.delete_when)
        self._most = max(1, config.delete_file_batch_max)
        self._retried = time.monotonic()
        self._warned = False

    def _look(self) -> None:
        now = self._aging.now() if self.is_running else self._clock()
        space = self.watch.judge()
        self._set_disk_full(space.is_disk_full)
        asked = self.manual_looks > 0
        self.manual_looks -= asked
        if asked or space.is_short or self._is_hour() or self._is_retry_due():
            rule = self.rule(space, now, most=self._most)
            interval_ms = self._config.delete_commit_log_files_interval
            deleted, kept = self._cleaner.clean_log(rule, lambda: self._pause(interval_ms))
            self._warn_when_short(space, deleted, kept)

    def rule(
        self, space: SpaceJudgement, now: int | None = None, *, most: int | None = None
    ) -> Retention:
        """Return the rule for deleting segments now; ``now`` defaults to the clock's time."""
        return Retention(
            now=self._clock() if now is None else now,
            reserved_ms=self._config.file_reserved_time * 3_600_000,
            at_once=self._config.clean_file_forcibly_enable and space.cleans_at_once,
            limit_offset=self._limit(),
            most=most,
            most_at_once=self._most,
        )

    def ask(self) -> None:
        """Delete expired segments at the next checks, whatever the hour."""
        self.manual_looks = MANUAL_LOOKS
        self.wakeup()

    def _is_hour(self) -> bool:
        now = self._aging.wall()
        if now is None:
            return False
        try:
            time_of_day = datetime.datetime.fromtimestamp(now / 1000, self._config.zone)
        except (OverflowError, OSError, ValueError):
            return False  # the time is outside the calendar's range
        return time_of_day.hour in self._hours

    def _is_retry_due(self) -> bool:
        """Return whether to retry files that could not be deleted."""
        now = time.monotonic()
        if not self._cleaner.failures:
            self._retried = now
            return False
        if now - self._retried < self._config.redelete_hanged_file_interval / 1000:
            return False
        self._retried = now
        return True

    def _warn_when_short(self, space: SpaceJudgement, deleted: int, kept: str) -> None:
        if deleted or not space.is_short:
            self._warned = False
        elif not self._warned:
            self._warned = True
            fullest = max(space.log_ratio, space.queue_ratio)
            how_full = f"the disk is {fullest:.0%} full"
            if fullest < 0:
                how_full = "the disk's usage is unknown"
            _log.warning("%s, and no segment is deleted: %s", how_full, kept)


class CleanConsumeQueueService(_CleanService):
    """Delete queue and index files that only deleted segments needed.

    Notes
    -----
    Source: RocketMQ ``store/DefaultMessageStore.java`` ``CleanConsumeQueueService``.
    """

    def __init__(
        self,
        cleaner: StoreCleaner,
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("clean-queues", config, on_failure)
        self._cleaner = cleaner
        self._interval_ms = config.delete_consume_queue_files_interval

    def _look(self) -> None:
        self._cleaner.clean_followers(lambda: self._pause(self._interval_ms))
