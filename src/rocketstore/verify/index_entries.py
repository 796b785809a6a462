"""Reads index entries and the keys of the log's records in step, for ``verify``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from rocketstore import formats, kernels
from rocketstore.files.raw import read_bytes
from rocketstore.index.index_file import IndexFile
from rocketstore.log.scan import RecordBatch
from rocketstore.verify.report import VerifyReport

ENTRY = formats.INDEX_ENTRY.dtype
CHUNK_ENTRIES = 65536
#: Places of a table of slots that a chunk has more than once.
_TABLE_PLACES = 65536
#: Keys read from the log per step.
_KEY_CAPACITY = 65536

Array = np.ndarray[Any, Any]

#: An index entry with its file and number.
PLACED = np.dtype(
    [
        ("physical_offset", "i8"),
        ("key_hash", "i4"),
        ("time_diff", "i4"),
        ("file", "i4"),
        ("number", "i4"),
    ]
)


class FileScope(Protocol):
    """What ``check_file`` needs to judge a single index file."""

    report: VerifyReport
    root: Path
    counts: Counter[str]


class BatchKeys(NamedTuple):
    """Physical offsets, key hashes and store times of a batch's keys, in log order."""

    with_tags: bool
    offsets: Array
    hashes: Array
    times: Array


class KeyHashes:
    """Key hashes of the log's records, in log order.

    Parameters
    ----------
    index_tags : bool
        Also those of the tags.
    """

    def __init__(self, index_tags: bool) -> None:
        self._pass = kernels.passes_index_keys.IndexKeysPass(
            index_tags=index_tags, capacity=_KEY_CAPACITY
        )

    def of(self, batch: RecordBatch) -> tuple[Array, Array, Array]:
        """Return (physical offsets, key hashes, store times) of all keys of the batch, whose
        properties were parsed."""
        parts: list[tuple[Array, Array, Array]] = []
        row = 0
        while row < batch.count:
            row = batch.take_keys(self._pass, row)
            keys, places, times = self._pass.take()
            parts.append((np.array(places, "i8"), np.array(keys, "i4"), np.array(times, "i8")))
        if len(parts) == 1:
            return parts[0]
        return (
            np.concatenate([one[0] for one in parts]),
            np.concatenate([one[1] for one in parts]),
            np.concatenate([one[2] for one in parts]),
        )


class KeysAhead:
    """Finds the keys of batches before they are compared. Threading: one thread.

    Parameters
    ----------
    with_tags : callable
        Returns whether tags were among the keys of the batch that was compared last.
    """

    def __init__(self, with_tags: Callable[[], bool]) -> None:
        self._with_tags = with_tags
        self._hashes: dict[bool, KeyHashes] = {}

    def of(self, batch: RecordBatch) -> BatchKeys:
        """Return the keys of a batch."""
        tags = self._with_tags()
        if tags not in self._hashes:
            self._hashes[tags] = KeyHashes(index_tags=tags)
        return BatchKeys(tags, *self._hashes[tags].of(batch))


