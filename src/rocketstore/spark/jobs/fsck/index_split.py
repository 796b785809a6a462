"""The index part of ``fsck`` by split: compare the keys of records with index entries."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats, kernels
from rocketstore.errors import MappedFileError
from rocketstore.sources.files import RawInput, open_input, read_at
from rocketstore.sources.segments import Segment
from rocketstore.sources.splits import Split
from rocketstore.spark.jobs.fsck.index_files import (
    MAX_FINDINGS,
    FindingRow,
    IndexFileItem,
    finding,
    read_entries,
)
from rocketstore.status import RecordStatus

_ENTRY = formats.INDEX_ENTRY.dtype
_ENTRY_NBYTES = formats.INDEX_ENTRY.nbytes
_CHUNK_ENTRIES = 1 << 15
_MAX_DIFF = 2**31 - 1
_HASH = 2**31 - 1

Array = np.ndarray[Any, Any]


class OutOfOrderError(MappedFileError):
    """Entries of an index file that was assumed to be in order are not."""


class EntryRange(NamedTuple):
    """Entries ``first`` .. ``stop`` of an index file, those that may belong to a split's records.

    In a file out of order the numbers refer to the entries sorted by log offset.
    """

    item: IndexFileItem
    begin_timestamp: int
    end_timestamp: int
    entry_count: int
    ordered: bool
    first: int
    stop: int


class SplitItem(NamedTuple):
    """The input of one task, as plain data.

    The split's records begin at physical offsets from ``start`` to ``stop``. Records from
    ``indexed`` on need no entries. ``is_guess``: the files of ``ranges`` have not been judged yet.
    ``damaged``: (start, stop) of ranges without good records.
    """

    split: Split
    start: int
    stop: int
    indexed: int
    ranges: tuple[EntryRange, ...]
    is_guess: bool
    damaged: tuple[tuple[int, int], ...]
    storage_options: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """The result of one task.

    Attributes
    ----------
    findings : tuple of FindingRow
    finding_counts : dict
        Number of all findings, by kind.
    counts : dict
        Counts of agreeing keys, and of what is odd but allowed.
    damaged : tuple of (start, stop)
        Damage that the split's records lead to.
    lead : tuple of FindingRow
        Findings for entries before the first record, dropped if damage extends from an earlier
        split to there.
    lead_count : int
        Number of all these entries.
    first_record : int
        Physical offset of the first record; ``stop`` without one.
    """

    findings: tuple[FindingRow, ...]
    finding_counts: dict[str, int]
    counts: dict[str, int]
    damaged: tuple[tuple[int, int], ...]
    lead: tuple[FindingRow, ...]
    lead_count: int
    first_record: int


# --- entries ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chunk:
    """Consecutive entries of one file."""

    range: EntryRange
    buffer: memoryview
    numbers: Any  # of the entries in the file
    at: int = 0

    @property
    def entries(self) -> Array:
        return np.frombuffer(self.buffer, _ENTRY)

    @property
    def is_done(self) -> bool:
        return self.at == len(self.numbers)


def _chunks(item: SplitItem) -> Iterator[_Chunk]:
    """Yield the entries for a split by ascending log offset."""
    ranges = [one for one in item.ranges if one.first < one.stop]
    if all(one.ordered for one in ranges) and _follow_each_other(item, ranges):
        for one in ranges:
            yield from _chunks_of(one)
    else:
        yield from _sorted_chunks(ranges)


def _follow_each_other(item: SplitItem, ranges: Sequence[EntryRange]) -> bool:
    """Return whether each file's entries come after those of the file before."""
    if len(ranges) < 2:
        return True
    ends = []
    for one in ranges:
        reader = _EntryReader(one)
        try:
            for number in (one.first, one.stop - 1):
                entry = np.frombuffer(reader.read(number, number + 1), _ENTRY)
                ends.append(int(entry["physical_offset"][0]))
        finally:
            reader.close()
    return ends == sorted(ends)


