"""The part of ``verify`` that compares queue units with the log's records."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rocketstore import formats, kernels
from rocketstore.batch_consume_queue import BatchConsumeQueue, inner_batch
from rocketstore.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.consume_queue_ext import ConsumeQueueExt
from rocketstore.durable_file import READ_ONLY, naming, open_regular_file
from rocketstore.errors import MappedFileError
from rocketstore.log_scan import RecordBatch, data_ranges
from rocketstore.mapped_file import MappedFile, MemoryFile
from rocketstore.mapped_file_queue import list_directory
from rocketstore.message import StoredMessage
from rocketstore.named_queues import is_folder_name, named_queues, odd_names
from rocketstore.queue_offset_rule import MAX_QUEUE_OFFSET
from rocketstore.queue_table import QueueTable
from rocketstore.status import MultiDispatch, RecordStatus
from rocketstore.store_access import StoreAccess
from rocketstore.topic_numbers import TopicNumbers
from rocketstore.verify import VerifyScope
from rocketstore.verify_segments import DoubledOffsets

_DTYPE = formats.CONSUME_QUEUE_UNIT.dtype
_CHUNK_UNITS = 65536
#: Records gathered before they are compared queue by queue.
_GATHER_COUNT = 1 << 19
#: A batch with longer records than this on average has its topics read one by one.
_WHOLE_READ_NBYTES = 16 * 1024

_COLUMNS = ("queue_offset", "physical_offset", "total_size", "tags_code", "store_timestamp")
_LIGHT_NAMES = int(MultiDispatch.LIGHT)
#: Odd names that are told one by one.
_MOST_TOLD = 20
_NOT_LIGHT = (formats.TOPIC_RETRY_PREFIX, formats.TOPIC_DLQ_PREFIX, formats.TOPIC_SYSTEM_PREFIX)

Array = np.ndarray[Any, Any]


def read_bytes(file: MappedFile | MemoryFile, root: Path, position: int, nbytes: int) -> bytes:
    """Bytes of a file, by ``pread`` where it is on disk, so that a shortened file cannot kill us.

    Of one that the store's writer has deleted meanwhile, the mapping is left.

    Raises ``MappedFileError`` when the file has become shorter.
    """
    if isinstance(file, MemoryFile) or file.private:
        return bytes(memoryview(file.mapping)[position : position + nbytes])
    try:
        fd = open_regular_file(file.path, READ_ONLY, root)
    except FileNotFoundError:
        return bytes(file.view[position : position + nbytes])
    try:
        with naming(file.path):
            content = os.pread(fd, nbytes, position)
    finally:
        os.close(fd)
    if len(content) < nbytes:
        raise MappedFileError(
            f"{file.path} has only {position + len(content)} of {file.file_size} bytes any more"
        )
    return content


class UnitFiles:
    """The units of one queue as they lie in its files, whatever the queue makes of them."""

    def __init__(
        self, queue: ConsumeQueue | None, directory: Path, file_size: int, root: Path
    ) -> None:
        files: dict[int, MappedFile | MemoryFile] = {}
        if queue is not None:
            files = {file.file_from_offset: file for file in queue.queue.files}
            files.update({file.file_from_offset: file for file in queue.files()})
        self._files = [files[start] for start in sorted(files)]
        self._queue = queue
        self._directory = directory
        self._root = root
        self._per_file = file_size // UNIT_NBYTES
        #: Ranges of units that lie where nothing may be read.
        self.hidden: list[tuple[int, int]] = []

    def hide(self, access: StoreAccess) -> None:
        """Take note of the files that may not be read, or are none."""
        if access.hides(self._directory):
            self.hidden.append((0, 2**63 - 1))
        for path in access.closed:
            start = formats.file_name_to_offset(path.name)
            if path.parent == self._directory and start is not None:
                first = start // UNIT_NBYTES
                self.hidden.append((first, first + self._per_file))

    def is_hidden(self, first: int, count: int) -> Array:
        """Which of ``count`` units from ``first`` on may not be read."""
        numbers = np.arange(first, first + count)
        hidden = np.zeros(count, bool)
        for low, high in self.hidden:
            hidden |= (numbers >= low) & (numbers < high)
        return hidden

    @functools.cached_property
    def ext(self) -> ConsumeQueueExt | None:
        """What the units' addresses mean, ``None`` when the store keeps no ext files."""
        return self._queue.ext if self._queue is not None else None

    @property
    def first_index(self) -> int | None:
        """Queue offset of the first file's first unit."""
        return self._files[0].file_from_offset // UNIT_NBYTES if self._files else None

    def place(self, index: int) -> tuple[str, int]:
        """File (where it should be, when there is none) and position of a unit."""
        start = index - index % self._per_file
        path = self._directory / formats.offset_to_file_name(start * UNIT_NBYTES)
        return str(path), (index - start) * UNIT_NBYTES

    def read(self, first: int, stop: int) -> Array:
        """Units ``first`` .. ``stop``; zeros where there is no file."""
        units = np.zeros(stop - first, _DTYPE)
        for file in self._files:
            base = file.file_from_offset // UNIT_NBYTES
            low, high = max(first, base), min(stop, base + file.file_size // UNIT_NBYTES)
            if low < high:
                content = read_bytes(
                    file, self._root, (low - base) * UNIT_NBYTES, (high - low) * UNIT_NBYTES
                )
                units[low - first : high - first] = np.frombuffer(content, _DTYPE)
        return units

    def written(self, first: int, stop: int | None) -> Iterator[tuple[int, Array]]:
        """Yield (queue offset, units) of what the files hold in ``first`` .. ``stop``, in chunks.

        Without ``stop``: to the end of the last file, holes in the file passed over.
        """
        for file in self._files:
            base = file.file_from_offset // UNIT_NBYTES
            end = base + file.file_size // UNIT_NBYTES
            low, high = max(first, base), end if stop is None else min(stop, end)
            if low >= high:
                continue
            ranges = [(low, high)] if stop is not None else self._data(file, low, high)
            for start, last in ranges:
                for at in range(start, last, _CHUNK_UNITS):
                    yield at, self.read(at, min(last, at + _CHUNK_UNITS))

    def _data(self, file: MappedFile | MemoryFile, low: int, high: int) -> list[tuple[int, int]]:
        base = file.file_from_offset // UNIT_NBYTES
        if isinstance(file, MemoryFile) or file.private:
            end = self._queue.max_index if self._queue is not None else high
            return [(low, min(high, end))] if low < end else []
        found: list[tuple[int, int]] = []
        for start, stop in data_ranges(file, (low - base) * UNIT_NBYTES):
            first = max(low, base + start // UNIT_NBYTES)
            last = min(high, base - (-stop // UNIT_NBYTES))
            if found and first <= found[-1][1]:
                found[-1] = (found[-1][0], last)
            elif first < last:
                found.append((first, last))
        return found


class QueueCheck:
    """One queue: its records come in log order, its units must say the same."""

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
        #: Units that name places past the log's end: number of units, and the first and last.
        self._past: list[tuple[int, int]] = []

    @property
    def _name(self) -> str:
        return f"{self._topic.decode('utf-8', 'replace')} queue {self._queue_id}"

    # --- records in log order -----------------------------------------------------------------

    def take(
        self, indexes: Array, offsets: Array, sizes: Array, codes: Array, times: Array
    ) -> None:
        """Compare records (queue offset, physical offset, size, tags code, store time) with their
        units."""
        breaks = np.flatnonzero(np.diff(indexes) != 1) + 1
        edges = [0, *breaks.tolist(), len(indexes)]
        columns = (indexes, offsets, sizes, codes, times)
        for start, stop in itertools.pairwise(edges):
            self._take_run(*(column[start:stop] for column in columns))

    def _take_run(
        self, indexes: Array, offsets: Array, sizes: Array, codes: Array, times: Array
    ) -> None:
        """Compare records whose queue offsets follow each other."""
        first, place = int(indexes[0]), int(offsets[0])
        if not self._may_be(first, offsets, sizes):
            self._add_record(place, f"queue offset {first} cannot be, {self._cursor or 0} is next")
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
            columns = (indexes, offsets, sizes, codes, times)
            indexes, offsets, sizes, codes, times = (column[repeated:] for column in columns)
        elif first > self._cursor:
            self._pass_gap(first, place)
        self._doubled.take(int(indexes[0]), offsets)
        self._compare(int(indexes[0]), offsets, sizes, codes, times)

    def _take_break(self, place: int) -> None:
        size = self._scope.log.segment_size
        self._scope.fit.take_break(self._name, self._last_end, place, size)

    def _may_be(self, first: int, offsets: Array, sizes: Array) -> bool:
        """Whether a run may begin at queue offset ``first`` (see ``QueueOffsetRule``)."""
        # Every message in front took at least a shortest record.
        room = (int(offsets[0]) - self._last_end) // formats.RECORD_MIN_NBYTES
        if first - (self._cursor or 0) <= room or len(offsets) > 1:
            return first <= MAX_QUEUE_OFFSET
        if first > MAX_QUEUE_OFFSET:
            return False
        unit = self._files.read(first, first + 1)[0]
        return bool(unit["physical_offset"] == offsets[0] and unit["size"] == sizes[0])

    def _begin(self, first: int, place: int) -> None:
        """The first record of the queue that the log still has."""
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
        self._scope.report.add("queue-offset", path, position, offset, f"{self._name}: {reason}")

    # --- units against records ----------------------------------------------------------------

    def _compare(
        self, first: int, offsets: Array, sizes: Array, codes: Array, times: Array
    ) -> None:
        stop = first + len(offsets)
        units = self._files.read(first, stop)
        same_place = (units["physical_offset"] == offsets) & (units["size"] == sizes)
        same = same_place & (units["tags_code"] == codes)
        self._cursor = stop
        self._last_end = int(offsets[-1]) + int(sizes[-1])
        count = int(same.sum())
        self._scope.report.units += count
        size = self._scope.log.segment_size
        self._scope.fit.take_units(offsets[same_place], size, right=True)
        if count == len(same):
            return
        empty = (units["physical_offset"] == 0) & (units["size"] == 0)
        behind = empty & (offsets >= self._dispatched_offset)
        ext = same_place & ~same & (units["tags_code"] <= formats.MAX_EXT_ADDRESS)
        self._scope.counts["behind_units"] += int(behind.sum())
        if ext.any():
            self._compare_ext(first, np.flatnonzero(ext), units, codes, times)
        self._add_missing(first, offsets, empty & ~behind)
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
        """Whether a unit names another record that claims the same queue offset, which is told."""
        record = self._scope.record_at(int(unit["physical_offset"]), int(unit["size"]))
        return record is not None and self._is_own(record, index)

    def _is_own(self, record: StoredMessage, index: int) -> bool:
        """Whether a record claims this queue and queue offset."""
        same = (record.topic.encode(), record.queue_id, record.queue_offset)
        return same == (self._topic, self._queue_id, index)

    def _compare_ext(
        self, first: int, numbers: Array, units: Array, codes: Array, times: Array
    ) -> None:
        """Compare the ext units of those of ``units`` that carry addresses with their records."""
        ext = self._files.ext
        heads = np.zeros(len(numbers), formats.CONSUME_QUEUE_EXT_UNIT.dtype)
        if ext is not None:
            addresses = units["tags_code"][numbers].astype("i8")
            heads = ext.heads(addresses, tolerant=True)
            if not heads["size"].all():
                ext.list_again()  # files made since then, before the units that point into them
                heads = ext.heads(addresses, tolerant=True)
        found = heads["size"] > 0
        same = found & (heads["tags_code"] == codes[numbers])
        same &= heads["store_timestamp"] == times[numbers]
        self._scope.counts["ext_units"] += int(same.sum())
        self._scope.report.units += int(same.sum())
        # One address among other units is a damaged unit.
        if len(numbers) == len(units) > 1 and self._scope.is_absent(formats.CONSUME_QUEUE_EXT_DIR):
            self._scope.counts["absent_ext_units"] += int((~same).sum())
            return
        for row in self._scope.report.shown("unit", np.flatnonzero(~same).tolist()):
            number = int(numbers[row])
            what = "no unit is there"
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
        """One finding for each run of units that were never written."""
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
            self._scope.report.add("missing-unit", path, position, int(offsets[start]), reason)

    def _is_excused(self, count: int) -> bool:
        """Whether ``count`` missing units are told as one: the folder of all queues is gone, or the
        topic was deleted."""
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
        """The queue offset behind the last record, ``None`` when there was none."""
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

    def _add_unit(self, index: int, offset: int | None, what: str) -> None:
        path, position = self._files.place(index)
        reason = f"{self._name}, unit {index}: {what}"
        self._scope.report.add("unit", path, position, offset, reason)

    # --- units without a record ---------------------------------------------------------------

    def finish(self) -> None:
        """Judge the units behind the queue's last record (all of them when there was no record)."""
        self._doubled.finish()
        start = self._files.first_index
        if start is not None:
            self._judge_behind(start)
            self._add_past()

    def _judge_behind(self, start: int) -> None:
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
        """Look for the units of records at these physical offsets (a light queue's), wherever in
        the queue they stand."""
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
            self._scope.report.add("missing-unit", path, position, offset, reason)

    def _judge(self, first: int, stop: int) -> None:
        for index, units in self._files.written(first, stop):
            self._judge_units(index, units)

    def _judge_units(self, first: int, units: Array) -> None:
        """Units that no record of the queue asks for: fillers, expired, or wrong."""
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
        known = offsets[stray][offsets[stray] < scope.stop]  # others may be newer than this look
        scope.fit.take_units(known, scope.log.segment_size, right=False)
        for number in stray.tolist():
            self._judge_stray(first + number, tuple(units[number].tolist()))

    def _add_holes(self, first: int, empty: Array) -> None:
        numbers = np.flatnonzero(empty)
        if len(numbers):
            self._add_unit(
                first + int(numbers[0]), None, f"{len(numbers)} units that were never written"
            )

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
                scope.report.units += 1  # its record's place among the others is what is odd
            return
        self._add_unit(
            index,
            offset,
            f"the record at log offset {offset} is queue offset {record.queue_offset} of "
            f"{record.topic} queue {record.queue_id}",
        )

    def _add_past(self) -> None:
        """One finding for all units that name places past the log's end."""
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
        self._scope.report.add("unit", path, position, low, reason)

    def _multi_dispatched_index(self, record: Any) -> str | None:
        """The queue offset that a record claims in this queue besides its own (light messages)."""
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
        if code != kernels.message.string_hash_code((record.tags or "").encode()):
            self._add_unit(index, offset, f"tags code {code} is not that of its record")
        elif named != str(index):
            # RocketMQ appends at the end where a queue offset was left out (D-14).
            self._scope.counts["shifted_units"] += 1
        else:
            self._scope.report.units += 1


def _is_written(units: Array) -> Array:
    written: Array = (units["physical_offset"] != 0) | (units["size"] != 0)
    written |= units["tags_code"] != 0
    return written


class QueuesCheck:
    """All queues: sorts the log's records by queue and hands them out in large portions."""

    def __init__(
        self,
        scope: VerifyScope,
        queues: QueueTable,
        dispatched_offset: int,
        take_batch_records: Callable[[RecordBatch, Array], None],
    ) -> None:
        self._scope = scope
        self._queues = queues
        self._dispatched_offset = dispatched_offset
        self._topics = TopicNumbers()
        self._checks: dict[tuple[bytes, int], QueueCheck] = {}
        self._gathered: list[tuple[Array, ...]] = []
        self._gathered_count = 0
        self._batch_topics = [name.encode() for name in queues.batch_topics]
        self._take_batch_records = take_batch_records
        #: Physical offsets of the records that name a light queue, by queue.
        self._named: dict[tuple[bytes, int], list[int]] = {}
        self._check_files()

    def plain_queues(self) -> list[ConsumeQueue]:
        """Those whose files hold plain units."""
        return [queue for queue in self._queues if not isinstance(queue, BatchConsumeQueue)]

    def _check_files(self) -> None:
        """Files of another size, or at another place, than the queue's are not read at all."""
        size = self._queues.file_size
        for queue in self.plain_queues():
            for offset, path, nbytes in list_directory(
                queue.queue.directory,
                self._queues.directory.parent,
                tolerate_unreadable=True,
                tolerate_odd=True,
            ).files:
                if nbytes != size or offset % size:
                    reason = f"{nbytes} bytes from {offset}; files of this queue have {size} bytes"
                    self._scope.report.add("queue-file", path, 0, None, reason)

    def take(self, batch: RecordBatch) -> None:
        """Gather the records that have a unit."""
        columns = batch.columns
        kind = columns["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
        queued = (kind == formats.SYS_FLAG_TRANSACTION_NOT) | (
            kind == formats.SYS_FLAG_TRANSACTION_COMMIT
        )
        status = columns["status"]
        queued &= (status == RecordStatus.OK) | (status == RecordStatus.NUL_PROPERTIES)
        if not queued.any():
            return
        self._take_named(batch, queued & (columns["multi_dispatch_at"] > 0))
        topics = self._topic_numbers(batch, queued)
        if self._scope.is_absent(formats.BATCH_QUEUE_DIR):
            self._learn_batch_topics(batch, queued)
        if self._batch_topics:
            plain = ~np.isin(topics, [self._topics.number(name) for name in self._batch_topics])
            self._take_batch_records(batch, np.flatnonzero(queued)[~plain])
            queued[queued] = plain
            topics = topics[plain]
        self._gathered.append(
            (
                (topics << 31) | columns["queue_id"][queued],
                *(columns[name][queued] for name in _COLUMNS),
            )
        )
        self._gathered_count += len(topics)
        if self._gathered_count >= _GATHER_COUNT:
            self._hand_out()

    def _learn_batch_topics(self, batch: RecordBatch, queued: Array) -> None:
        """Without the folder of batch queues, a topic with inner batches and no other queue had
        one there."""
        columns = batch.columns
        rows = queued & ((columns["sys_flag"] & formats.SYS_FLAG_INNER_BATCH) != 0)
        for row in np.flatnonzero(rows).tolist():
            message = batch.window.message(int(columns["position"][row]))
            topic = message.topic.encode("utf-8", "surrogateescape")
            if topic in self._batch_topics or inner_batch(message) is None:
                continue
            if not (self._queues.directory / message.topic).is_dir():
                self._batch_topics.append(topic)

    def _take_named(self, batch: RecordBatch, named: Array) -> None:
        """Note which light queues must have a unit of a record."""
        for position in batch.columns["position"][named].tolist():
            message = batch.window.message(position)
            topic = message.topic
            if topic.startswith(_NOT_LIGHT) or topic == formats.TOPIC_SCHEDULE:
                continue
            for told in odd_names(message, _LIGHT_NAMES):
                self._scope.counts["odd_names"] += 1
                if self._scope.counts["odd_names"] <= _MOST_TOLD:
                    self._scope.report.notes.append(told)
            for name, _, _ in named_queues(message, _LIGHT_NAMES):
                if is_folder_name(name):
                    self._scope.counts["light_names"] += 1
                    key = (name.encode("utf-8", "surrogateescape"), 0)
                    self._named.setdefault(key, []).append(message.physical_offset)

    def _topic_numbers(self, batch: RecordBatch, queued: Array) -> Array:
        columns = batch.columns
        starts = (columns["position"].astype("i8") + columns["topic_at"])[queued]
        lengths = columns["topic_nbytes"][queued].astype("i8")
        last = batch.last()
        first = batch.row(0)["position"]
        nbytes = last["position"] + last["total_size"] - first
        file = batch.window.file
        if nbytes <= batch.count * _WHOLE_READ_NBYTES:
            return self._topics.of(
                read_bytes(file, file.root, first, nbytes), starts - first, lengths
            )
        names = (
            read_bytes(file, file.root, start, length)
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        )
        return np.array([self._topics.number(name) for name in names], "i8")

    def _hand_out(self) -> None:
        if not self._gathered:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._gathered, strict=True)]
        self._gathered, self._gathered_count = [], 0
        order = np.argsort(columns[0], kind="stable")
        keys, *sorted_columns = (column[order] for column in columns)
        edges = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
        topics = self._topics.names
        for start, stop in itertools.pairwise(edges):
            if start == stop:
                continue
            key = int(keys[start])
            if topics[key >> 31] in self._batch_topics:  # gathered before that was known
                self._scope.counts["absent_batch_units"] += stop - start
                continue
            check = self.check_of(topics[key >> 31], key & (2**31 - 1))
            check.take(*(column[start:stop] for column in sorted_columns))

    def check_of(self, topic: bytes, queue_id: int) -> QueueCheck:
        """The check of one queue."""
        check = self._checks.get((topic, queue_id))
        if check is None:
            name = topic.decode("utf-8", "surrogateescape")
            files = UnitFiles(
                self._queues.get(name, queue_id),
                self._queues.directory / name / str(queue_id),
                self._queues.file_size,
                self._scope.root,
            )
            if self._scope.around is not None and self._scope.around.access.closed:
                files.hide(self._scope.around.access)
            check = QueueCheck(self._scope, topic, queue_id, files, self._dispatched_offset)
            self._checks[topic, queue_id] = check
        return check

    def ends(self) -> dict[tuple[str, int], int]:
        """Next queue offset by (topic, queue id), as the records tell it."""
        return {
            (topic.decode("utf-8", "surrogateescape"), queue_id): check.end
            for (topic, queue_id), check in self._checks.items()
            if check.end is not None
        }

    def finish(self) -> None:
        """Hand out the rest, and judge what the queues hold besides."""
        self._hand_out()
        for queue in self.plain_queues():
            self.check_of(queue.topic_bytes, queue.queue_id)
        for key, offsets in self._named.items():
            self.check_of(*key).find_named(offsets)
        for check in self._checks.values():
            check.finish()
        self._scope.report.queues += len(self._checks)
