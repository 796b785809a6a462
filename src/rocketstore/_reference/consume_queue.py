"""ConsumeQueue units in simple pure Python: twin of ``_native/consume_queue``."""

from __future__ import annotations

from typing import NamedTuple

from rocketstore import formats
from rocketstore._reference import message, multi_dispatch
from rocketstore._reference.arguments import (
    INT64_MAX,
    Buffer,
    Integers,
    check_int64,
    check_lengths,
    readable,
    whole_units,
    writable,
)
from rocketstore._reference.record_filter import Judge
from rocketstore.record_filters import CompiledFilter
from rocketstore.status import GetMessageStatus, KernelStatus, RecordStatus

_UNIT = formats.CONSUME_QUEUE_UNIT.struct
_ROW = formats.SELECTED_MESSAGE.struct
_NBYTES = _UNIT.size
_FILLER = (0, formats.FILLER_UNIT_SIZE, 0)
_UNWRITTEN = (0, 0, 0)
_READABLE_STATUSES = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_UNQUEUED_TYPES = (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK)


def put_units(
    buffer: Buffer,
    position: int,
    physical_offsets: Buffer,
    sizes: Buffer,
    tags_codes: Buffer,
    /,
) -> int:
    """Write consecutive units until the buffer's end; return how many."""
    view = writable(buffer)
    stop = whole_units(view, _NBYTES, position, len(view))
    offsets = Integers(physical_offsets, "q", "physical_offsets")
    lengths = Integers(sizes, "i", "sizes")
    codes = Integers(tags_codes, "q", "tags_codes")
    count = min(check_lengths(offsets, lengths, codes), (stop - position) // _NBYTES)
    for at, unit in zip(range(count), zip(offsets, lengths, codes, strict=True), strict=False):
        _UNIT.pack_into(view, position + at * _NBYTES, *unit)
    return count


def fill_units(buffer: Buffer, position: int, stop: int, /) -> None:
    """Write pre-blank units from ``position`` to ``stop``."""
    view = writable(buffer)
    for at in range(position, whole_units(view, _NBYTES, position, stop), _NBYTES):
        _UNIT.pack_into(view, at, *_FILLER)


def read_units(
    buffer: Buffer,
    position: int,
    stop: int,
    physical_offsets: Buffer,
    sizes: Buffer,
    tags_codes: Buffer,
    /,
) -> int:
    """Decode units into the arrays; return how many."""
    view = readable(buffer)
    stop = whole_units(view, _NBYTES, position, stop)
    offsets = Integers(physical_offsets, "q", "physical_offsets", writes=True)
    lengths = Integers(sizes, "i", "sizes", writes=True)
    codes = Integers(tags_codes, "q", "tags_codes", writes=True)
    count = min(check_lengths(offsets, lengths, codes), (stop - position) // _NBYTES)
    for i in range(count):
        offsets[i], lengths[i], codes[i] = _UNIT.unpack_from(view, position + i * _NBYTES)
    return count


def scan_units(
    buffer: Buffer, position: int, stop: int, last_end: int, log_end: int, /
) -> tuple[int, int, int]:
    """Walk valid units; return where it ended, the end of the last message, and why it ended."""
    view = readable(buffer)
    check_int64(last_end, log_end)
    stop = whole_units(view, _NBYTES, position, stop)
    for at in range(position, stop, _NBYTES):
        unit = _UNIT.unpack_from(view, at)
        offset, size, _ = unit
        if unit == _UNWRITTEN:
            return at, last_end, KernelStatus.NO_UNIT
        if unit == _FILLER:
            if last_end >= 0:
                return at, last_end, KernelStatus.BAD_UNIT
            continue
        if offset < max(0, last_end) or size <= 0 or offset + size > log_end:
            return at, last_end, KernelStatus.BAD_UNIT
        last_end = offset + size
    return stop, last_end, RecordStatus.END


def find_unit(buffer: Buffer, position: int, stop: int, physical_offset: int, /) -> int:
    """Return the position of the first unit at or after ``physical_offset``, or ``stop``."""
    view = readable(buffer)
    check_int64(physical_offset)
    stop = whole_units(view, _NBYTES, position, stop)
    low, high = 0, (stop - position) // _NBYTES
    while low < high:
        middle = probe = (low + high) // 2
        unit = _UNIT.unpack_from(view, position + probe * _NBYTES)
        while unit == _FILLER and physical_offset >= 0 and probe > low:
            # A pre-blank has no offset to compare: use the unit before it.
            probe -= 1
            unit = _UNIT.unpack_from(view, position + probe * _NBYTES)
        if (-1 if unit == _FILLER else unit[0]) < physical_offset:
            low = middle + 1
        else:
            high = probe
    return position + low * _NBYTES


def filter_units(
    buffer: Buffer, position: int, stop: int, tags_codes: Buffer, out: Buffer, /
) -> int:
    """Find the units with one of the tags codes; return how many."""
    view = readable(buffer)
    stop = whole_units(view, _NBYTES, position, stop)
    wanted = frozenset(Integers(tags_codes, "q", "tags_codes"))
    numbers = Integers(out, "q", "out", writes=True)
    count = (stop - position) // _NBYTES
    if len(numbers) < count:
        raise ValueError(f"out has room for {len(numbers)} of {count} units")
    found = 0
    for number in range(count):
        unit = _UNIT.unpack_from(view, position + number * _NBYTES)
        numbers[found] = number  # the next hit overwrites it
        found += unit[2] in wanted and unit not in (_FILLER, _UNWRITTEN)
    return found


class _Limits(NamedTuple):
    """Return whether a batch is full: RocketMQ's ``batchFull``."""

    max_count: int
    max_nbytes: int
    disk_below: int
    max_disk_count: int
    max_disk_nbytes: int

    def full(self, offset: int, size: int, count: int, nbytes: int) -> bool:
        if count == 0:
            return False
        if offset < self.disk_below:
            return count >= self.max_disk_count or nbytes + size > self.max_disk_nbytes
        return count >= self.max_count or nbytes + size > self.max_nbytes


class _Log(NamedTuple):
    """One segment of the commit log, and what its records must match."""

    view: memoryview
    stop: int
    base_offset: int
    segment_end: int
    topic: bytes
    queue_id: int
    flags: int

    def status(self, offset: int, size: int, queue_offset: int) -> int:
        """Check the record at ``offset`` strictly, then against its unit."""
        position = offset - self.base_offset
        if position >= self.stop:
            return RecordStatus.INCOMPLETE
        status, _ = message.check_record(
            self.view, position, self.stop, self.base_offset, self.segment_end, self.flags
        )
        if status == RecordStatus.BLANK:
            return KernelStatus.MISMATCH
        if status not in _READABLE_STATUSES:
            return status
        return (
            KernelStatus.OK if self.agrees(position, size, queue_offset) else KernelStatus.MISMATCH
        )

    def agrees(self, position: int, size: int, queue_offset: int) -> bool:
        record = self.parsed(position)
        if record["total_size"] != size:
            return False
        if not self.topic:
            return True
        if record["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK in _UNQUEUED_TYPES:
            return False
        topic_at = position + record["topic_at"]
        if (
            self.view[topic_at : topic_at + record["topic_nbytes"]] == self.topic
            and record["queue_id"] == self.queue_id
            and record["queue_offset"] == queue_offset
        ):
            return True
        properties = self.properties(self.base_offset + position, size)
        return multi_dispatch.names(properties, self.topic, self.queue_id, record["queue_id"])

    def parsed(self, position: int) -> dict[str, int]:
        """Return the fields of the record at a position by name."""
        row = bytearray(formats.PARSED_RECORD.nbytes)
        message.scan_records(
            self.view, position, self.stop, self.base_offset, self.segment_end, 0, row
        )
        names = (field.name for field in formats.PARSED_RECORD.fields)
        return dict(zip(names, formats.PARSED_RECORD.struct.unpack(row), strict=True))

    def properties(self, offset: int, size: int) -> bytes:
        """Return the properties of the record at an offset."""
        position = offset - self.base_offset
        properties_at = position + self.parsed(position)["properties_at"]
        return bytes(self.view[properties_at : position + size])


def select_messages(
    units: Buffer,
    position: int,
    stop: int,
    queue_offset: int,
    log: Buffer,
    log_stop: int,
    base_offset: int,
    segment_end: int,
    min_offset: int,
    topic: bytes,
    queue_id: int,
    tags_codes: Buffer | None,
    filter: CompiledFilter | None,
    max_count: int,
    max_nbytes: int,
    disk_below: int,
    max_disk_count: int,
    max_disk_nbytes: int,
    selected_nbytes: int,
    selected_count: int,
    flags: int,
    out: Buffer,
    /,
) -> tuple[int, int, int, int, int]:
    """Follow units into one log segment, like getMessage's loop."""
    view = readable(units)
    stop = whole_units(view, _NBYTES, position, stop)
    log_view = readable(log)
    rows_view = writable(out)
    if not 0 <= log_stop <= len(log_view):
        raise ValueError(f"log_stop {log_stop} is outside a buffer of {len(log_view)} bytes")
    if base_offset < 0 or not base_offset < segment_end:
        raise ValueError(f"no segment from {base_offset} to {segment_end}")
    count = (stop - position) // _NBYTES
    if queue_offset < 0 or queue_offset > INT64_MAX - count:
        raise ValueError(f"queue_offset {queue_offset} leaves no queue offsets for {count} units")
    most = INT64_MAX // 2
    if not 0 <= selected_nbytes <= most or not 0 <= selected_count <= most:
        raise ValueError(
            f"selected_count {selected_count} or selected_nbytes {selected_nbytes} is out of range"
        )
    segment = _Log(log_view, log_stop, base_offset, segment_end, topic, queue_id, flags)
    limits = _Limits(max_count, max_nbytes, disk_below, max_disk_count, max_disk_nbytes)
    wanted = None if tags_codes is None else frozenset(Integers(tags_codes, "q", "tags_codes"))
    judge = Judge(filter)
    room = len(rows_view) // _ROW.size
    rows, nbytes, reason, skip_below = 0, 0, 0, 0
    while position < stop:
        if rows == room:
            return position, rows, nbytes, KernelStatus.OK, reason
        unit = _UNIT.unpack_from(view, position)
        offset, size, tags_code = unit
        status = _unit_status(unit)
        if status != KernelStatus.OK:
            return position, rows, nbytes, status, reason
        if offset >= skip_below:
            if limits.full(offset, size, selected_count + rows, selected_nbytes + nbytes):
                return position, rows, nbytes, KernelStatus.LIMIT, reason
            if wanted is not None and not (
                tags_code in wanted or tags_code <= formats.MAX_EXT_ADDRESS
            ):
                reason = GetMessageStatus.NO_MATCHED_MESSAGE
            elif unit == _FILLER:
                reason = GetMessageStatus.MESSAGE_WAS_REMOVING
            elif offset < min_offset:
                reason = GetMessageStatus.MESSAGE_WAS_REMOVING
                segment_nbytes = segment_end - base_offset
                skip_below = min(min_offset, offset - offset % segment_nbytes + segment_nbytes)
            elif not base_offset <= offset < segment_end:
                return position, rows, nbytes, KernelStatus.OTHER_SEGMENT, reason
            else:
                status = segment.status(offset, size, queue_offset)
                if status != KernelStatus.OK:
                    return position, rows, nbytes, status, reason
                if judge.passes(segment.properties(offset, size)):
                    row = (offset - base_offset, queue_offset, tags_code, size, 0)
                    _ROW.pack_into(rows_view, rows * _ROW.size, *row)
                    rows += 1
                    nbytes += size
                else:
                    reason = GetMessageStatus.NO_MATCHED_MESSAGE
        position += _NBYTES
        queue_offset += 1
    return position, rows, nbytes, RecordStatus.END, reason


def _unit_status(unit: tuple[int, int, int]) -> int:
    """Return OK, or why the unit cannot refer to a message."""
    offset, size, _ = unit
    if unit == _UNWRITTEN:
        return KernelStatus.NO_UNIT
    if offset < 0 or size <= 0 or offset + size > INT64_MAX:
        return KernelStatus.BAD_UNIT
    return KernelStatus.OK
