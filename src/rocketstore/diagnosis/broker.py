"""What a broker of one version makes of a store: its load, recovery, dispatch, pulls and lookups.

The rules are those of ``DefaultMessageStore.load`` and ``start`` of RocketMQ 4.9 to 5.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.diagnosis.image import (
    READ_ERRORS,
    Entry,
    Record,
    Segment,
    SparseFile,
    StoreImage,
    read_segment,
)
from rocketstore.diagnosis.index_model import BrokerIndex
from rocketstore.diagnosis.queue_model import UNIT, BrokerQueue
from rocketstore.diagnosis.verdict import BrokerForecast
from rocketstore.directory.checkpoint import StoreCheckpoint

_MARGIN_MS = 3000
_PULL_COUNT = 32
_PULL_NBYTES = 256 * 1024
_FILTER_NBYTES = 16_000
#: Bytes of a record up to its own log offset; what is shorter is served as it is.
_HEAD_NBYTES = formats.RECORD_HEAD.at("physical_offset") + 8
#: Stores with more are not played through.
MOST_RECORDS = 100_000
MOST_UNIT_NBYTES = 64 << 20
MOST_FILES = 20_000


@dataclass(frozen=True)
class BrokerOptions:
    """The options that decide what a broker does with a store."""

    version: tuple[int, int, int]
    segment_nbytes: int
    queue_nbytes: int
    slots: int
    entries: int
    batch_nbytes: int = 0
    ext_nbytes: int = 0
    index_enable: bool = True
    index_safe: bool = False
    check_crc: bool = True
    recover_max_num: int = 10
    multi_dispatch: bool = False
    accelerated: bool = False
    query_max: int = 64
    delay_ms: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The version as text."""
        return ".".join(map(str, self.version))


class RefusedError(Exception):
    """Loading fails; ``by`` is the part."""

    def __init__(self, by: str, why: str) -> None:
        super().__init__(why)
        self.by = by


@dataclass
class LogContent:
    """The parsed log, shared by the forecasts of all versions."""

    segments: dict[int, Segment] = field(default_factory=dict)
    records: int = 0
    is_complete: bool = True

    @classmethod
    def read(
        cls,
        image: StoreImage,
        delay_ms: tuple[int, ...],
        progress: Callable[[int, int], None] | None = None,
        *,
        least: int = 0,
    ) -> LogContent:
        """Parse every segment; of many records only runs, and ``is_complete`` is False.

        ``least``: so many records are known to be there.
        """
        if least > MOST_RECORDS:
            return cls._read(image, delay_ms, progress, are_runs=True)
        try:
            return cls._read(image, delay_ms, progress, are_runs=False)
        except OverflowError:
            return cls._read(image, delay_ms, progress, are_runs=True)

    @classmethod
    def _read(
        cls,
        image: StoreImage,
        delay_ms: tuple[int, ...],
        progress: Callable[[int, int], None] | None,
        *,
        are_runs: bool,
    ) -> LogContent:
        content = cls(is_complete=not are_runs)
        files = [one for one in image.log if one.kind == "file" and one.start is not None]
        for number, entry in enumerate(files):
            limit = 2**62 if are_runs else MOST_RECORDS - content.records
            try:
                found = read_segment(
                    entry, image.log_root, delay_ms, limit=limit, are_runs=are_runs
                )  # fmt: skip
            except READ_ERRORS:
                continue
            content.segments[found.start] = found
            content.records += sum(one.records for one in (*found.records, *found.later))
            if progress is not None:
                progress(number + 1, len(files))
        return content

    def intact(self) -> Iterator[Record]:
        """Yield every record whose bytes are complete, in the order of the files."""
        for start in sorted(self.segments):
            segment = self.segments[start]
            for record in (*segment.records, *segment.later):
                if record.is_crc_good:
                    yield record


