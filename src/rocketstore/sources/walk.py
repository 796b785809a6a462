"""Feeds a split record by record to a native pass, and finds the log's end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Protocol

from rocketstore import formats, kernels
from rocketstore.errors import CorruptMessageError
from rocketstore.log.commit_log import describe
from rocketstore.sources.files import local_path
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split, tail_offset
from rocketstore.sources.stale import is_stale
from rocketstore.sources.window import LONG_RECORD_NBYTES, SplitWindow
from rocketstore.status import RecordStatus

__all__ = ["OnDamage", "Pass", "log_end", "walk"]

_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)

_ROWS = 1024
#: How far to search for a good record after zeros or a torn record. Local files are searched to
#: their end, since holes cost nothing. ``log_end`` is called repeatedly and searches less after
#: zeros; anything else may be a record as long as a broker stores, so it searches further.
_REMOTE_BEHIND_NBYTES = LONG_RECORD_NBYTES
_END_BEHIND_NBYTES = 1 << 20
#: ``on_damage(first physical offset, next good one or None, status)``.
OnDamage = Callable[[int, int | None, RecordStatus], object]


class Pass(Protocol):
    """A kernel that reads records in windows; see ``walk``."""

    def consume(
        self,
        window: memoryview,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Read the records from ``position`` on; return (status, next position).

        ``window[position:stop]`` may be read. Byte 0 of the window has the physical offset
        ``base_offset``; the segment ends at ``segment_end``. A record that begins at or after
        ``limit`` is not read. Statuses: END (at ``stop``, or at a record past ``limit``),
        INCOMPLETE, BLANK, EMPTY, a status of corruption, or FULL: drain the pass and call again.
        """


def walk(
    split: Split,
    consumer: Pass,
    *,
    on_corruption: str = "fail",
    check_crc: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    on_damage: OnDamage | None = None,
) -> Iterator[None]:
    """Feed the records of a split to a pass.

    Parameters
    ----------
    split : Split
    consumer : Pass
    on_corruption : {"fail", "skip", "stop"}
        At a corrupt place: raise, continue at the next good record, or end. ``"stop"`` ends only
        this split; ``policy.plan_reading`` plans a whole log up to the corruption. A torn record at
        the log's end is not corruption. Stale records of an earlier run past the end are recognized
        only if the last segment is one split; otherwise they count as corruption and good records.
        To avoid that, use ``log_end`` as the ``stop`` of the plan.
    check_crc : bool
        Compare bodies with their CRCs, and records with whole-record CRCs if their segment has
        them.
    storage_options : mapping, optional
        Passed to fsspec.
    on_damage : callable, optional
        Called as ``on_damage(first, next, status)`` for each corrupt range that is skipped or that
        ends the walk (not if ``"fail"`` raises). ``first`` is the physical offset of its first
        byte, ``next`` that of the next good record (``None`` if the segment has none), and
        ``status`` describes the corruption. Only the split whose records precede a range reports
        it.

    Yields
    ------
    None
        Each time the pass is full, and at the end: drain it then.

    Raises
    ------
    CorruptMessageError
        With ``"fail"``; names file and position.
    MappedFileError
        The file is gone or was truncated.
    ValueError
        ``on_corruption`` is invalid.
    """
    if on_corruption not in ("fail", "skip", "stop"):
        raise ValueError(f"on_corruption is {on_corruption!r}; it must be 'fail', 'skip' or 'stop'")
    nbytes = None if local_path(split.uri) is not None else _REMOTE_BEHIND_NBYTES
    # Only a split that is the whole segment may decide: other splits would not know the result.
    judges = split.start == 0 and split.stop == split.file_size
    walker = _Walker(split, consumer, on_corruption, check_crc, on_damage, nbytes, judges=judges)
    return walker.run(storage_options)