def _chunks_of(one: EntryRange) -> Iterator[_Chunk]:
    reader = _EntryReader(one)
    last = -1
    try:
        for first in range(one.first, one.stop, _CHUNK_ENTRIES):
            stop = min(first + _CHUNK_ENTRIES, one.stop)
            chunk = _Chunk(one, reader.read(first, stop), range(first + 1, stop + 1))
            offsets = chunk.entries["physical_offset"]
            if offsets[0] < last or (offsets[1:] < offsets[:-1]).any():
                raise OutOfOrderError(f"{one.item.uri}: entries are not in the log's order")
            last = offsets[-1]
            yield chunk
    finally:
        reader.close()


class _EntryReader:
    """Reads entries of one file, counted from 0, into one buffer."""

    def __init__(self, one: EntryRange) -> None:
        self._range = one
        self._input: RawInput = open_input(one.item.uri, storage_options=one.item.storage_options)
        room = min(_CHUNK_ENTRIES, one.stop - one.first)
        self._buffer = memoryview(bytearray(room * _ENTRY_NBYTES))

    def read(self, first: int, stop: int) -> memoryview:
        """Return entries ``first`` .. ``stop``; valid until the next read."""
        item = self._range.item
        position = formats.index_file_nbytes(item.slots, first + 1)
        view = self._buffer[: (stop - first) * _ENTRY_NBYTES]
        self._input.seek(position)
        filled = 0
        while filled < len(view):
            count = self._input.readinto(view[filled:])
            if count == 0:
                raise MappedFileError(
                    f"{item.uri} now has only {position + filled} of {item.nbytes} bytes"
                )
            filled += count
        return view

    def close(self) -> None:
        """Close the file."""
        self._input.close()


def _sorted_chunks(ranges: Sequence[EntryRange]) -> Iterator[_Chunk]:
    """Sort entries that are out of order; yield each run of one file as a chunk."""
    numbers, files, contents = [], [], []
    for which, one in enumerate(ranges):
        if one.ordered:
            reader = _EntryReader(one._replace(first=0, stop=one.entry_count))
            for first in range(one.first, one.stop, _CHUNK_ENTRIES):
                stop = min(first + _CHUNK_ENTRIES, one.stop)
                contents.append(np.frombuffer(bytes(reader.read(first, stop)), _ENTRY))
                numbers.append(np.arange(first + 1, stop + 1))
            reader.close()
        else:
            placed = read_entries(one.item)[one.first : one.stop]
            entries = np.zeros(len(placed), _ENTRY)
            for name in ("physical_offset", "key_hash", "time_diff"):
                entries[name] = placed[name]
            contents.append(entries)
            numbers.append(placed["number"])
        files.append(np.full(one.stop - one.first, which))
    content = np.concatenate(contents).astype(_ENTRY)  # numpy returns native byte order
    order = np.argsort(content["physical_offset"].astype("i8"), kind="stable")
    content, number, file = content[order], np.concatenate(numbers)[order], np.concatenate(files)
    file = file[order]
    edges = [0, *(np.flatnonzero(np.diff(file)) + 1).tolist(), len(file)]
    for start, stop in itertools.pairwise(edges):
        yield _Chunk(
            ranges[int(file[start])],
            memoryview(content[start:stop].tobytes()),
            number[start:stop].tolist(),
        )


# --- the comparison ---------------------------------------------------------------------------


