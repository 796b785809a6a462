"""The records of an opened store's log as Arrow record batches."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.files.forward_pages import PassedPages
from rocketstore.log.commit_log import CommitLog, LogWindow
from rocketstore.log.scan import find_next_record
from rocketstore.query.queue_records import QueueRecords, check_record_word
from rocketstore.status import RecordFlags, RecordStatus

if TYPE_CHECKING:
    import pyarrow

_COMPLETE = (
    RecordStatus.OK,
    RecordStatus.GHOST,
    RecordStatus.NUL_PROPERTIES,
    RecordStatus.UNSAFE_TOPIC,
)


class LogRead:
    """Feed the records of a log to a pass, from ``start`` to ``stop``; usable once.

    Parameters
    ----------
    log : CommitLog
    consumer
        A pass, see ``rocketstore.sources.walk.Pass``.
    start, stop : int
        Physical offsets; ``start`` is a record's first byte. A record that ends past ``stop`` is
        omitted.
    on_corruption : {"fail", "skip", "stop"}
    flags : int
        ``RecordFlags``.

    Attributes
    ----------
    offset : int
        Physical offset of the next record to be fed.
    """

    def __init__(
        self, log: CommitLog, consumer: Any, start: int, stop: int, on_corruption: str, flags: int
    ) -> None:
        self._log = log
        self._consume = consumer.consume
        self.offset = start
        self._stop = stop
        self._on_corruption = on_corruption
        self._flags = flags
        self._damage = sorted(log.damage)
        self._pages = PassedPages()

    def __iter__(self) -> Iterator[None]:
        """Yield when the pass must be drained: when it is full, and before the end or an error."""
        while self.offset < self._stop:
            status = yield from self._read()
            yield
            if status == RecordStatus.END or self.offset >= self._stop:
                return
            if status == RecordStatus.INCOMPLETE and self._stop < self._log.max_offset:
                return  # the record ends past ``stop``
            if self.offset < self._log.min_offset:
                self.offset = self._log.min_offset  # segments were deleted meanwhile
                continue
            if self._on_corruption == "fail":
                raise self._log.corruption(self.offset, status)
            following = None
            if self._on_corruption == "skip":
                following = find_next_record(self._log, self.offset + 1)
            if following is None:
                return
            self.offset = following

    def _read(self) -> Generator[None, None, RecordStatus]:
        """Feed records up to the next obstacle; return the status at the offset reached."""
        passed = -1
        while self.offset < self._stop:
            window = self._log.window(self.offset, self._stop)
            if window is None:
                return RecordStatus.EMPTY  # the segment is missing
            known = self._next_known_damage(passed)
            status, position = self._consume(
                window.buffer,
                self.offset - window.base_offset,
                window.stop,
                window.base_offset,
                window.segment_end,
                known,
                self._flags_in(window),
            )
            self._pages.move(window.file, self.offset - window.base_offset, position)
            self.offset = window.base_offset + position
            if status == RecordStatus.FULL:
                yield
            elif status == RecordStatus.BLANK:
                self.offset = window.segment_end
            elif status != RecordStatus.END:
                return RecordStatus(status)
            elif self.offset == known and position < window.stop:
                passed = known
                place = self._pass_known_damage(window, position)
                if place is not None:
                    return place
            elif self.offset < min(self._stop, window.segment_end):
                return RecordStatus.INCOMPLETE  # the segment's file is too short
        return RecordStatus.END

    def _flags_in(self, window: LogWindow) -> int:
        check = self._flags & RecordFlags.CHECK_BODY_CRC
        return self._flags | (window.flags if check else 0)

    def _next_known_damage(self, passed: int) -> int:
        """Return the next offset at which recovery found damage that a record does not show."""
        first = max(self.offset, passed + 1)
        at = bisect.bisect_left(self._damage, first)
        return self._damage[at] if at < len(self._damage) else self._stop

    def _pass_known_damage(self, window: LogWindow, position: int) -> RecordStatus | None:
        """Skip a complete record that recovery found damaged; return its status if not skipping."""
        status, size = kernels.message.check_record(
            window.buffer,
            position,
            window.stop,
            window.base_offset,
            window.segment_end,
            self._flags_in(window),
        )
        if status == RecordStatus.OK or status not in _COMPLETE:
            return None  # checked again like any other record
        if self._on_corruption == "skip":
            self.offset += size
            return None
        return RecordStatus(self._log.damage[self.offset])


class ArrowScan:
    """Messages of a log as a stream of Arrow record batches; every use reads from the start.

    ``pyarrow.table(scan)``, ``polars.DataFrame(scan)`` and other users of the Arrow PyCapsule
    interface accept it directly; for pandas use ``to_pandas``. Iterating yields pyarrow record
    batches. Created by ``DefaultMessageStore.scan_arrow``.

    Attributes
    ----------
    columns : list of str

    Notes
    -----
    Through the PyCapsule interface the consumer raises its own error with the text of ours;
    iterating raises the original error. Threading: each iteration belongs to one thread.
    """

    def __init__(
        self,
        columns: list[str],
        make_decoder: Callable[[], Any],
        read: Callable[[Any], Iterator[None]],
    ) -> None:
        self.columns = columns
        self._make_decoder = make_decoder
        self._read = read
        self._schema = make_decoder().schema  # raises for invalid limits

    @property
    def schema(self) -> pyarrow.Schema:
        """Return the schema of the batches."""
        import pyarrow as pa

        return pa.schema(self._schema)

    def _exports(self) -> Iterator[Any]:
        decoder = self._make_decoder()
        for _ in self._read(decoder):
            if decoder.rows:
                yield decoder.take()

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield each ``pyarrow.RecordBatch``, of at least one row."""
        import pyarrow as pa

        return map(pa.record_batch, self._exports())

    def read_all(self) -> pyarrow.Table:
        """Read all messages into one ``pyarrow.Table``; raise original errors."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Read all messages into one ``pandas.DataFrame``, one row each.

        Parameters
        ----------
        **options
            As ``pyarrow.Table.to_pandas`` takes them.
        """
        return self.read_all().to_pandas(**options)

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        # pandas before 3 asks for an array first, and would otherwise iterate over the scan and
        # make a frame of record batches.
        raise TypeError("a scan is not an array; use scan.to_pandas() for a pandas DataFrame")

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a PyCapsule."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a stream of the batches as a PyCapsule; ignore a requested schema."""
        return kernels.arrow.export_stream(self._schema, self._exports())

    def __repr__(self) -> str:
        return f"ArrowScan({', '.join(self.columns)})"


def scan_arrow(
    log: CommitLog,
    columns: list[str],
    start: int,
    stop: int,
    on_corruption: str,
    finish: Callable[[], None],
    *,
    check_crc: bool,
    records: str = "log",
    **limits: Any,
) -> ArrowScan:
    """Return the scan of ``DefaultMessageStore.scan_arrow``; ``limits`` are the decoder's.

    ``finish`` is called after the last batch, and may raise.
    """
    # A scan may be read several times, an iterator only once.
    limits = {
        name: list(value) if isinstance(value, Iterator) else value
        for name, value in limits.items()
    }
    check_record_word(records)
    flags = log.record_flags if check_crc else 0

    def read(decoder: Any) -> Iterator[None]:
        consumer = decoder if records == "log" else QueueRecords(decoder)
        yield from LogRead(log, consumer, start, stop, on_corruption, flags)
        finish()

    return ArrowScan(columns, lambda: kernels.arrow.BatchDecoder(columns, **limits), read)
