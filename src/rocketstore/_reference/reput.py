"""Dispatch of log records to consume-queue files and index files, one record at a time."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocketstore import formats
from rocketstore._reference import index_file, message, multi_dispatch
from rocketstore._reference.arguments import Buffer, readable, writable
from rocketstore._reference.bit_maps import BitMaps, FilterRow
from rocketstore._reference.ext_units import ExtUnits
from rocketstore.status import KernelStatus, RecordFlags, RecordStatus

_UNIT = formats.CONSUME_QUEUE_UNIT
_ROW = formats.PARSED_RECORD
_ROW_NAMES = tuple(field.name for field in _ROW.fields)
_BATCH_COUNT = 16
_OFFSET_MAX = 2**63 - 1
#: Records with odd names that are kept until they are fetched.
_ODD_COUNT = 1024
#: A queue's positions also have 64 bits.
_INDEX_MAX = _OFFSET_MAX // _UNIT.nbytes
_QUEUED_TYPES = (formats.SYS_FLAG_TRANSACTION_NOT, formats.SYS_FLAG_TRANSACTION_COMMIT)


def _bounded(name: str, value: int, low: int, high: int) -> int:
    number = operator.index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is outside {low} .. {high}")
    return number


def _queue_key(topic: bytes, queue_id: int) -> tuple[bytes, int]:
    if not isinstance(topic, bytes):
        raise TypeError(f"topic must be bytes, not {type(topic).__name__}")
    if len(topic) > formats.MAX_PROPERTIES_NBYTES:
        raise ValueError(f"topic of {len(topic)} bytes is longer than any record can hold")
    return topic, _bounded("queue_id", queue_id, 0, 2**31 - 1)


class _Queue:
    """Place of the next unit of one (topic, queue id)."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.shifted = False
        self.trusted_index = 0
        self.ext = ExtUnits()
        self.view: memoryview | None = None
        self.first_index = 0
        self.next_index = 0
        self.max_physical_offset = -1

    def release(self) -> None:
        if self.view is not None:
            self.view.release()
            self.view = None

    @property
    def position(self) -> int:
        """Position of the next unit in the file, -1 if there is no file or it is full."""
        position = (self.next_index - self.first_index) * _UNIT.nbytes
        fits = self.view is not None and position + _UNIT.nbytes <= len(self.view)
        return position if fits else -1

    def has(self, record: _Record) -> bool:
        """Return whether the record's unit already exists, with its tags code or a trusted ext
        address."""
        assert self.view is not None
        offset, size, tags_code = _UNIT.struct.unpack_from(self.view, self.position)
        if (offset, size) != (record.physical_offset, record.total_size):
            return False
        is_address = tags_code <= formats.MAX_EXT_ADDRESS
        return tags_code == record.tags_code or (
            is_address and self.next_index < self.trusted_index
        )

    def put(self, record: _Record, tags_code: int) -> bool:
        """Append the record's unit; return whether it changed the bytes there. Requires room."""
        assert self.view is not None
        unit = (record.physical_offset, record.total_size, tags_code)
        former = _UNIT.struct.unpack_from(self.view, self.position)
        _UNIT.struct.pack_into(self.view, self.position, *unit)
        self.move_on(record)
        return bool(former != unit)

    def distrust_ext(self) -> None:
        """Reset the ext offset after a wrong trusted unit: continue after the previous unit's."""
        if self.next_index < self.trusted_index:
            self.trusted_index = 0
            self.ext.release()
            self.ext.offset = -1

    def move_on(self, record: _Record) -> None:
        """Move past the place of the record's unit."""
        self.max_physical_offset = record.end
        self.next_index += 1


