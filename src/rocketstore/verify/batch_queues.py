"""The part of ``verify`` that compares units of BatchConsumeQueues with the log's records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rocketstore import formats
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.files.raw import data_ranges, read_bytes
from rocketstore.inner_batch import BatchUnit, odd_inner_batch, unit_of
from rocketstore.log.scan import RecordBatch
from rocketstore.message import StoredMessage
from rocketstore.queues.batch_consume_queue import BATCH_UNIT_NBYTES, BatchConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.verify.doubled_offsets import DoubledOffsets
from rocketstore.verify.scope import VerifyScope

_UNIT = formats.BATCH_QUEUE_UNIT.struct
_NAMES = ("log offset", "size", "tags code", "store time", "queue offset", "batch size")
_CHUNK_NBYTES = 4096 * BATCH_UNIT_NBYTES
_UNWRITTEN = bytes(BATCH_UNIT_NBYTES)

Place = tuple[str, int]


class BatchQueueCheck:
    """Compare one queue's records and units; both are in log order and are walked in parallel."""

    def __init__(
        self,
        scope: VerifyScope,
        place: tuple[str, int],
        queue: BatchConsumeQueue | None,
        dispatched_offset: int,
    ) -> None:
        self._scope = scope
        self._place = place
        self._name = f"{place[0]} queue {place[1]}"
        self._dispatched_offset = dispatched_offset
        self._next_offset: int | None = None
        self._doubled = DoubledOffsets(scope, *place)
        self._past: list[tuple[Place, BatchUnit]] = []
        self._last_expired: Place | None = None
        self._last_end = 0
        self._units = iter(()) if queue is None else self._written(queue)
        self._ahead: tuple[Place, BatchUnit] | None = next(self._units, None)

    def _written(self, queue: BatchConsumeQueue) -> Iterator[tuple[Place, BatchUnit]]:
        """Yield every unit that the files hold, with its path and position."""
        files: dict[int, MappedFile | MemoryFile] = {
            f.file_from_offset: f for f in queue.queue.files
        }
        files.update({file.file_from_offset: file for file in queue.files()})
        for start in sorted(files):
            file = files[start]
            ranges = (
                [(0, queue.readable_units(file) * BATCH_UNIT_NBYTES)]
                if isinstance(file, MemoryFile) or file.private
                else data_ranges(file, 0)
            )
            for first, stop in ranges:
                yield from self._units_between(file, first, stop)

    def _units_between(
        self, file: MappedFile | MemoryFile, first: int, stop: int
    ) -> Iterator[tuple[Place, BatchUnit]]:
        first -= first % BATCH_UNIT_NBYTES
        stop = min(stop, file.file_size - file.file_size % BATCH_UNIT_NBYTES)
        for at in range(first, stop, _CHUNK_NBYTES):
            nbytes = min(_CHUNK_NBYTES, stop - at)
            nbytes = -(-nbytes // BATCH_UNIT_NBYTES) * BATCH_UNIT_NBYTES
            content = read_bytes(file, self._scope.root, at, nbytes)
            for position in range(0, nbytes, BATCH_UNIT_NBYTES):
                if content[position : position + BATCH_UNIT_NBYTES] != _UNWRITTEN:
                    unit = BatchUnit._make(_UNIT.unpack_from(content, position)[:6])
                    yield (str(file.path), at + position), unit

    def take(self, expected: BatchUnit) -> None:
        """Compare the next record's unit with what the files hold."""
        while self._ahead is not None and self._ahead[1].physical_offset < expected.physical_offset:
            self._judge_stray(*self._ahead)
            self._ahead = next(self._units, None)
        self._check_order(expected)
        if self._ahead is None or self._ahead[1].physical_offset != expected.physical_offset:
            if expected.physical_offset >= self._dispatched_offset:
                self._scope.counts["behind_units"] += 1
                return
            if self._is_excused():
                return
            self._add(
                "missing-unit",
                self._scope.place(expected.physical_offset),
                expected,
                f"no unit for queue offset {expected.base_offset}, whose record is in the log",
            )
            return
        place, unit = self._ahead
        self._ahead = next(self._units, None)
        if unit == expected:
            self._scope.report.units += 1
            return
        differing = [
            f"{name} {found} instead of {wanted}"
            for name, found, wanted in zip(_NAMES, unit, expected, strict=True)
            if found != wanted
        ]
        self._add("unit", place, unit, ", ".join(differing))

    def _is_excused(self) -> bool:
        """Return whether a missing unit is not a finding of its own.

        That is so if all units are missing or could not be read.
        """
        around = self._scope.around
        if around is None:
            return False
        if self._scope.is_absent(formats.BATCH_QUEUE_DIR):
            self._scope.counts["absent_batch_units"] += 1
            return True
        access = around.access
        folder = around.paths.batch_consume_queue / self._place[0] / str(self._place[1])
        if access.hides(folder) or any(path.parent == folder for path in access.closed):
            self._scope.counts["unread_units"] += 1
            return True
        return False

    @property
    def end(self) -> int | None:
        """Return the queue offset after the last record, ``None`` without a record."""
        return self._next_offset

    def _check_order(self, expected: BatchUnit) -> None:
        """Check that queue offsets are consecutive, except where records were lost or expired."""
        following, self._next_offset = self._next_offset, expected.next_offset
        start, self._last_end = self._last_end, expected.physical_offset + expected.size
        if following is None:
            following = expected.base_offset
            if self._scope.start == 0:
                lost = self._scope.loss_between(start, expected.physical_offset)
                self._scope.counts[lost or "late_starts"] += following
        place = expected.physical_offset
        if expected.base_offset >= following:
            self._doubled.take(expected.base_offset, np.array([place]))
        if expected.base_offset == following:
            return
        size = self._scope.log.segment_size
        if expected.base_offset < following:
            self._next_offset = max(following, expected.next_offset)
            count = min(following, expected.next_offset) - expected.base_offset
            self._doubled.repeat(expected.base_offset, count, place)
            self._scope.fit.take_break(self._name, start, place, size)
            return
        lost = self._scope.loss_between(start, place)
        if lost:
            self._scope.counts[lost] += expected.base_offset - following
            return
        self._scope.fit.take_break(self._name, start, place, size)
        self._add(
            "queue-offset",
            self._scope.place(expected.physical_offset),
            expected,
            f"queue offset {expected.base_offset}, but {following} is next: records are missing",
        )

    def _judge_stray(self, place: Place, unit: BatchUnit) -> None:
        """Judge a unit without a record of this queue: expired, newer, or wrong."""
        scope, offset = self._scope, unit.physical_offset
        if 0 <= offset < scope.start:
            self._check_hole(place, unit)
            scope.counts["expired_units"] += 1
            scope.before.take_units(self._place, np.array([offset]))
        elif scope.is_damaged(np.array([offset]))[0]:
            scope.counts["damaged_units"] += 1
        elif offset >= scope.stop and (
            scope.is_newer(offset) or scope.record_at(offset, unit.size) is not None
        ):
            scope.counts["newer_units"] += 1
        elif offset >= scope.stop:
            self._past.append((place, unit))
        else:
            self._add("unit", place, unit, f"no record of this queue starts at log offset {offset}")

    def _check_hole(self, place: Place, unit: BatchUnit) -> None:
        """Report zeros before a unit of an expired record: a broker reads no further."""
        path, position = place
        last, self._last_expired = self._last_expired, place
        start = last[1] + BATCH_UNIT_NBYTES if last is not None and last[0] == path else 0
        if start < position:
            count = (position - start) // BATCH_UNIT_NBYTES
            self._add(
                "unit", (path, start), unit, f"{count} units that were never written",
                code="queue.unit.zeros",
            )  # fmt: skip

    def _add(
        self, kind: str, place: Place, unit: BatchUnit, reason: str, *, code: str = ""
    ) -> None:
        self._scope.report.add(
            kind, *place, unit.physical_offset, f"{self._name}: {reason}",
            code=code, queue=self._place,
        )  # fmt: skip

    def finish(self) -> None:
        """Judge the units after the queue's last record."""
        if self._ahead is not None:
            self._judge_stray(*self._ahead)
        for place, unit in self._units:
            self._judge_stray(place, unit)
        self._doubled.finish()
        if self._past:
            place, unit = self._past[0]
            units = f"{len(self._past):,} unit{'s' if len(self._past) > 1 else ''} from log offset "
            units += f"{unit.physical_offset} on, past the log's end {self._scope.stop}"
            self._add("unit", place, unit, units, code="queue.unit.beyond")


class BatchQueuesCheck:
    """Compare all BatchConsumeQueues of a store with the log."""

    def __init__(self, scope: VerifyScope, queues: QueueTable, dispatched_offset: int) -> None:
        self._scope = scope
        self._dispatched_offset = dispatched_offset
        self._checks: dict[tuple[str, int], BatchQueueCheck] = {}
        size = queues.batch_file_size
        for queue in queues:
            if not isinstance(queue, BatchConsumeQueue):
                continue
            self._check(queue.topic, queue.queue_id, queue)
            directory = queue.queue.directory
            for offset, path, nbytes in list_directory(
                directory, scope.root, tolerate_unreadable=True, tolerate_odd=True
            ).files:
                if nbytes != size or offset % size:
                    reason = f"{nbytes} bytes from {offset}; files of this queue have {size} bytes"
                    scope.report.add("queue-file", path, 0, None, reason)

    def _check(
        self, topic: str, queue_id: int, queue: BatchConsumeQueue | None = None
    ) -> BatchQueueCheck:
        check = self._checks.get((topic, queue_id))
        if check is None:
            place = (topic, queue_id)
            check = BatchQueueCheck(self._scope, place, queue, self._dispatched_offset)
            self._checks[topic, queue_id] = check
        return check

    def take(self, batch: RecordBatch, rows: Any) -> None:
        """Compare the records of a batch in the given ``rows``."""
        columns = batch.columns
        window = batch.window
        for row in rows.tolist():
            position, size = int(columns["position"][row]), int(columns["total_size"][row])
            content = read_bytes(window.file, window.file.root, position, size)
            offset = window.base_offset + position
            message = StoredMessage(content, 0, offset, offset + size)
            unit = unit_of(message, int(columns["tags_code"][row]))
            if unit is None or odd_inner_batch(message) is not None:
                path, at = self._scope.place(offset)
                reason = f"{message.topic} queue {message.queue_id}: invalid numbers of a batch"
                self._scope.report.add("queue-offset", path, at, offset, reason)
            if unit is not None:
                self._check(message.topic, message.queue_id).take(unit)

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next queue offset by (topic, queue id), according to the records."""
        ends = {place: check.end for place, check in self._checks.items()}
        return {place: end for place, end in ends.items() if end is not None}

    def finish(self) -> None:
        """Judge the remaining units of all queues."""
        for check in self._checks.values():
            check.finish()
        self._scope.report.queues += len(self._checks)
