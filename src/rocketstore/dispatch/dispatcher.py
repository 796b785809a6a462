"""Dispatch: drives the kernel's ``Dispatcher`` and gives it queue and index files."""

from __future__ import annotations

import errno
import functools
import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.dispatch.named_queues import next_of_queue, odd_names
from rocketstore.dispatch.notes import DispatchNotes
from rocketstore.dispatch.queue_offset_rule import (
    MAX_LOOK_AHEAD_NBYTES,
    MAX_UNFOUNDED_COUNT,
    NEXT_NBYTES,
    Claim,
    NextRecord,
    QueueOffsetRule,
)
from rocketstore.files.mapped_file import MappedFile, MemoryFile, name_cut_file
from rocketstore.index.index_file import IndexFile
from rocketstore.index.index_service import IndexPosition, IndexService
from rocketstore.inner_batch import BatchUnit, inner_batch, unit_of
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import KernelStatus, RecordFlags, RecordStatus

_log = logging.getLogger(__name__)
#: Queue and ext files kept mapped for appending, besides those of ``QUEUE_MAPPINGS`` (Linux allows
#: a process 65,530 mappings).
MAX_PINNED_QUEUE_FILES = 20_000
BATCH_COUNT = 4096
#: Upper bound of the notes about odd names.
MAX_NAME_NOTES = 1000
#: When a store is opened, every unit of a log up to this size is compared with its record. In a
#: longer log with a valid state file only the newest units are checked.
COMPARED_NBYTES = 16 * 1024 * 1024
_QUEUE_REQUESTS = (KernelStatus.NEED_QUEUE, KernelStatus.QUEUE_GAP, KernelStatus.NEED_EXT)


class BitMapFilters(NamedTuple):
    """The filters that make bit maps of ext units: as for the kernel's ``set_filters``."""

    bit_map_nbytes: int
    rows: list[tuple[bytes, bytes | None, bytes, int]]


