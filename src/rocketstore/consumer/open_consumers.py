"""The consumers of one open store: their positions on disk, and their end."""

from __future__ import annotations

import logging
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rocketstore import kernels
from rocketstore.consumer.claims import GroupOfStore, release
from rocketstore.consumer.progress import GroupProgress
from rocketstore.errors import RocketStoreError, ServiceFailedError, error_text
from rocketstore.lock_order import LockRank
from rocketstore.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from rocketstore.consumer.consumer import Consumer

_log = logging.getLogger(__name__)


class LiveTable(Protocol):
    """Where offsets are kept, see ``config_managers/live_offsets.py``."""

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset to consume, -1 if none was committed."""

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep the next offset to consume."""

    def persist(self, before: Callable[[], object]) -> bool:
        """Write what was committed; call ``before`` first."""


class OffsetService(ServiceThread):
    """Writes the positions of all consumers, once in an interval."""

    def __init__(
        self,
        persist: Callable[[], None],
        interval_s: float,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("consumer-offsets", interval_s, on_failure)
        self._persist = persist

    def run_once(self) -> bool:
        """Write them; an error is logged, and the next step tries again."""
        try:
            self._persist()
        except (RocketStoreError, OSError) as error:
            _log.error("the offsets of consumers were not written: %s", error_text(error))
        return False


class OpenConsumers:
    """The consumers of one open store.

    Parameters
    ----------
    offsets : LiveTable
    sync_log : callable
        Brings the log to the disk: retries must be there before the positions are.
    interval_s : float
        Seconds between writes of the positions.
    on_failure : callable
        See ``ServiceThread``.
    start : bool
        Write them on a thread; otherwise only at ``commit(sync=True)`` and at closing.

    Attributes
    ----------
    offsets : LiveTable
    deserted : deque of GroupProgress
        Of consumers that were collected as garbage.

    Notes
    -----
    Threading: any thread.
    """

    def __init__(
        self,
        offsets: LiveTable,
        sync_log: Callable[[], object],
        interval_s: float,
        on_failure: Callable[[BaseException], None],
        *,
        start: bool,
    ) -> None:
        self.offsets = offsets
        self.deserted: deque[GroupProgress] = deque()
        self._sync_log = sync_log
        # By the ids of their progresses, which live longer than they do.
        self._open: dict[int, weakref.ReferenceType[Consumer]] = {}
        self._counted: dict[int, GroupProgress] = {}  # guarded by: _counting
        self._past: Counter[tuple[str, str]] = Counter()  # guarded by: _counting
        self._counting = kernels.locks.OrderedLock(LockRank.WAITING)
        self._on_release: dict[int, Callable[[], None]] = {}
        self.service = OffsetService(self.persist, interval_s, on_failure)
        if start:
            self.service.start()

    def add(
        self, consumer: Consumer, progress: GroupProgress, on_release: Callable[[], None]
    ) -> None:
        """Keep the positions of a consumer from now on."""
        self._open[id(progress)] = weakref.ref(consumer)
        self._on_release[id(progress)] = on_release
        with self._counting:
            self._counted[id(progress)] = progress
        weakref.finalize(consumer, self.deserted.append, progress).atexit = False

    def pulled(self) -> dict[tuple[str, str, int], int]:
        """Return the queue offset up to which open consumers have read, by group, topic and queue
        id."""
        found: dict[tuple[str, str, int], int] = {}
        for reference in list(self._open.values()):
            consumer = reference()
            if consumer is not None and not consumer.closed:
                found |= {(consumer.group, *key): at for key, at in consumer.pulled().items()}
            del consumer
        return found

    def pulled_counts(self) -> Counter[tuple[str, str]]:
        """Return how many messages consumers have pulled, by group and topic, closed ones too."""
        with self._counting:
            counts = self._past.copy()
            for progress in self._counted.values():
                _add_counts(counts, progress)
        return counts

    def _stop_counting(self, progress: GroupProgress) -> None:
        """Keep the figures of a consumer that ended."""
        with self._counting:
            if self._counted.pop(id(progress), None) is not None:
                _add_counts(self._past, progress)

    def persist(self) -> None:
        """Write the positions of all consumers, if they changed."""
        self.take_deserted()
        for reference in list(self._open.values()):
            consumer = reference()
            if consumer is not None and not consumer.closed:
                consumer.commit_positions()
            del consumer
        self.offsets.persist(self._sync_log)

    def take_deserted(self) -> None:
        """Commit the positions of consumers that were collected as garbage."""
        while self.deserted:
            progress = self.deserted.popleft()
            progress.commit(last=True)
            self._stop_counting(progress)
            self._open.pop(id(progress), None)
            on_release = self._on_release.pop(id(progress), None)
            if on_release is not None:
                on_release()

    def commit(self, progress: GroupProgress, *, sync: bool) -> None:
        """Commit the positions of one consumer; with ``sync`` durably."""
        progress.commit()
        if sync:
            self.offsets.persist(self._sync_log)

    def release(self, consumer: Consumer, progress: GroupProgress, group: GroupOfStore) -> None:
        """Take out a consumer that is closed, and write its positions."""
        self._stop_counting(progress)
        self._open.pop(id(progress), None)
        on_release = self._on_release.pop(id(progress), None)
        try:
            progress.commit(last=True)
            self.offsets.persist(self._sync_log)
        finally:
            release(consumer, group)
            if on_release is not None:
                on_release()

    def close(self, reason: str) -> None:
        """Close all consumers and write their positions; what fails is logged."""
        for reference in list(self._open.values()):
            consumer = reference()
            if consumer is not None:
                try:
                    consumer.end(reason)
                except (RocketStoreError, OSError) as error:
                    _log.error("the offsets of %r: %s", consumer, error_text(error))
        try:
            self.service.shutdown()
        except ServiceFailedError as error:
            _log.error("%s", error)
        self.service.run_once()


def _add_counts(counts: Counter[tuple[str, str]], progress: GroupProgress) -> None:
    for topic, count in progress.pulled_counts().items():
        counts[progress.group, topic] += count
