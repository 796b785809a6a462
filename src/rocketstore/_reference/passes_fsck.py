"""Sums over records and queue files, for comparison: twin of ``_native/passes_fsck``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from rocketstore import formats
from rocketstore._reference import record_check
from rocketstore._reference.arguments import INT64_MAX, Buffer, check_int64, readable, wrap64
from rocketstore._reference.passes import Pass, bounded, delays
from rocketstore._reference.passes_index_keys import MAX_RECORD_KEYS, IndexKeysPass
from rocketstore._reference.passes_queue_units import has_unit
from rocketstore._reference.record_check import Row
from rocketstore.status import RecordFlags, RecordStatus

_UNIT = formats.CONSUME_QUEUE_UNIT.struct
_WORD = 2**64
_COUNTS = (
    *("records", "nbytes", "ghosts", "nul_properties", "unsafe_topics", "backward_times"),
    *("first_timestamp", "last_timestamp", "named", "inner_batches", "valid_crcs"),
)


def _mix(h: int) -> int:
    h = (h ^ (h >> 32)) * 0x9E3779B97F4A7C15 % _WORD
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9 % _WORD
    return h ^ (h >> 32)


def _unit_sum(queue_offset: int, physical_offset: int, size: int, tags_code: int) -> int:
    """Return the value that a unit at its place adds to the queue's checksum."""
    place = _mix((queue_offset * 0xD6E8FEB86659FD93 + physical_offset) % _WORD)
    return _mix((place + tags_code * 0xA0761D6478BD642F + size % 2**32) % _WORD)


@dataclass
class _Queue:
    count: int
    first_offset: int
    next_offset: int
    first_physical: int
    end_physical: int
    breaks: int
    sum: int


class FsckPass(Pass):
    """See ``_native/passes_fsck.pyi``."""

    def __init__(
        self,
        *,
        delay_ms: Sequence[int] = (),
        report_property_crc: bool = False,
        max_queues: int = 65536,
        max_wrong: int = 65536,
        index_keys: bool = False,
        key_capacity: int = 65536,
    ) -> None:
        self.extra_flags = int(RecordFlags.REPORT_PROPERTY_CRC) if report_property_crc else 0
        self._max_queues = bounded("max_queues", max_queues, 1, 2**31 - 1)
        self._max_wrong = bounded("max_wrong", max_wrong, 1, INT64_MAX)
        self._delay_ms = delays(delay_ms)
        self._room = bounded("key_capacity", key_capacity, MAX_RECORD_KEYS, 2**31 - 1)
        self._keys = IndexKeysPass(mark_tags=True, capacity=self._room) if index_keys else None
        self._clear()

    def _clear(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        self._wrong: list[int] = []

    def _take(self, record: memoryview, row: Row) -> bool:
        if len(self._wrong) >= self._max_wrong or len(self._queues) >= self._max_queues:
            return False
        if self._keys is not None:
            if self._room - self._keys.count < MAX_RECORD_KEYS:
                return False
            self._keys.take_record(record, row)
        if row.property_crc == 2:
            self._wrong.append(row.physical_offset)
        counts = self._counts
        counts["valid_crcs"] += row.property_crc == 1
        if row.status == RecordStatus.GHOST:
            counts["ghosts"] += 1
            return True
        counts["nul_properties"] += row.status == RecordStatus.NUL_PROPERTIES
        counts["unsafe_topics"] += row.status == RecordStatus.UNSAFE_TOPIC
        if counts["records"] == 0:
            counts["first_timestamp"] = counts["last_timestamp"] = row.store_timestamp
        counts["backward_times"] += row.store_timestamp < counts["last_timestamp"]
        counts["last_timestamp"] = row.store_timestamp
        counts["records"] += 1
        counts["nbytes"] += row.total_size
        if has_unit(row):
            record_check.parse_row(record, row, self._delay_ms)
            counts["named"] += row.multi_dispatch_at > 0
            counts["inner_batches"] += bool(row.sys_flag & formats.SYS_FLAG_INNER_BATCH)
            self._follow(bytes(record[row.topic_at : row.topic_at + row.topic_nbytes]), row)
        return True

    def _follow(self, topic: bytes, row: Row) -> None:
        queue = self._queues.setdefault(
            (topic, row.queue_id),
            _Queue(0, row.queue_offset, row.queue_offset, row.physical_offset, 0, 0, 0),
        )
        queue.count += 1
        queue.breaks += row.queue_offset != queue.next_offset
        queue.next_offset = wrap64(row.queue_offset + 1)
        queue.end_physical = row.physical_offset + row.total_size
        unit = _unit_sum(row.queue_offset, row.physical_offset, row.total_size, row.tags_code)
        queue.sum = (queue.sum + unit) % _WORD

    def take(
        self,
    ) -> tuple[
        dict[str, int], list[tuple[bytes, int, int, int, int, int, int, int, int]], list[int]
    ]:
        """Return the sums since the last call and clear them."""
        queues = [(*key, *astuple(queue)) for key, queue in self._queues.items()]
        found = self._counts, queues, self._wrong
        self._clear()
        return found

    def take_keys(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the keys gathered and clear them."""
        if self._keys is None:
            raise ValueError("this pass gathers no keys")
        return self._keys.take()


def sum_units(
    units: Buffer, first_index: int, log_start: int = 0, /
) -> tuple[int, int, int, int, int, int, int]:
    """Sum up the units of a part of a queue."""
    view = readable(units)
    check_int64(first_index, log_start)
    number = len(view) // _UNIT.size
    if not 0 <= first_index <= INT64_MAX - number:
        raise ValueError(f"first_index {first_index} is out of range")
    count = total = fillers = expired = 0
    first = last = last_passed = -1
    for index, unit in enumerate(_UNIT.iter_unpack(view[: number * _UNIT.size]), first_index):
        if unit == (0, 0, 0):
            continue
        is_filler = unit == (0, formats.FILLER_UNIT_SIZE, 0)
        is_expired = not is_filler and 0 <= unit[0] < log_start and unit[1] > 0
        if is_filler or is_expired:
            fillers += is_filler
            expired += is_expired
            last_passed = index
            continue
        first = index if count == 0 else first
        last = index
        count += 1
        total = (total + _unit_sum(index, *unit)) % _WORD
    return count, first, last, total, fillers, expired, last_passed
