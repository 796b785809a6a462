"""Read a store's timer: checkpoint, wheel, log and queue, in this order.

So what a running broker adds meanwhile is seen once: it writes the log before the wheel, and the
checkpoint last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.message import StoredMessage
from rocketstore.timer.chains import Chains, detect_precision
from rocketstore.timer.checkpoint import TimerCheckpoint, checkpoint_path, read_checkpoint
from rocketstore.timer.findings import TimerFindings
from rocketstore.timer.pending import PendingMessages, waiting_units
from rocketstore.timer.report import TimerReport
from rocketstore.timer.timer_log import TimerLog, TimerUnits
from rocketstore.timer.wheel import read_wheel

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


#: The highest precision: with any other one, slots have higher times.
_WIDEST_MS = formats.TIMER_PRECISIONS_MS[-1]


#: A read time further in the future is no difference of clocks.
_MOST_AHEAD_MS = 86_400_000


class Records(Protocol):
    """The commit log, as far as the timer needs it."""

    @property
    def min_offset(self) -> int:
        """Offset of the first byte, -1 without one."""

    @property
    def max_offset(self) -> int:
        """Offset after the last record."""

    def look_message_by_offset(self, offset: int) -> StoredMessage | None:
        """Return the record at an offset."""


class TimerQueue(Protocol):
    """The queue of the timer topic."""

    @property
    def min_index(self) -> int:
        """Queue offset of the oldest message left."""

    @property
    def max_index(self) -> int:
        """Queue offset of the next message."""

    def unit(self, index: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code)."""


class Queues(Protocol):
    """All queues of a store."""

    def get(self, topic: str, queue_id: int) -> TimerQueue | None:
        """Return one queue, ``None`` if it has no messages."""

    def topics(self) -> list[str]:
        """Return the topics that have a queue."""


def read_timers(
    root: Path,
    dialect: Dialect,
    records: Records,
    queues: Queues,
    *,
    precision_ms: int,
    now: int,
) -> TimerReport:
    """Read the timer of one store.

    Parameters
    ----------
    root : Path
    dialect : Dialect
    records : Records
        The commit log.
    queues : Queues
    precision_ms : int
        The configured one, for files that do not show theirs.
    now : int
        Epoch ms.
    """
    queue = queues.get(formats.TOPIC_TIMER, 0)
    return _TimerReader(root, dialect, records, queue, queues.topics(), precision_ms, now).read()


