"""The reading calls of a store: by queue, by key, by offset, by time, and in log order."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rocketstore import kernels
from rocketstore.dialect import NEWEST
from rocketstore.filter import MessageFilter, TagFilter
from rocketstore.filter.message_filter import accepts, check_filter, is_compiled, sql_filter
from rocketstore.message import StoredMessage, decode_message_id
from rocketstore.query.results import MAX_TIMESTAMP, GetMessageResult, QueryMessageResult
from rocketstore.store.arguments import (
    check_corruption_word,
    check_int,
    check_times,
    check_wait,
    clamp,
)
from rocketstore.store.open_store import OpenStore

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from rocketstore.arguments import OnCorruption, Records
    from rocketstore.consumer.hold import PullRequestHoldService
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter
    from rocketstore.query.arrow_scan import ArrowScan
    from rocketstore.query.queue_view import QueueView
    from rocketstore.query.tail import LogTail

#: The other arguments of ``find`` with only a topic and one key.
_NOTHING_ELSE = (None,) * 6


class ReadingStore(OpenStore):
    """The calls that read; in mode ``"r"`` also while another process writes."""

    def filter(self, expression: str, *, strict: bool = False) -> Sql92Filter:
        """Return the SQL92 filter of an expression, in the dialect of the store's RocketMQ version.

        The filters used last are kept, 100 as in a broker; the same expression gives the same
        object, whose ``errors`` count on.

        Parameters
        ----------
        expression : str
            For example ``"n > 50 AND color IN ('red', 'blue')"``.
        strict : bool
            Refuse what RocketMQ accepts although it ignores it or it never matches; otherwise a
            ``FilterWarning`` names it, once for each filter.

        Raises
        ------
        FilterSyntaxError
            If RocketMQ, or ``strict``, refuses the expression.
        """
        if not isinstance(expression, str):
            raise TypeError(f"expression must be str, not {type(expression).__name__}")
        dialect = self._use().dialect
        version = dialect.name if dialect.version <= NEWEST else None
        return self._compiled(expression, version, bool(strict))

    def message_filter(self, given: str | MessageFilter) -> MessageFilter:
        """Return the filter that was given; a str is an SQL92 expression."""
        if isinstance(given, str):
            return self.filter(given)
        check_filter(given)
        return given

    def _sql_filter(self, given: str | Sql92Filter) -> Sql92Filter:
        """Return the filter that was given for a call that evaluates programs only."""
        return self.filter(given) if isinstance(given, str) else sql_filter(given)

    # --- queues -------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Return the topics that have a queue, including system topics."""
        return self._use().queues.topics()

    def queues(self, topic: str) -> list[int]:
        """Return the queue ids of a topic; empty for an unknown topic."""
        return self._use().queues.queue_ids(topic)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the oldest message left, 0 for an unknown queue."""
        check_int("queue_id", queue_id)
        queue = self._use().queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_index

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message, 0 for an unknown queue."""
        check_int("queue_id", queue_id)
        queue = self._use().queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_index

    @kernels.reading.get_message
    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        filter: str | MessageFilter | None = None,
        wait_s: float | None = None,
    ) -> GetMessageResult:
        """Read messages of one queue from ``offset`` on, as a broker's pull does.

        Parameters
        ----------
        group : str
            Consumer group; does not change the answer. If it has this SQL92 filter in
            ``config/consumerFilter.json``, bit maps in ext files may spare reading messages.
        topic, queue_id
        offset : int
            Queue offset.
        max_count : int
        filter : str or MessageFilter, optional
            An SQL92 expression or ``Sql92Filter``, ``TagFilter("A || B")``, or any object with
            RocketMQ's two methods. A message for which evaluation fails does not match.
        wait_s : float, optional
            If ``offset`` is the queue's end, or no message from there on passes the filter, wait so
            many seconds for one that does; ``math.inf`` waits without end. The queue need not exist
            yet. Other answers without messages are returned at once, as a broker does.

        Returns
        -------
        GetMessageResult
            An unknown queue returns NO_MESSAGE_IN_QUEUE and is not created. If nothing matches
            among the units that one pull examines, the status is NO_MATCHED_MESSAGE and
            ``next_begin_offset`` lies after them. When ``wait_s`` is over: the answer of a read at
            that moment, from after the messages that did not pass.

        Raises
        ------
        CorruptMessageError
            The first message to return is corrupt.
        FilterSyntaxError
            For a str that is no expression.
        StoreClosedError, ServiceFailedError
            The store was closed, or failed, while the call waited.
        ReentrantCallError
            With ``wait_s``, in an arriving listener or a filter: it holds up dispatch.
        ValueError, TypeError
            ``wait_s`` is negative, not a number, or longer than a thread can wait.

        Notes
        -----
        Threading: any thread. A call that waits blocks its own thread only; see ``aget_message``.
        In mode ``"r"`` the files' growth is watched, and the store is refreshed meanwhile.
        """
        reader = self._use()
        if wait_s is not None:
            from rocketstore.store.engine.holding import get_message

            call = (group, topic, queue_id, offset, max_count, filter)
            return get_message(self, *call, wait_s)
        for name, value in (("queue_id", queue_id), ("offset", offset), ("max_count", max_count)):
            check_int(name, value)
        wanted = None if filter is None else self.message_filter(filter)
        if max_count < 0:
            raise ValueError(f"max_count is {max_count}; it must not be negative")
        if reader.queues.ext_file_size and not isinstance(wanted, TagFilter | None):
            filters = self._group_filters()
            return filters.get_message(reader, group, topic, queue_id, offset, max_count, wanted)
        return reader.get_message(topic, queue_id, offset, max_count, wanted)

    def get_offset_in_queue_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int,
        *,
        boundary: Literal["lower", "upper"] | None = None,
    ) -> int:
        """Return the queue offset for a store time in epoch ms.

        ``boundary=None`` answers as the store's RocketMQ version does (up to 5.1.0 by file times,
        D-16). ``"lower"`` returns the smallest offset with time >= ``timestamp``, ``"upper"`` the
        largest with time <= ``timestamp``.
        """
        if boundary not in (None, "lower", "upper"):
            raise ValueError(f"boundary must be 'lower' or 'upper', not {boundary!r}")
        check_int("timestamp", timestamp)
        return self._use().get_offset_in_queue_by_time(topic, queue_id, timestamp, boundary)

    def queue_view(self, topic: str, queue_id: int) -> QueueView:
        """Return the units of a queue from its min to its max offset as a structured array.

        The array is a copy of shape (n,); its ``first_offset`` is the queue offset of row 0. The
        fields are those of ``formats.CONSUME_QUEUE_UNIT``, or of ``formats.BATCH_QUEUE_UNIT`` for a
        BatchConsumeQueue. An unknown queue gives an empty array.
        """
        from rocketstore.query.queue_view import units_of

        check_int("queue_id", queue_id)
        return units_of(self._use().queues.get(topic, queue_id))

    def filter_units(
        self, topic: str, queue_id: int, tags: str | TagFilter
    ) -> NDArray[numpy.int64]:
        """Return the queue offsets (int64) of units whose tags code is that of one of ``tags``."""
        from rocketstore.query.queue_view import offsets_with_tags

        check_int("queue_id", queue_id)
        chosen = tags if isinstance(tags, TagFilter) else TagFilter(tags)
        return offsets_with_tags(self._use().queues.get(topic, queue_id), chosen)

    @property
    def hold(self) -> PullRequestHoldService:
        """The reads that wait for messages (for tools)."""
        if self._hold is None:
            from rocketstore.store.engine.holding import make_hold

            with self._hold_lock:
                if self._hold is None:
                    self._hold = make_hold(self._writer, self)
            if self._closed:
                self._hold.close(self._closed_error)
        return self._hold

    # --- keys and offsets ---------------------------------------------------------------------

    @kernels.reading.query_message
    def query_message(
        self, topic: str, key: str, max_count: int = 32, begin: int = 0, end: int = MAX_TIMESTAMP
    ) -> QueryMessageResult:
        """Find messages by key as RocketMQ does: at most 64, with times in whole seconds, and by
        hash only.

        ``find`` is exact. ``begin`` and ``end`` (inclusive) are epoch ms.
        """
        for name, value in (("max_count", max_count), ("begin", begin), ("end", end)):
            check_int(name, value)
        return self._use().query_message(topic, key, max_count, clamp(begin), clamp(end))

    @kernels.reading.find
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
        filter: str | MessageFilter | None = None,
        on_corruption: OnCorruption = "fail",
    ) -> Iterator[StoredMessage]:
        """Find all messages that match exactly, by ascending log offset.

        With ``topic`` and a key, look the key up in the index, and scan only the parts of the log
        that no complete index file covers. Otherwise scan the whole log.

        Parameters
        ----------
        topic, key, unique_key : str, optional
        tags : str, optional
            ``"A"`` or ``"A || B"``, compared with the message's own tag.
        body_contains : str or bytes-like, optional
            Searched in the body as stored; a str is encoded as UTF-8.
        begin, end : int, optional
            Store times in epoch ms, ``begin <= time < end``.
        filter : str or MessageFilter, optional
            As in ``scan``.
        on_corruption : {"fail", "skip", "stop"}
            As in ``scan``, for corrupt places of the log and for index entries whose record cannot
            be read.

        Returns
        -------
        iterator of StoredMessage
            Those that match every given condition.

        Raises
        ------
        CorruptMessageError
            At a corrupt place with ``"fail"``.
        """
        check_corruption_word(on_corruption)
        reader = self._use()
        given = None if filter is None else self.message_filter(filter)
        text = unique_key if unique_key is not None else key
        others = (key if text is unique_key else None, tags, body_contains, begin, end, given)
        if type(topic) is str and type(text) is str and others == _NOTHING_ELSE:
            # The most frequent case: the reader compares topic and key itself.
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
            messages = self.scan(
                topics=None if given is None or topic is None else [topic],
                begin=begin, end=end, filter=given, on_corruption=on_corruption,
            )  # fmt: skip
            return builtins.filter(wanted.match, messages)
        first, last = begin if begin is not None else 0, end if end is not None else MAX_TIMESTAMP
        check_int("begin", first)
        check_int("end", last)
        first, last = clamp(first), clamp(last)
        hits = reader.find_by_key(
            topic, text, unique=text is unique_key, begin=first, end=last,
            on_corruption=on_corruption,
        )  # fmt: skip
        found = builtins.filter(wanted.match, hits)
        return found if given is None else builtins.filter(partial(accepts, given), found)

    def index_offsets(
        self, topic: str, keys: Sequence[str]
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Look up many keys at once.

        Returns
        -------
        (physical_offsets, row_splits) : int64 arrays
            Hits of key ``i`` are ``physical_offsets[row_splits[i]:row_splits[i + 1]]``, ascending.
            They match by hash; the messages' keys were not compared.
        """
        from rocketstore.index.index_service import lookup_many

        return lookup_many(self._use().index, topic, keys)

    @kernels.reading.look_message_by_offset
    def look_message_by_offset(self, physical_offset: int) -> StoredMessage | None:
        """Return the record that starts at ``physical_offset``, or ``None``.

        Raises ``CorruptMessageError`` if a record starts there but is corrupt.
        """
        check_int("physical_offset", physical_offset)
        return self._use().look_message_by_offset(physical_offset)

    @kernels.reading.look_message_by_id
    def look_message_by_id(self, msg_id: str) -> StoredMessage | None:
        """Return the record with the given offsetMsgId, or ``None``.

        Raises ``ValueError`` if ``msg_id`` is not a message id.
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
        filter: str | MessageFilter | None = None,
        on_corruption: OnCorruption = "fail",
        records: Records = "log",
    ) -> Iterator[StoredMessage]:
        """Iterate over records in log order, including PREPARED and ROLLBACK records.

        Parameters
        ----------
        topics : sequence of str, optional
        begin, end : int, optional
            Store times, ``begin <= time < end``.
        start, stop : int, optional
            Physical offsets; ``start`` is a record's first byte, or lies outside the log. Records
            that extend past ``stop`` are skipped.
        filter : str or MessageFilter, optional
            An SQL92 expression or ``Sql92Filter``: evaluated by the kernel that reads the log, for
            records of the wanted topics and times. Any other filter is asked for each message; its
            ``is_matched_by_consume_queue`` gets the code of the message's tags.
        on_corruption : {"fail", "skip", "stop"}
            At a corrupt place, or at a segment that is missing or not readable: raise, continue at
            the next good record, or end.
        records : {"log", "queues"}
            ``"queues"``: what consumers see. PREPARED and ROLLBACK records of transactions are
            skipped, and records whose topic is not a valid queue name. An inner batch is split into
            its messages, which share the batch's log offset but have their own queue offsets.

        Raises
        ------
        CorruptMessageError
            At a corrupt place with ``"fail"``.
        ValueError
            No record begins at ``start``.
        FilterSyntaxError
            For a str that is no expression.
        """
        given = None if filter is None else self.message_filter(filter)
        options = (topics, begin, end, start, stop, on_corruption, records)
        if given is None:
            return self._scan(*options)
        if is_compiled(given):
            return self._scan_selected(given, *options)
        return builtins.filter(partial(accepts, given), self._scan(*options))

    def _scan(
        self,
        topics: Sequence[str] | None,
        begin: int | None,
        end: int | None,
        start: int | None,
        stop: int | None,
        on_corruption: OnCorruption,
        records: Records,
    ) -> Iterator[StoredMessage]:
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

    def _scan_selected(
        self,
        given: Sql92Filter,
        topics: Sequence[str] | None,
        begin: int | None,
        end: int | None,
        start: int | None,
        stop: int | None,
        on_corruption: OnCorruption,
        records: Records,
    ) -> Iterator[StoredMessage]:
        from rocketstore.query.queue_records import check_record_word

        check_corruption_word(on_corruption)
        check_record_word(records)
        check_times(begin, end)
        reader = self._use()
        scan = reader.selected(
            start, stop, on_corruption, records=records,
            topics=topics, begin=begin, end=end, filter=given,
        )  # fmt: skip
        yield from scan
        reader.finish_scan(scan.stop, stop, on_corruption)

    def scan_arrow(
        self,
        columns: str | Sequence[str] = "core",
        *,
        start: int | None = None,
        stop: int | None = None,
        filter: str | Sql92Filter | None = None,
        on_corruption: OnCorruption = "fail",
        check_crc: bool = True,
        records: Records = "log",
        **limits: Any,
    ) -> ArrowScan:
        """Return records in log order as a stream of Arrow record batches, up to the log's current
        end.

        Parameters
        ----------
        columns : str or sequence of str
            ``"core"``, ``"full"``, ``"kafka"``, or column names.
        start, stop, on_corruption, records
            As in ``scan``.
        filter : str or Sql92Filter, optional
            An SQL92 expression, evaluated while the log is read. For tags use ``tags``.
        check_crc : bool
            Compare bodies with their CRCs.
        **limits
            ``topics``, ``tags``, ``keys``, ``queue_ids``, ``begin``, ``end``, ``start_offsets``,
            ``batch_rows``, ``batch_bytes``: see ``rocketstore.kernels.arrow.BatchDecoder``.

        Returns
        -------
        ArrowScan
            Supports ``__arrow_c_stream__``; iterating yields ``pyarrow.RecordBatch``.
        """
        from rocketstore.display.columns import resolve
        from rocketstore.query.arrow_scan import scan_arrow

        check_corruption_word(on_corruption)
        reader = self._use()
        if filter is not None:
            limits["filter"] = self._sql_filter(filter)
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
        filter: str | MessageFilter | None = None,
        interval_s: float = 0.5,
        timeout_s: float | None = None,
        on_corruption: OnCorruption = "fail",
        on_event: Callable[[str], None] | None = None,
    ) -> Iterator[StoredMessage]:
        """Follow the log: iterate over new records in log order, without end.

        In mode ``"r"`` the store is refreshed automatically.

        Parameters
        ----------
        topics : sequence of str, optional
        start : int, optional
            Physical offset of the first record; the default is the log's current end.
        filter : str or MessageFilter, optional
            As in ``scan``.
        interval_s : float
            Seconds between two polls.
        timeout_s : float, optional
            End after so many seconds without a new record.
        on_corruption : {"fail", "skip", "stop"}
            As in ``scan``, for a place that is still corrupt after several polls.
        on_event : callable, optional
            Called with a sentence when records were deleted before they were read, or when the
            writer truncated the log.

        Raises
        ------
        CorruptMessageError
            At a corrupt place with ``"fail"``.
        ValueError
            ``start`` is past the log's end, or no record begins there.

        Notes
        -----
        Continues after the writer rolls, deletes or truncates segments; see ``tail.LogTail``.
        """
        check_wait(interval_s, "interval_s")
        if timeout_s is not None:
            check_wait(timeout_s, "timeout_s")
        follower, match = self._follower(topics, start, filter, on_corruption, on_event)
        return builtins.filter(match, follower.follow(interval_s, timeout_s))

    def _follower(
        self,
        topics: Sequence[str] | None,
        start: int | None,
        filter: str | MessageFilter | None,
        on_corruption: OnCorruption,
        on_event: Callable[[str], None] | None,
    ) -> tuple[LogTail, Callable[[StoredMessage], bool]]:
        """Return what follows the log, and which of its messages are wanted; see ``tail``."""
        from rocketstore.query.conditions import Conditions
        from rocketstore.query.tail import LogTail

        check_corruption_word(on_corruption)
        if start is not None:
            check_int("start", start)
        self._use()
        given = None if filter is None else self.message_filter(filter)
        match = Conditions.of(topics=topics).match
        select = {"topics": topics, "filter": given} if is_compiled(given) else None
        follower = LogTail(
            self, start=start, select=select, on_corruption=on_corruption, on_event=on_event
        )
        if given is None or select is not None:
            return follower, match
        return follower, lambda message: match(message) and accepts(given, message)
