"""Reading from a log, its queues and its index, in all modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import CorruptMessageError
from rocketstore.files.mapped_file import name_cut_file
from rocketstore.filter import TagFilter
from rocketstore.filter.message_filter import is_compiled
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog, RecordGoneError
from rocketstore.log.scan import LogScan, find_next_record
from rocketstore.message import StoredMessage
from rocketstore.query.get_batch_message import BatchSelection
from rocketstore.query.get_message import BatchLimits, Selection, bounds_status
from rocketstore.query.results import GetMessageResult, QueryMessageResult
from rocketstore.query.time_search import TimeSearch
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import GetMessageStatus, RecordStatus

if TYPE_CHECKING:
    from rocketstore.filter import MessageFilter
    from rocketstore.filter.bloom_filter import GroupBits
    from rocketstore.query.selected_scan import SelectedScan
    from rocketstore.query.unread_units import UnreadUnits


class NoRecordError(ValueError):
    """No record begins at an offset; ``damage`` is the same as an error of the log."""

    def __init__(self, text: str, damage: CorruptMessageError) -> None:
        super().__init__(text)
        self.damage = damage


class StoreReader(kernels.reading.ReaderPlace):
    """Read from opened parts; the store opens and closes them.

    Notes
    -----
    Threading: any number of threads. No call creates a queue or a file (D-36).
    """

    log: CommitLog
    index: IndexService

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: IndexService,
        config: MessageStoreConfig,
        dialect: Dialect,
    ) -> None:
        limits = BatchLimits.of(config)
        super().__init__(
            log=log,
            queues=queues.table,
            index=index,
            limits=limits,
            max_hits=config.max_msgs_num_batch,
            tag_filter=TagFilter,
            found=GetMessageStatus.FOUND,
            unmatched=GetMessageStatus.NO_MATCHED_MESSAGE,
            answers=(GetMessageResult, QueryMessageResult),
        )
        self.queues = queues
        self.dialect = dialect
        self._limits = limits
        self._max_hits = config.max_msgs_num_batch

    # --- queues -------------------------------------------------------------------------------

    def count_on_from(self, former: StoreReader) -> None:
        """Take over the counts of a reader that this one replaces."""
        self.found_times = former.found_times
        self.missed_times = former.missed_times
        self.transferred_times = former.transferred_times
        self.longest_ms = former.longest_ms

    @property
    def pull_totals(self) -> tuple[int, int, int]:
        """Pulls that found messages, those that did not, and the messages returned."""
        return self.found_times, self.missed_times, self.transferred_times

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        message_filter: MessageFilter | None,
        bits: GroupBits | None = None,
    ) -> GetMessageResult:
        """See ``DefaultMessageStore.get_message``; ``bits`` as in ``Selection.run``."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
            return GetMessageResult(status, 0, 0, 0, ())
        first, end = queue.min_index, queue.max_index
        outside = bounds_status(offset, first, end)
        if outside is not None:
            return GetMessageResult(*outside, first, end, ())
        codes, sql_filter = None, None
        if message_filter is not None and isinstance(message_filter, TagFilter):
            codes = message_filter.tags_codes
            if codes is None or not message_filter.exact:
                message_filter = None
        elif message_filter is not None and is_compiled(message_filter):
            self.sql_filter = type(message_filter)
            if queue.ext is None or not message_filter.of_a_group:
                sql_filter, message_filter = message_filter, None
        kind = BatchSelection if isinstance(queue, BatchConsumeQueue) else Selection
        selection = kind(self.log, queue, self._limits, max_count, codes, sql_filter)
        try:
            status, next_offset = selection.run(offset, message_filter, bits)
        except OSError as error:
            name_cut_file(error, queue.files())
            raise
        return GetMessageResult(status, next_offset, first, end, selection.messages)

    def unread_units(
        self, topic: str, queue_id: int, message_filter: MessageFilter | None = None
    ) -> UnreadUnits | None:
        """Return the search for a queue's unreadable messages; ``None`` for an unknown queue."""
        from rocketstore.query.unread_units import UnreadUnits

        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return None
        codes = None
        if isinstance(message_filter, TagFilter) and message_filter.tags_codes is not None:
            codes = frozenset(memoryview(message_filter.tags_codes).cast("B").cast("q"))
        return UnreadUnits(self.log, queue, codes)

    def store_timestamp_of(self, queue: ConsumeQueue, index: int) -> int:
        """Return the store time of one unit's message, -1 if it was deleted."""
        unit = queue.unit(index)
        if unit is None or unit[0] < self.log.min_offset:
            return -1
        _, message = self.log.record_at(unit[0])
        return -1 if message is None else message.store_timestamp

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: str | None
    ) -> int:
        """See ``DefaultMessageStore.get_offset_in_queue_by_time``."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        if boundary is None and isinstance(queue, BatchConsumeQueue):
            offset = queue.offset_by_time(timestamp)
            clamped = self.dialect.clamp_offset_by_time
            return max(offset, queue.min_index) if clamped else offset
        search = TimeSearch(
            self.log,
            queue,
            lambda index: self.store_timestamp_of(queue, index),
            partial(self.narrow, queue),
            self.dialect,
        )
        if boundary is None and self.dialect.offset_by_mtime:
            return search.by_modification_time(timestamp)
        return search.by_message_time(timestamp, boundary or "lower")

    # --- keys ---------------------------------------------------------------------------------

    def query_message(
        self, topic: str, key: str, max_count: int, begin: int, end: int
    ) -> QueryMessageResult:
        """See ``DefaultMessageStore.query_message``."""
        if max_count > self._max_hits:
            max_count = self._max_hits
        hits = self.index.query_offset(topic, key, max_count, begin, end)
        if not hits.offsets:
            return QueryMessageResult([], 0, 0)
        read = map(self._readable, sorted(hits.offsets))
        # Where the index ends is returned even if no record is readable.
        return QueryMessageResult([one for one in read if one is not None], hits[1], hits[2])

    def _readable(self, offset: int) -> StoredMessage | None:
        """Return the record at an index hit, ``None`` if it was deleted or is damaged."""
        try:
            return self.log.look_message_by_offset(offset)
        except CorruptMessageError:
            return None

    def find_by_key(
        self,
        topic: str,
        key: str,
        *,
        unique: bool,
        begin: int,
        end: int,
        on_corruption: str = "fail",
    ) -> Iterator[StoredMessage]:
        """Yield the messages that carry the key, by ascending offset (fixes D-3, D-4, D-5).

        Ranges of the log that no index file covers are read.

        ``on_corruption`` applies, as in ``scan``, to hits whose record is unreadable. It also
        applies to a missing end of the log, past which the index is not read.
        """
        offsets: Iterable[int]
        offsets, broken = self.index.find_offsets(topic, key, begin, end)
        if self.index.gaps or broken:
            offsets = self._with_gaps(offsets, broken, topic, on_corruption)
        for offset in offsets:
            try:
                message = self._look_below_end(offset)
            except CorruptMessageError:
                if on_corruption == "fail":
                    raise
                if on_corruption == "stop":
                    return
                continue
            if message is None or message.topic != topic:
                continue
            if unique:
                carries = message.unique_key == key
            else:
                keys = message.keys
                carries = keys is not None and key in keys.split(formats.KEY_SEPARATOR)
            if carries:
                yield message
        self.finish_scan(self.log.max_offset, None, on_corruption)

    def _with_gaps(
        self, hits: list[int], broken: list[tuple[int, int]], topic: str, on_corruption: str
    ) -> Iterator[int]:
        """Yield index hits and records of the topic in ranges without an index, ascending.

        ``broken``: offsets of the first and the last record of further such ranges.
        """
        # A header with offsets outside the log is damaged; its file's range is a gap already.
        ranges = (
            (first, last + max(self.log.check(last)[1], 1))
            for first, last in broken
            if 0 <= first <= last < self.log.max_offset
        )
        position = 0
        for gap in sorted({*self.index.gaps, *ranges}):
            yield from (hit for hit in hits if position <= hit < gap[0])
            start = max(position, gap[0])
            if start < gap[1]:
                try:
                    yield from self._read_gap(gap, start, topic, on_corruption)
                except CorruptMessageError:
                    if on_corruption == "fail":
                        raise
                    return
            position = max(start, gap[1])
        yield from (hit for hit in hits if position <= hit)

    def _read_gap(
        self, gap: tuple[int, int], start: int, topic: str, on_corruption: str
    ) -> Iterator[int]:
        """Yield the topic's records with keys in a range of the log, from ``start`` on.

        A range without keys, as between complete index files, is dropped and not read again. With
        ``fail`` and ``stop`` a corrupt range raises ``CorruptMessageError``.
        """
        has_keys = start > gap[0]
        policy = "skip" if on_corruption == "skip" else "fail"
        start, stop = max(start, self.log.min_offset), min(gap[1], self.log.max_offset)
        for message in self.scan(start, stop, policy):
            kind = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
            is_indexed = kind != formats.SYS_FLAG_TRANSACTION_ROLLBACK
            if is_indexed and (message.unique_key or message.keys):
                has_keys = True
                if message.topic == topic:
                    yield message.physical_offset
        if not has_keys and policy == "fail":
            self.index.gaps = tuple(one for one in self.index.gaps if one != gap)

    # --- log order ----------------------------------------------------------------------------

    def scan(
        self, start: int, stop: int, on_corruption: str, flags: int | None = None
    ) -> Iterator[StoredMessage]:
        """Yield messages in log order from ``start`` to ``stop``.

        ``on_corruption``: at a corrupt range, ``fail`` raises, ``skip`` continues after it, and
        ``stop`` ends.
        """
        if flags is None:
            flags = self.log.record_flags
        while start < stop:
            walk = LogScan(self.log, start, stop, flags)
            for batch in walk:
                window = batch.window
                for position, status in batch.places():
                    if status and window.base_offset + position in self.log.damage:
                        # The record looks good, but recovery found it damaged.
                        if on_corruption == "stop":
                            return
                        if on_corruption == "fail":
                            offset = window.base_offset + position
                            raise self.log.corruption(offset, self.log.damage[offset])
                    elif status != RecordStatus.GHOST:
                        try:
                            message = window.message(position)
                        except RecordGoneError:
                            if on_corruption == "skip":
                                continue
                            if on_corruption == "stop":
                                return
                            raise
                        yield message
            if walk.status == RecordStatus.END or walk.offset >= stop:
                return
            if walk.offset < self.log.min_offset:
                start = self.log.min_offset  # segments were deleted meanwhile
                continue
            if on_corruption == "stop":
                return
            if walk.status == RecordStatus.INCOMPLETE and stop < self.log.max_offset:
                return  # the record ends past ``stop``
            if on_corruption == "fail":
                raise self.log.corruption(walk.offset, walk.status)
            following = find_next_record(self.log, walk.offset + 1)
            if following is None:
                return
            start = following

    def selected(
        self,
        start: int | None,
        stop: int | None,
        on_corruption: str,
        *,
        records: str = "log",
        begin: int | None = None,
        end: int | None = None,
        **limits: Any,
    ) -> SelectedScan:
        """Return the scan of the messages that pass a kernel's filters; see ``SelectedScan``."""
        from rocketstore.query.selected_scan import SelectedScan, time_limits

        first, last = self.scan_range(start, stop)
        times = time_limits(begin, end)
        return SelectedScan(
            self.log, first, last, on_corruption, records=records, **times, **limits
        )

    def scan_range(self, start: int | None, stop: int | None) -> tuple[int, int]:
        """Return the start and end offset of a scan (see ``finish_scan``)."""
        for name, value in (("start", start), ("stop", stop)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name} must be int, not {type(value).__name__}")
        first = max(self.log.min_offset, 0)
        if start is not None and start > first:
            self.check_scan_start(start)
            first = start
        return first, self.log.max_offset if stop is None else min(stop, self.log.max_offset)

    def finish_scan(self, last: int, stop: int | None, on_corruption: str) -> None:
        """With ``fail``, raise ``CorruptMessageError`` if a durable part after ``last`` is lost.

        Only damage before ``stop`` counts.
        """
        if on_corruption != "fail" or not self.log.damage:
            return
        lost = min((at for at in self.log.damage if at >= last), default=None)
        if lost is not None and (stop is None or lost < stop):
            raise self.log.corruption(lost, self.log.damage[lost])

    def check_scan_start(self, offset: int) -> None:
        """Raise ``ValueError`` if a scan cannot begin at ``offset``, inside a record."""
        if offset >= self.log.max_offset or offset in self.log.damage:
            return
        status, _ = self.log.check(offset)
        is_none = status >= RecordStatus.FIRST_DAMAGE or status == RecordStatus.INCOMPLETE
        if is_none and not self.log.claims(offset):
            error = self.log.corruption(offset, status)
            raise NoRecordError(f"no record begins at log offset {offset}", error)

    def look_message_by_offset(self, offset: int) -> StoredMessage | None:
        """See ``DefaultMessageStore.look_message_by_offset``."""
        if offset == 0 and self.log.min_offset > 0:
            offset = self.log.min_offset  # for 0 RocketMQ returns the first record
        return self._look_below_end(offset)

    def _look_below_end(self, offset: int) -> StoredMessage | None:
        if 0 <= offset < self.log.max_offset:
            return self.log.look_message_by_offset(offset)
        if self.log.is_lost(offset):
            raise self.log.corruption(offset, RecordStatus.EMPTY)
        return None
