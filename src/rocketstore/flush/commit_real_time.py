"""CommitRealTimeService: copies the transient store pool's bytes to the log's files."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketstore.config import MessageStoreConfig
from rocketstore.errors import StoreFullError
from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.services.service_thread import ServiceThread

_PAGE_NBYTES = 4096
#: Length of the first pause after a commit.
_SHORTEST_PAUSE_S = 0.002


class CommitRealTimeService(ServiceThread):
    """Commit when enough pages were written, and all of them every thorough interval.

    Notes
    -----
    RocketMQ's puts wake the service; this one polls, more often when the log is busy.
    Source: RocketMQ ``store/CommitLog.java`` ``CommitRealTimeService``.
    """

    def __init__(
        self,
        log: WritableCommitLog,
        config: MessageStoreConfig,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        interval_s = config.commit_interval_commit_log / 1000
        super().__init__(
            "commit-log", min(_SHORTEST_PAUSE_S, interval_s), on_failure, longest_s=interval_s
        )
        self._log = log
        self._least_pages = config.commit_commit_log_least_pages
        self._thorough_s = config.commit_commit_log_thorough_interval / 1000
        self._last_commit = time.monotonic()

    def run_once(self) -> bool:
        """Commit if enough pages are written or the interval has passed; return whether it did."""
        committed, wrote = self._log.max_offset, self._log.wrote_offset
        pages = wrote // _PAGE_NBYTES - committed // _PAGE_NBYTES
        is_due = time.monotonic() >= self._last_commit + self._thorough_s
        if wrote <= committed or (pages < self._least_pages and not is_due):
            return False
        try:
            self._log.commit()
        except StoreFullError:
            return False  # the put that needs the next buffer raises too; retry after a pause
        self._last_commit = time.monotonic()
        return True

    def drain(self) -> None:
        """Commit everything."""
        with self._step_lock:
            self._log.commit()
