"""Queue units of the log's records in pure Python: twin of ``_native/passes_queue_units``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketstore import formats
from rocketstore._reference import multi_dispatch as multi
from rocketstore._reference import record_check
from rocketstore._reference.arguments import INT64_MAX, wrap64
from rocketstore._reference.passes import Pass, bounded, delays
from rocketstore._reference.record_check import Row
from rocketstore.status import RecordStatus

_UNIT = formats.CONSUME_QUEUE_UNIT.struct
_NO_UNIT = (formats.SYS_FLAG_TRANSACTION_PREPARED, formats.SYS_FLAG_TRANSACTION_ROLLBACK)


@dataclass
class _Run:
    topic: bytes
    queue_id: int
    named: int
    first_offset: int
    first_physical: int
    next_offset: int
    end_physical: int = 0
    units: bytearray = field(default_factory=bytearray)


def has_unit(row: Row) -> bool:
    """Return whether a record has a unit in its queue."""
    if row.status not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES):
        return False
    return row.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK not in _NO_UNIT


def check_topic(topic: object) -> bytes:
    """Return the topic argument, checked."""
    if not isinstance(topic, bytes):
        raise TypeError(f"topic must be bytes, not {type(topic).__name__}")
    if not 0 < len(topic) <= formats.MAX_PROPERTIES_NBYTES:
        raise ValueError(f"topic of {len(topic)} bytes: no record can hold it")
    return topic


class QueueUnitsPass(Pass):
    """See ``_native/passes_queue_units.pyi``."""

    def __init__(
        self,
        *,
        delay_ms: Sequence[int] = (),
        multi_dispatch: int = 0,
        queues: Sequence[tuple[bytes, int]] | None = None,
        with_times: bool = False,
        max_nbytes: int = 16 << 20,
        max_runs: int = 65536,
    ) -> None:
        self.inner_batch_offset = -1
        self._multi_dispatch = bounded("multi_dispatch", multi_dispatch, 0, 15)
        self._with_times = bool(with_times)
        self._max_nbytes = bounded("max_nbytes", max_nbytes, 1, INT64_MAX)
        self._max_runs = bounded("max_runs", max_runs, 1, INT64_MAX)
        self._delay_ms = delays(delay_ms)
        self._queues: set[tuple[bytes, int]] | None = None
        if queues is not None:
            self._queues = set()
            for topic, queue_id in queues:
                number = bounded("queue_id", queue_id, 0, 2**31 - 1)
                self._queues.add((check_topic(topic), number))
        self._runs: list[_Run] = []
        self._open: dict[tuple[bytes, int, int], _Run] = {}
        self._nbytes = 0

    def _take(self, record: memoryview, row: Row) -> bool:
        if not has_unit(row):
            return True
        if self._nbytes >= self._max_nbytes or len(self._runs) >= self._max_runs:
            return False
        record_check.parse_row(record, row, self._delay_ms)
        properties = bytes(record[row.properties_at : row.total_size])
        if self.inner_batch_offset < 0 and multi.is_batch_record(row.sys_flag, properties):
            self.inner_batch_offset = row.physical_offset
        topic = bytes(record[row.topic_at : row.topic_at + row.topic_nbytes])
        self._put(topic, row.queue_id, 0, row.queue_offset, row)
        if row.multi_dispatch_at:
            walk = multi.Walk(properties, topic, row.queue_id, self._multi_dispatch)
            for name, queue_id, queue_offset in walk.places:
                self._put(name, queue_id, 2 if name == topic else 1, queue_offset, row)
        return True

    def _put(self, topic: bytes, queue_id: int, named: int, queue_offset: int, row: Row) -> None:
        if self._queues is not None and (topic, queue_id) not in self._queues:
            return
        run = self._open.get((topic, queue_id, named))
        if run is not None and run.end_physical > row.physical_offset:
            run = None  # a record that names a queue twice begins another run
        if run is None or run.next_offset != queue_offset:
            run = _Run(topic, queue_id, named, queue_offset, row.physical_offset, queue_offset)
            self._runs.append(run)
            self._open[topic, queue_id, named] = run
        unit = _UNIT.pack(row.physical_offset, row.total_size, row.tags_code)
        if self._with_times:
            unit += row.store_timestamp.to_bytes(8, "big", signed=True)
        run.units += unit
        run.end_physical = row.physical_offset + row.total_size
        run.next_offset = wrap64(queue_offset + 1)
        self._nbytes += len(unit)

    def take(self) -> list[tuple[bytes, int, int, int, int, int, bytes]]:
        """Return the runs gathered since the last call and clear them."""
        runs = [
            (
                *(run.topic, run.queue_id, run.named, run.first_offset),
                *(run.first_physical, run.end_physical, bytes(run.units)),
            )
            for run in self._runs
        ]
        self._runs, self._open, self._nbytes = [], {}, 0
        return runs
