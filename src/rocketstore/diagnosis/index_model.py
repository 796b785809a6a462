"""A broker's index in memory: load, puts and lookups as ``IndexService`` and ``IndexFile`` do."""

from __future__ import annotations

from pathlib import Path

from rocketstore import formats
from rocketstore.diagnosis.image import Entry, Record, SparseFile

_MOST_INDEX_NBYTES = 96 << 20
_HEAD = formats.INDEX_HEADER
_ENTRY = formats.INDEX_ENTRY
_MOST_SECONDS = 2**31 - 1


class _IndexFile:
    """One index file, read by the broker's own geometry."""

    def __init__(self, slots: int, entries: int, content: SparseFile | None) -> None:
        self._slots = slots
        self._entries = entries
        self._content = content
        self._slot: dict[int, int] = {}
        self._entry: dict[int, tuple[int, int, int, int]] = {}
        head = (0, 0, 0, 0, 0, 1)
        if content is not None:
            head = _HEAD.struct.unpack(content.read(0, _HEAD.nbytes))
        self.begin_time, self.end_time, self.begin, self.end, _, count = head
        self.count = count if count > 0 else 1

    @property
    def is_full(self) -> bool:
        return self.count >= self._entries

    def _first_of(self, slot: int) -> int:
        found = self._slot.get(slot)
        if found is None:
            content = self._content
            at = _HEAD.nbytes + 4 * slot
            raw = content.read(at, 4) if content is not None else b"\0\0\0\0"
            found = int.from_bytes(raw, "big", signed=True)
        return found

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return hash, offset, seconds and the previous entry."""
        found = self._entry.get(number)
        if found is None and self._content is not None:
            at = _HEAD.nbytes + 4 * self._slots + _ENTRY.nbytes * number
            key, offset, seconds, previous = _ENTRY.struct.unpack(
                self._content.read(at, _ENTRY.nbytes)
            )
            return key, offset, seconds, previous
        return found or (0, 0, 0, 0)

    def put(self, key: int, offset: int, time: int) -> bool:
        """Put a key; return False if the file is full."""
        if self.is_full:
            return False
        slot = key % self._slots
        previous = self._first_of(slot)
        if previous <= 0 or previous > self.count:
            previous = 0
        seconds = (time - self.begin_time) // 1000 if self.begin_time > 0 else 0
        self._entry[self.count] = key, offset, min(max(seconds, 0), _MOST_SECONDS), previous
        self._slot[slot] = self.count
        if self.count <= 1:
            self.begin, self.begin_time = offset, time
        self.count += 1
        self.end, self.end_time = offset, time
        return True

    def select(self, key: int, most: int, found: list[int]) -> bool:
        """Add the offsets of a key, newest first; return False if the walk never ends."""
        number = self._first_of(key % self._slots)
        seen: set[int] = set()
        hits = 0
        if number <= 0 or number > self.count or self.count <= 1:
            return True
        while len(found) < most:
            if number in seen and not hits:
                return False
            if number in seen:
                seen, hits = set(), 0
            seen.add(number)
            one, offset, seconds, previous = self.entry(number)
            if seconds < 0:
                break
            if one == key:
                found.append(offset)
                hits += 1
            if previous <= 0 or previous > self.count or previous == number:
                break
            if self.begin_time + seconds * 1000 < 0:
                break
            number = previous
        return True


class BrokerIndex:
    """All index files of a broker."""

    def __init__(self, slots: int, entries: int, most: int) -> None:
        self._slots = slots
        self._entries = entries
        self._most = most
        self._files: list[_IndexFile] = []
        self._room = [_MOST_INDEX_NBYTES]

    def load(self, entry: Entry, root: Path, newest: int | None) -> bool:
        """Add a file that exists; return False if the broker deletes it.

        ``newest``: the index time of the checkpoint after an unclean stop, else ``None``.
        """
        file = _IndexFile(self._slots, self._entries, SparseFile(entry, root, self._room))
        if newest is not None and file.end_time > newest:
            return False
        self._files.append(file)
        return True

    def build(self, record: Record, keys: tuple[int, ...]) -> None:
        """Index a record, unless the newest file is past it."""
        last = self._last()
        if record.offset < last.end:
            return
        if record.transaction == formats.SYS_FLAG_TRANSACTION_ROLLBACK:
            return
        for key in keys:
            while not self._last().put(key, record.offset, record.time):
                pass

    def _last(self) -> _IndexFile:
        if not self._files or self._files[-1].is_full:
            file = _IndexFile(self._slots, self._entries, None)
            if self._files:
                before = self._files[-1]
                file.begin = file.end = before.end
                file.begin_time = file.end_time = before.end_time
            self._files.append(file)
        return self._files[-1]

    def query(self, key: int) -> list[int] | None:
        """Return the offsets that a lookup gives, ``None`` if it never returns."""
        found: list[int] = []
        for file in reversed(self._files):
            if not file.select(key, self._most, found):
                return None
            if len(found) >= self._most:
                break
        return found