class IndexComparison:
    """Compares the keys of a split's records with the entries of the same range.

    It steps through both in parallel. Most of them agree, and are compared natively.
    """

    def __init__(self, item: SplitItem) -> None:
        self._findings: list[FindingRow] = []
        self._finding_counts: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._lead: list[FindingRow] = []
        self._lead_count = 0
        self._item = item
        self._own_damage: list[tuple[int, int]] = []
        self._damaged = list(item.damaged)
        self._first_record: int | None = None
        self._chunks = _chunks(item)
        self._chunk: _Chunk | None = next(self._chunks, None)
        #: Offset of the last record with keys, and the hashes of these keys.
        self._last: tuple[int, set[int]] = (-1, set())
        self._missing: list[int] = []
        self._missing_count = 0

    def close(self) -> None:
        """Close the files."""
        self._chunks.close()  # type: ignore[attr-defined]

    def begin(self, first_record: int) -> None:
        """Set where the first record begins, before the first ``take``."""
        self._first_record = first_record

    def note_damage(self, first: int, following: int | None) -> None:
        """Note a range without good records that the split's records lead to."""
        split = self._item.split
        stop = split.base_offset + split.segment_size if following is None else following
        self._own_damage.append((first, stop))
        self._damaged.append((first, stop))

    # --- stepping -----------------------------------------------------------------------------

    def take(self, hashes: memoryview, offsets: memoryview, times: memoryview) -> None:
        """Compare the keys of complete records with the next entries."""
        key, count = 0, len(hashes)
        while key < count:
            chunk = self._chunk
            if chunk is None:
                self._lack(hashes, offsets, key, count)
                break
            at = chunk.at
            chunk.at, reached = kernels.passes_index_keys.match_entries(
                chunk.buffer, at, hashes, offsets, times, key, chunk.range.begin_timestamp
            )
            if chunk.at > at:
                self._agreed(chunk, at, offsets, times)
            key = reached
            if chunk.is_done:
                self._chunk = next(self._chunks, None)
            elif key < count:
                self._remember(hashes, offsets, key)
                key = self._settle(hashes, offsets, times, key)
        self._remember(hashes, offsets, count)

    def _remember(self, hashes: memoryview, offsets: memoryview, key: int) -> None:
        """Keep the keys of the record before ``key``, which may have duplicate entries."""
        if key > 0 and offsets[key - 1] != self._last[0]:
            offset = offsets[key - 1]
            first = bisect.bisect_left(offsets, offset, 0, key)
            self._last = offset, {hashes[n] & _HASH for n in range(first, key)}

    def finish(self) -> SplitFacts:
        """Judge the entries after the last key; return the result."""
        while self._chunk is not None:
            self._stray(None)
        self._end_missing()
        return SplitFacts(
            tuple(self._findings),
            dict(self._finding_counts),
            dict(self._counts),
            tuple(self._own_damage),
            tuple(self._lead),
            self._lead_count,
            self._item.stop if self._first_record is None else self._first_record,
        )

    def _agreed(self, chunk: _Chunk, at: int, offsets: memoryview, times: memoryview) -> None:
        """Count entries ``at`` .. ``chunk.at`` of the chunk; compare the header with the first and
        the last entry of the file."""
        self._end_missing()
        self._counts["keys"] += chunk.at - at
        for place in {at, chunk.at - 1}:
            number = chunk.numbers[place]
            if number in (1, chunk.range.entry_count):
                offset = int(chunk.entries[place]["physical_offset"])
                row = bisect.bisect_left(offsets, offset)
                self._check_header(chunk.range, number, times[row])

    def _settle(self, hashes: memoryview, offsets: memoryview, times: memoryview, key: int) -> int:
        """Judge a key and the current entry that disagree; return the next key.

        This covers the rest of the record, or all keys or entries without a counterpart.
        """
        offset, entry_offset = offsets[key], self._entry_offset()
        if entry_offset < offset:
            self._stray(offset)
            return key
        if entry_offset > offset:
            stop = bisect.bisect_left(offsets, entry_offset, key)
            self._lack(hashes, offsets, key, stop)
            return stop
        stop = bisect.bisect_right(offsets, offset, key)
        start = bisect.bisect_left(offsets, offset, 0, key)
        allowed = {hashes[n] & _HASH for n in range(start, stop)}
        left = Counter(hashes[n] & _HASH for n in range(key, stop))
        found = {hashes[n] & _HASH for n in range(start, key)}
        is_lost = any(low <= offset < high for low, high in self._damaged)
        while self._chunk is not None and self._entry_offset() == offset:
            chunk, place = self._chunk, self._chunk.at
            _, key_hash, diff = _values(chunk, place)
            if is_lost:
                self._counts["damaged_keys"] += 1
            elif key_hash not in allowed:
                reason = f"no key of the record at log offset {offset} has the hash {key_hash}"
                self._add_entry(chunk, place, reason)
            else:
                found.add(key_hash)
                self._counts["keys"] += 1
                self._counts["doubled_keys"] += left[key_hash] <= 0
                left[key_hash] -= 1
                self._check_time(chunk, place, diff, times[start])
            self._step()
        if any(hashes[n] >= 0 and hashes[n] not in found for n in range(key, stop)):
            self._miss([offset])
        else:
            self._end_missing()
        return stop

    def _step(self) -> None:
        """Advance to the next entry."""
        assert self._chunk is not None
        self._chunk.at += 1
        if self._chunk.is_done:
            self._chunk = next(self._chunks, None)

    def _entry_offset(self) -> int:
        assert self._chunk is not None
        return _values(self._chunk, self._chunk.at)[0]

    # --- entries without a record, and keys without an entry ----------------------------------

    def _stray(self, offset: int | None) -> None:
        """Judge the chunk's entries below an offset (``None``: all), which have no keys."""
        self._pass_doubled()
        chunk = self._chunk
        if chunk is None or (offset is not None and self._entry_offset() >= offset):
            return
        entries = chunk.entries["physical_offset"][chunk.at :].astype("i8")
        stop = len(entries) if offset is None else int(np.searchsorted(entries, offset))
        offsets = entries[:stop]
        lost = _is_within(offsets, self._damaged)
        self._counts["damaged_keys"] += int(lost.sum())
        first = self._first_record
        lead = ~lost & (offsets < (self._item.stop if first is None else first))
        places = chunk.at + np.arange(stop)
        self._lead_count += int(lead.sum())
        for place in places[lead][: MAX_FINDINGS - len(self._lead)].tolist():
            self._lead.append(self._row(chunk, place, _nothing_at(chunk, place)))
        rest = places[~lost & ~lead]
        room = max(0, MAX_FINDINGS - len(self._findings))
        for place in rest[:room].tolist():
            self._add_entry(chunk, place, self._reason(chunk, place))
        self._finding_counts["index-entry"] += len(rest[room:])
        chunk.at += stop
        if chunk.is_done:
            self._chunk = next(self._chunks, None)

    def _pass_doubled(self) -> None:
        """Skip duplicate entries of the last record, whose keys all had entries already."""
        offset, allowed = self._last
        while self._chunk is not None and self._entry_offset() == offset:
            chunk, place = self._chunk, self._chunk.at
            key_hash = _values(chunk, place)[1]
            if key_hash in allowed:
                self._counts["keys"] += 1
                self._counts["doubled_keys"] += 1
            else:
                reason = f"no key of the record at log offset {offset} has the hash {key_hash}"
                self._add_entry(chunk, place, reason)
            self._step()

    def _reason(self, chunk: _Chunk, place: int) -> str:
        """Return why an entry without a key is wrong: no record there, or no such key."""
        offset, key_hash, _ = _values(chunk, place)
        if is_record(self._item.split, offset, self._item.storage_options):
            return f"no key of the record at log offset {offset} has the hash {key_hash}"
        return _nothing_at(chunk, place)

    def _lack(self, hashes: memoryview, offsets: memoryview, key: int, stop: int) -> None:
        """Report that the keys ``key`` .. ``stop`` have no entries."""
        own = np.asarray(hashes[key:stop]) >= 0
        missing = np.unique(np.asarray(offsets[key:stop])[own])
        if len(missing):
            self._miss(missing.tolist())

    def _miss(self, offsets: list[int]) -> None:
        """Note records with a key that is in no index file."""
        values = np.array(offsets, "i8")
        values = values[~_is_within(values, self._damaged)]
        later = values >= self._item.indexed
        self._counts["behind_keys"] += int(later.sum())
        values = values[~later]
        if len(values):
            self._missing_count += len(values)
            self._missing = [*self._missing[:1], int(values[0]), int(values[-1])]

    def _end_missing(self) -> None:
        """Add one finding for a run of records whose keys are missing."""
        if not self._missing_count:
            return
        start, stop, count = self._missing[0], self._missing[-1], self._missing_count
        self._missing, self._missing_count = [], 0
        reason = f"a key of the record at log offset {start} is in no index file"
        if count > 1:
            reason = (
                f"keys of {count} records from log offset {start} to {stop} are in no index file"
            )
        split = self._item.split
        self._add(finding("missing-key", split.uri, start - split.base_offset, start, reason))

    # --- times and headers --------------------------------------------------------------------

    def _check_time(self, chunk: _Chunk, place: int, diff: int, time: int) -> None:
        one, number = chunk.range, chunk.numbers[place]
        wanted = 0
        if one.begin_timestamp > 0:
            wanted = min(max(time - one.begin_timestamp, 0) // 1000, _MAX_DIFF)
        # Entry 1 of a follow-up file is relative to the previous file's end (D-2).
        if diff != wanted and (number != 1 or diff < 0):
            self._add_entry(chunk, place, f"{diff} seconds instead of {wanted}")
        if number in (1, one.entry_count):
            self._check_header(one, number, time)

    def _check_header(self, one: EntryRange, number: int, time: int) -> None:
        stamps = []
        if number == 1:
            stamps.append(("begin_timestamp", one.begin_timestamp))
        if number == one.entry_count:
            stamps.append(("end_timestamp", one.end_timestamp))
        for name, value in stamps:
            if value != time:
                position = formats.INDEX_HEADER.at(name)
                reason = f"{name} is {value} instead of {time}"
                self._add(finding("index-header", one.item.uri, position, None, reason))

    # --- findings -----------------------------------------------------------------------------

    def _row(self, chunk: _Chunk, place: int, reason: str) -> FindingRow:
        number = chunk.numbers[place]
        item = chunk.range.item
        position = formats.index_file_nbytes(item.slots, number)
        offset = _values(chunk, place)[0]
        return finding("index-entry", item.uri, position, offset, f"entry {number}: {reason}")

    def _add_entry(self, chunk: _Chunk, place: int, reason: str) -> None:
        self._add(self._row(chunk, place, reason))

    def _add(self, row: FindingRow) -> None:
        self._finding_counts[row[0]] += 1
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(row)


def _values(chunk: _Chunk, place: int) -> tuple[int, int, int]:
    """Return log offset, hash and seconds of an entry."""
    layout = formats.INDEX_ENTRY.struct
    key_hash, offset, diff, _ = layout.unpack_from(chunk.buffer, place * _ENTRY_NBYTES)
    return offset, key_hash, diff


def _nothing_at(chunk: _Chunk, place: int) -> str:
    return f"no record starts at log offset {_values(chunk, place)[0]}"


def _is_within(offsets: Array, ranges: Sequence[tuple[int, int]]) -> Array:
    """Return which of the offsets lie in one of the ranges."""
    inside = np.zeros(len(offsets), bool)
    for start, stop in ranges:
        inside |= (offsets >= start) & (offsets < stop)
    return inside


def is_record(
    segment: Split | Segment, offset: int, storage_options: dict[str, Any] | None
) -> bool:
    """Return whether a good record lies at a physical offset of a segment."""
    head = formats.RECORD_HEAD
    position = offset - segment.base_offset
    if not 0 <= position <= segment.file_size - formats.RECORD_MIN_NBYTES:
        return False
    content = read_at(segment.uri, position, head.nbytes, storage_options=storage_options)
    if len(content) < head.nbytes:
        return False  # the file was shortened
    size = int(head.struct.unpack(content)[0])
    if not 0 < size <= segment.file_size - position:
        return False
    content = read_at(segment.uri, position, size, storage_options=storage_options)
    status, _ = kernels.message.check_record(
        content, 0, len(content), offset, segment.base_offset + segment.segment_size
    )
    return status in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
