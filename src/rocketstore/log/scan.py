"""Scanning the log in batches of records across segments, and searching past corrupt ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.files.durable import is_zeros
from rocketstore.files.forward_pages import PassedPages
from rocketstore.files.mapped_file import name_cut_file
from rocketstore.files.raw import data_ranges
from rocketstore.log.commit_log import CommitLog, LogWindow
from rocketstore.status import RecordFlags, RecordStatus

if TYPE_CHECKING:
    import numpy

_ROW = formats.PARSED_RECORD
CAPACITY = 1024
#: Transaction types of records without a queue unit, and the statuses of records with one.
NO_UNIT = (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK)
OF_A_QUEUE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
#: More than a broker with default limits stores in one record.
_LONGEST_RECORD_NBYTES = 16 * 1024 * 1024
_NEAR_NBYTES = 16 * 1024
#: Few enough to stay in the processor's cache.
_STEP_NBYTES = 1 << 16
_POSITION_AT = _ROW.at("position") // 4
_STATUS_AT = _ROW.at("status") // 4
_ROW_INTS = _ROW.nbytes // 4


class BatchSummary(NamedTuple):
    """What ``kernels.passes_rows.summarize`` returns; the first six are of the good records.

    A good record is OK or has an unsafe topic. ``special``: some record is delayed, or has the
    flag of an inner batch. ``named``: some record names other queues, if the properties were
    parsed. ``property_crcs``: 1 if valid ones were seen, plus 2 for invalid ones.
    """

    good: int
    newest: int
    last: int
    previous: int
    end: int
    covered_end: int
    odd: bool
    special: bool
    named: bool
    property_crcs: int


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records of one segment.

    ``rows`` holds ``count`` rows of ``formats.PARSED_RECORD`` and is reused by the next batch (see
    ``LogScan.leave_rows``).
    """

    window: LogWindow
    rows: bytearray
    count: int

    @property
    def filled(self) -> memoryview:
        """The bytes of the filled rows."""
        return memoryview(self.rows)[: self.count * _ROW.nbytes]

    @property
    def columns(self) -> numpy.ndarray[Any, Any]:
        """The rows as a structured array, shape (count,)."""
        import numpy

        return numpy.frombuffer(self.rows, _ROW.dtype, self.count)

    def summary(self, before: int = 0) -> BatchSummary:
        """Return what recovery must know of the records; ``covered_end`` is the end of the last
        good one stored before the time ``before``."""
        return BatchSummary(*self._judged(kernels.passes_rows.summarize, before))

    def follow(self, offsets: kernels.passes_rows.QueueOffsets) -> bool:
        """Return whether the queue offsets continue ``offsets``, which takes them then."""
        return bool(self._judged(offsets.follow))

    def number(self, queues: kernels.passes_rows.QueueNumbers) -> numpy.ndarray[Any, Any]:
        """Return the number of each record's queue, -1 for a record without a unit."""
        import numpy

        numbers = numpy.empty(self.count, "i4")
        self._judged(queues.number, numbers)
        return numbers

    def take_keys(self, keys: kernels.passes_index_keys.IndexKeysPass, first: int) -> int:
        """Let ``keys`` take the records from row ``first`` on; return the row where it is full."""
        return int(self._judged(keys.consume_rows, first))

    def _judged(self, kernel: Callable[..., Any], *arguments: Any) -> Any:
        """Call a kernel with the records and their rows; if the file was truncated meanwhile, the
        error names it."""
        try:
            return kernel(self.window.buffer, self.filled, *arguments)
        except OSError as error:
            name_cut_file(error, [self.window.file])
            raise

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield (position, status) of every row."""
        ints = memoryview(self.rows).cast("i")
        for at in range(0, self.count * _ROW_INTS, _ROW_INTS):
            yield ints[at + _POSITION_AT], ints[at + _STATUS_AT]

    def ints(self, name: str) -> list[int]:
        """Return a field of four bytes of every row, without numpy."""
        values = memoryview(self.rows).cast("i")[: self.count * _ROW_INTS]
        return values[_ROW.at(name) // 4 :: _ROW_INTS].tolist()

    def last(self) -> dict[str, int]:
        """Return the last row by field name."""
        return self.row(self.count - 1)

    def row(self, number: int) -> dict[str, int]:
        """Return one row by field name."""
        values = _ROW.struct.unpack_from(self.rows, number * _ROW.nbytes)
        return dict(zip((field.name for field in _ROW.fields), values, strict=True))


class LogScan:
    """Iterates over the batches from ``start`` to ``stop`` or the first place without a record.

    Parameters
    ----------
    log : CommitLog
    start, stop : int
        Physical offsets; ``start`` is a record's or a segment's first byte.
    flags : int
        ``RecordFlags``. With CHECK_BODY_CRC, the flags of each segment are added.
    delay_ms : tuple of int
        Delay levels, for the tags code of delayed records.
    capacity : int
        Records of a batch.
    releases_pages : bool
        Release the pages that were passed; else the caller does.

    Attributes
    ----------
    offset : int
        Current position of the scan.
    status : RecordStatus
        Why the iteration ended: END at ``stop``, otherwise what is at ``offset``.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        stop: int,
        flags: int,
        delay_ms: tuple[int, ...] = (),
        capacity: int = CAPACITY,
        *,
        releases_pages: bool = True,
    ) -> None:
        self.offset = start
        self._releases_pages = releases_pages
        self.status = RecordStatus.END
        self._log = log
        self._stop = stop
        self._flags = flags
        self._delay_ms = delay_ms
        self._capacity = capacity
        self._rows = bytearray(capacity * _ROW.nbytes)

    def leave_rows(self, other: RecordBatch | None) -> None:
        """Give the current batch to the caller; the next batch reuses the rows of ``other``, which
        becomes invalid."""
        self._rows = bytearray(self._capacity * _ROW.nbytes) if other is None else other.rows

    def __iter__(self) -> Iterator[RecordBatch]:
        flags, pages = self._flags, PassedPages()
        while self.offset < self._stop:
            window = self._log.window(self.offset, self._stop)
            if window is None:
                self.status = RecordStatus.EMPTY  # the segment is missing
                return
            if self.offset - window.base_offset > window.stop:
                self.status = RecordStatus.INCOMPLETE  # the segment's file ends before
                return
            count, position, code = kernels.message.scan_records(
                window.buffer,
                self.offset - window.base_offset,
                window.stop,
                window.base_offset,
                window.segment_end,
                flags | (window.flags if flags & RecordFlags.CHECK_BODY_CRC else 0),
                self._rows,
                self._delay_ms,
            )
            if self._releases_pages:
                pages.move(window.file, self.offset - window.base_offset, position)
            self.offset = window.base_offset + position
            self.status = RecordStatus(code)
            if count:
                yield RecordBatch(window, self._rows, count)
            if self.status == RecordStatus.BLANK:
                self.offset = window.segment_end
            elif self.status == RecordStatus.END and self.offset < self._stop:
                if self.offset < window.segment_end:
                    self.status = RecordStatus.INCOMPLETE  # the segment's file is too short
                    return
            elif self.status != RecordStatus.OK and self.offset < window.segment_end:
                return
        self.status = RecordStatus.END


