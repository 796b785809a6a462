"""Index files in simple pure Python: the twin of ``_native/index_file``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from rocketstore import formats
from rocketstore._reference import message
from rocketstore._reference.arguments import (
    INT64_MIN,
    Buffer,
    Integers,
    check_int64,
    check_lengths,
    readable,
    wrap64,
    writable,
)
from rocketstore.status import KernelStatus

_HEADER = formats.INDEX_HEADER.struct
_SLOT = formats.INDEX_SLOT.struct
_ENTRY = formats.INDEX_ENTRY.struct
_MAX_DIFF = 2**31 - 1
#: Entries between two calls of ``passed``.
_CHECKED_AT_ONCE = 1 << 20
#: Entries hold seconds, rounded down: a message may be this much younger than its entry's time.
_ROUNDED_MS = 1000


class _Header(NamedTuple):
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


class _Entry(NamedTuple):
    key_hash: int
    physical_offset: int
    time_diff: int
    previous_index: int


class _IndexFile:
    """A whole index file with ``slots`` hash slots and room for ``entries`` entries."""

    def __init__(self, view: memoryview, slots: int, entries: int) -> None:
        check_int64(slots, entries)
        in_range = 1 <= slots <= _MAX_DIFF and 1 <= entries <= _MAX_DIFF
        if not in_range or formats.index_file_nbytes(slots, entries) > len(view):
            raise ValueError(
                f"an index of {slots} slots and {entries} entries does not fit {len(view)} bytes"
            )
        self.view = view
        self.slots = slots
        self.entries = entries

    @property
    def header(self) -> _Header:
        header = _Header(*_HEADER.unpack_from(self.view))
        return header._replace(index_count=max(1, header.index_count))

    @header.setter
    def header(self, header: _Header) -> None:
        _HEADER.pack_into(self.view, 0, *header)

    def slot(self, number: int) -> int:
        return int(_SLOT.unpack_from(self.view, self._slot_at(number))[0])

    def set_slot(self, number: int, index: int) -> None:
        _SLOT.pack_into(self.view, self._slot_at(number), index)

    def entry(self, number: int) -> _Entry:
        return _Entry(*_ENTRY.unpack_from(self.view, self.entry_at(number)))

    def set_entry(self, number: int, entry: _Entry) -> None:
        _ENTRY.pack_into(self.view, self.entry_at(number), *entry)

    def _slot_at(self, number: int) -> int:
        return _HEADER.size + number * _SLOT.size

    def entry_at(self, number: int) -> int:
        return _HEADER.size + self.slots * _SLOT.size + number * _ENTRY.size

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        header = self.header
        number = header.index_count
        if number >= self.entries:
            return False
        slot = key_hash % self.slots
        previous = self.slot(slot)
        if not 0 < previous <= number:
            previous = 0
        diff = _time_diff(header.begin_timestamp, store_timestamp)
        self.set_entry(number, _Entry(key_hash, physical_offset, diff, previous))
        self.set_slot(slot, number)
        if number == 1:
            header = header._replace(
                begin_timestamp=store_timestamp, begin_physical_offset=physical_offset
            )
        used = header.hash_slot_count + (previous == 0)
        self.header = header._replace(
            end_timestamp=store_timestamp,
            end_physical_offset=physical_offset,
            hash_slot_count=(used + 2**31) % 2**32 - 2**31,
            index_count=number + 1,
        )
        return True

    def chain(self, slot: int) -> Iterator[tuple[int, _Entry | None]]:
        """Yield a slot's entries, newest first; ``None`` if the chain is broken.

        Numbers fall along a chain, since a new entry links to older ones. An entry that links to
        itself ends the chain.
        """
        count = self.header.index_count
        number = self.slot(slot)
        if count <= 1 or not 0 < number <= count:
            return
        while number > 0:
            if number >= self.entries:
                yield number, None
                return
            entry = self.entry(number)
            if entry.time_diff < 0:
                yield number, None
                return
            yield number, entry
            if entry.previous_index > number:
                yield number, None
                return
            number = 0 if entry.previous_index == number else entry.previous_index


def _time_diff(begin_timestamp: int, store_timestamp: int) -> int:
    """Return the whole seconds since the file's begin, as an entry stores them."""
    difference = wrap64(store_timestamp - begin_timestamp)
    if begin_timestamp <= 0 or difference < 0:
        return 0
    return min(difference // 1000, _MAX_DIFF)


def key_hash(text: Buffer, /) -> int:
    """Return ``abs`` of Java's ``String.hashCode``, 0 for -2**31."""
    hash_code = message.string_hash_code(text)
    return 0 if hash_code == -(2**31) else abs(hash_code)


def _check_header_size(view: memoryview) -> None:
    if len(view) < _HEADER.size:
        raise ValueError(f"{len(view)} bytes cannot hold an index header of {_HEADER.size}")


def init_header(buffer: Buffer, end_timestamp: int, end_physical_offset: int, /) -> None:
    """Preset a new file's header from the end of the previous file."""
    view = writable(buffer)
    _check_header_size(view)
    check_int64(end_timestamp, end_physical_offset)
    header = _Header(*_HEADER.unpack_from(view))
    if end_physical_offset > 0:
        header = header._replace(
            begin_physical_offset=end_physical_offset, end_physical_offset=end_physical_offset
        )
    if end_timestamp > 0:
        header = header._replace(begin_timestamp=end_timestamp, end_timestamp=end_timestamp)
    _HEADER.pack_into(view, 0, *header)


def read_header(buffer: Buffer, /) -> tuple[int, int, int, int, int, int]:
    """Return the header's six fields; a count below 1 is read as 1."""
    view = readable(buffer)
    _check_header_size(view)
    header = _Header(*_HEADER.unpack_from(view))
    return (*header[:5], max(1, header.index_count))


def put_key(
    buffer: Buffer,
    slots: int,
    entries: int,
    key: Buffer,
    physical_offset: int,
    store_timestamp: int,
    /,
) -> bool:
    """Put one key (UTF-8 bytes of ``topic#key``); return ``False`` if the file is full."""
    file = _IndexFile(writable(buffer), slots, entries)
    check_int64(physical_offset, store_timestamp)
    return file.put(key_hash(key), physical_offset, store_timestamp)


def put_hashes(
    buffer: Buffer,
    slots: int,
    entries: int,
    hashes: Buffer,
    physical_offsets: Buffer,
    store_timestamps: Buffer,
    /,
) -> int:
    """Put many keys by hash; return how many were put before the file was full."""
    file = _IndexFile(writable(buffer), slots, entries)
    key_hashes = _key_hashes(hashes)
    offsets = Integers(physical_offsets, "q", "physical_offsets")
    timestamps = Integers(store_timestamps, "q", "store_timestamps")
    check_lengths(key_hashes, offsets, timestamps)
    put = 0
    for row in zip(key_hashes, offsets, timestamps, strict=True):
        if not file.put(*row):
            break
        put += 1
    return put


def _key_hashes(hashes: Buffer) -> Integers:
    key_hashes = Integers(hashes, "i", "hashes")
    for number, value in enumerate(key_hashes):
        if value < 0:
            raise ValueError(f"hash {value} at {number} is negative")
    return key_hashes


def select_offsets(
    buffer: Buffer, slots: int, entries: int, key: Buffer, max_count: int, begin: int, end: int, /
) -> tuple[list[int], int]:
    """Return the offsets of a key's hash that RocketMQ's ``selectPhyOffset`` finds."""
    file = _IndexFile(readable(buffer), slots, entries)
    check_int64(begin, end)
    wanted = key_hash(key)
    begin_timestamp = file.header.begin_timestamp
    found: list[int] = []
    if max_count <= 0:
        return found, KernelStatus.OK
    for _, entry in file.chain(wanted % slots):
        if entry is None:
            return found, KernelStatus.BAD_CHAIN
        time = wrap64(begin_timestamp + entry.time_diff * 1000)
        if entry.key_hash == wanted and begin <= time <= end:
            found.append(entry.physical_offset)
        if len(found) >= max_count or time < begin:
            break
    return found, KernelStatus.OK


def _walk(file: _IndexFile, wanted: int, begin: int, end: int) -> tuple[list[int], int]:
    """Return all offsets of a hash that may be in the time range, newest first."""
    begin_timestamp = file.header.begin_timestamp
    begin = max(INT64_MIN, begin - _ROUNDED_MS)
    found: list[int] = []
    for number, entry in file.chain(wanted % file.slots):
        if entry is None:
            return found, KernelStatus.BAD_CHAIN
        if entry.key_hash != wanted:
            continue
        if number == 1:
            matches = begin <= begin_timestamp <= end
        elif entry.time_diff == 0:
            matches = begin <= begin_timestamp or begin_timestamp <= 0
        else:
            matches = begin <= wrap64(begin_timestamp + entry.time_diff * 1000) <= end
        if matches:
            found.append(entry.physical_offset)
    return found, KernelStatus.OK


def walk_key(
    buffer: Buffer, slots: int, entries: int, key: Buffer, begin: int, end: int, /
) -> tuple[list[int], int]:
    """Return all offsets of the key's hash, newest first, for exact queries."""
    file = _IndexFile(readable(buffer), slots, entries)
    check_int64(begin, end)
    return _walk(file, key_hash(key), begin, end)


def lookup(
    buffer: Buffer,
    slots: int,
    entries: int,
    hashes: Buffer,
    begin: int,
    end: int,
    out_keys: Buffer,
    out_offsets: Buffer,
    start: int,
    /,
) -> tuple[int, int, int]:
    """Run ``walk_key`` for many hashes while the arrays have room for all hits of a hash."""
    file = _IndexFile(readable(buffer), slots, entries)
    check_int64(begin, end)
    key_hashes = _key_hashes(hashes)
    keys = Integers(out_keys, "q", "out_keys", writes=True)
    offsets = Integers(out_offsets, "q", "out_offsets", writes=True)
    room = check_lengths(keys, offsets)
    if not 0 <= start <= len(key_hashes):
        raise ValueError(f"start {start} is outside {len(key_hashes)} hashes")
    hits = 0
    status: int = KernelStatus.OK
    for number, wanted in islice(enumerate(key_hashes), start, None):
        found, chain_status = _walk(file, wanted, begin, end)
        for place, offset in zip(range(hits, room), found, strict=False):
            keys[place], offsets[place] = number, offset
        if len(found) > room - hits:
            return hits, number, status
        hits += len(found)
        if chain_status != KernelStatus.OK:
            status = chain_status
    return hits, len(key_hashes), status


def check_entries(
    buffer: Buffer,
    slots: int,
    entries: int,
    log_end: int,
    passed: Callable[[int], object] | None = None,
    /,
) -> tuple[int, int]:
    """Count the valid leading entries; return ``BAD_ENTRY`` if anything is invalid."""
    file = _IndexFile(readable(buffer), slots, entries)
    check_int64(log_end)
    header = file.header
    last_offset, linked = 0, True
    heads = [0] * slots
    stop = min(header.index_count, entries)
    for number in range(1, stop):
        entry = file.entry(number)
        good = (
            entry.key_hash >= 0
            and last_offset <= entry.physical_offset < log_end
            and entry.time_diff >= 0
            and 0 <= entry.previous_index < number
        )
        if not good:
            return number - 1, KernelStatus.BAD_ENTRY
        last_offset = entry.physical_offset
        slot = entry.key_hash % slots
        linked = linked and entry.previous_index == heads[slot]
        heads[slot] = number
        if passed is not None and number % _CHECKED_AT_ONCE == 0 and number + 1 < stop:
            passed(number)
    good_entries = stop - 1
    agrees = (
        header.index_count <= entries
        and linked
        and heads == [file.slot(slot) for slot in range(slots)]
    )
    if good_entries > 0:
        offsets = file.entry(1).physical_offset, last_offset
        agrees &= offsets == (header.begin_physical_offset, header.end_physical_offset)
    return good_entries, KernelStatus.OK if agrees else KernelStatus.BAD_ENTRY


def rebuild(
    buffer: Buffer,
    slots: int,
    entries: int,
    count: int,
    store_timestamps: tuple[int, int],
    content_end: int | None = None,
    /,
) -> None:
    """Keep the entries 1 to ``count`` and rebuild everything else from them."""
    file = _IndexFile(writable(buffer), slots, entries)
    first_timestamp, last_timestamp = store_timestamps
    check_int64(first_timestamp, last_timestamp)
    if not 0 <= count < entries:
        raise ValueError(f"an index for {entries} entries cannot keep {count}")
    stop = len(file.view) if content_end is None else content_end
    check_int64(stop)
    if not 0 <= stop <= len(file.view):
        raise ValueError(f"content that ends at {content_end} is outside {len(file.view)} bytes")
    for number in range(1, count + 1):
        if file.entry(number).key_hash < 0:
            raise ValueError(f"entry {number} has a negative hash")
    _zero(file.view, _HEADER.size, file.entry_at(1))
    _zero(file.view, file.entry_at(count + 1), stop)
    used = 0
    for number in range(1, count + 1):
        entry = file.entry(number)
        slot = entry.key_hash % slots
        previous = file.slot(slot)
        used += previous == 0
        file.set_entry(number, entry._replace(previous_index=previous))
        file.set_slot(slot, number)
    if count == 0:
        file.header = _Header(0, 0, 0, 0, 0, 0)
        return
    offsets = file.entry(1).physical_offset, file.entry(count).physical_offset
    file.header = _Header(first_timestamp, last_timestamp, *offsets, used, count + 1)


def _zero(view: memoryview, start: int, stop: int) -> None:
    view[start : max(start, stop)] = bytes(max(stop - start, 0))


def contradictions(buffer: Buffer, slots: int, entries: int, /) -> int:
    """Return the number of facts in the file that contradict the geometry."""
    file = _IndexFile(readable(buffer), slots, entries)
    header = file.header
    if header.index_count <= 1:
        return 0
    last = min(header.index_count, entries) - 1
    found = int(header.index_count > entries)
    reached = 0
    for slot in range(slots):
        broken, steps = _chain_contradictions(file, slot, last)
        found += broken
        reached += steps
    found += last - reached
    found += any(file.view[file.entry_at(0) : file.entry_at(1)])
    rest = bytes(file.view[file.entry_at(last + 1) :])
    found += sum(any(rest[at : at + _ENTRY.size]) for at in range(0, len(rest), _ENTRY.size))
    if last > 0:
        found += file.entry(1).physical_offset != header.begin_physical_offset
        found += file.entry(last).physical_offset != header.end_physical_offset
    return found


def _chain_contradictions(file: _IndexFile, slot: int, last: int) -> tuple[int, int]:
    """Return (1 if the chain is broken, entries it reached)."""
    number, below, reached = file.slot(slot), last + 1, 0
    while number != 0:
        if not 0 < number < below:
            return 1, reached
        entry = file.entry(number)
        if entry.key_hash < 0 or entry.key_hash % file.slots != slot:
            return 1, reached
        number, below, reached = entry.previous_index, number, reached + 1
    return 0, reached
