"""The index keys of the log's records: the twin of ``_native/passes_index_keys``."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from rocketstore import formats
from rocketstore._reference import index_file, record_check
from rocketstore._reference.arguments import (
    Buffer,
    Integers,
    check_int64,
    check_lengths,
    readable,
    wrap64,
)
from rocketstore._reference.passes import Pass
from rocketstore._reference.passes_rows import is_still_there
from rocketstore._reference.record_check import Row
from rocketstore.status import RecordStatus

MAX_RECORD_KEYS = 2 + (formats.MAX_PROPERTIES_NBYTES + 1) // 2
_MARK = 2**31
_MAX_DIFF = 2**31 - 1
_ENTRY = formats.INDEX_ENTRY.struct
_TAKEN = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
_TAGS = formats.PROPERTY_TAGS.encode()
_KEYS = formats.PROPERTY_KEYS.encode()
_UNIQUE_KEY = formats.PROPERTY_UNIQUE_KEY.encode()


class IndexKeysPass(Pass):
    """See ``_native/passes_index_keys.pyi``."""

    def __init__(
        self,
        *,
        index_tags: bool = True,
        mark_tags: bool = False,
        counts_only: bool = False,
        capacity: int = 65536,
    ) -> None:
        lowest = 1 if counts_only else MAX_RECORD_KEYS
        if capacity < lowest:
            raise ValueError(f"capacity {capacity} is below {lowest}")
        self.count = 0
        self.records = 0
        self.next_offset = -1
        self._index_tags = bool(index_tags)
        self._mark = _MARK if mark_tags else 0
        self._counts_only = bool(counts_only)
        self._capacity = capacity
        self._keys: list[tuple[int, int, int]] = []

    def consume(
        self,
        window: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Gather the keys of the records of a window; return (status, position)."""
        status, position = super().consume(
            window, position, stop, base_offset, segment_end, limit, flags
        )
        self.next_offset = base_offset + position
        return status, position

    def take_record(self, record: memoryview, row: Row) -> bool:
        """Gather all keys of one record; return False, with none gathered, if there is no room."""
        if row.status not in _TAKEN:
            return True
        kind = row.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
        if kind != formats.SYS_FLAG_TRANSACTION_ROLLBACK and not self._gather(bytes(record), row):
            return False
        self.records += 1
        return True

    _take = take_record

    def consume_rows(self, buffer: Buffer, rows: Buffer, first: int = 0, /) -> int:
        """Gather the keys of the records that rows describe; return where it stopped."""
        check_int64(first)
        view, filled, nbytes = readable(buffer), readable(rows), formats.PARSED_RECORD.nbytes
        if len(filled) % nbytes:
            raise ValueError(f"rows must be whole rows of {nbytes} bytes, not {len(filled)} bytes")
        count = len(filled) // nbytes
        if not 0 <= first <= count:
            raise ValueError(f"first must be within {count} rows, not {first}")
        for number in range(first, count):
            row = Row(*formats.PARSED_RECORD.struct.unpack_from(filled, number * nbytes))
            texts = _texts(view, row)
            if texts is None:
                raise ValueError(f"the texts of row {number} do not lie within {len(view)} bytes")
            if row.status not in _TAKEN or not is_still_there(view, row):
                continue
            kind = row.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
            if kind != formats.SYS_FLAG_TRANSACTION_ROLLBACK:
                topic, values = texts
                if not self._keep(topic, values, row):
                    return number
            self.records += 1
        return count

    def _gather(self, record: bytes, row: Row) -> bool:
        """Gather one record's keys; return False without room for the most it can have."""
        properties = record[row.properties_at :]
        # The last pair of a name wins.
        values = {
            name: properties[start:stop] for name, start, stop in record_check.pairs(properties)
        }
        topic = record[row.topic_at : row.topic_at + row.topic_nbytes]
        return self._keep(topic, values, row)

    def _keep(self, topic: bytes, values: dict[bytes, bytes], row: Row) -> bool:
        most = 2 + (len(values.get(_KEYS, b"")) + 1) // 2
        room = self._capacity - self.count
        if room <= 0 or (room < most and not self._counts_only):
            return False
        prefix = topic + formats.INDEX_KEY_SEPARATOR.encode()
        for key, mark in self._keys_of(values):
            self.count += 1
            if not self._counts_only:
                key_hash = (index_file.key_hash(prefix + key) | mark) - (2 * _MARK if mark else 0)
                self._keys.append((key_hash, row.physical_offset, row.store_timestamp))
        return True

    def _keys_of(self, values: dict[bytes, bytes]) -> Iterator[tuple[bytes, int]]:
        if _UNIQUE_KEY in values:
            yield values[_UNIQUE_KEY], 0
        for key in values.get(_KEYS, b"").split(formats.KEY_SEPARATOR.encode()):
            if key:
                yield key, 0
        if self._index_tags and _TAGS in values:
            yield formats.TAG_KEY_INFIX.encode() + values[_TAGS], self._mark

    def take_count(self) -> int:
        """Return the number of keys gathered and reset it."""
        count, self.count, self._keys = self.count, 0, []
        return count

    def take(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the keys gathered and clear them."""
        if self._counts_only:
            raise ValueError("this pass only counts")
        keys = self._keys
        self.take_count()
        return (
            memoryview(array("i", [key[0] for key in keys])),
            memoryview(array("q", [key[1] for key in keys])),
            memoryview(array("q", [key[2] for key in keys])),
        )


def _texts(view: memoryview, row: Row) -> tuple[bytes, dict[bytes, bytes]] | None:
    """Return a row's topic and the properties with its keys, ``None`` if one is outside."""
    found = {}
    for name, at, nbytes in (
        (b"", row.topic_at, row.topic_nbytes),
        (_UNIQUE_KEY, row.unique_key_at, row.unique_key_nbytes),
        (_KEYS, row.keys_at, row.keys_nbytes),
        (_TAGS, row.tags_at, row.tags_nbytes),
    ):
        if at < 0 and name:
            continue
        start = row.position + at
        is_length = 0 <= nbytes <= formats.MAX_PROPERTIES_NBYTES
        if row.position < 0 or at < 0 or not is_length or start + nbytes > len(view):
            return None
        found[name] = bytes(view[start : start + nbytes])
    return found.pop(b""), found


def match_entries(
    entries: Buffer,
    entry: int,
    hashes: Buffer,
    offsets: Buffer,
    timestamps: Buffer,
    key: int,
    begin_timestamp: int,
    /,
) -> tuple[int, int]:
    """Step through entries and keys while they agree; return the (entry, key) where it stopped."""
    check_int64(entry, key, begin_timestamp)
    content = readable(entries)
    columns = (
        Integers(hashes, "i", "hashes"),
        Integers(offsets, "q", "offsets"),
        Integers(timestamps, "q", "timestamps"),
    )
    key_count, entry_count = check_lengths(*columns), len(content) // _ENTRY.size
    if not 0 <= entry <= entry_count or not 0 <= key <= key_count:
        raise ValueError(
            f"entry {entry} or key {key} is outside {entry_count} entries and {key_count} keys"
        )
    keys = list(zip(*columns, strict=True))
    while entry < entry_count and key < key_count:
        key_hash, offset, timestamp = keys[key]
        found = _ENTRY.unpack_from(content, entry * _ENTRY.size)
        if found[:2] == (key_hash % _MARK, offset):
            if found[2] != _seconds(begin_timestamp, timestamp):
                break
            entry += 1
        elif key_hash >= 0 or found[1] <= offset:
            break
        key += 1
    return entry, key


def _seconds(begin_timestamp: int, store_timestamp: int) -> int:
    """Return the whole seconds since the file's begin, as an entry stores them."""
    difference = wrap64(store_timestamp - begin_timestamp)
    if begin_timestamp <= 0 or difference < 0:
        return 0
    return min(difference // 1000, _MAX_DIFF)
