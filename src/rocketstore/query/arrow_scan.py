"""Record batches of an opened store's log: what ``store.scan`` shows, as columns."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
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
    """Feeds the records of a log to a pass, from ``start`` to ``stop``; read once.

    Parameters
    ----------
    log : CommitLog
    consumer
        A pass, see ``rocketstore.sources.walk.Pass``.
    start, stop : int
        Physical offsets; ``start`` is a record's first byte. A record that reaches beyond ``stop``
        is left out.
    on_corruption : {"fail", "skip", "stop"}
    flags : int
        ``RecordFlags``.
    """

    def __init__(
        self, log: CommitLog, consumer: Any, start: int, stop: int, on_corruption: str, flags: int
    ) -> None:
        self._log = log
        self._consume = consumer.consume
        self._offset = start
        self._stop = stop
        self._on_corruption = on_corruption
        self._flags = flags
        self._damage = sorted(log.damage)

    def __iter__(self) -> Iterator[None]:
        """Yield when the pass is full, and before the end or an error: drain it then."""
        while self._offset < self._stop:
            status = yield from self._read()
            yield
            if status == RecordStatus.END or self._offset >= self._stop:
                return
            if status == RecordStatus.INCOMPLETE and self._stop < self._log.max_offset:
                return  # the record reaches beyond ``stop``
            if self._offset < self._log.min_offset:
                self._offset = self._log.min_offset  # deleted while it was read
                continue
            if self._on_corruption == "fail":
                raise self._log.corruption(self._offset, status)
            behind = None
            if self._on_corruption == "skip":
                behind = find_next_record(self._log, self._offset + 1)
            if behind is None:
                return
            self._offset = behind

    def _read(self) -> Generator[None, None, RecordStatus]:
        """Feed what lies together; return what stands at the offset reached."""
        passed = -1
        while self._offset < self._stop:
            window = self._log.window(self._offset, self._stop)
            if window is None:
                return RecordStatus.EMPTY  # the segment is missing
            known = self._next_known_damage(passed)
            status, position = self._consume(
                window.buffer,
                self._offset - window.base_offset,
                window.stop,
                window.base_offset,
                window.segment_end,
                known,
                self._flags_in(window),
            )
            self._offset = window.base_offset + position
            if status == RecordStatus.FULL:
                yield
            elif status == RecordStatus.BLANK:
                self._offset = window.segment_end
            elif status != RecordStatus.END:
                return RecordStatus(status)
            elif self._offset == known and position < window.stop:
                passed = known
                place = self._pass_known_damage(window, position)
                if place is not None:
                    return place
            elif self._offset < min(self._stop, window.segment_end):
                return RecordStatus.INCOMPLETE  # the segment's file is too short
        return RecordStatus.END

    def _flags_in(self, window: LogWindow) -> int:
        check = self._flags & RecordFlags.CHECK_BODY_CRC
        return self._flags | (window.flags if check else 0)

    def _next_known_damage(self, passed: int) -> int:
        """The next place of which recovery knows that what stands there is not what it seems."""
        first = max(self._offset, passed + 1)
        at = bisect.bisect_left(self._damage, first)
        return self._damage[at] if at < len(self._damage) else self._stop

    def _pass_known_damage(self, window: LogWindow, position: int) -> RecordStatus | None:
        """Step over a complete record that recovery found damaged; the status where it does not
        go on."""
        status, size = kernels.message.check_record(
            window.buffer,
            position,
            window.stop,
            window.base_offset,
            window.segment_end,
            self._flags_in(window),
        )
        if status == RecordStatus.OK or status not in _COMPLETE:
            return None  # judged once more, as any other place
        if self._on_corruption == "skip":
            self._offset += size
            return None
        return RecordStatus(self._log.damage[self._offset])


class ArrowScan:
    """Messages of a log as a stream of Arrow record batches; every use reads from the start.

    ``pyarrow.table(scan)``, ``polars.DataFrame(scan)`` and whatever else knows the Arrow PyCapsule
    interface take it as it is; pandas gets a frame by ``to_pandas``. Iterating gives pyarrow record
    batches. Made by ``DefaultMessageStore.scan_arrow``.

    Attributes
    ----------
    columns : list of str

    Notes
    -----
    Through the PyCapsule interface an error arrives as the consumer's own (with our message);
    iterating raises the error itself. Threading: each iteration belongs to one thread.
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
        self._schema = make_decoder().schema  # wrong limits are told now

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the batches."""
        import pyarrow as pa

        return pa.schema(self._schema)

    def _exports(self) -> Iterator[Any]:
        decoder = self._make_decoder()
        for _ in self._read(decoder):
            if decoder.rows:
                yield decoder.take()

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield ``pyarrow.RecordBatch``, of one row or more."""
        import pyarrow as pa

        return map(pa.record_batch, self._exports())

    def read_all(self) -> pyarrow.Table:
        """Read all messages into one ``pyarrow.Table``; errors are raised as they are."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Read all messages into one ``pandas.DataFrame``, a row for each.

        Parameters
        ----------
        **options
            As ``pyarrow.Table.to_pandas`` takes them.
        """
        return self.read_all().to_pandas(**options)

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        # pandas before 3 would make a frame of record batches from what it may iterate over; it
        # asks for an array first.
        raise TypeError("a scan is no array; scan.to_pandas() makes a pandas DataFrame of it")

    def __arrow_c_schema__(self) -> object:
        """The schema as a PyCapsule."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A stream of the batches as a PyCapsule; a requested schema is not looked at."""
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
    """Make the scan of ``DefaultMessageStore.scan_arrow``; ``limits`` are the decoder's.

    ``finish`` is called behind the last batch, and may raise.
    """
    # Iterators are read once, a scan more often.
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