class _Record:
    """One parsed record: its row's fields as attributes, its texts as bytes."""

    def __init__(self, row: tuple[Any, ...], log: memoryview) -> None:
        self.__dict__.update(zip(_ROW_NAMES, row, strict=True))
        self.end = self.physical_offset + self.total_size
        self.transaction_type = self.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
        self._log = log

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a parsed record has no field {name!r}")

    def text(self, name: str) -> bytes:
        """Return the bytes of ``topic``, ``tags``, ``keys`` or ``unique_key``; b"" when absent."""
        at = getattr(self, name + "_at")
        if at < 0:
            return b""
        start = self.position + at
        return bytes(self._log[start : start + getattr(self, name + "_nbytes")])

    @property
    def properties(self) -> bytes:
        """The properties as stored."""
        end = self.position + self.total_size
        return bytes(self._log[end - self.properties_nbytes : end])


class Dispatcher:
    """See ``_native/reput.pyi``."""

    position_offset = 0
    indexed_offset = 0
    indexed_keys = 0
    last_store_timestamp = 0
    last_record_offset = -1
    stalled: tuple[bytes, int, int] | None = None
    dispatched_count = 0
    skipped_ghosts = 0
    skipped_topics = 0
    repeated_units = 0
    mended_units = 0
    odd_names = 0
    filter_errors = 0
    newest_ext_timestamp = 0

    def __init__(
        self,
        *,
        index_enable: bool = True,
        index_tags: bool = True,
        delay_ms: Sequence[int] = (),
        multi_dispatch: int = 0,
        ext_file_nbytes: int = 0,
    ) -> None:
        self._multi_dispatch = _bounded("multi_dispatch", multi_dispatch, 0, 15)
        most = formats.MAX_COMMIT_LOG_FILE_NBYTES
        self._ext_file_nbytes = _bounded("ext_file_nbytes", ext_file_nbytes, 0, most)
        self._bit_maps = BitMaps(0, ())
        self._compare = False
        self._index_enable = bool(index_enable)
        self._index_tags = bool(index_tags)
        self._delay_ms = tuple(_bounded("delay", delay, 0, _OFFSET_MAX) for delay in delay_ms)
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        self._handles: list[_Queue | None] = []
        self._index: memoryview | None = None
        self._slots = 0
        self._entries = 0
        #: Start of the record whose unit was handled before its keys had to wait, -1 if none.
        self._unit_done_offset = -1
        self._last_odd_offset = -1
        self._odd_offsets: list[int] = []
        self._owner = threading.Lock()
        self._closed = False

    # --- queues -------------------------------------------------------------------------------

    def set_queue(
        self,
        topic: bytes,
        queue_id: int,
        buffer: Buffer,
        first_index: int,
        next_index: int,
        max_physical_offset: int,
    ) -> int:
        with _Owned(self):
            key = _queue_key(topic, queue_id)
            first = _bounded("first_index", first_index, 0, _INDEX_MAX)
            next_ = _bounded("next_index", next_index, first, _INDEX_MAX)
            end = _bounded("max_physical_offset", max_physical_offset, -1, _OFFSET_MAX)
            view = None if buffer is None else writable(buffer)
            if view is not None:
                capacity = len(view) // _UNIT.nbytes
                if next_ - first > capacity:
                    view.release()
                    raise ValueError(
                        f"next_index {next_} is past the {capacity} units of a file that "
                        f"begins at {first}"
                    )
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Queue(len(self._handles))
                self._handles.append(queue)
            queue.release()
            if view is None:
                queue.ext.release()
            queue.view, queue.first_index, queue.next_index = view, first, next_
            queue.max_physical_offset = end
            return queue.handle

    def remove_queue(self, topic: bytes, queue_id: int) -> None:
        with _Owned(self):
            queue = self._queues.pop(_queue_key(topic, queue_id), None)
            if queue is not None:
                queue.release()
                queue.ext.release()
                self._handles[queue.handle] = None

    def handle(self, topic: bytes, queue_id: int) -> int:
        queue = self._queues.get(_queue_key(topic, queue_id))
        return -1 if queue is None else queue.handle

    def next_index(self, handle: int) -> int:
        return self._by_handle(handle).next_index

    def next_index_of(self, handle: int) -> Callable[[], int]:
        self._by_handle(handle)
        return functools.partial(self.next_index, handle)

    def max_physical_offset(self, handle: int) -> int:
        return self._by_handle(handle).max_physical_offset

    def _by_handle(self, handle: int) -> _Queue:
        number = operator.index(handle)
        queue = self._handles[number] if 0 <= number < len(self._handles) else None
        if queue is None:
            raise ValueError(f"no queue has the handle {number}")
        return queue

    def set_shifted(self, handle: int) -> None:
        with _Owned(self):
            self._by_handle(handle).shifted = True

    # --- ext files ----------------------------------------------------------------------------

    def set_ext(self, handle: int, buffer: Buffer, file_offset: int, offset: int) -> None:
        with _Owned(self):
            ext = self._by_handle(handle).ext
            file_nbytes = self._ext_file_nbytes
            if not file_nbytes:
                raise ValueError("this dispatcher has no ext files")
            start = _bounded("file_offset", file_offset, 0, _OFFSET_MAX - file_nbytes)
            view = writable(buffer)
            place = _bounded("offset", offset, start, start + min(len(view), file_nbytes))
            ext.release()
            ext.view, ext.file_offset, ext.offset = view[:file_nbytes], start, place

    def ext_offset(self, handle: int) -> int:
        return self._by_handle(handle).ext.offset

    def trust_ext(self, handle: int, index: int) -> None:
        with _Owned(self):
            queue = self._by_handle(handle)
            if self._ext_file_nbytes:
                queue.trusted_index = _bounded("index", index, 0, _INDEX_MAX)

    def set_compare(self, compare: bool) -> None:
        with _Owned(self):
            self._compare = bool(compare)

    def set_filters(self, bit_map_nbytes: int, filters: Sequence[FilterRow]) -> None:
        with _Owned(self):
            nbytes = _bounded("bit_map_nbytes", bit_map_nbytes, 0, 2**31 - 1)
            self._bit_maps = BitMaps(nbytes, filters)

    # --- index --------------------------------------------------------------------------------

    def set_index(
        self,
        buffer: Buffer,
        slots: int,
        entries: int,
        indexed_offset: int,
        indexed_keys: int | None = None,
    ) -> None:
        with _Owned(self):
            offset = _bounded("indexed_offset", indexed_offset, 0, _OFFSET_MAX)
            keys = self.indexed_keys if offset == self.indexed_offset else 0
            if indexed_keys is not None:
                keys = _bounded("indexed_keys", indexed_keys, 0, 2**31 - 1)
            view = None
            if buffer is not None:
                slots = _bounded("slots", slots, 1, 2**31 - 1)
                entries = _bounded("entries", entries, 1, 2**31 - 1)
                view = writable(buffer)
                if formats.index_file_nbytes(slots, entries) > len(view):
                    held = len(view)
                    view.release()
                    raise ValueError(
                        f"an index of {slots} slots and {entries} entries does not fit {held} bytes"
                    )
                self._slots, self._entries = slots, entries
            if self._index is not None:
                self._index.release()
            self._index = view
            self.indexed_offset, self.indexed_keys = offset, keys

    # --- dispatch -----------------------------------------------------------------------------

    def dispatch(
        self,
        buffer: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        max_count: int = 4096,
    ) -> tuple[int, int]:
        with _Owned(self), readable(buffer) as log:
            stop = _bounded("stop", stop, 0, min(len(log), formats.MAX_COMMIT_LOG_FILE_NBYTES))
            position = _bounded("position", position, 0, stop)
            base_offset = _bounded("base_offset", base_offset, 0, _OFFSET_MAX - stop)
            segment_end = _bounded("segment_end", segment_end, base_offset + stop, _OFFSET_MAX)
            left = _bounded("max_count", max_count, 1, 2**31 - 1)
            self.stalled = None
            status = int(RecordStatus.OK)
            try:
                while left and status == RecordStatus.OK:
                    room = min(left, _BATCH_COUNT)
                    records, following, status = self._parse(
                        log, position, stop, base_offset, segment_end, room
                    )
                    left -= len(records)
                    if len(records) == room:
                        status = int(RecordStatus.OK)
                    for record in records:
                        stall = self._dispatch_record(record)
                        if stall != KernelStatus.OK:
                            position = record.position
                            return position, int(stall)
                    position = following
                return position, status
            finally:
                self.position_offset = base_offset + position

    def _parse(
        self,
        log: memoryview,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        room: int,
    ) -> tuple[list[_Record], int, int]:
        rows = bytearray(room * _ROW.nbytes)
        count, following, status = message.scan_records(
            log,
            position,
            stop,
            base_offset,
            segment_end,
            int(RecordFlags.PARSE_PROPERTIES),
            rows,
            self._delay_ms,
        )
        used = memoryview(rows)[: count * _ROW.nbytes]
        return [_Record(row, log) for row in _ROW.struct.iter_unpack(used)], following, status

    def _dispatch_record(self, record: _Record) -> int:
        """Put one record's unit, then its keys. Any status but OK means: retry later."""
        if record.status == RecordStatus.GHOST:
            self.skipped_ghosts += 1
        elif record.status == RecordStatus.UNSAFE_TOPIC:
            self.skipped_topics += 1
        else:
            if record.transaction_type in _QUEUED_TYPES:
                status = self._put_unit(record)
                if status == KernelStatus.OK:
                    status = self._put_named_units(record)
                if status != KernelStatus.OK:
                    return status
            if self._index_enable and not self._put_keys(record):
                self._unit_done_offset = record.physical_offset
                return KernelStatus.NEED_INDEX
            if self._unit_done_offset == record.physical_offset:
                self._unit_done_offset = -1
            self.dispatched_count += 1
        if self._index_enable and record.end > self.indexed_offset:
            self.indexed_offset, self.indexed_keys = record.end, 0
        return KernelStatus.OK

    def _put_unit(self, record: _Record) -> int:
        topic = record.text("topic")
        queue = self._queues.get((topic, record.queue_id))
        if queue is not None and (
            record.end <= queue.max_physical_offset or record.queue_offset < queue.next_index
        ):
            # A record whose keys had to wait is dispatched a second time; that is not a repetition.
            if record.physical_offset != self._unit_done_offset:
                self.repeated_units += 1
            return KernelStatus.OK
        status = KernelStatus.NEED_QUEUE
        if queue is not None and record.queue_offset > queue.next_index:
            status = KernelStatus.QUEUE_GAP
        elif queue is not None and queue.position >= 0:
            if self._append(queue, record):
                self.last_store_timestamp = record.store_timestamp
                self.last_record_offset = record.physical_offset
                return KernelStatus.OK
            status = KernelStatus.NEED_EXT
        self.stalled = (topic, record.queue_id, record.queue_offset)
        return status

    def _append(self, queue: _Queue, record: _Record) -> bool:
        """Append the record's own unit; return False if it needs an ext file first."""
        if self._compare and queue.has(record):
            queue.move_on(record)
            return True
        if self._compare:
            queue.distrust_ext()
        tags_code = record.tags_code
        if self._ext_file_nbytes:
            tags_code = (
                queue.ext.keep(record.tags_code, record.store_timestamp) if self._compare else None
            )
            if tags_code is None:
                tags_code = self._put_ext(queue, record)
        if tags_code is None:
            return False
        self.mended_units += queue.put(record, tags_code) and self._compare
        return True

    def _put_ext(self, queue: _Queue, record: _Record) -> int | None:
        """Append the record's ext unit with its bit map; return as ``ExtUnits.put``."""
        made = self._bit_maps.of(record.text("topic"), record.properties, record.store_timestamp)
        tags_code = queue.ext.put(
            record.tags_code, record.store_timestamp, made.bit_map, self._ext_file_nbytes
        )
        if tags_code is not None:
            self.filter_errors += made.errors
            self.newest_ext_timestamp = max(self.newest_ext_timestamp, record.store_timestamp)
        return tags_code

    def _put_named_units(self, record: _Record) -> int:
        """Put the units of the queues that INNER_MULTI_DISPATCH names."""
        if not record.multi_dispatch_at:
            return KernelStatus.OK
        walk = multi_dispatch.Walk(
            record.properties, record.text("topic"), record.queue_id, self._multi_dispatch
        )
        for name, queue_id, queue_offset in walk.places:
            status = self._put_named_unit(record, name, queue_id, queue_offset)
            if status != KernelStatus.OK:
                self._unit_done_offset = record.physical_offset
                self.stalled = (name, queue_id, queue_offset)
                return status
        if walk.odd and record.physical_offset > self._last_odd_offset:
            self._last_odd_offset = record.physical_offset
            self.odd_names += 1
            if len(self._odd_offsets) < _ODD_COUNT:
                self._odd_offsets.append(record.physical_offset)
        return KernelStatus.OK

    def take_odd_names(self) -> list[int]:
        with _Owned(self):
            taken, self._odd_offsets = self._odd_offsets, []
            return taken

    def _put_named_unit(
        self, record: _Record, name: bytes, queue_id: int, queue_offset: int
    ) -> int:
        queue = self._queues.get((name, queue_id))
        if queue is None:
            return KernelStatus.NEED_QUEUE
        if record.end <= queue.max_physical_offset or queue_offset < queue.next_index:
            if record.physical_offset != self._unit_done_offset:
                self.repeated_units += 1
            return KernelStatus.OK
        # A light queue's number may be ahead of its units, since PREPARED and ROLLBACK records
        # also take numbers.
        if queue_offset > queue.next_index and not queue.shifted:
            return KernelStatus.QUEUE_GAP
        if queue.position < 0:
            return KernelStatus.NEED_QUEUE
        if self._compare and queue.has(record):
            queue.move_on(record)
        else:
            self.mended_units += queue.put(record, record.tags_code) and self._compare
        return KernelStatus.OK

    def _put_keys(self, record: _Record) -> bool:
        """Put the missing keys; return False if the index file has no room for the next."""
        if (
            record.transaction_type == formats.SYS_FLAG_TRANSACTION_ROLLBACK
            or record.physical_offset < self.indexed_offset
        ):
            return True
        if record.physical_offset != self.indexed_offset:
            self.indexed_offset, self.indexed_keys = record.physical_offset, 0
        prefix = record.text("topic") + formats.INDEX_KEY_SEPARATOR.encode()
        for number, key in enumerate(self._keys(record)):
            if number < self.indexed_keys:
                continue
            if self._index is None or not index_file.put_key(
                self._index,
                self._slots,
                self._entries,
                prefix + key,
                record.physical_offset,
                record.store_timestamp,
            ):
                return False
            self.indexed_keys += 1
        return True

    def _keys(self, record: _Record) -> Iterator[bytes]:
        if record.unique_key_at >= 0:
            yield record.text("unique_key")
        separator = formats.KEY_SEPARATOR.encode()
        yield from (key for key in record.text("keys").split(separator) if key)
        if self._index_tags and record.tags_at >= 0:
            yield formats.TAG_KEY_INFIX.encode() + record.text("tags")

    def close(self) -> None:
        with _Owned(self, closing=True):
            self._closed = True
            for queue in self._queues.values():
                queue.release()
                queue.ext.release()
            if self._index is not None:
                self._index.release()
                self._index = None


class _Owned:
    """One thread inside a dispatcher; a second one gets ``RuntimeError`` instead of waiting."""

    def __init__(self, dispatcher: Dispatcher, *, closing: bool = False) -> None:
        self._dispatcher = dispatcher
        self._closing = closing

    def __enter__(self) -> None:
        if not self._dispatcher._owner.acquire(blocking=False):
            raise RuntimeError("another thread is inside this dispatcher")
        if self._dispatcher._closed and not self._closing:
            self._dispatcher._owner.release()
            raise ValueError("the dispatcher is closed")

    def __exit__(self, *_: object) -> None:
        self._dispatcher._owner.release()