def find_next_record(log: CommitLog, offset: int) -> int | None:
    """Return the first offset from ``offset`` on with a good record that carries that offset."""
    near = find_near_record(log, offset)
    if near is not None:
        return near
    for file in log.queue.files:
        if file.end_offset <= offset:
            continue
        base = file.file_from_offset
        for start, stop in data_ranges(file, max(0, offset - base)):
            # A record may extend into the next hole: a sparse copy has no blocks for zeros.
            position = kernels.message.find_record(
                file.mapping,
                start,
                min(stop + _LONGEST_RECORD_NBYTES, file.file_size),
                base,
                base + log.segment_size,
            )
            if position >= 0:
                return base + int(position)
    return None


def find_near_record(log: CommitLog, offset: int) -> int | None:
    """Search as ``find_next_record``, but only the next 16 KiB.

    Nothing is asked of the file system. In a log with many corrupt records the next good one is
    mostly close.
    """
    window = log.window(offset, offset + _NEAR_NBYTES)
    if window is None or offset - window.base_offset > window.stop:
        return None
    position = kernels.message.find_record(
        window.buffer,
        offset - window.base_offset,
        window.stop,
        window.base_offset,
        window.segment_end,
    )
    return window.base_offset + int(position) if position >= 0 else None


def has_content(log: CommitLog, offset: int) -> bool:
    """Return whether any byte from ``offset`` on is not zero."""
    for file in log.queue.files:
        if file.end_offset <= offset:
            continue
        with file.reading() as read:
            for start, stop in data_ranges(file, max(0, offset - file.file_from_offset)):
                for at in range(start, stop, _STEP_NBYTES):
                    if not is_zeros(read(at, min(_STEP_NBYTES, stop - at))):
                        return True
    return False
