"""What queues and index know of a range of the log: the messages that were there."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats
from rocketstore.diagnosis.image import READ_ERRORS, SparseFile, StoreImage

_UNIT = formats.CONSUME_QUEUE_UNIT
_ENTRY = formats.INDEX_ENTRY
_ROOM_NBYTES = 128 << 20


class LostMessages(NamedTuple):
    """``topics``: as in ``DataEffect``; ``keys``: index entries of the range."""

    messages: int
    topics: list[dict[str, Any]]
    keys: int


class Pointers:
    """Units and index entries, read once when the first question comes.

    Reading stops at 128 MiB of units and entries; ``is_complete`` is False then.
    """

    def __init__(self, image: StoreImage, slots: int) -> None:
        self._image = image
        self._slots = slots
        self._units: dict[tuple[str, int], list[tuple[int, Any, Any]]] | None = None
        self._entries: list[Any] = []
        self.is_complete = True

    @property
    def highest(self) -> int:
        """The end of the last record that a unit names, 0 if there is none."""
        ends = [
            int((offsets + sizes).max())
            for rows in self._read().values()
            for _, offsets, sizes in rows
            if len(offsets)
        ]
        return max(ends, default=0)

    def between(
        self, start: int, stop: int, wrong: Container[tuple[str, int, int]] = ()
    ) -> LostMessages:
        """Return the messages whose records begin in ``start`` .. ``stop``.

        ``wrong``: topic, queue id and queue offset of units that name no record of theirs. A queue
        whose two units before ``start`` are wrong is of another store, and says nothing.
        """
        topics: list[dict[str, Any]] = []
        found: set[int] = set()
        for (topic, queue_id), rows in sorted(self._read().items()):
            numbers: list[int] = []
            named: set[int] = set()
            for first, offsets, _ in rows:
                hit = np.flatnonzero((offsets >= start) & (offsets < stop))
                numbers += (first + hit).tolist()
                named.update(offsets[hit].tolist())
            before = min(numbers, default=0)
            if before and all(
                (topic, queue_id, number) in wrong for number in (before - 1, max(before - 2, 0))
            ):
                continue
            found |= named
            if numbers:
                topics.append(
                    {
                        "topic": topic,
                        "queueId": queue_id,
                        "queueOffsets": _ranges(sorted(numbers)),
                        "messages": len(numbers),
                    }
                )
        keys = 0
        for offsets in self._entries:
            hit = (offsets >= start) & (offsets < stop)
            keys += int(hit.sum())
            found.update(offsets[hit].tolist())
        return LostMessages(len(found), topics, keys)

    def _read(self) -> dict[tuple[str, int], list[tuple[int, Any, Any]]]:
        if self._units is not None:
            return self._units
        self._units = {}
        room = [_ROOM_NBYTES]
        try:
            for key, files in self._image.queues.items():
                for entry in files:
                    if entry.kind == "file" and entry.start is not None and entry.nbytes:
                        rows = self._units.setdefault(key, [])
                        rows += _units(SparseFile(entry, self._image.root, room), entry.start)
            for entry in self._image.index:
                if entry.kind == "file" and entry.name.isdecimal() and entry.nbytes:
                    self._entries.append(self._offsets(SparseFile(entry, self._image.root, room)))
        except OverflowError:
            self.is_complete = False
        except READ_ERRORS:
            self.is_complete = False
        return self._units

    def _offsets(self, content: SparseFile) -> Any:
        first = formats.INDEX_HEADER.nbytes + 4 * self._slots
        count = formats.INDEX_HEADER.struct.unpack(content.read(0, formats.INDEX_HEADER.nbytes))[5]
        count = min(max(count, 1), content.end // _ENTRY.nbytes + 1)
        raw = content.read(first + _ENTRY.nbytes, (count - 1) * _ENTRY.nbytes)
        return np.frombuffer(raw, _ENTRY.dtype)["physical_offset"].astype("i8")


def _units(content: SparseFile, start: int) -> list[tuple[int, Any, Any]]:
    found = []
    for position, piece in content.pieces():
        whole = len(piece) - len(piece) % _UNIT.nbytes
        units = np.frombuffer(piece[:whole], _UNIT.dtype)
        sizes = units["size"].astype("i8")
        real = (sizes > 0) & (sizes < formats.FILLER_UNIT_SIZE)
        offsets = np.where(real, units["physical_offset"].astype("i8"), -1)
        found.append(((start + position) // _UNIT.nbytes, offsets, np.where(real, sizes, 0)))
    return found


def _ranges(numbers: list[int]) -> list[list[int]]:
    """Return half-open ranges of sorted numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number <= found[-1][1]:
            found[-1][1] = number + 1
        else:
            found.append([number, number + 1])
    return found