class CommitLogDispatcher:
    """Builds queues and index from the log, in log order.

    Parameters
    ----------
    log : CommitLog
    queues : QueueTable
    index : IndexService or None
        ``None`` when no index is built.
    index_tags : bool
        Put one entry per tag (5.4 and later).
    delay_ms : tuple of int
        Delay levels.
    multi_dispatch : int
        ``MultiDispatch`` flags: which queues besides its own a record is dispatched to.
    start_offset : int
        Physical offset of the first record to dispatch.
    indexed : IndexPosition
        Which keys are in the index already.
    compare : bool
        ``start_offset`` is the log's beginning, and the queues have units. Until
        ``end_comparing``, each unit is compared with its record and rewritten if it differs.
    filters : BitMapFilters or None
        Write bit maps by these filters, if the store has ext files.

    Notes
    -----
    Threading: one thread at a time calls ``dispatch_until``; any thread may read the positions.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: IndexService | None,
        *,
        index_tags: bool,
        delay_ms: tuple[int, ...],
        multi_dispatch: int = 0,
        start_offset: int,
        indexed: IndexPosition,
        compare: bool = False,
        filters: BitMapFilters | None = None,
    ) -> None:
        self.log = log
        self.queues = queues
        self.index = index
        self.notes = DispatchNotes()
        self.multi_dispatch = multi_dispatch
        self.kernel = kernels.reput.Dispatcher(
            index_enable=index is not None,
            index_tags=index_tags,
            delay_ms=delay_ms,
            multi_dispatch=multi_dispatch,
            ext_file_nbytes=queues.ext_file_size,
        )
        if filters is not None:
            self.set_filters(filters)
        self._reput_offset = start_offset
        self._delay_ms = delay_ms
        self._pinned: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._most_pinned = MAX_PINNED_QUEUE_FILES // (2 if queues.ext_file_size else 1)
        #: (start, store time) of the last record that went into a BatchConsumeQueue.
        self._last_batch = (-1, 0)
        #: While units are compared: loaded queues without a record so far.
        self._unmet: dict[tuple[str, int], ConsumeQueue] = {}
        self._odd_names = 0
        self._rule = QueueOffsetRule()
        #: Whether the kernel asks for the record's own queue, not for one of multi dispatch.
        self._is_own = True
        self._look_ahead_nbytes = MAX_LOOK_AHEAD_NBYTES
        self.kernel.set_compare(compare)
        for queue in queues:
            if compare and not isinstance(queue, BatchConsumeQueue):
                self._unmet[queue.topic, queue.queue_id] = queue
            else:
                self._register(queue, queue.recovered_index, queue.recovered_end)
        if index is not None:
            self._attach_index(index.last_for_append(), indexed)

    # --- positions ----------------------------------------------------------------------------

    @property
    def reput_offset(self) -> int:
        """Return the physical offset up to which the log is dispatched."""
        return self._reput_offset

    @property
    def indexed_offset(self) -> int:
        """Return the physical offset up to which the index has the keys of all records."""
        return int(self.kernel.indexed_offset)

    @property
    def last_record_offset(self) -> int:
        """Return the start of the last record dispatched to a queue, -1 if none yet."""
        return max(int(self.kernel.last_record_offset), self._last_batch[0])

    @property
    def last_store_timestamp(self) -> int:
        """Return the store time of that record, 0 if none yet."""
        if self._last_batch[0] > self.kernel.last_record_offset:
            return self._last_batch[1]
        return int(self.kernel.last_store_timestamp)

    # --- dispatching --------------------------------------------------------------------------

    def dispatch_until(self, stop_offset: int, *, max_records: int | None = None) -> RecordStatus:
        """Dispatch records up to ``stop_offset``, at most ``max_records`` of them.

        Returns
        -------
        RecordStatus
            END at ``stop_offset``, OK after ``max_records``. Otherwise the status of the bytes at
            ``reput_offset`` that stopped dispatch (damage, EMPTY, INCOMPLETE).

        Raises
        ------
        StoreFullError
            No room for a queue or index file. Call again later; nothing is lost or repeated.
        """
        left = max_records if max_records is not None else -1
        while self._reput_offset < stop_offset:
            window = self.log.window(self._reput_offset, stop_offset)
            if window is None:
                return RecordStatus.END
            before = self.kernel.dispatched_count
            count = BATCH_COUNT if left < 0 else min(BATCH_COUNT, left)
            position, status = self.kernel.dispatch(
                window.buffer,
                self._reput_offset - window.base_offset,
                window.stop,
                window.base_offset,
                window.segment_end,
                count,
            )
            self._reput_offset = window.base_offset + position
            if self.kernel.odd_names != self._odd_names:
                self._note_odd_names()
            if left >= 0:
                left -= self.kernel.dispatched_count - before
            if status == RecordStatus.BLANK or self._reput_offset == window.segment_end:
                self._reput_offset = window.segment_end
            elif status == RecordStatus.END:
                break
            elif status != RecordStatus.OK and not self._serve(status):
                return RecordStatus(status)
            if left == 0:
                return RecordStatus.OK
        return RecordStatus.END

    def error(self, status: int) -> Exception:
        """Return the error for what stopped dispatch: a damaged log, or a failed write."""
        place = self._reput_offset
        if status != RecordStatus.FAULT or self.log.check(place)[0] == RecordStatus.FAULT:
            return self.log.corruption(place, status)
        words = "a queue or index file was shortened, or its disk failed, while it was written"
        error = OSError(errno.EFAULT, words)
        try:
            self.name_cut_file(error)
        except OSError as replaced:
            return replaced
        return error

    def name_cut_file(self, error: OSError) -> None:
        """Add the name of the truncated queue or index file to an error without a file name.

        See ``name_cut_file``.
        """
        files: list[MappedFile | MemoryFile] = []
        if self.index is not None:
            files += [one.file for one in self.index.files]
        for queue in self.queues:
            files += queue.queue.files
            files += () if queue.ext is None else queue.ext.queue.files
        name_cut_file(error, files)

    def set_filters(self, filters: BitMapFilters) -> None:
        """Make the bit maps of later ext units by these filters; nothing is dispatched now."""
        self.kernel.set_filters(*filters)

    def skip_to(self, offset: int) -> None:
        """Continue at ``offset``, after a corrupt range."""
        self._reput_offset = offset

    def _serve(self, status: int) -> bool:
        """Give the kernel what it asked for; return whether it asked for anything."""
        if status == KernelStatus.NEED_INDEX:
            assert self.index is not None
            last = self.index.last_for_append()
            self._attach_index(self.index.roll() if last is None or last.is_full else last)
            return True
        if status not in _QUEUE_REQUESTS:
            return False
        assert self.kernel.stalled is not None
        topic_bytes, queue_id, queue_offset = self.kernel.stalled
        if len(topic_bytes) > formats.MAX_FOLDER_NAME_NBYTES:
            self._refuse_topic(topic_bytes, queue_id, queue_offset)
            return True
        topic = topic_bytes.decode("utf-8")
        record = self.log.view(self._reput_offset)
        self._is_own = is_own = record.topic == topic
        is_batch = inner_batch(record) is not None
        if is_own and is_batch and self.queues.get(topic, queue_id) is None:
            self.queues.take_batch_topic(topic)
        queue = self.queues.get_or_create(topic, queue_id)
        if isinstance(queue, BatchConsumeQueue):
            self._put_batch_unit(queue)
            return True
        handle = self.kernel.handle(topic_bytes, queue_id)
        next_index = self.kernel.next_index(handle) if handle >= 0 else 0
        if status == KernelStatus.NEED_EXT:
            self._give_ext(queue, handle)
        elif (topic, queue_id) in self._unmet:
            self._meet(self._unmet.pop((topic, queue_id)), queue_offset)
        elif handle < 0 or (next_index == 0 and queue_offset > 0):
            self._start_queue(queue, queue_offset)
        elif status == KernelStatus.NEED_QUEUE:
            self._register(queue, next_index, self.kernel.max_physical_offset(handle), attach=True)
        elif queue.is_light and not is_own:
            self._let_shift(queue, handle, next_index, queue_offset)
        else:
            self._fill_gap(queue, handle, next_index, queue_offset)
        return True

    def _refuse_topic(self, topic: bytes, queue_id: int, queue_offset: int) -> None:
        """Note a record whose topic cannot have a queue, and continue after it."""
        place = self._reput_offset
        name = topic.decode("utf-8")
        _log.warning(
            "the topic of the record at log offset %d has %d bytes, too many for a folder's name; "
            "the record is readable by its log offset only",
            place, len(topic),
        )  # fmt: skip
        self.notes.refused.append((name, queue_id, queue_offset, place))
        _, size = self.log.check(place)
        self.kernel.set_queue(topic, queue_id, None, 0, 0, place + size)

    def _note_odd_names(self) -> None:
        """Note which queues do not get a record that names them."""
        self._odd_names = self.kernel.odd_names
        for offset in self.kernel.take_odd_names():
            for note in odd_names(self.log.view(offset), self.multi_dispatch):
                if len(self.notes.odd_names) < MAX_NAME_NOTES:
                    _log.warning("%s", note)
                    self.notes.odd_names.append(note)

    def _give_ext(self, queue: ConsumeQueue, handle: int) -> None:
        """Give the kernel the file for the queue's next ext unit."""
        ext = queue.ext
        assert ext is not None
        offset = self.kernel.ext_offset(handle)
        if offset < 0:
            offset = queue.ext_offset_before(self.kernel.next_index(handle))
        buffer, start = ext.room_for_append(offset)
        self.kernel.set_ext(handle, buffer, start, offset)
        ext.follow(functools.partial(self.kernel.ext_offset, handle))

    # --- queues -------------------------------------------------------------------------------

    def _register(
        self,
        queue: ConsumeQueue,
        next_index: int,
        max_physical_offset: int,
        *,
        attach: bool = False,
    ) -> int:
        """Register a queue with the kernel; with ``attach`` also its file for the next unit."""
        mapping, first = None, next_index
        if attach:
            mapping, first = queue.room_for_append(next_index)
            self._pin(queue)
        handle = self.kernel.set_queue(
            queue.topic_bytes, queue.queue_id, mapping, first, next_index, max_physical_offset
        )
        queue.follow(self.kernel.next_index_of(handle))
        return int(handle)

    def _start_queue(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Start an empty queue at ``queue_offset``; pre-blank the earlier units of its file."""
        start = queue_offset - queue_offset % queue.units_per_file
        asks = self.log.min_offset == 0
        if not self._is_plausible(queue, queue_offset, 0, -1, queue_offset - start, ask_next=asks):
            return
        self._fill(queue, start, queue_offset)
        queue.min_index = queue_offset
        self._register(queue, queue_offset, -1, attach=True)

    def _meet(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Start to compare a loaded queue at the first of its records that the log still has."""
        place = self._reput_offset
        index = queue.index_of(place) if queue.is_light else None
        index = queue_offset if index is None else index
        start = index - index % queue.units_per_file
        asks = self.log.min_offset == 0
        if not self._is_plausible(queue, index, 0, -1, index - start, ask_next=asks):
            return
        if index > start and not queue.has_written(index - 1):
            self._fill(queue, start, index)
        # Earlier units that name places still in the log belong to no record: pre-blank them.
        self._fill(queue, queue.first_named(index, max(self.log.min_offset, 0)), index)
        queue.min_index = index
        trusted = queue.recovered_index
        handle = self._register(queue, index, -1, attach=True)
        self.kernel.trust_ext(handle, trusted)

    def end_comparing(self, log_min_offset: int) -> list[str]:
        """End every queue after its last record, whatever its files hold; return notes on faults.

        A queue without a record in the log keeps its end if all its messages had expired at
        ``log_min_offset``. Otherwise its units are wrong, and it is emptied. Units past an end
        are cleared, because they would name foreign records once the log has grown past them.
        """
        self.kernel.set_compare(False)
        notes = []
        for queue in self.queues:
            if isinstance(queue, BatchConsumeQueue):
                continue
            if (queue.topic, queue.queue_id) in self._unmet:
                if queue.recovered_end > log_min_offset:
                    notes.append(f"{queue.topic} queue {queue.queue_id} had units without a record")
                if 0 <= queue.recovered_end <= log_min_offset:
                    queue.clear_after()
                else:
                    queue.forget()
                self._register(queue, queue.recovered_index, queue.recovered_end)
                continue
            handle = self.kernel.handle(queue.topic_bytes, queue.queue_id)
            queue.recovered_index = self.kernel.next_index(handle)
            queue.recovered_end = self.kernel.max_physical_offset(handle)
            # Units that were rewritten below the recovered end are not on disk yet.
            written = 0 if self.kernel.mended_units else queue.recovered_index
            queue.flushed_index = min(queue.flushed_index, written)
            if queue.ext is not None:
                queue.ext.recovered_offset = queue.ext.max_offset
            queue.clear_after()
        self._unmet = {}
        return notes

    def _fill_gap(
        self, queue: ConsumeQueue, handle: int, next_index: int, queue_offset: int
    ) -> None:
        """Pre-blank missing queue offsets, so that later units keep their positions (D-14)."""
        last_end = self.kernel.max_physical_offset(handle)
        missing = queue_offset - next_index
        if not self._is_plausible(
            queue, queue_offset, next_index, last_end, missing, ask_next=True
        ):
            return
        # A reader reports the gap later, once it is sure that a writer was not just appending.
        _log.log(
            logging.WARNING if queue.queue.writable else logging.INFO,
            "%s queue %d lacks the queue offsets %d to %d",
            queue.topic, queue.queue_id, next_index, queue_offset - 1,
        )  # fmt: skip
        self.notes.gaps.append((queue.topic, queue.queue_id, next_index, queue_offset))
        self._fill(queue, next_index, queue_offset)
        self._register(queue, queue_offset, last_end, attach=True)

    def _let_shift(
        self, queue: ConsumeQueue, handle: int, next_index: int, queue_offset: int
    ) -> None:
        """Append a light queue's units at its end, as RocketMQ does, despite skipped offsets.

        PREPARED and ROLLBACK records take queue offsets there without leaving units.
        """
        last_end = self.kernel.max_physical_offset(handle)
        if self._is_plausible(queue, queue_offset, next_index, last_end, 0, ask_next=False):
            self.notes.shifts.append((queue.topic, queue.queue_id, next_index, queue_offset))
            self.kernel.set_shifted(handle)

    def _fill(self, queue: ConsumeQueue, index: int, stop_index: int) -> None:
        while index < stop_index:
            queue.flushed_index = min(queue.flushed_index, index)
            file = queue.file_for_append(index)
            first = file.file_from_offset // UNIT_NBYTES
            stop = min(stop_index, first + queue.units_per_file)
            if isinstance(file, MappedFile) and not file.private:
                end = (stop - first) * UNIT_NBYTES
                file.allocate(end, used=(index - first) * UNIT_NBYTES)
            kernels.consume_queue.fill_units(
                file.mapping, (index - first) * UNIT_NBYTES, (stop - first) * UNIT_NBYTES
            )
            index = stop

    def _is_plausible(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        next_index: int,
        last_end: int,
        filler_count: int,
        *,
        ask_next: bool,
    ) -> bool:
        """Return whether the record may have this queue offset; if not, note it and skip its unit.

        With ``ask_next`` the queue's next records are always consulted (see ``QueueOffsetRule``).
        """
        place = self._reput_offset
        size = self.log.check(place)[1]
        claim = Claim(
            (queue.topic, queue.queue_id), queue_offset, next_index, place, place + size, last_end,
            filler_count, queue.units_per_file, queue.holds(queue_offset, place, size),
        )  # fmt: skip
        reason = self._rule.refusal(
            claim,
            self.log.min_offset,
            functools.partial(self._next_of_queue, queue, place + size),
            always_ask=ask_next and not queue.is_light,
        )
        if reason is None:
            return True
        _log.warning(
            "the record at log offset %d claims queue offset %d of %s queue %d, an impossible one: "
            "%s; it is readable by its log offset only",
            place, queue_offset, queue.topic, queue.queue_id, reason,
        )  # fmt: skip
        self.notes.refused.append((queue.topic, queue.queue_id, queue_offset, place))
        handle = self.kernel.handle(queue.topic_bytes, queue.queue_id)
        end = self.kernel.next_index(handle) if handle >= 0 else 0
        self._register(queue, end, place + size)
        return False

    def _next_of_queue(self, queue: ConsumeQueue, start: int) -> Iterator[NextRecord]:
        """Yield the records of the queue after ``start`` within the look-ahead limit."""
        names = 0 if self._is_own else self.multi_dispatch
        while True:
            stop = min(start + min(NEXT_NBYTES, self._look_ahead_nbytes), self.log.max_offset)
            found = next_of_queue(self.log, start, stop, queue.topic, queue.queue_id, names)
            self._look_ahead_nbytes -= (stop if found is None else found.end) - start
            if found is None:
                return
            yield found
            start = found.end

    # --- batch queues -------------------------------------------------------------------------

    def _put_batch_unit(self, queue: BatchConsumeQueue) -> None:
        """Put the unit of the current record, and register it with the kernel as present.

        The kernel then continues with the record's keys.
        """
        place, start = self._reput_offset, queue.max_index
        message = self.log.view(place)
        unit, size = unit_of(message, self._tags_code(place)), message.store_size
        if unit is None or not self._may_go_on(queue, unit):
            _log.warning(
                "the record at log offset %d fits no place in %s queue %d, which ends at %d; it is "
                "readable by its log offset only",
                place, queue.topic, queue.queue_id, start,
            )  # fmt: skip
            self.notes.refused.append((queue.topic, queue.queue_id, start, place))
        elif place >= queue.recovered_end:
            if queue.recovered_end >= 0 and unit.base_offset > start:
                self.notes.gaps.append((queue.topic, queue.queue_id, start, unit.base_offset))
            queue.append(unit)
            self._last_batch = (place, unit.store_timestamp)
        self._register(queue, queue.max_index, place + size)

    def _may_go_on(self, queue: BatchConsumeQueue, unit: BatchUnit) -> bool:
        """Return whether a batch queue may continue, or begin, with a unit.

        This is ``QueueOffsetRule`` without fillers.
        """
        missing = unit.base_offset - queue.max_index
        if missing <= 0:
            return missing == 0
        end = unit.physical_offset + unit.size
        following = next(self._next_of_queue(queue, end), None)
        if following is not None and queue.max_index <= following.queue_offset <= unit.base_offset:
            return False
        start = max(queue.recovered_end, 0)
        room = (unit.physical_offset - start) // formats.BATCH_ITEM_MIN_NBYTES
        if missing <= max(room, MAX_UNFOUNDED_COUNT):
            return True
        if following is None:
            return False
        between = (following.place - end) // formats.BATCH_ITEM_MIN_NBYTES
        return 0 <= following.queue_offset - unit.next_offset <= between

    def _tags_code(self, offset: int) -> int:
        """Return the kernel's tags code of the record at ``offset``."""
        window = self.log.window(offset)
        assert window is not None
        layout = formats.PARSED_RECORD
        row = bytearray(layout.nbytes)
        kernels.message.scan_records(
            window.buffer, offset - window.base_offset, window.stop, window.base_offset,
            window.segment_end, int(RecordFlags.PARSE_PROPERTIES), row, self._delay_ms,
        )  # fmt: skip
        names = [field.name for field in layout.fields]
        return int(layout.struct.unpack(row)[names.index("tags_code")])

    def _pin(self, queue: ConsumeQueue) -> None:
        """Keep the number of pinned files under the limit; release the least recent queue's."""
        key = (queue.topic, queue.queue_id)
        self._pinned[key] = None
        self._pinned.move_to_end(key)
        while len(self._pinned) > self._most_pinned:
            topic, queue_id = self._pinned.popitem(last=False)[0]
            other = self.queues.get(topic, queue_id)
            if other is None:
                continue
            handle = self.kernel.handle(other.topic_bytes, queue_id)
            next_index = self.kernel.next_index(handle)
            self._register(other, next_index, self.kernel.max_physical_offset(handle))

    # --- index --------------------------------------------------------------------------------

    def _attach_index(self, file: IndexFile | None, start: IndexPosition | None = None) -> None:
        assert self.index is not None
        offset, keys = start if start is not None else (self.kernel.indexed_offset, None)
        if file is None:
            self.kernel.set_index(None, self.index.slots, self.index.entries, offset, keys)
        else:
            room = self.index.entries_with_room(file)
            self.kernel.set_index(file.buffer, file.slots, room, offset, keys)

    def close(self) -> None:
        """Release every buffer; the positions of queues stay readable."""
        ends = {}
        for queue in self.queues:
            ends[queue] = queue.max_index
            if queue.ext is not None:
                queue.ext.recovered_offset = queue.ext.max_offset
                queue.ext.follow(lambda: -1)
        self.kernel.close()
        for queue, end in ends.items():
            queue.recovered_index = end
            queue.follow(functools.partial(int, end))
