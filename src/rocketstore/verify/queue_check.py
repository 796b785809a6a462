"""Compare one queue's units with the records of the log, for ``verify``."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats, kernels
from rocketstore.dispatch.queue_offset_rule import MAX_QUEUE_OFFSET
from rocketstore.message import StoredMessage
from rocketstore.queues.consume_queue import are_of_another_table
from rocketstore.verify.doubled_offsets import DoubledOffsets
from rocketstore.verify.scope import VerifyScope
from rocketstore.verify.unit_files import UnitFiles

Array = np.ndarray[Any, Any]
_DELAYED = formats.TOPIC_SCHEDULE.encode()


class Records(NamedTuple):
    """Records of one queue in log order: queue offsets, log offsets, sizes, tag codes, times."""

    indexes: Array
    offsets: Array
    sizes: Array
    codes: Array
    times: Array

    def part(self, start: int, stop: int) -> Records:
        """Return the records ``start`` .. ``stop``."""
        return Records(*(column[start:stop] for column in self))


class QueueCheck:
    """Compare one queue's records, given in log order, with its units."""

    def __init__(
        self,
        scope: VerifyScope,
        topic: bytes,
        queue_id: int,
        files: UnitFiles,
        dispatched_offset: int,
    ) -> None:
        self._scope = scope
        self._topic = topic
        self._queue_id = queue_id
        self._files = files
        self._dispatched_offset = dispatched_offset
        self._cursor: int | None = None
        self._last_end = 0
        self._doubled = DoubledOffsets(scope, topic.decode("utf-8", "replace"), queue_id)
        #: Units that name offsets past the log's end: queue offset and log offset.
        self._past: list[tuple[int, int]] = []

    @property
    def _queue(self) -> tuple[str, int]:
        return self._topic.decode("utf-8", "replace"), self._queue_id

    @property
    def _name(self) -> str:
        return f"{self._topic.decode('utf-8', 'replace')} queue {self._queue_id}"

    # --- records in log order -----------------------------------------------------------------

    def take(self, records: Records) -> None:
        """Compare records with their units."""
        breaks = np.flatnonzero(np.diff(records.indexes) != 1) + 1
        for start, stop in itertools.pairwise([0, *breaks.tolist(), len(records.indexes)]):
            self._take_run(records.part(start, stop))

    def _take_run(self, records: Records) -> None:
        """Compare records with consecutive queue offsets."""
        indexes, offsets = records.indexes, records.offsets
        first, place = int(indexes[0]), int(offsets[0])
        if not self._may_be(first, offsets, records.sizes):
            next_offset = self._cursor or 0
            self._add_record(place, f"queue offset {first} is impossible, {next_offset} is next")
            return
        if self._cursor is None:
            self._begin(first, place)
        assert self._cursor is not None
        repeated = min(self._cursor - first, len(indexes))
        if repeated > 0:
            self._doubled.repeat(first, repeated, place)
            self._take_break(place)
            if repeated == len(indexes):
                return
            records = records.part(repeated, len(indexes))
        elif first > self._cursor:
            self._pass_gap(first, place)
        self._doubled.take(int(records.indexes[0]), records.offsets)
        self._compare(records)

    def _take_break(self, place: int) -> None:
        size = self._scope.log.segment_size
        self._scope.fit.take_break(self._name, self._last_end, place, size)

    def _may_be(self, first: int, offsets: Array, sizes: Array) -> bool:
        """Return whether a run may begin at queue offset ``first`` (see ``QueueOffsetRule``)."""
        # Every earlier message took at least the bytes of the shortest record.
        room = (int(offsets[0]) - self._last_end) // formats.RECORD_MIN_NBYTES
        if first - (self._cursor or 0) <= room or len(offsets) > 1:
            return first <= MAX_QUEUE_OFFSET
        if first > MAX_QUEUE_OFFSET:
            return False
        unit = self._files.read(first, first + 1)[0]
        return bool(unit["physical_offset"] == offsets[0] and unit["size"] == sizes[0])

    def _begin(self, first: int, place: int) -> None:
        """Start at the first record of the queue that the log still has."""
        start = self._files.first_index
        self._cursor = first
        if start is not None and start < first:
            self._judge(start, first)
        if first > 0 and self._scope.start == 0:
            lost = self._scope.loss_between(self._last_end, place)
            self._scope.counts[lost or "late_starts"] += first

    def _pass_gap(self, first: int, place: int) -> None:
        assert self._cursor is not None
        self._note_gap(self._cursor, first, place)
        self._judge(self._cursor, first)

    def _note_gap(self, start: int, stop: int, place: int) -> None:
        lost = self._scope.loss_between(self._last_end, place)
        if lost:
            self._scope.counts[lost] += stop - start
        else:
            self._take_break(place)
            self._add_record(
                place, f"queue offset {stop}, but {start} is next: records are missing"
            )

    def _add_record(self, offset: int, reason: str) -> None:
        path, position = self._scope.place(offset)
        reason = f"{self._name}: {reason}"
        self._scope.report.add("queue-offset", path, position, offset, reason, queue=self._queue)

    # --- units against records ----------------------------------------------------------------

    def _compare(self, records: Records) -> None:
        indexes, offsets, sizes, codes, times = records
        first = int(indexes[0])
        stop = first + len(offsets)
        units = self._files.read(first, stop)
        same_place = (units["physical_offset"] == offsets) & (units["size"] == sizes)
        same = same_place & (units["tags_code"] == codes)
        if self._topic == _DELAYED and not same.all():
            others = same_place & are_of_another_table(units["tags_code"], codes)
            self._scope.counts["other_due_times"] += int(others.sum())
            same |= others
        self._cursor = stop
        self._last_end = int(offsets[-1]) + int(sizes[-1])
        count = int(same.sum())
        self._scope.report.units += count
        size = self._scope.log.segment_size
        self._scope.fit.take_units(offsets[same_place], size, right=True)
        if count == len(same):
            return
        empty = (units["physical_offset"] == 0) & (units["size"] == 0)
        lagging = empty & (offsets >= self._dispatched_offset)
        ext = same_place & ~same & (units["tags_code"] <= formats.MAX_EXT_ADDRESS)
        self._scope.counts["behind_units"] += int(lagging.sum())
        if ext.any():
            self._compare_ext(first, np.flatnonzero(ext), units, codes, times)
        self._add_missing(first, offsets, empty & ~lagging)
        elsewhere = ~same_place & ~empty & (units["size"] != formats.FILLER_UNIT_SIZE)
        self._scope.fit.take_units(
            units["physical_offset"][elsewhere].astype("i8"), size, right=False
        )
        wrong = np.flatnonzero(~same & ~empty & ~ext).tolist()
        wrong = [
            number
            for number in wrong
            if same_place[number] or not self._is_of_queue(first + number, units[number])
        ]
        for number in self._scope.report.shown("unit", wrong):
            record = (int(offsets[number]), int(sizes[number]), int(codes[number]))
            self._add_wrong(first + number, record, tuple(units[number].tolist()))

    def _is_of_queue(self, index: int, unit: Any) -> bool:
        """Return whether a unit names another record with the same queue offset.

        ``DoubledOffsets`` reports that.
        """
        record = self._scope.record_at(int(unit["physical_offset"]), int(unit["size"]))
        return record is not None and self._is_own(record, index)

    def _is_own(self, record: StoredMessage, index: int) -> bool:
        """Return whether a record claims this queue and queue offset."""
        same = (record.topic.encode(), record.queue_id, record.queue_offset)
        return same == (self._topic, self._queue_id, index)

    def _compare_ext(
        self, first: int, numbers: Array, units: Array, codes: Array, times: Array
    ) -> None:
        """Compare ext units with their records, for the ``units`` that carry ext addresses."""
        ext = self._files.ext
        heads = np.zeros(len(numbers), formats.CONSUME_QUEUE_EXT_UNIT.dtype)
        if ext is not None:
            addresses = units["tags_code"][numbers].astype("i8")
            heads = ext.heads(addresses, tolerant=True)
            if not heads["size"].all():
                ext.list_again()  # the writer creates ext files before units that point into them
                heads = ext.heads(addresses, tolerant=True)
        found = heads["size"] > 0
        same = found & (heads["tags_code"] == codes[numbers])
        same &= heads["store_timestamp"] == times[numbers]
        self._scope.counts["ext_units"] += int(same.sum())
        self._scope.report.units += int(same.sum())
        # A single address among other units is a damaged unit.
        if len(numbers) == len(units) > 1 and self._scope.is_absent(formats.CONSUME_QUEUE_EXT_DIR):
            self._scope.counts["absent_ext_units"] += int((~same).sum())
            return
        for row in self._scope.report.shown("unit", np.flatnonzero(~same).tolist()):
            number = int(numbers[row])
            what = "there is no unit"
            if found[row]:
                what = (
                    f"tags code {heads['tags_code'][row]} of store time "
                    f"{heads['store_timestamp'][row]} instead of {codes[number]} of {times[number]}"
                )
            place = int(units["tags_code"][number]) - formats.EXT_ADDRESS_BASE
            self._add_unit(
                first + number,
                int(units["physical_offset"][number]),
                f"at offset {place} of its ext files: {what}",
            )

    def _add_missing(self, first: int, offsets: Array, missing: Array) -> None:
        """Report each run of units that were never written, as one finding."""
        numbers = np.flatnonzero(missing)
        if not len(numbers) or self._is_excused(len(numbers)):
            return
        if self._files.hidden:
            unread = self._files.is_hidden(first, len(missing)) & missing
            self._scope.counts["unread_units"] += int(unread.sum())
            numbers = np.flatnonzero(missing & ~unread)
            if not len(numbers):
                return
        edges = np.flatnonzero(np.diff(numbers) != 1) + 1
        for run in np.split(numbers, edges):
            start, stop = int(run[0]), int(run[-1]) + 1
            path, position = self._files.place(first + start)
            which = f"{first + start}" + (f" to {first + stop - 1}" if stop - start > 1 else "")
            reason = f"{self._name}: no unit for queue offset {which}, whose records are in the log"
            self._scope.report.add(
                "missing-unit", path, position, int(offsets[start]), reason,
                queue=self._queue, first=first + start, count=stop - start,
            )  # fmt: skip

    def _is_excused(self, count: int) -> bool:
        """Return whether ``count`` missing units are not findings of their own.

        That is so if the folder of all queues is missing, or if the topic was deleted.
        """
        around = self._scope.around
        if around is None:
            return False
        if self._scope.is_absent(formats.CONSUME_QUEUE_DIR):
            self._scope.counts["absent_units"] += count
            return True
        topic = self._topic.decode("utf-8", "surrogateescape")
        if self._files.first_index is None and around.is_deleted_topic(topic):
            around.deleted_topics[topic] = around.deleted_topics.get(topic, 0) + count
            return True
        return False

    @property
    def end(self) -> int | None:
        """Return the queue offset after the last record, ``None`` without a record."""
        return self._cursor

    def _add_wrong(
        self, index: int, record: tuple[int, int, int], unit: tuple[int, int, int]
    ) -> None:
        names = ("log offset", "size", "tags code")
        if unit[1] == formats.FILLER_UNIT_SIZE and unit[0] == 0:
            what = f"a filler, but the record at log offset {record[0]} has this queue offset"
        else:
            what = ", ".join(
                f"{name} {found} instead of {wanted}"
                for name, found, wanted in zip(names, unit, record, strict=True)
                if found != wanted
            )
        self._add_unit(index, record[0], what)

    def _add_unit(
        self,
        index: int,
        offset: int | None,
        what: str,
        *,
        code: str = "queue.unit.wrong",
        count: int = 1,
    ) -> None:
        path, position = self._files.place(index)
        reason = f"{self._name}, unit {index}: {what}"
        self._scope.report.add(
            "unit", path, position, offset, reason,
            code=code, queue=self._queue, first=index, count=count,
        )  # fmt: skip

    # --- units without a record ---------------------------------------------------------------

    def finish(self) -> None:
        """Judge the units after the queue's last record (all units without a record)."""
        self._doubled.finish()
        start = self._files.first_index
        if start is not None:
            self._judge_rest(start)
            self._add_past()
            self._add_blank_end()

    def _judge_rest(self, start: int) -> None:
        pending: list[tuple[int, Array]] = []
        for index, units in self._files.written(max(start, self._cursor or 0), None):
            pending.append((index, units))
            if _is_written(units).any():
                for at, earlier in pending[:-1]:
                    self._judge_units(at, earlier)
                last = int(np.flatnonzero(_is_written(units))[-1]) + 1
                self._judge_units(index, units[:last])
                pending = [(index + last, units[last:])]

    def find_named(self, offsets: list[int]) -> None:
        """Find the units of records at these physical offsets anywhere in a light queue."""
        start = self._files.first_index
        parts = [] if start is None else [units for _, units in self._files.written(start, None)]
        there = [units["physical_offset"][units["size"] > 0] for units in parts]
        missing = np.setdiff1d(offsets, np.concatenate(there) if there else [])
        missing = missing[missing < self._dispatched_offset].tolist()
        if not missing or self._is_excused(len(missing)):
            return
        if self._files.hidden:
            self._scope.counts["unread_units"] += len(missing)
            return
        for offset in self._scope.report.shown("missing-unit", missing):
            path, position = self._files.place(start or 0)
            reason = f"{self._name}: no unit for the record at log offset {offset}, which names it"
            self._scope.report.add(
                "missing-unit", path, position, offset, reason, queue=self._queue
            )

    def _judge(self, first: int, stop: int) -> None:
        for index, units in self._files.written(first, stop):
            self._judge_units(index, units)

    def _judge_units(self, first: int, units: Array) -> None:
        """Judge units without a record of the queue: fillers, expired, or wrong."""
        scope = self._scope
        offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
        written = _is_written(units)
        filler = written & (sizes == formats.FILLER_UNIT_SIZE) & (offsets == 0)
        expired = written & ~filler & (offsets >= 0) & (sizes > 0) & (offsets < scope.start)
        lost = written & ~filler & ~expired & scope.is_damaged(offsets)
        for name, mask in (
            ("filler_units", filler),
            ("expired_units", expired),
            ("damaged_units", lost),
        ):
            scope.counts[name] += int(mask.sum())
        queue = self._topic.decode("utf-8", "replace"), self._queue_id
        scope.before.take_units(queue, offsets[expired])
        self._add_holes(first, ~written)
        stray = np.flatnonzero(written & ~filler & ~expired & ~lost)
        known = offsets[stray][offsets[stray] < scope.stop]  # later ones may be newer
        scope.fit.take_units(known, scope.log.segment_size, right=False)
        for number in stray.tolist():
            self._judge_stray(first + number, tuple(units[number].tolist()))

    def _add_holes(self, first: int, empty: Array) -> None:
        numbers = np.flatnonzero(empty)
        if len(numbers):
            self._add_unit(
                first + int(numbers[0]), None, f"{len(numbers)} units that were never written",
                code="queue.unit.zeros", count=len(numbers),
            )  # fmt: skip

    def _judge_stray(self, index: int, unit: tuple[int, int, int]) -> None:
        offset, size, _ = unit
        scope = self._scope
        record = scope.record_at(offset, size)
        if record is None:
            if offset >= scope.stop and scope.is_newer(offset):
                scope.counts["newer_units"] += 1
                return
            if offset >= scope.stop:
                self._past.append((index, offset))
                return
            self._add_unit(
                index, offset, f"no record of {size} bytes starts at log offset {offset}"
            )
            return
        named = self._multi_dispatched_index(record)
        if named is not None:
            self._take_multi_dispatched(index, unit, record, named)
            return
        if self._is_own(record, index):
            if offset >= scope.stop:
                scope.counts["newer_units"] += 1
            else:
                scope.report.units += 1  # the unit is right, its record's position is odd
            return
        self._add_unit(
            index,
            offset,
            f"the record at log offset {offset} is queue offset {record.queue_offset} of "
            f"{record.topic} queue {record.queue_id}",
        )

    def _add_past(self) -> None:
        """Report all units that name offsets past the log's end, as one finding."""
        if not self._past:
            return
        (first, low), (last, high) = self._past[0], self._past[-1]
        units = f"unit {first} names log offset {low}"
        if len(self._past) > 1:
            offsets = [offset for _, offset in self._past]
            low, high = min(offsets), max(offsets)
            units = (
                f"{len(self._past):,} units from {first} to {last} name log offsets {low} to {high}"
            )
        path, position = self._files.place(first)
        reason = f"{self._name}: {units}, past the log's end {self._scope.stop}"
        self._scope.report.add(
            "unit", path, position, low, reason,
            code="queue.unit.beyond", queue=self._queue, first=first, count=len(self._past),
        )  # fmt: skip

    def _add_blank_end(self) -> None:
        """Report a last file of zeros that no record belongs to: a broker counts its first unit."""
        first, scope = self._files.blank_index, self._scope
        if first is None or first < (self._cursor or 0) or scope.is_record(scope.stop):
            return
        is_light = self._topic.startswith(formats.TOPIC_LMQ_PREFIX.encode())
        if is_light and self._dispatched_offset < scope.stop:
            return  # its units may not have been dispatched yet
        what = "the last file holds only zeros, and a broker serves its first unit as a message"
        self._add_unit(first, None, what, code="queue.file.empty")

    def _multi_dispatched_index(self, record: Any) -> str | None:
        """Return the queue offset that multi dispatch gives a record in this queue."""
        names = record.properties.get(formats.PROPERTY_INNER_MULTI_DISPATCH, "").split(",")
        indexes = record.properties.get(formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(",")
        topic = self._topic.decode("utf-8", "replace")
        lmq = topic.startswith(formats.TOPIC_LMQ_PREFIX)
        if self._queue_id != (0 if lmq else record.queue_id):
            return None
        return dict(zip(names, indexes, strict=False)).get(topic)

    def _take_multi_dispatched(
        self, index: int, unit: tuple[int, int, int], record: Any, named: str
    ) -> None:
        offset, _, code = unit
        is_delayed = record.topic == formats.TOPIC_SCHEDULE and record.delay_level > 0
        is_due_time = is_delayed and code >= record.store_timestamp  # up to 5.0, put and delivery
        is_right = code == kernels.message.string_hash_code((record.tags or "").encode())
        if not (is_due_time if is_delayed else is_right):
            self._add_unit(index, offset, f"tags code {code} is not that of its record")
        elif named != str(index):
            # If a queue offset was skipped, RocketMQ appends at the end (D-14).
            self._scope.counts["shifted_units"] += 1
        else:
            self._scope.report.units += 1


def _is_written(units: Array) -> Array:
    written: Array = (units["physical_offset"] != 0) | (units["size"] != 0)
    written |= units["tags_code"] != 0
    return written
