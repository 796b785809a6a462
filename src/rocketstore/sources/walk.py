"""Walking a split record by record through a native pass; the log's end."""

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

_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)

_ROWS = 1024
#: Behind zeros or a torn record good ones are looked for so far; without bound in local files,
#: whose holes cost nothing. Whoever asks for the end of a log does so again and again: there it is
#: less behind zeros, while anything else may have been a record as long as a broker stores.
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
        """Take the records from ``position`` on; return (status, where the next look begins).

        ``window[position:stop]`` may be read, its byte 0 has the physical offset ``base_offset``,
        the segment ends at ``segment_end``. A record that begins at or behind ``limit`` is not
        taken. Statuses: END (at ``stop``, or at a record behind ``limit``), INCOMPLETE, BLANK,
        EMPTY, damage, or FULL: drain it and call again.
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
        At a damaged place: raise, go on at the next good record, or end. Each split ends on its
        own: with ``"stop"`` the splits behind the damage are read all the same (see
        ``policy.plan_reading``, which plans up to the damage). A torn record at
        the log's end is no damage; what an earlier life of the log left behind it is told from
        later messages when the last segment is one split, and otherwise counts as damage and good
        records (give ``log_end`` as the ``stop`` of the plan).
    check_crc : bool
        Compare bodies with their CRCs, and records with whole-record CRCs where their segment
        carries them.
    storage_options : mapping, optional
        Handed to fsspec.
    on_damage : callable, optional
        ``on_damage(first, next, status)`` for each damaged range that is passed over or stopped
        at (not where ``"fail"`` raises): the physical offset of its first byte, of the next good
        record (``None`` when there is none in the segment), and what stands there. Of all the
        splits of a plan one reports it: the one whose records lead there.

    Yields
    ------
    None
        Each time the pass is full, and at the end: drain it then.

    Raises
    ------
    CorruptMessageError
        With ``"fail"``, naming file and position.
    MappedFileError
        When the file is gone or was shortened.
    ValueError
        For another word than those of ``on_corruption``.
    """
    if on_corruption not in ("fail", "skip", "stop"):
        raise ValueError(f"on_corruption is {on_corruption!r}; it must be 'fail', 'skip' or 'stop'")
    nbytes = None if local_path(split.uri) is not None else _REMOTE_BEHIND_NBYTES
    # Where other splits read on in the same segment, they would know nothing of this judgement.
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
                position = self._place_behind(reached, status)

    def _feed(self, position: int) -> Generator[None, None, tuple[RecordStatus, int]]:
        """Feed records until something else than one stands at the position; return both."""
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

    def _place_behind(self, position: int, status: RecordStatus) -> int | None:
        """Where the walk goes on, ``None`` at its end. ``status`` stands at ``position``."""
        split = self._split
        if split.stop <= position < split.range_stop:
            position, status = self._first_not_ghost(position)
        if status == RecordStatus.BLANK or status in _GOOD or position >= split.range_stop:
            return None
        if status == RecordStatus.END:
            status = RecordStatus.INCOMPLETE  # the segment's file is too short
        return self._place_behind_damage(position, status)

    def _first_not_ghost(self, position: int) -> tuple[int, RecordStatus]:
        """Go on from the split's last record to the first place that is no ghost.

        Splits behind begin at their first good record, so damage right behind this one's last
        record would be nobody's.
        """
        while True:
            status, size = self._window.check(position, self._flags)
            if status != RecordStatus.GHOST:
                return position, status
            position += size

    def _place_behind_damage(self, position: int, status: RecordStatus) -> int | None:
        split, window = self._split, self._window
        first = split.base_offset + position
        behind = None
        is_known = split.tail
        if split.tail:
            behind = self._find_behind(position, status)
            if behind is None and not self._was_durable(position, status):
                return None  # the log's end
        if behind is not None:
            # Beside a writer a record is seen half written, and the next one complete a moment
            # later. By then the first is complete, too.
            window.load(position, again=True)
            again, _ = window.check(position, self._flags)
            if again in _GOOD or again == RecordStatus.GHOST:
                return position if position < split.stop else None
            if self._judges and is_stale(split, position, behind, self._flags):
                return None
        if self._on_corruption == "fail":
            raise CorruptMessageError(split.uri, position, describe(status, first))
        if not is_known and (self._on_damage is not None or self._on_corruption == "skip"):
            last = split.file_size if self._on_damage is not None else split.stop
            behind = window.find(position + 1, last, self._flags)
        if self._on_damage is not None:
            following = None if behind is None else split.base_offset + behind
            self._on_damage(first, following, status)
        if self._on_corruption == "stop" or behind is None or behind >= split.stop:
            return None
        return behind

    def _find_behind(self, position: int, status: RecordStatus) -> int | None:
        """The first good record behind what stands at ``position`` in the log's last segment."""
        window, size = self._window, self._split.file_size
        if self._behind_nbytes is None:
            return window.find(position + 1, size, self._flags)
        last = min(size, position + self._behind_nbytes)
        behind = window.find(position + 1, last, self._flags)
        further = min(size, position + LONG_RECORD_NBYTES)
        if behind is not None or further <= last:
            return behind
        if status == RecordStatus.EMPTY and window.is_zero_until(position, last):
            return None
        return window.find(last, further, self._flags)

    def _was_durable(self, position: int, status: RecordStatus) -> bool:
        """Whether the marks of an orderly writer tell that there was a record.

        Zeros up to the mark show that the mark is wrong, and so does a file that ends there.
        """
        stop = self._split.durable_stop
        if position >= min(stop, self._split.file_size):
            return False
        return status != RecordStatus.EMPTY or not self._window.is_zero_until(position, stop)


# --- the log's end ------------------------------------------------------------------------------


class LastRecord:
    """A pass that remembers where the last good record ends."""

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
        """See ``Pass``; there is no limit here."""
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
    """Find the end of a log: behind its last complete record whose CRC is right.

    Parameters
    ----------
    log : LogFiles
        Listed just now: a segment that was made later is not looked at.
    start : int, optional
        An earlier answer, or a record's first byte: only what lies behind is read. Otherwise all
        of the last segment that was begun.

    Returns
    -------
    int
        Physical offset. Damage with good records behind does not end a log, unless these are what
        an earlier life of the log left there.

    Raises
    ------
    MappedFileError
        When a segment is gone or was shortened.
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
