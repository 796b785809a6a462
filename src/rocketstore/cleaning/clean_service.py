"""CleanCommitLogService and CleanConsumeQueueService: when expired files are deleted."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable

from rocketstore.cleaning.cleaner import StoreCleaner
from rocketstore.cleaning.plan import Retention
from rocketstore.config import MessageStoreConfig, parse_hours
from rocketstore.errors import told
from rocketstore.files.disk_space import SpaceJudgement, SpaceWatch
from rocketstore.files.durable import NO_DESCRIPTORS
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import Bell

_log = logging.getLogger(__name__)
#: Seconds from the start of a store to the first look.
FIRST_LOOK_S = 60.0
#: Looks at which segments go at any hour, once that was asked for.
MANUAL_LOOKS = 20


#: So long a service runs with a clock that jumped before ages are counted by it.
_BELIEVED_AFTER_S = 86_400.0
#: A smaller jump is not worth a word.
_TOLD_FROM_MS = 60_000


class AgingClock:
    """The time by which messages grow old: while a store is open, no faster than they do.

    The clock is believed when the store is opened, and whenever it says less than what is expected
    of it. When it says more, then by as much as it has said all the time for a whole day; until
    then time goes on from what was believed before, by the monotonic clock. So a clock that jumps
    (a dead battery, a bad answer of a time server) makes no message old.

    A machine that slept counts as a jump, too: the monotonic clock stands still meanwhile, and how
    long it was tells the same clock of the machine that may be wrong. It costs a day's room.

    Parameters
    ----------
    clock : callable
        Epoch ms. What is no number, and what it raises, is no time.
    monotonic : callable
        Seconds.
    """

    def __init__(
        self, clock: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        #: What is believed that the clock is ahead of the monotonic one.
        self._ahead_ms = self._ahead() or 0
        #: The least that the clock was further ahead since ``_since_s``.
        self._further_ms = 0
        self._since_s = 0.0
        self._warned = False
        self._failed = ""

    def now(self) -> int:
        """Epoch ms."""
        ahead, now_s = self._ahead(), self._monotonic()
        if ahead is not None:
            self._judge(ahead - self._ahead_ms, now_s)
        return self._ahead_ms + int(now_s * 1000)

    def wall(self) -> int | None:
        """What the clock says; ``None`` when it says nothing, of which a warning is given once."""
        try:
            now = self._clock()
            if not isinstance(now, int) or isinstance(now, bool):
                raise TypeError(f"it returned {now!r}, not milliseconds as an integer")
        except Exception as error:  # noqa: BLE001 - whatever a clock does, nothing is deleted by it
            if self._failed != (words := told(error)):
                self._failed = words
                _log.warning(
                    "the clock fails (%s): messages grow old by the monotonic clock", words
                )
            return None
        self._failed = ""
        return now

    def _ahead(self) -> int | None:
        wall = self.wall()
        return None if wall is None else wall - int(self._monotonic() * 1000)

    def _judge(self, further: int, now_s: float) -> None:
        """Take in that the clock is ``further`` ahead than what is believed."""
        if further <= 0:
            self._ahead_ms += further
            self._further_ms, self._warned = 0, False
            return
        if self._further_ms == 0:
            self._further_ms, self._since_s = further, now_s
        self._further_ms = min(self._further_ms, further)
        if now_s - self._since_s >= _BELIEVED_AFTER_S:
            self._ahead_ms += self._further_ms
            self._further_ms, self._warned = 0, False
        elif further >= _TOLD_FROM_MS and not self._warned:
            self._warned = True
            _log.warning(
                "the clock went %.1f hours ahead of the time that has passed; what that alone "
                "makes old enough to be deleted is kept until the clock has said so for a day, or "
                "clean_expired() is called",
                further / 3_600_000,
            )


class _CleanService(ServiceThread):
    """Looks every ``clean_resource_interval``, the first time after a minute."""

    def __init__(
        self, name: str, config: MessageStoreConfig, on_failure: Callable[[BaseException], None]
    ) -> None:
        super().__init__(name, config.clean_resource_interval / 1000, on_failure)
        self._between = Bell()

    def run_once(self) -> bool:
        """Take one look; never True, so that the interval is kept."""
        try:
            self._look()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            _log.warning("nothing more is deleted at this look: %s", error)
        return False

    def _look(self) -> None:
        raise NotImplementedError

    def _step_and_pause(self) -> None:
        self._bell.wait(FIRST_LOOK_S)
        super()._step_and_pause()

    def stop(self) -> None:
        """Also end a pause between two files."""
        super().stop()
        self._between.ring()

    def _pause(self, interval_ms: int) -> bool:
        """Spread deletions, but not those of a caller that steps the service by hand; False when
        the service is to stop."""
        if self.is_running and not self._stopping:
            self._between.wait(interval_ms / 1000)
        return not self._stopping


class CleanCommitLogService(_CleanService):
    """Deletes the log's first segments: at the hours of ``delete_when``, when the disk gets full,
    and when asked to; refuses puts while it is nearly full.

    Parameters
    ----------
    cleaner : StoreCleaner
    watch : SpaceWatch
    config : MessageStoreConfig
    clock : callable
        Epoch ms; see ``AgingClock``.
    limit : callable
        Log offset up to which segments may go, see ``StoreToClean.expirable_end``.
    set_disk_full : callable
        Told whether puts are to be refused.

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
        """What decides now whether a segment goes; without ``now``, by the clock as it is."""
        return Retention(
            now=self._clock() if now is None else now,
            reserved_ms=self._config.file_reserved_time * 3_600_000,
            at_once=self._config.clean_file_forcibly_enable and space.cleans_at_once,
            limit_offset=self._limit(),
            most=most,
            most_at_once=self._most,
        )

    def ask(self) -> None:
        """Let segments that are old enough go at the next looks, whatever the hour."""
        self.manual_looks = MANUAL_LOOKS
        self.wakeup()

    def _is_hour(self) -> bool:
        now = self._aging.wall()
        if now is None:
            return False
        try:
            time_of_day = datetime.datetime.fromtimestamp(now / 1000, self._config.zone)
        except (OverflowError, OSError, ValueError):
            return False  # a clock far from all calendars
        return time_of_day.hour in self._hours

    def _is_retry_due(self) -> bool:
        """Whether files that could not be deleted are to be tried again."""
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
                how_full = "nobody can tell how full the disk is"
            _log.warning("%s, and no segment goes: %s", how_full, kept)


class CleanConsumeQueueService(_CleanService):
    """Lets queues and index follow the log's beginning.

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