class Broker:
    """Plays one broker's start over a store.

    Attributes
    ----------
    served : dict
        By topic and queue id: lowest and next queue offset, and the offsets that pulls give.
    """

    def __init__(
        self,
        image: StoreImage,
        content: LogContent,
        options: BrokerOptions,
        checkpoint: StoreCheckpoint,
        *,
        is_unclean: bool,
    ) -> None:
        self._image = image
        self._content = content
        self.options = options
        self._checkpoint = checkpoint
        self._is_unclean = is_unclean
        self._files: list[Segment] = []
        self._end = 0
        self._queues: dict[tuple[bytes, int], BrokerQueue] = {}
        self._index = BrokerIndex(options.slots, options.entries, options.query_max)
        self._deleted: list[Path] = []
        self._rescan: tuple[int, int] | None = None
        self._hang: str | None = None
        self.served: dict[tuple[str, int], tuple[int, int, list[int]]] = {}

    def forecast(self) -> BrokerForecast:
        """Return what this broker does; changes nothing on disk."""
        found = BrokerForecast(self.options.name)
        try:
            self._load()
            self._recover()
        except RefusedError as error:
            found.starts, found.why, found.by = False, str(error), error.by
            return found
        if self._hang is not None:
            found.starts, found.why, found.by = None, self._hang, "commitlog"
            return found
        if self._content.is_complete:
            self._serve()
        first = self._files[0].start if self._files else -1
        found.log = {"min": first, "max": self._end}
        found.truncates = self._cuts()
        deleted = [*self._deleted, *(path for q in self._queues.values() for path in q.deleted)]
        found.deletes = sorted(self._image.relative(one) for one in deleted)
        if self._content.is_complete:
            changed, unchanged = self._changed()
            found.queues = {"changed": changed, "unchanged": unchanged}
        if self.options.index_enable and self._content.is_complete:
            found.keys_not_found, hangs = self._keys_not_found()
            if hangs:
                found.hangs_at, found.keys_not_found = "query", None
        if self._rescan is not None:
            found.rescan = {"from": self._rescan[0], "bytes": self._rescan[1]}
        return found

    # --- load -----------------------------------------------------------------------------------

    def _load(self) -> None:
        version = self.options.version
        for entry in self._loaded(self._image.log, self.options.segment_nbytes, "commitlog"):
            segment = self._content.segments.get(entry.start or 0)
            if segment is None:
                raise RefusedError("commitlog", f"{entry.name} cannot be read")
            self._files.append(segment)
        room = [MOST_UNIT_NBYTES]
        for (topic, queue_id), found in self._image.queues.items():
            files = self._loaded(found, self.options.queue_nbytes, "consumequeue")
            queue = BrokerQueue(self.options.queue_nbytes, is_4=version < (5, 0, 0))
            try:
                for one in files:
                    queue.load(one.start or 0, SparseFile(one, self._image.root, room), one.path)
            except READ_ERRORS as error:
                raise RefusedError("consumequeue", str(error)) from None
            self._queues[topic.encode(), queue_id] = queue
        if version >= (5, 0, 0) and self.options.batch_nbytes:
            for found in self._image.batch_queues.values():
                self._loaded(found, self.options.batch_nbytes, "consumequeue")
        if self.options.ext_nbytes:
            for found in self._image.ext_queues.values():
                self._loaded(found, self.options.ext_nbytes, "consumequeue")
        self._load_index()

    def _loaded(self, found: list[Entry], nbytes: int, part: str) -> list[Entry]:
        """Return the entries of a folder that a broker maps."""
        version, loaded = self.options.version, []
        for number, one in enumerate(found):
            where = self._image.relative(one.path)
            if one.kind == "folder" and version >= (5, 1, 0):
                continue
            if one.kind != "file":
                raise RefusedError(part, f"{where} is no readable file")
            if not one.nbytes and number == len(found) - 1 and version >= (5, 1, 3):
                self._deleted.append(one.path)
                continue
            if one.nbytes != nbytes:
                raise RefusedError(part, f"{where} has {one.nbytes} bytes instead of {nbytes}")
            if one.start is None:
                raise RefusedError(part, f"{where} has a name that is no offset")
            loaded.append(one)
        return loaded

    def _load_index(self) -> None:
        for one in self._image.index:
            if not one.name.isdecimal():
                continue
            if one.kind != "file":
                if self.options.version >= (5, 0, 0):
                    where = self._image.relative(one.path)
                    raise RefusedError("index", f"{where} is no readable file")
                continue
            try:
                is_kept = self._index.load(
                    one, self._image.root,
                    self._checkpoint.index_timestamp if self._is_unclean else None,
                )  # fmt: skip
            except READ_ERRORS as error:
                raise RefusedError("index", str(error)) from None
            if not is_kept:
                self._deleted.append(one.path)

    # --- recovery -------------------------------------------------------------------------------

    def _recover(self) -> None:
        highest = max([queue.recover() for queue in self._queues.values()], default=-1)
        if not self._files:
            for queue in self._queues.values():
                queue.destroy()
            self._end = 0
            return
        first = self._first_file(highest)
        end = self._walk(first, highest)
        began = self._files[first].start
        self._rescan = (began, max(0, end - began))
        self._cut(end, highest)
        minimum = self._files[0].start if self._files else -1
        for (topic, queue_id), queue in self._queues.items():
            if not queue.correct_min(minimum):
                where = f"{topic.decode('utf-8', 'replace')} queue {queue_id}"
                raise RefusedError(
                    "consumequeue", f"the last file of {where} holds no unit, and loading fails"
                )
        if self.options.version < (5, 0, 0) and self._content.is_complete:
            self._catch_up()
            for queue in self._queues.values():
                queue.correct_min(minimum)

    def _first_file(self, highest: int) -> int:
        version, last = self.options.version, len(self._files) - 1
        if not self._is_unclean and version < (5, 3, 2):
            return max(0, last - 2)
        if not self._is_unclean and version < (5, 4, 0):
            return self._newest(lambda segment: segment.start <= highest)
        if version < (5, 4, 0):
            return self._newest(self._is_matched_by_time)
        left = self.options.recover_max_num if self.options.recover_max_num > 0 else 10
        number = last
        while number > 0 and not self._is_matched(self._files[number], highest):
            left -= 1
            if not left:
                break
            number -= 1
        return number

    def _newest(self, is_matched: Callable[[Segment], bool]) -> int:
        numbers = range(len(self._files) - 1, -1, -1)
        return next((number for number in numbers if is_matched(self._files[number])), 0)

    def _first_record(self, segment: Segment) -> Record | None:
        first = segment.records[0] if segment.records else None
        return first if first is not None and first.position == 0 else None

    def _is_matched_by_time(self, segment: Segment) -> bool:
        first = self._first_record(segment)
        if first is None or not first.time:
            return False
        point = self._checkpoint
        limit = min(point.physic_timestamp, point.logics_timestamp) - _MARGIN_MS
        limit = max(0, limit)
        if self.options.index_enable and self.options.index_safe:
            limit = min(limit, point.index_timestamp)
        return first.time <= limit

    def _is_matched(self, segment: Segment, highest: int) -> bool:
        first = self._first_record(segment)
        if first is None or not first.time or not (first.is_crc_good or not self.options.check_crc):
            return False
        point = self._checkpoint
        if (
            self.options.index_enable
            and self.options.index_safe
            and first.time > point.index_timestamp
        ):
            return False
        if not self._is_unclean:
            return first.offset <= highest
        if self.options.version < (5, 5, 0):
            limit = max(0, min(point.physic_timestamp, point.logics_timestamp) - _MARGIN_MS)
            return first.time <= limit
        if point.logics_physical_offset > 0:
            return first.offset <= point.logics_physical_offset
        return first.time <= point.logics_timestamp

    def _walk(self, first: int, highest: int) -> int:
        """Scan from file ``first`` on, dispatch, and return the log's end."""
        version, unclean = self.options.version, self._is_unclean
        dispatches_new = version >= (5, 3, 2)
        end = self._files[first].start
        for number in range(first, len(self._files)):
            segment = self._files[number]
            for record in segment.records:
                if self.options.check_crc and not record.is_crc_good:
                    return segment.start + record.position
                if not self._content.is_complete:
                    continue
                if unclean or (dispatches_new and record.offset > highest):
                    self._dispatch(record)
            end = segment.start + segment.stop
            if segment.reason != "blank":
                break
        return end

    def _cut(self, end: int, highest: int) -> None:
        if highest >= end:
            for queue in self._queues.values():
                queue.truncate(end)
        size, kept = self.options.segment_nbytes, []
        for segment in self._files:
            if segment.start + size > end and end < segment.start:
                self._deleted.append(segment.entry.path)
            else:
                kept.append(segment)
        self._files = kept
        self._end = end

    def _catch_up(self) -> None:
        """Dispatch from the highest offset of all queues, as 4.9 does when it starts."""
        highest = max([queue.max_physical for queue in self._queues.values()], default=0)
        at = max(highest, self._files[0].start, 0)
        size = self.options.segment_nbytes
        by_start = {segment.start: segment for segment in self._files}
        while at < self._end:
            segment = by_start.get(at - at % size)
            if segment is None:
                self._hang = f"dispatch waits for ever at offset {at}, in a missing segment"
                return
            end = min(segment.start + size, self._end)
            for record in segment.records:
                if record.place == at and at < end:
                    self._dispatch(record)
                    at += record.size
            at = end

    # --- dispatch -------------------------------------------------------------------------------

    def _dispatch(self, record: Record) -> None:
        for number, (topic, queue_id, offset) in enumerate(record.queues()):
            if number and not self.options.multi_dispatch:
                break
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                queue = BrokerQueue(
                    self.options.queue_nbytes, is_4=self.options.version < (5, 0, 0)
                )
                self._queues[topic, queue_id] = queue
            queue.put(record.offset, record.size, record.tags_code, offset)
        if self.options.index_enable:
            keys = record.keys
            if self.options.version >= (5, 4, 0):
                keys += record.tag_keys
            self._index.build(record, keys)

    # --- what is served -------------------------------------------------------------------------

    def _serve(self) -> None:
        for (topic, queue_id), queue in self._queues.items():
            if queue_id >= 0:
                name = topic.decode("utf-8", "replace")
                low, high = queue.min_offset, queue.max_offset
                self.served[name, queue_id] = low, high, self._pull_all(queue, low, high)

    def _pull_all(self, queue: BrokerQueue, low: int, high: int) -> list[int]:
        served: list[int] = []
        at = low
        while at < high:
            after = self._pull(queue, at, served)
            if after <= at:
                break
            at = after
        return served

    def _pull(self, queue: BrokerQueue, at: int, served: list[int]) -> int:
        """Pull once from ``at``; return the next offset."""
        units = queue.units_from(at)
        if units is None:
            per_file = self.options.queue_nbytes // UNIT.size
            return at + per_file - at % per_file
        next_file, count, nbytes, number = -1, 0, 0, 0
        for number, (offset, size, _) in enumerate(units):
            if number * UNIT.size >= _FILTER_NBYTES:
                return at + number
            if offset < next_file:
                continue
            if count and (count >= _PULL_COUNT or nbytes + size > _PULL_NBYTES):
                return at + number
            message = self._message(offset, size)
            if message is None:
                next_file = (offset // self.options.segment_nbytes + 1) * (
                    self.options.segment_nbytes
                )
                continue
            served.append(message if size >= _HEAD_NBYTES else -1)
            next_file = -1
            count += 1
            nbytes += size
        return at + number + 1

    def _segment_at(self, offset: int) -> Segment | None:
        if offset < 0:
            return None
        base = offset - offset % self.options.segment_nbytes
        found = next((one for one in self._by_start(base)), None)
        if found is None and not offset and self._files:
            return self._files[0]  # as a broker does for offset 0
        return found

    def _by_start(self, base: int) -> Iterator[Segment]:
        if not hasattr(self, "_starts"):
            self._starts = {one.start: one for one in self._files}
        if base in self._starts:
            yield self._starts[base]

    def _message(self, offset: int, size: int) -> int | None:
        """Return the offset that the bytes at ``offset`` carry; ``None`` if nothing is served."""
        segment = self._segment_at(offset)
        if segment is None or size < 0:
            return None
        position = offset % self.options.segment_nbytes
        is_last = segment is self._files[-1]
        stop = self._end - segment.start if is_last else self.options.segment_nbytes
        if position + size > stop:
            return None
        if not hasattr(self, "_offsets"):
            self._offsets = {
                one.place: one.offset
                for each in self._files
                for one in (*each.records, *each.later)
            }
        found = self._offsets.get(offset)
        return found if found is not None else self._carried(segment, position)

    def _carried(self, segment: Segment, position: int) -> int:
        at = position + formats.RECORD_HEAD.at("physical_offset")
        with open(segment.entry.path, "rb") as file:
            file.seek(at)
            content = file.read(8)
        return struct.unpack(">q", content)[0] if len(content) == 8 else 0

    def expected(self) -> dict[tuple[str, int], list[int]]:
        """Return, by queue, the offsets of its complete records, by queue offset."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for record in self._content.intact():
            for number, (topic, queue_id, offset) in enumerate(record.queues()):
                if not number or self.options.multi_dispatch:
                    key = topic.decode("utf-8", "replace"), queue_id
                    found.setdefault(key, []).append((offset, record.offset))
        return {key: [place for _, place in sorted(rows)] for key, rows in found.items()}

    def _changed(self) -> tuple[list[dict[str, object]], int]:
        changed, unchanged = [], 0
        expected = self.expected()
        for key in sorted({*expected, *self.served}):
            if key in {(topic, number) for topic, number in self._image.batch_queues}:
                continue
            low, high, served = self.served.get(key, (0, 0, []))
            if served == expected.get(key, []):
                unchanged += 1
                continue
            changed.append(
                {"topic": key[0], "queueId": key[1], "min": low, "max": high,
                 "served": len(served)}
            )  # fmt: skip
        return changed, unchanged

    def _cuts(self) -> dict[str, int]:
        kept = {segment.start for segment in self._files}
        gone = [
            record
            for record in self._content.intact()
            if record.place >= self._end or record.file not in kept
        ]
        end = max([self._end, *(one.place + one.size for one in gone)])
        return {
            "bytes": end - self._end,
            "messages": sum(one.records for one in gone),
            "from": self._end,
        }

    def _keys_not_found(self) -> tuple[int, bool]:
        wanted: dict[bytes, set[int]] = {}
        for record in self._content.intact():
            for name in record.names:
                wanted.setdefault(name, set()).add(record.offset)
        lost = 0
        for name, offsets in wanted.items():
            if len(offsets) > self.options.query_max:
                continue
            found = self._index.query(kernels.index_file.key_hash(name))
            if found is None:
                return 0, True
            given = {self._message(one, 1) for one in found}
            lost += bool(offsets - given)
        return lost, False
