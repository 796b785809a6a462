"""CleanCommitLogService and CleanConsumeQueueService: when expired files are deleted."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable

from rocketstore.cleaner import StoreCleaner
from rocketstore.cleanup import Retention
from rocketstore.commit_log import NO_DESCRIPTORS
from rocketstore.config import MessageStoreConfig, parse_hours
from rocketstore.disk_space import SpaceJudgement, SpaceWatch
from rocketstore.services.service_thread import ServiceThread
from rocketstore.services.waiting import Bell

_log = logging.getLogger(__name__)
#: Seconds from the start of a store to the first look.
FIRST_LOOK_S = 60.0
#: Looks at which segments go at any hour, once that was asked for.
MANUAL_LOOKS = 20


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
        Epoch ms.
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
        self._limit = limit
        self._set_disk_full = set_disk_full
        self._hours = parse_hours(config.delete_when)
        self._most = max(1, config.delete_file_batch_max)
        self._retried = time.monotonic()
        self._warned = False

    def _look(self) -> None:
        space = self.watch.judge()
        self._set_disk_full(space.is_disk_full)
        asked = self.manual_looks > 0
        self.manual_looks -= asked
        if asked or space.is_short or self._is_hour() or self._is_retry_due():
            rule = self.rule(space, most=self._most)
            interval_ms = self._config.delete_commit_log_files_interval
            deleted, kept = self._cleaner.clean_log(rule, lambda: self._pause(interval_ms))
            self._warn_when_short(space, deleted, kept)

    def rule(self, space: SpaceJudgement, *, most: int | None = None) -> Retention:
        """What decides now whether a segment goes."""
        return Retention(
            now=self._clock(),
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
        now = datetime.datetime.fromtimestamp(self._clock() / 1000, self._config.zone)
        return now.hour in self._hours

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