class _TimerReader:
    """Reads once. Source: RocketMQ ``store/timer/TimerMessageStore.java``."""

    def __init__(
        self,
        root: Path,
        dialect: Dialect,
        records: Records,
        queue: TimerQueue | None,
        topics: Iterable[str],
        precision_ms: int,
        now: int,
    ) -> None:
        self._root = root
        self._dialect = dialect
        self._records = records
        self._queue = queue
        self._topics = topics
        self._now = now
        self._default_precision_ms = precision_ms
        self._findings = TimerFindings()

    def read(self) -> TimerReport:
        """Return what the files hold now."""
        findings = self._findings
        checkpoint = read_checkpoint(self._root, findings)
        former = TimerLog(self._root, TimerFindings())
        since = 1 if checkpoint is None else max(checkpoint.read_time // _WIDEST_MS, 1)
        wheel = read_wheel(self._root, former.end, findings, since=since)
        precision_ms = detect_precision(wheel, former, self._default_precision_ms)
        log = self._log = TimerLog(self._root, findings)
        has_timer = (wheel is not None and len(wheel.times) > 0) or bool(log.segments)
        read_time = self._read_time(checkpoint, precision_ms, has_timer=has_timer)
        recovered_from = self._recovered_from(checkpoint)
        if wheel is not None and wheel.snapshot_position >= 0:
            recovered_from = min(recovered_from, wheel.snapshot_position)
        chains = Chains(wheel, log, precision_ms, read_time or 0, recovered_from, findings)
        units = self._inside(chains.units)
        queue_offset = self._queue_offset(checkpoint, chains.last_offset)
        waiting = waiting_units(self._rows(queue_offset), self._look, self._complain)
        waiting = waiting.take(self._not_in(waiting, units))
        pending = PendingMessages(
            units,
            waiting,
            self._look,
            self._topics,
            self._complain,
            key_has_topic=self._dialect.timer_deletes_by_topic,
        )
        pending.match_deletes(self._complain_of_delete)
        self._report_rocksdb()
        end = 0 if self._queue is None else self._queue.max_index
        return TimerReport(
            read_time=read_time,
            queue_offset=queue_offset,
            not_enqueued=max(end - queue_offset, 0),
            precision_ms=precision_ms,
            now=self._now,
            wheel=None if wheel is None else os.fspath(wheel.path),
            _findings=findings,
            _pending=pending,
        )

    def _look(self, offset: int) -> StoredMessage | None:
        return self._records.look_message_by_offset(offset)

    def _complain(self, position: int, offset: int, reason: str) -> None:
        path, at = self._place(position, offset)
        self._findings.add(
            "timer-message", path, at, f"its message at log offset {offset}: {reason}"
        )

    def _complain_of_delete(self, position: int, offset: int, reason: str) -> None:
        path, at = self._place(position, offset)
        self._findings.add(
            "timer-delete", path, at, f"the message at log offset {offset}: {reason}"
        )

    def _place(self, position: int, offset: int) -> tuple[Path, int]:
        """Return the file that names a message; for one of the queue its folder."""
        if position >= 0:
            return self._log.place(position)
        folder = self._root / formats.CONSUME_QUEUE_DIR / formats.TOPIC_TIMER / "0"
        return folder, max(offset, 0)

    # --- positions ----------------------------------------------------------------------------

    def _read_time(
        self, checkpoint: TimerCheckpoint | None, precision_ms: int, *, has_timer: bool
    ) -> int | None:
        """Return up to which slot a broker delivered, also if that was more than a week ago (D-58).

        Without a checkpoint, what RocketMQ assumes.
        """
        path = checkpoint_path(self._root)
        if checkpoint is not None:
            if checkpoint.read_time > self._now + _MOST_AHEAD_MS:
                reason = (
                    f"read_time is {checkpoint.read_time}, later than now, {self._now}: until then "
                    "no broker delivers, and slots before it count as delivered"
                )
                at = formats.TIMER_CHECK.at("read_time")
                self._findings.add("timer-check", path, at, reason)
            return checkpoint.read_time
        if not has_timer:
            return None
        what = "invalid" if any(one.kind == "timer-check" for one in self._findings) else "missing"
        reason = f"it is {what}, so it is unknown up to when slots were delivered"
        self._findings.add("timer-check", path, 0, reason)
        begin = self._now // precision_ms * precision_ms
        return max(begin - formats.TIMER_KEPT_SLOTS * precision_ms, 0)

    def _recovered_from(self, checkpoint: TimerCheckpoint | None) -> int:
        """Return from where a broker's start corrects the wheel by the timer log.

        That is the beginning of a file: one file's length before the flushed position.
        """
        segments = self._log.segments
        if checkpoint is None or not segments:
            return 0
        if checkpoint.flushed_position > segments[-1].end:
            path = checkpoint_path(self._root)
            reason = (
                f"the timer log was flushed up to {checkpoint.flushed_position}, but ends at "
                f"{segments[-1].end}"
            )
            at = formats.TIMER_CHECK.at("flushed_position")
            self._findings.add("timer-check", path, at, reason)
        begin = checkpoint.flushed_position - segments[-1].nbytes
        return max([one.start for one in segments if one.start <= begin], default=0)

    def _queue_offset(self, checkpoint: TimerCheckpoint | None, last_offset: int | None) -> int:
        """Return the queue offset that a broker's start continues at."""
        queue = self._queue
        low, high = (0, 0) if queue is None else (queue.min_index, queue.max_index)
        found = 0 if checkpoint is None else checkpoint.queue_offset
        if found > high:
            reason = f"the queue of the timer topic was read up to {found}, but ends at {high}"
            at = formats.TIMER_CHECK.at("queue_offset")
            self._findings.add("timer-check", checkpoint_path(self._root), at, reason)
        if last_offset is not None and queue is not None:
            found = max(found, self._index_after(last_offset, queue))
        return min(max(found, low), high)

    def _index_after(self, offset: int, queue: TimerQueue) -> int:
        """Return the queue offset after that of the record at a log offset; 0 without one."""
        if not 0 <= self._records.min_offset <= offset < self._records.max_offset:
            return 0
        from rocketstore.errors import CorruptionError

        try:
            record = self._look(offset)
        except CorruptionError:
            return 0  # its unit is reported when it is read
        if record is None or record.topic != formats.TOPIC_TIMER:
            return 0
        unit = queue.unit(record.queue_offset)
        is_there = unit is not None and unit[0] == offset
        return record.queue_offset + 1 if is_there else 0

    def _rows(self, begin: int) -> Iterator[tuple[int, int]]:
        if self._queue is None:
            return
        for index in range(begin, self._queue.max_index):
            unit = self._queue.unit(index)
            if unit is not None:
                yield unit[0], unit[1]

    def _inside(self, units: TimerUnits) -> TimerUnits:
        """Return the units whose records can be in the log; report the others."""
        import numpy as np

        low, high = max(self._records.min_offset, 0), self._records.max_offset
        starts, sizes = units.offsets, units.sizes
        is_inside = (starts >= low) & (starts < high) & (sizes > 0) & (sizes <= high - starts)
        for number in np.flatnonzero(~is_inside).tolist():
            start, size = int(starts[number]), int(sizes[number])
            reason = f"{size} bytes are past the log's end {high}"
            if size <= 0 or start < 0:
                reason = f"{size} bytes at {start} are no record"
            elif start < low:
                reason = f"it was deleted, the log begins at {low}"
            self._complain(int(units.positions[number]), start, reason)
        return self._once(units.take(is_inside))

    def _once(self, units: TimerUnits) -> TimerUnits:
        """Return each message's first unit; report the others: a broker delivers it again."""
        import numpy as np

        _, first = np.unique(units.offsets, return_index=True)
        if len(first) == len(units.offsets):
            return units
        is_first = np.zeros(len(units.offsets), bool)
        is_first[first] = True
        for number in np.flatnonzero(~is_first).tolist():
            reason = "another unit names it too, so a broker delivers it twice"
            self._complain(int(units.positions[number]), int(units.offsets[number]), reason)
        return units.take(is_first)

    def _not_in(self, waiting: TimerUnits, units: TimerUnits) -> NDArray[numpy.bool_]:
        import numpy as np

        return ~np.isin(waiting.offsets, units.offsets)

    # --- RocksDB ------------------------------------------------------------------------------

    def _report_rocksdb(self) -> None:
        """Report a database that may hold timelines (``timerRocksDBEnable`` of 5.5.0).

        A broker of 5.5.0 always creates it; without data its log is empty and it has no tables.
        """
        folder = self._root / formats.ROCKSDB_STORE_DIR
        nbytes = 0
        try:
            for entry in os.scandir(folder):
                if entry.name.endswith((".sst", ".log")) and entry.is_file(follow_symlinks=False):
                    nbytes += entry.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._findings.add("timer-rocksdb", folder, 0, str(error))
            return
        if nbytes:
            reason = (
                f"{nbytes} bytes of data in RocksDB, which may hold timelines of timer messages "
                "(timerRocksDBEnable); they are not read, so more may be pending than is listed"
            )
            self._findings.add("timer-rocksdb", folder, 0, reason)