class _Walker:
    """One walk."""

    def __init__(
        self,
        split: Split,
        consumer: Pass,
        on_corruption: str,
        check_crc: bool,
        on_damage: OnDamage | None,
        behind_nbytes: int | None = None,
        *,
        judges: bool,
    ) -> None:
        self._split = split
        self._consumer = consumer
        self._on_corruption = on_corruption
        self._check_crc = check_crc
        self._on_damage = on_damage
        self._behind_nbytes = behind_nbytes
        self._judges = judges
        self._flags = 0
        self._window: SplitWindow

    def run(self, storage_options: Mapping[str, Any] | None) -> Iterator[None]:
        split = self._split
        if split.start >= split.stop:
            return
        self._window = window = SplitWindow(split, storage_options)
        with contextlib.closing(window):
            self._flags = window.flags() if self._check_crc else 0
            position: int | None = split.start
            if not split.aligned:
                position = window.find(split.start, split.stop, self._flags)
            while position is not None:
                status, reached = yield from self._feed(position)
                position = self._next_position(reached, status)

    def _feed(self, position: int) -> Generator[None, None, tuple[RecordStatus, int]]:
        """Feed records until the next bytes are not a record; return status and position."""
        window, split, consume = self._window, self._split, self._consumer.consume
        limit = split.base_offset + split.stop
        if not window.origin <= position < window.end:
            window.load(position)
        while True:
            status, at = consume(
                window.view,
                position - window.origin,
                window.filled,
                window.base_offset,
                window.segment_end,
                limit,
                self._flags,
            )
            position = window.origin + at
            if status == RecordStatus.FULL:
                yield
                continue
            is_short = status in (RecordStatus.END, RecordStatus.INCOMPLETE)
            is_done = status == RecordStatus.END and position >= split.stop
            if not is_short or is_done or not window.extend(position):
                break
        yield
        return RecordStatus(status), position

    def _next_position(self, position: int, status: RecordStatus) -> int | None:
        """Return where the walk continues after ``status`` at ``position``, ``None`` at its end."""
        split = self._split
        if split.stop <= position < split.range_stop:
            position, status = self._first_not_ghost(position)
        if status == RecordStatus.BLANK or status in _GOOD or position >= split.range_stop:
            return None
        if status == RecordStatus.END:
            status = RecordStatus.INCOMPLETE  # the segment's file is too short
        return self._position_after_damage(position, status)

    def _first_not_ghost(self, position: int) -> tuple[int, RecordStatus]:
        """Skip ghosts after the split's last record; return the next position and its status.

        The next split begins at its first good record, so this split must report corruption before
        that record.
        """
        while True:
            status, size = self._window.check(position, self._flags)
            if status != RecordStatus.GHOST:
                return position, status
            position += size

    def _position_after_damage(self, position: int, status: RecordStatus) -> int | None:
        split, window = self._split, self._window
        first = split.base_offset + position
        found = None
        is_known = split.tail
        if split.tail:
            found = self._find_good_after(position, status)
            if found is None and not self._was_durable(position, status):
                return None  # the log's end
        if found is not None:
            # While a writer runs, a record may be read half written, and the next one complete a
            # moment later. By then the first is complete, too.
            window.load(position, again=True)
            again, _ = window.check(position, self._flags)
            if again in _GOOD or again == RecordStatus.GHOST:
                return position if position < split.stop else None
            if self._judges and is_stale(split, position, found, self._flags):
                return None
        if self._on_corruption == "fail":
            raise CorruptMessageError(split.uri, position, describe(status, first))
        if not is_known and (self._on_damage is not None or self._on_corruption == "skip"):
            last = split.file_size if self._on_damage is not None else split.stop
            found = window.find(position + 1, last, self._flags)
        if self._on_damage is not None:
            following = None if found is None else split.base_offset + found
            self._on_damage(first, following, status)
        if self._on_corruption == "stop" or found is None or found >= split.stop:
            return None
        return found

    def _find_good_after(self, position: int, status: RecordStatus) -> int | None:
        """Return the first good record after ``position`` in the log's last segment."""
        window, size = self._window, self._split.file_size
        if self._behind_nbytes is None:
            return window.find(position + 1, size, self._flags)
        last = min(size, position + self._behind_nbytes)
        found = window.find(position + 1, last, self._flags)
        further = min(size, position + LONG_RECORD_NBYTES)
        if found is not None or further <= last:
            return found
        if status == RecordStatus.EMPTY and window.is_zero_until(position, last):
            return None
        return window.find(last, further, self._flags)

    def _was_durable(self, position: int, status: RecordStatus) -> bool:
        """Return whether a record was on disk at ``position``, by the state file's durable offset.

        Zeros up to the durable offset show that it is wrong, and so does a file that ends before.
        """
        stop = self._split.durable_stop
        if position >= min(stop, self._split.file_size):
            return False
        return status != RecordStatus.EMPTY or not self._window.is_zero_until(position, stop)


# --- the log's end ------------------------------------------------------------------------------


class LastRecord:
    """A pass that records the end of the last good record."""

    def __init__(self) -> None:
        self.end: int | None = None
        self._rows = bytearray(_ROWS * formats.PARSED_RECORD.nbytes)

    def consume(
        self,
        window: memoryview,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``Pass``; ``limit`` is ignored."""
        import numpy

        status = int(RecordStatus.OK)
        while status == RecordStatus.OK:
            count, position, status = kernels.message.scan_records(
                window, position, stop, base_offset, segment_end, flags, self._rows
            )
            rows = numpy.frombuffer(self._rows, formats.PARSED_RECORD.dtype, count)
            good = rows[rows["status"] != RecordStatus.GHOST]
            if len(good):
                self.end = int(good["physical_offset"][-1] + good["total_size"][-1])
        return status, position


def log_end(log: LogFiles, *, start: int | None = None) -> int:
    """Find the end of a log: the end of its last complete record with a correct CRC.

    Parameters
    ----------
    log : LogFiles
        List it right before: segments created later are not read.
    start : int, optional
        An earlier result, or a record's first byte; only the log after it is read. By default the
        whole last segment that has a record is read.

    Returns
    -------
    int
        Physical offset. Corruption followed by good records does not end a log, unless these are
        stale records of an earlier run.

    Raises
    ------
    MappedFileError
        A segment is gone or was truncated.
    """
    tail = tail_offset(log)
    first = max(log.min_offset, tail if start is None else start)
    end = first
    for segment in log.segments:
        at = max(0, first - segment.base_offset)
        if at >= segment.file_size:
            continue
        split = Split(
            segment.uri,
            segment.base_offset,
            at,
            segment.file_size,
            segment.file_size,
            segment.segment_size,
            aligned=True,
            tail=segment.base_offset >= tail,
            range_stop=segment.segment_size,
            durable_stop=log.durable_offset - segment.base_offset,
        )
        last = LastRecord()
        walker = _Walker(split, last, "skip", True, None, _END_BEHIND_NBYTES, judges=True)
        for _ in walker.run(log.storage_options):
            pass
        end = max(end, last.end or 0)
    return end
