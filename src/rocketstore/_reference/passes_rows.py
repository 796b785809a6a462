"""Judges rows of ``scan_records`` in pure Python: twin of ``_native/passes_rows``."""

from __future__ import annotations

import itertools
import struct
import sys

from rocketstore import formats
from rocketstore._reference import java_text
from rocketstore._reference.arguments import (
    INT64_MAX,
    Buffer,
    check_int64,
    readable,
    wrap64,
    writable,
)
from rocketstore._reference.passes_queue_units import has_unit
from rocketstore._reference.record_check import Row
from rocketstore.status import RecordStatus

_GOOD = (RecordStatus.OK, RecordStatus.UNSAFE_TOPIC)
#: What ``gather`` takes of a row, and its number.
_QUEUED, _INT = struct.Struct("=qqqq"), struct.Struct("=i")
_SCHEDULE = formats.TOPIC_SCHEDULE.encode()


def _rows(view: memoryview, rows: Buffer) -> list[tuple[Row, bytes]]:
    """Return the rows, each with its topic; raise ``ValueError`` if a topic is outside."""
    filled, nbytes = readable(rows), formats.PARSED_RECORD.nbytes
    if len(filled) % nbytes:
        raise ValueError(f"rows must be whole rows of {nbytes} bytes, not {len(filled)} bytes")
    found = []
    for number, values in enumerate(formats.PARSED_RECORD.struct.iter_unpack(filled)):
        row = Row(*values)
        start = row.position + row.topic_at
        is_length = 0 <= row.topic_nbytes <= formats.MAX_PROPERTIES_NBYTES
        is_inside = row.position >= 0 and row.topic_at >= 0 and is_length
        if not is_inside or start + row.topic_nbytes > len(view):
            raise ValueError(f"the topic of row {number} does not lie within {len(view)} bytes")
        found.append((row, bytes(view[start : start + row.topic_nbytes])))
    return found


def is_still_there(view: memoryview, row: Row) -> bool:
    """Return whether the row's record is still there: another process may have overwritten it."""
    start = row.position + formats.RECORD_HEAD.at("total_size")
    size = view[start : start + 4]
    return len(size) == 4 and int.from_bytes(size, "big", signed=True) == row.total_size


def _end(row: Row) -> int:
    return wrap64(row.physical_offset + row.total_size)


def summarize(
    buffer: Buffer, rows: Buffer, before: int, /
) -> tuple[int, int, int, int, int, int, bool, bool, bool, int]:
    """See ``_native/passes_rows.pyi``."""
    check_int64(before)
    found = _rows(readable(buffer), rows)
    good = [row for row, _ in found if row.status in _GOOD]
    times = [row.store_timestamp for row in good]
    covered = [row for row in good if row.store_timestamp < before]
    crcs = 0
    for row, _ in found:
        crcs |= row.property_crc & 3
    return (
        len(good),
        max(times, default=0),
        times[-1] if times else 0,
        times[-2] if len(times) > 1 else 0,
        _end(good[-1]) if good else -1,
        _end(covered[-1]) if covered else -1,
        any(row.status != RecordStatus.OK for row, _ in found),
        any(
            bool(row.sys_flag & formats.SYS_FLAG_INNER_BATCH) or topic == _SCHEDULE
            for row, topic in found
        ),
        any(row.multi_dispatch_at != 0 for row, _ in found),
        crcs,
    )


