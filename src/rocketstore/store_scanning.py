"""The part of ``DefaultMessageStore`` that reads the log in its own order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rocketstore.message import StoredMessage
from rocketstore.store_arguments import check_corruption_word, check_times

if TYPE_CHECKING:
    from rocketstore.arrow.log_reading import ArrowScan
    from rocketstore.queries import StoreReader
    from rocketstore.store import DefaultMessageStore


class LogOrderMethods:
    """Scans and tails, mixed into ``DefaultMessageStore``."""

    _use: Callable[[], StoreReader]

    def scan(
        self,
        *,
        topics: Sequence[str] | None = None,
        begin: int | None = None,
        end: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        on_corruption: str = "fail",
        records: str = "log",
    ) -> Iterator[StoredMessage]:
        """Iterate over records in log order, PREPARED and ROLLBACK ones too.

        Parameters
        ----------
        topics : sequence of str, optional
        begin, end : int, optional
            Store times, ``begin <= time < end``.
        start, stop : int, optional
            Physical offsets; ``start`` is a record's first byte, or lies outside the log. Records
            that reach beyond ``stop`` are left out.
        on_corruption : {"fail", "skip", "stop"}
            At a damaged place, or where a segment is missing or may not be read: raise, go on at
            the next good record, or end.
        records : {"log", "queues"}
            ``"queues"``: what consumers see. Transactions' PREPARED and ROLLBACK records are left
            out, and so are those whose topic is no name of a queue; an inner batch is taken apart
            into its messages, which share the batch's log offset and have queue offsets of their
            own.

        Raises
        ------
        CorruptMessageError
            At a damaged place with ``"fail"``.
        ValueError
            When no record begins at ``start``.
        """
        from rocketstore.queue_records import check_record_word, queue_messages

        check_corruption_word(on_corruption)
        check_record_word(records)
        check_times(begin, end)
        reader = self._use()
        first, last = reader.scan_range(start, stop)
        if isinstance(topics, str):
            raise TypeError("topics must be a sequence of str, not str")
        wanted = None if topics is None else frozenset(topics)
        messages = reader.scan(first, last, on_corruption)
        if records == "queues":
            messages = queue_messages(messages, reader.log, on_corruption)
        for message in messages:
            if wanted is not None and message.topic not in wanted:
                continue
            timestamp = message.store_timestamp
            if (begin is None or timestamp >= begin) and (end is None or timestamp < end):
                yield message
        reader.finish_scan(last, stop, on_corruption)

    def scan_arrow(
        self,
        columns: str | Sequence[str] = "core",
        *,
        start: int | None = None,
        stop: int | None = None,
        on_corruption: str = "fail",
        check_crc: bool = True,
        records: str = "log",
        **limits: Any,
    ) -> ArrowScan:
        """Records in log order as a stream of Arrow record batches, up to the log's end now.

        Parameters
        ----------
        columns : str or sequence of str
            ``"core"``, ``"full"``, ``"kafka"``, or names of columns.
        start, stop, on_corruption, records
            As in ``scan``.
        check_crc : bool
            Compare bodies with their CRCs.
        **limits
            ``topics``, ``tags``, ``keys``, ``queue_ids``, ``begin``, ``end``, ``start_offsets``,
            ``batch_rows``, ``batch_bytes``: see ``rocketstore.kernels.arrow.BatchDecoder``.

        Returns
        -------
        ArrowScan
            With ``__arrow_c_stream__``; iterating gives ``pyarrow.RecordBatch``.
        """
        from rocketstore.arrow.columns import resolve
        from rocketstore.arrow.log_reading import scan_arrow

        check_corruption_word(on_corruption)
        reader = self._use()
        first, last = reader.scan_range(start, stop)
        finish = partial(reader.finish_scan, last, stop, on_corruption)
        places = (first, last, on_corruption, finish)
        return scan_arrow(
            reader.log, resolve(columns), *places, check_crc=check_crc, records=records, **limits
        )

    def tail(
        self,
        *,
        topics: Sequence[str] | None = None,
        start: int | None = None,
        interval_s: float = 0.5,
        timeout_s: float | None = None,
        on_corruption: str = "fail",
        on_event: Callable[[str], None] | None = None,
    ) -> Iterator[StoredMessage]:
        """Iterate over records as they come, in log order, for ever; mode ``"r"`` refreshes itself.

        Parameters
        ----------
        topics : sequence of str, optional
        start : int, optional
            Physical offset of the first record; the default is the log's end now.
        interval_s : float
            Seconds between two looks.
        timeout_s : float, optional
            End after so many seconds without a new record.
        on_corruption : {"fail", "skip", "stop"}
            At a place that still seems damaged when it was looked at several times.
        on_event : callable, optional
            Told in a sentence of records that were deleted unread and of a log that was cut.

        Raises
        ------
        CorruptMessageError
            At a damaged place with ``"fail"``.
        ValueError
            When ``start`` lies behind the log's end, or no record begins there.

        Notes
        -----
        Survives rolls, deletions and cuts by whoever writes; see ``tail.LogTail``.
        """
        from rocketstore.conditions import Conditions
        from rocketstore.tail import LogTail

        check_corruption_word(on_corruption)
        self._use()
        store = cast("DefaultMessageStore", self)
        wanted = Conditions.of(topics=topics)
        follower = LogTail(store, start=start, on_corruption=on_corruption, on_event=on_event)
        return filter(wanted.match, follower.follow(interval_s, timeout_s))