class EntryStream:
    """The entries of one index file by ascending log offset."""

    def __init__(self, scope: FileScope, file: IndexFile, number: int) -> None:
        self.index_file = file
        self.header = file.header
        self._scope = scope
        self._file_number = number
        self.count = min(self.header.index_count, file.entries) - 1
        self._next = 1
        self._held: Array = np.empty(0, PLACED)
        self._is_ordered = True
        #: Number and log offset of an entry that was looked at.
        self._looked_at = (0, 0)
        self._check_order()

    def place(self, number: int) -> tuple[str, int]:
        """Return file and position of an entry."""
        return str(self.index_file.path), formats.index_file_nbytes(self.index_file.slots, number)

    def offset_of(self, number: int) -> int:
        """Return the log offset of an entry."""
        return int(self.read(number, number + 1)["physical_offset"][0])

    def read(self, first: int, stop: int) -> Array:
        """Return the entries ``first`` .. ``stop`` in file order."""
        count = max(0, stop - first)
        content = read_bytes(
            self.index_file.file,
            self._scope.root,
            formats.index_file_nbytes(self.index_file.slots, first),
            count * ENTRY.itemsize,
        )
        return np.frombuffer(content, ENTRY)

    def _placed(self, first: int, stop: int) -> Array:
        entries = self.read(first, stop)
        placed = np.empty(len(entries), PLACED)
        for name in ("physical_offset", "key_hash", "time_diff"):
            placed[name] = entries[name]
        placed["file"] = self._file_number
        placed["number"] = np.arange(first, first + len(entries))
        return placed

    def _check_order(self) -> None:
        """Check that offsets ascend; if not, sort the whole file so that all can be judged."""
        last = -(2**63)
        for first in range(1, self.count + 1, CHUNK_ENTRIES):
            offsets = self.read(first, min(first + CHUNK_ENTRIES, self.count + 1))
            offsets = offsets["physical_offset"].astype("i8")
            falls = np.flatnonzero(offsets < np.concatenate(([last], offsets[:-1])))
            if len(falls):
                number = first + int(falls[0])
                path, position = self.place(number)
                self._scope.report.add(
                    "index-entry", path, position, int(offsets[falls[0]]),
                    f"entry {number}: its log offset is lower than the previous entry's",
                )  # fmt: skip
                everything = self._placed(1, self.count + 1)
                order = np.argsort(everything["physical_offset"], kind="stable")
                self._held, self._next = everything[order], self.count + 1
                self._is_ordered = False
                return
            last = int(offsets[-1])

    def begins_at(self, offset: int) -> bool:
        """Return whether no entry that is left names a place before ``offset``."""
        if len(self._held):
            return int(self._held["physical_offset"][0]) >= offset
        if self._next > self.count:
            return True
        if self._looked_at[0] != self._next:
            self._looked_at = self._next, self.offset_of(self._next)
        return self._looked_at[1] >= offset

    def take_same(self, keys: BatchKeys, stop: int) -> bool:
        """Take the next entries if they are exactly these keys, and the rest is not below ``stop``.

        Only entries inside the file are compared, whose times follow from its header.
        """
        if not self._is_ordered:
            return False
        self._next -= len(self._held)
        self._held = self._held[:0]
        count, begin = len(keys.offsets), self.header.begin_timestamp
        if self._next == 1 or self._next + count > self.count or begin <= 0:
            return False
        entries = self.read(self._next, self._next + count + 1)
        if len(entries) <= count or int(entries["physical_offset"][count]) < stop:
            return False
        compared = kernels.passes_index_keys.match_entries(
            entries.view(np.uint8), 0, keys.hashes, keys.offsets, keys.times, 0, begin
        )
        if compared != (count, count):
            return False
        self._next += count
        self._looked_at = self._next, int(entries["physical_offset"][count])
        return True

    def below(self, offset: int | None) -> Array:
        """Take the entries whose log offset is below ``offset`` (``None``: all that remain)."""
        taken = []
        while True:
            if not len(self._held):
                if self._next > self.count:
                    break
                stop = min(self._next + CHUNK_ENTRIES, self.count + 1)
                self._held, self._next = self._placed(self._next, stop), stop
            count = len(self._held)
            if offset is not None:
                count = int(np.searchsorted(self._held["physical_offset"], offset))
            taken.append(self._held[:count])
            self._held = self._held[count:]
            if len(self._held):
                break
        return np.concatenate(taken) if taken else np.empty(0, PLACED)


class Links:
    """The links that follow from the order of an index file's entries; read in chunks.

    Iterating yields (number of the first entry, entries, the previous entry of each one's slot).

    Attributes
    ----------
    heads : array of int32
        The last entry of each slot among those that were read; 0 without one.
    """

    def __init__(self, stream: EntryStream, slots: int) -> None:
        self._stream = stream
        self.heads = np.zeros(slots, "i4")

    def __iter__(self) -> Iterator[tuple[int, Array, Array]]:
        """Read the file from its first entry to its last."""
        count = self._stream.count
        for first in range(1, count + 1, CHUNK_ENTRIES):
            entries = self._stream.read(first, min(first + CHUNK_ENTRIES, count + 1))
            own = entries["key_hash"].astype("i4") % len(self.heads)
            numbers = np.arange(first, first + len(entries), dtype="i4")
            wanted = self.heads[own]
            self.heads[own] = numbers  # of equal slots the last one stays
            self._correct_repeated(own, numbers, wanted)
            yield first, entries, wanted

    def _correct_repeated(self, own: Array, numbers: Array, wanted: Array) -> None:
        """Link the entries of slots that a chunk has more than once to each other."""
        repeated = own[self.heads[own] != numbers]
        if not len(repeated):
            return
        # A small table stays in the processor's cache; rows of further slots do no harm.
        may_repeat = np.zeros(_TABLE_PLACES, bool)
        may_repeat[repeated % _TABLE_PLACES] = True
        rows = np.flatnonzero(may_repeat[own % _TABLE_PLACES])
        rows = rows[np.argsort(own[rows], kind="stable")]
        follows = own[rows[1:]] == own[rows[:-1]]
        wanted[rows[1:][follows]] = numbers[rows[:-1][follows]]
