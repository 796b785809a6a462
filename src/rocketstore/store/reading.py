"""The questions that a store answers: by queue, by key, by place, by time, and in log order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rocketstore.filter import MessageFilter, TagFilter
from rocketstore.message import StoredMessage, decode_message_id
from rocketstore.query.results import MAX_TIMESTAMP, GetMessageResult, QueryMessageResult
from rocketstore.store.arguments import check_corruption_word, check_int, check_times, clamp
from rocketstore.store.open_store import OpenStore

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from rocketstore.arguments import OnCorruption, Records
    from rocketstore.query.arrow_scan import ArrowScan
    from rocketstore.query.queue_view import QueueView

#: ``find`` with a topic and one key only.
_NOTHING_ELSE = (None,) * 5


class ReadingStore(OpenStore):
    """The calls that read; in mode ``"r"`` beside whoever writes."""

    # --- queues -------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Topics that have a queue, system topics included."""
        return self._use().queues.topics()

    def queues(self, topic: str) -> list[int]:
        """Queue ids of a topic; empty for an unknown one."""
        return self._use().queues.queue_ids(topic)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset of the first message that is still there, 0 for an unknown queue."""
        check_int("queue_id", queue_id)
        queue = self._use().queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_index

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message, 0 for an unknown queue."""
        check_int("queue_id", queue_id)
        queue = self._use().queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_index

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """Read messages of one queue from ``offset`` on, as a broker's pull does.

        Parameters
        ----------
        group : str
            Consumer group; does not change the answer.
        topic, queue_id
        offset : int
            Queue offset.
        max_count : int
        filter : MessageFilter, optional
            ``TagFilter("A || B")`` or any object with RocketMQ's two methods.

        Returns
        -------
        GetMessageResult
            An unknown queue answers NO_MESSAGE_IN_QUEUE and is not created.

        Raises
        ------
        CorruptMessageError
            When the first message to return is damaged.
        """
        if not (type(queue_id) is int and type(offset) is int and type(max_count) is int):
            for name, value in (
                ("queue_id", queue_id),
                ("offset", offset),
                ("max_count", max_count),
            ):
                check_int(name, value)
        if filter is not None and not hasattr(filter, "is_matched_by_consume_queue"):
            raise TypeError(f"filter must be a MessageFilter, not {type(filter).__name__}")
        if max_count < 0:
            raise ValueError(f"max_count is {max_count}; it must not be negative")
        return self._use().get_message(topic, queue_id, offset, max_count, filter)

    def get_offset_in_queue_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        *,
        boundary: Literal["lower", "upper"] | None = None,
    ) -> int:
        """Queue offset for an epoch-ms store time.

        ``boundary=None`` answers as the store's RocketMQ line does (up to 5.1.0 by file times,
        D-16); ``"lower"``: the smallest offset with time >= ``timestamp``; ``"upper"``: the
        largest with time <= ``timestamp``.
        """
        if boundary not in (None, "lower", "upper"):
            raise ValueError(f"boundary {boundary!r} is neither 'lower' nor 'upper'")
        check_int("timestamp", timestamp)
        return self._use().get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary)

    def queue_view(self, topic: str, queue_id: int) -> QueueView:
        """Units of a queue from its min to its max offset as a structured array (a copy), shape
        (n,); ``first_offset`` of the array is the queue offset of row 0.

        Their fields are those of ``formats.CONSUME_QUEUE_UNIT``, of a BatchConsumeQueue those of
        ``formats.BATCH_QUEUE_UNIT``. An unknown queue is empty.
        """
        from rocketstore.query.queue_view import units_of

        check_int("queue_id", queue_id)
        return units_of(self._use().queues.get(topic, queue_id))

    def filter_units(
        self, topic: str, queue_id: int, tags: str | TagFilter
    ) -> NDArray[numpy.int64]:
        """Queue offsets (int64) whose unit's tags code is that of one of ``tags``."""
        from rocketstore.query.queue_view import offsets_with_tags

        check_int("queue_id", queue_id)
        chosen = tags if isinstance(tags, TagFilter) else TagFilter(tags)
        return offsets_with_tags(self._use().queues.get(topic, queue_id), chosen)

    # --- keys and places ----------------------------------------------------------------------

    def query_message(
        self, topic: str, key: str, max_count: int = 32, begin: int = 0, end: int = MAX_TIMESTAMP
    ) -> QueryMessageResult:
        """Find messages by key as RocketMQ does: 64 at most, times in whole seconds, hash hits
        unchecked.

        ``find`` is the exact way. ``begin`` and ``end`` (inclusive) are epoch ms.
        """
        for name, value in (("max_count", max_count), ("begin", begin), ("end", end)):
            check_int(name, value)
        return self._use().query_message(topic, key, max_count, clamp(begin), clamp(end))

    def find(
        self,
        *,
        topic: str | None = None,
        key: str | None = None,
        unique_key: str | None = None,
        tags: str | None = None,
        body_contains: str | bytes | None = None,
        begin: int | None = None,
        end: int | None = None,
        on_corruption: OnCorruption = "fail",
    ) -> Iterator[StoredMessage]:
        """Find messages exactly, uncapped, by ascending log offset.

        With ``topic`` and a key the index answers, and the log where no whole index file covers it;
        otherwise the log is read through.

        Parameters
        ----------
        topic, key, unique_key : str, optional
        tags : str, optional
            ``"A"`` or ``"A || B"``, compared with the message's own tag.
        body_contains : str or bytes-like, optional
            Occurs in the body as it is stored; a str is looked for as UTF-8.
        begin, end : int, optional
            Store times in epoch ms, ``begin <= time < end``.
        on_corruption : {"fail", "skip", "stop"}
            As in ``scan``: where the index names a record that cannot be read, or while the log is
            read through.

        Returns
        -------
        iterator of StoredMessage
            Those for which every condition given holds.

        Raises
        ------
        CorruptMessageError
            At a damaged place with ``"fail"``.
        """
        check_corruption_word(on_corruption)
        reader = self._use()
        text = unique_key if unique_key is not None else key
        others = (key if text is unique_key else None, tags, body_contains, begin, end)
        if type(topic) is str and type(text) is str and others == _NOTHING_ELSE:
            # What is asked most: the reader compares topic and key itself.
            return reader.find_by_key(
                topic, text, unique=text is unique_key, begin=0, end=MAX_TIMESTAMP,
                on_corruption=on_corruption,
            )  # fmt: skip
        from rocketstore.query.conditions import Conditions

        wanted = Conditions.of(
            topics=None if topic is None else [topic],
            key=key, unique_key=unique_key, tags=tags, body_contains=body_contains,
            begin=begin, end=end,
        )  # fmt: skip
        if topic is None or text is None:
            messages = self.scan(begin=begin, end=end, on_corruption=on_corruption)
            return filter(wanted.match, messages)
        first, last = begin if begin is not None else 0, end if end is not None else MAX_TIMESTAMP
        check_int("begin", first)
        check_int("end", last)
        first, last = clamp(first), clamp(last)
        hits = reader.find_by_key(
            topic, text, unique=text is unique_key, begin=first, end=last,
            on_corruption=on_corruption,
        )  # fmt: skip
        return filter(wanted.match, hits)

    def index_offsets(
        self, topic: str, keys: Sequence[str]
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Look up many keys at once.

        Returns
        -------
        (physical_offsets, row_splits) : int64 arrays
            Hits of key ``i`` are ``physical_offsets[row_splits[i]:row_splits[i + 1]]``, ascending;
            hash hits that were not compared with the messages.
        """
        from rocketstore.index.index_service import lookup_many

        return lookup_many(self._use().index, topic, keys)

    def look_message_by_offset(self, physical_offset: int) -> StoredMessage | None:
        """Return the record that starts at ``physical_offset``, ``None`` when none does.

        Raises ``CorruptMessageError`` when a record starts there but is damaged.
        """
        check_int("physical_offset", physical_offset)
        return self._use().look_message_by_offset(physical_offset)

    def look_message_by_id(self, msg_id: str) -> StoredMessage | None:
        """Return the record an offsetMsgId names, ``None`` when it is not there.

        Raises ``ValueError`` for a text that is no message id.
        """
        _, offset = decode_message_id(msg_id)
        message = self._use().look_message_by_offset(offset)
        if message is None or message.msg_id != msg_id.upper():
            return None
        return message

    # --- log order ----------------------------------------------------------------------------

    def scan(
        self,
        *,
        topics: Sequence[str] | None = None,
        begin: int | None = None,
        end: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        on_corruption: OnCorruption = "fail",
        records: Records = "log",
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
        from rocketstore.query.queue_records import check_record_word, queue_messages

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
        on_corruption: OnCorruption = "fail",
        check_crc: bool = True,
        records: Records = "log",
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
        from rocketstore.display.columns import resolve
        from rocketstore.query.arrow_scan import scan_arrow

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
        on_corruption: OnCorruption = "fail",
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
        from rocketstore.query.conditions import Conditions
        from rocketstore.query.tail import LogTail

        check_corruption_word(on_corruption)
        self._use()
        wanted = Conditions.of(topics=topics)
        follower = LogTail(self, start=start, on_corruption=on_corruption, on_event=on_event)
        return filter(wanted.match, follower.follow(interval_s, timeout_s))
