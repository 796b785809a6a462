"""Comparing two stores' consume queues: ranges and units, as their files have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rocketstore import formats
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.raw import read_bytes
from rocketstore.moving.comparing.difference import Findings
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.consume_queue_ext import is_ext_address
from rocketstore.queues.queue_table import QueueTable

#: Units of a file that are read at once.
_STEP_COUNT = 1 << 16
_BATCH = formats.BATCH_QUEUE_UNIT.dtype
_UNIT = formats.CONSUME_QUEUE_UNIT.dtype
_NAMES = {
    "physical_offset": "offset",
    "size": "bytes",
    "tags_code": "tagsCode",
    "store_timestamp": "storeTimestamp",
    "base_offset": "queueOffset",
    "batch_size": "messages",
}

Array = np.ndarray[Any, Any]


class QueuesDiff:
    """Compares all queues of two stores.

    Parameters
    ----------
    a, b : QueueTable
        Loaded, with the least queue offsets of the records that are compared.
    names : tuple of str
        How the words name the stores.
    roots : tuple of Path
        The stores' roots.
    whole : bool
        Queues without a unit count, too; otherwise only those with one in the range.
    found : Findings
    advance : callable
        Called with the queues done and the number of all.
    """

    def __init__(
        self,
        a: QueueTable,
        b: QueueTable,
        names: tuple[str, str],
        *,
        roots: tuple[Path, Path],
        whole: bool,
        found: Findings,
        advance: Callable[[int, int], None],
    ) -> None:
        self._a, self._b = a, b
        self._names = names
        self._roots = roots
        self._whole = whole
        self._found = found
        self._advance = advance

    def run(self) -> None:
        """Compare the queues."""
        for table in (self._a, self._b):
            self._note_unread(table)
        keys = sorted({*self._a.table, *self._b.table})
        for number, key in enumerate(keys, 1):
            self._compare(key, self._a.get(*key), self._b.get(*key))
            self._advance(number, len(keys))
        if not keys:
            self._found.notes.append("neither store has consume queues")

    def _note_unread(self, table: QueueTable) -> None:
        for path in table.unfit:
            self._found.cannot_read(f"{path} is no queue file: its size or name does not fit")
        for path in table.skipped:
            if formats.file_name_to_offset(path.name) is not None or path.is_dir():
                self._found.cannot_read(f"{path} is not read as part of a queue")

    def _compare(
        self, key: tuple[str, int], a: ConsumeQueue | None, b: ConsumeQueue | None
    ) -> None:
        where = f"{key[0]}/{key[1]}"
        ranges = [None if one is None else (one.min_index, one.max_index) for one in (a, b)]
        if a is None or b is None:
            there = ranges[0] or ranges[1]
            if self._whole or (there is not None and there[0] < there[1]):
                name = self._names[a is not None]
                self._found.add("queue.missing", where, ranges, f"{name} lacks the queue")
            return
        self._found.compared["queues"] += 1
        if isinstance(a, BatchConsumeQueue) != isinstance(b, BatchConsumeQueue):
            types = ["BatchCQ" if isinstance(one, BatchConsumeQueue) else "SimpleCQ"
                     for one in (a, b)]  # fmt: skip
            self._found.add("queue.unit", where, types, "the queues have different types")
            return
        # 4.9 says 0 for a queue without a record in the log, also when its first files expired.
        first = max(one.min_index for one in (a, b))
        first = max([first, *(_first_in_files(one) for one in (a, b))])
        end = min(a.max_index, b.max_index)
        if ranges[0] != ranges[1]:
            self._found.add(
                "queue.range", where, ranges, _range_words(self._names, _range(a), _range(b)),
                queue_offset=min(_first_difference(_range(a), _range(b))),
            )  # fmt: skip
        if first < end:
            self._compare_units(where, a, b, first, end)

    def _compare_units(
        self, where: str, a: ConsumeQueue, b: ConsumeQueue, first: int, end: int
    ) -> None:
        """Report the first differing unit of the range."""
        streams = [
            _UnitStream(one, root, first, end)
            for one, root in zip((a, b), self._roots, strict=True)
        ]
        at = first
        while True:
            x, y = (stream.held() for stream in streams)
            count = min(len(x), len(y))
            if not count:
                break
            x, y = x[:count], y[:count]
            if x.tobytes() != y.tobytes():
                number = _first_differing(a, b, x, y)
                if number is not None:
                    self._add_unit(where, x[number], y[number], at + number)
                    return
            self._found.compared["units"] += count
            for stream in streams:
                stream.take(count)
            at += count
        if len(x) or len(y):
            one, other = (_as_dict(rows[0]) if len(rows) else None for rows in (x, y))
            self._found.add(
                "queue.unit", where, (one, other), "one queue has a unit more in the same range"
            )
        for stream in streams:
            if stream.lack is not None:
                self._found.cannot_read(stream.lack)

    def _add_unit(self, where: str, x: Any, y: Any, at: int) -> None:
        a, b = _as_dict(x), _as_dict(y)
        self._found.add(
            "queue.unit", where, (a, b), "the units differ", offset=min(a["offset"], b["offset"]),
            queue_offset=a.get("queueOffset", at),
        )  # fmt: skip


class _UnitStream:
    """The units of a queue that cover queue offsets ``first`` to ``end``, some at a time."""

    def __init__(self, queue: ConsumeQueue, root: Path, first: int, end: int) -> None:
        #: Why units are missing; ``None`` if none are.
        self.lack: str | None = None
        self._queue, self._root = queue, root
        self._first, self._end = first, end
        self._is_batch = isinstance(queue, BatchConsumeQueue)
        self._chunks = self._batch_chunks() if self._is_batch else self._plain_chunks()
        self._held: Array = np.empty(0, _BATCH if self._is_batch else _UNIT)

    def held(self) -> Array:
        """Return the next units, none at the end."""
        while not len(self._held):
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._held = chunk
        return self._held

    def take(self, count: int) -> None:
        """Drop the first units of those held."""
        self._held = self._held[count:]

    def _read(self, file: MappedFile | MemoryFile, position: int, count: int) -> Array:
        dtype = self._held.dtype
        content = read_bytes(file, self._root, position, count * dtype.itemsize)
        return np.frombuffer(content, dtype)

    def _plain_chunks(self) -> Iterator[Array]:
        nbytes, at = _UNIT.itemsize, self._first
        while at < self._end:
            file = self._queue.queue.find_mapped_file_by_offset(at * nbytes)
            if file is None:
                self.lack = (
                    f"{self._queue.queue.directory} has no file for queue offset {at}, which it had"
                )
                return
            position = at * nbytes - file.file_from_offset
            left = (file.file_size - position) // nbytes
            count = min(_STEP_COUNT, self._end - at, left)
            if count <= 0:
                self.lack = f"{file.path} has {file.file_size} bytes and lacks queue offset {at}"
                return
            yield self._read(file, position, count)
            at += count

    def _batch_chunks(self) -> Iterator[Array]:
        for file in self._queue.files():
            total = self._queue.readable_units(file)
            for number in range(0, total, _STEP_COUNT):
                count = min(_STEP_COUNT, total - number)
                units = self._read(file, number * _BATCH.itemsize, count)
                starts = units["base_offset"].astype("i8")
                ends = starts + units["batch_size"].astype("i8")
                yield units[(ends > self._first) & (starts < self._end)]


def _range(queue: ConsumeQueue) -> tuple[int, int]:
    return queue.min_index, queue.max_index


def _first_in_files(queue: ConsumeQueue) -> int:
    if isinstance(queue, BatchConsumeQueue):
        return 0
    return max(queue.queue.min_offset, 0) // _UNIT.itemsize


def _first_difference(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return (a[0], b[0]) if a[0] != b[0] else (a[1], b[1])


def _range_words(names: tuple[str, str], a: tuple[int, int], b: tuple[int, int]) -> str:
    words = []
    if a[0] != b[0]:
        words.append(f"{names[a[0] < b[0]]} begins {abs(a[0] - b[0])} messages later")
    if a[1] != b[1]:
        words.append(f"{names[a[1] > b[1]]} ends {abs(a[1] - b[1])} messages earlier")
    return ", ".join(words)


def _first_differing(a: ConsumeQueue, b: ConsumeQueue, x: Array, y: Array) -> int | None:
    """Return the number of the first unit that differs; addresses of ext units are resolved."""
    for number in np.flatnonzero(x != y).tolist():
        if _resolved(a, x[number]) != _resolved(b, y[number]):
            return int(number)
    return None


def _resolved(queue: ConsumeQueue, unit: Any) -> tuple[Any, ...]:
    values = unit.item()
    place = unit.dtype.names.index("tags_code")
    if queue.ext is None or not is_ext_address(values[place]):
        return tuple(values)
    ext = queue.ext.unit(values[place])
    if ext is None:
        return tuple(values)
    return (*values[:place], tuple(ext), *values[place + 1 :])


def _as_dict(unit: Any) -> dict[str, int]:
    names = unit.dtype.names
    return {_NAMES[name]: int(unit[name]) for name in names if name in _NAMES}