def gather(
    rows: Buffer, numbers: Buffer, queued: Buffer, sizes: Buffer, places: Buffer, /
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]:
    """See ``_native/passes_rows.pyi``."""
    outputs = [writable(one) for one in (queued, sizes, places)]
    views = [readable(rows), readable(numbers), *outputs]
    count = len(views[0]) // formats.PARSED_RECORD.nbytes
    for place, (view, nbytes) in enumerate(
        zip(views, (formats.PARSED_RECORD.nbytes, 4, _QUEUED.size, 4, 4), strict=True), 1
    ):
        if len(view) != count * nbytes:
            raise ValueError(
                f"argument {place} must have {nbytes} bytes for each of {count} rows, "
                f"not {len(view)}"
            )
    all_rows = [Row(*values) for values in formats.PARSED_RECORD.struct.iter_unpack(views[0])]
    kept = [
        (row, number) for row, (number,) in zip(all_rows, _INT.iter_unpack(views[1]), strict=True)
        if number >= 0
    ]  # fmt: skip
    for at, (row, number) in enumerate(kept):
        _QUEUED.pack_into(
            outputs[0], at * _QUEUED.size,
            row.queue_offset, row.physical_offset, row.tags_code, row.store_timestamp,
        )  # fmt: skip
        _INT.pack_into(outputs[1], at * 4, row.total_size)
        _INT.pack_into(outputs[2], at * 4, number)
    return (len(kept), *_counts(all_rows), sum(row.multi_dispatch_at > 0 for row, _ in kept))


def _counts(
    rows: list[Row],
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int]:
    own = [row for row in rows if row.status != RecordStatus.GHOST]
    times = [row.store_timestamp for row in own]
    mask, rollback = formats.SYS_FLAG_TRANSACTION_MASK, formats.SYS_FLAG_TRANSACTION_ROLLBACK
    return (
        len(own),
        sum(row.total_size for row in own),
        max(times, default=0),
        times[0] if times else 0,
        times[-1] if times else 0,
        sum(time < before for before, time in itertools.pairwise(times)),
        len(rows) - len(own),
        sum(row.status == RecordStatus.NUL_PROPERTIES for row in rows),
        sum(row.status == RecordStatus.UNSAFE_TOPIC for row in rows),
        sum(row.property_crc != 0 for row in rows),
        sum(row.sys_flag & mask == rollback for row in rows),
        sum(row.body_nbytes <= 1 for row in rows),
    )


class QueueOffsets:
    """See ``_native/passes_rows.pyi``."""

    def __init__(self) -> None:
        self._ends: dict[tuple[bytes, int], int] = {}

    def follow(self, buffer: Buffer, rows: Buffer, /) -> bool:
        """Take the rows of a batch if each is the next of its queue, or the queue's first."""
        ends, view = dict(self._ends), readable(buffer)
        for row, topic in _rows(view, rows):
            if not has_unit(row):
                continue
            if row.sys_flag & formats.SYS_FLAG_INNER_BATCH or not 0 <= row.queue_offset < INT64_MAX:
                return False
            if not is_still_there(view, row):
                return False
            key = (topic, row.queue_id)
            if ends.get(key, row.queue_offset) != row.queue_offset:
                return False
            ends[key] = row.queue_offset + 1
        self._ends = ends
        return True

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next queue offsets by topic and queue id."""
        return {
            (java_text.decode(topic), number): end for (topic, number), end in self._ends.items()
        }


class QueueNumbers:
    """See ``_native/passes_rows.pyi``."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bytes, int], int] = {}

    def number(self, buffer: Buffer, rows: Buffer, numbers: Buffer, /) -> None:
        """Write the queue's number of each row."""
        view, room = readable(buffer), writable(numbers)
        found = _rows(view, rows)
        if len(room) != 4 * len(found):
            raise ValueError(
                f"numbers must have 4 bytes for each of {len(found)} rows, not {len(room)}"
            )
        for place, (row, topic) in enumerate(found):
            number = -1
            if has_unit(row) and is_still_there(view, row):
                number = self._numbers.setdefault((topic, row.queue_id), len(self._numbers))
            room[4 * place : 4 * place + 4] = number.to_bytes(4, sys.byteorder, signed=True)

    def queues(self, first: int = 0, /) -> list[tuple[bytes, int]]:
        """Return the queues from number ``first`` on."""
        if first < 0:
            raise ValueError(f"first must not be negative, not {first}")
        return list(self._numbers)[first:]
