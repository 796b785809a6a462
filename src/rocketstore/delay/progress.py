"""How far each level is delivered: the persisted offsets, completed from the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocketstore import formats
from rocketstore.delay.levels import LevelQueue, level_delays
from rocketstore.delay.matching import Delivered, alike_before, find_delivered
from rocketstore.delay.offset_table import DelayOffsetTable
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.queue_table import QueueTable


class LevelProgress:
    """Progress of one level.

    Attributes
    ----------
    queue : LevelQueue
    offset : int
        Of the next message to deliver.
    ahead : set of int
        Messages after it that are done already.
    parked : dict of int to str
        Messages that cannot be delivered, and why.
    skipped : int
        Messages that were gone from the log before they were delivered.
    delivered : int
        Deliveries since the store was opened.
    """

    def __init__(self, queue: LevelQueue) -> None:
        self.queue = queue
        self.offset = 0
        self.ahead: set[int] = set()
        self.parked: dict[int, str] = {}
        self.skipped = 0
        self.delivered = 0

    def advance(self, count: int) -> None:
        """Move past ``count`` messages, and past those after them that are done."""
        self.offset += count
        while self.offset in self.ahead:
            self.ahead.discard(self.offset)
            self.offset += 1

    def undone(self, most: int) -> int:
        """Return how many messages from the next one on are not done; at most ``most``."""
        if not self.ahead:
            return most
        return next((n for n in range(1, most) if self.offset + n in self.ahead), most)

    def take(self, found: Delivered) -> None:
        """Take what the log shows, and forget nothing that is known to be done."""
        self.ahead |= found.ahead
        if found.offset > self.offset:
            self.offset = found.offset
        self.ahead = {at for at in self.ahead if at >= self.offset}
        self.advance(0)


class DelayProgress:
    """Progress of all levels of a store.

    Parameters
    ----------
    log : CommitLog
    queues : QueueTable
    delay_ms : tuple of int
        Of each level, level 1 first.
    table : DelayOffsetTable
        Loaded.
    aborted : bool
        The store was not stopped cleanly before.
    newest : int
        Store time of the log's newest record, epoch ms.

    Attributes
    ----------
    levels : dict of int to LevelProgress
    notes : list of str
        What is odd: offsets outside their queue.
    log_offset : int or None
        Deliveries before this log offset are counted.

    Notes
    -----
    Threading: one caller at a time. Reads the log from the offset on up to which deliveries are
    counted; if a broker wrote the table, from its first message that may have been delivered since.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        delay_ms: tuple[int, ...],
        table: DelayOffsetTable,
        *,
        aborted: bool,
        newest: int,
    ) -> None:
        self._log = log
        self._aborted = aborted
        self._newest = newest
        self.table = table
        self.notes: list[str] = []
        self.levels = {
            level: LevelProgress(LevelQueue(log, queues, level, delay))
            for level, delay in level_delays(queues, delay_ms).items()
        }
        self.log_offset = table.log_offset
        #: Deliveries that the offsets count are past the log's end.
        self._lacks_deliveries = (table.log_offset or 0) > log.max_offset
        for level, progress in self.levels.items():
            self._restore(level, progress)
        if self._lacks_deliveries:
            self.notes.append(
                f"deliveries are counted up to log offset {table.log_offset}, but the log ends at "
                f"{log.max_offset}: what it does not show as delivered waits again"
            )
        counted = self._counted_alike()
        start = self._first_unknown(counted)
        if start is not None:
            self.match(start, counted)

    def _counted_alike(self) -> dict[int, int]:
        """Return how many messages before the offset may have deliveries like those from it on.

        A broker's table does not say where in the log its deliveries end.
        """
        if self.log_offset is not None or not self.table.exists:
            return {}
        return {
            level: alike_before(self._log, progress.queue, progress.offset)
            for level, progress in self.levels.items()
        }

    def _restore(self, level: int, progress: LevelProgress) -> None:
        """Take a level's persisted offset, within its queue."""
        queue, stored = progress.queue, self.table.offsets.get(level, 0)
        progress.offset = min(max(stored, queue.min_offset), queue.max_offset)
        place = f"queue {level - 1} of {formats.TOPIC_SCHEDULE}"
        if stored > queue.max_offset:
            self.notes.append(
                f"delay level {level}: the offset table says {stored}, but {place} ends at "
                f"{queue.max_offset}"
            )
        elif stored < progress.offset:
            progress.skipped = progress.offset - stored
            self.notes.append(
                f"delay level {level}: {progress.skipped} messages expired before they were "
                f"delivered; {place} begins at {progress.offset}"
            )
        if self._lacks_deliveries:
            progress.offset = queue.min_offset
        parked = self.table.parked.get(level, {})
        progress.parked = {at: why for at, why in parked.items() if at >= queue.min_offset}
        progress.ahead = {at for at in progress.parked if at >= progress.offset}
        progress.advance(0)

    def _first_unknown(self, counted_alike: Mapping[int, int]) -> int | None:
        """Return the log offset from which on deliveries may not be counted; ``None`` if all are.

        Without waiting messages nothing can be delivered again.
        """
        heads = [
            (progress, progress.queue.unit(progress.offset - counted_alike.get(level, 0)))
            for level, progress in self.levels.items()
        ]
        known = [(level, unit) for level, unit in heads if unit is not None]
        if not known:
            return None
        first = max(min(unit[0] for _, unit in known), self._log.min_offset)
        counted = self.log_offset
        if counted is not None and counted <= self._log.max_offset:
            return max(first, counted)
        if not self.table.exists or self._lacks_deliveries:
            return first
        due = min(level.queue.due(unit) for level, unit in known)
        if self._aborted:
            return self._stored_before(due, first)
        return first if due <= self._newest else None  # its broker delivered nothing since

    def _stored_before(self, due: int, start: int) -> int | None:
        """Return where a killed broker's first delivery since ``due`` can be at the earliest.

        That is ``start``, or the last segment after it that begins with an earlier record. A clock
        that was set back makes messages due before their time, so the search ends there. ``None``
        if no record is as late as ``due``.
        """
        _, message = self._log.record_at(start)
        latest = 0 if message is None else message.store_timestamp
        for file in self._log.queue.files:
            if file.file_from_offset <= start:
                continue
            _, message = self._log.record_at(file.file_from_offset)
            if message is None or not latest <= message.store_timestamp < due:
                return start
            start, latest = file.file_from_offset, message.store_timestamp
        return None if latest <= self._newest < due else start

    def match(self, start: int, counted: Mapping[int, int] = {}) -> None:
        """Take deliveries from log offset ``start`` on into account; see ``find_delivered``."""
        waiting = {
            level: progress.offset
            for level, progress in self.levels.items()
            if progress.offset < progress.queue.max_offset
        }
        if start >= self._log.max_offset or not waiting:
            return
        queues = {level: progress.queue for level, progress in self.levels.items()}
        found_by_level = find_delivered(
            self._log, queues, waiting, start, counted, all_wait=self.log_offset is not None
        )
        for level, found in found_by_level.items():
            self.levels[level].take(found)

    def counted_offset(self, end: int) -> int | None:
        """Return the log offset to persist: ``end``, or the former one as long as there are gaps,
        which the offsets cannot show."""
        if not any(set(level.ahead) - set(level.parked) for level in self.levels.values()):
            self.log_offset = end
        return self.log_offset

    def fill(self, table: DelayOffsetTable) -> int:
        """Copy the progress into the table; return how many offsets changed."""
        changed = 0
        for level, progress in self.levels.items():
            known = level in table.offsets or progress.offset > 0
            if known and table.offsets.get(level) != progress.offset:
                # An offset that was past its queue is corrected once.
                changed += max(progress.offset - table.offsets.get(level, 0), 1)
                table.offsets[level] = progress.offset
        table.parked = {
            level: dict(progress.parked)
            for level, progress in self.levels.items()
            if progress.parked
        }
        return changed

    def state(self) -> dict[str, Any]:
        """Return offsets and parked messages, to compare with what was persisted."""
        return {
            str(level): (progress.offset, len(progress.parked))
            for level, progress in self.levels.items()
        }
