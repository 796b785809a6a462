"""``keys``: how full the index files are, how long their chains, and what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.errors import CorruptIndexError, RocketStoreError
from rocketstore.files.forward_pages import release_pages
from rocketstore.files.mapped_file import MappedFile
from rocketstore.index.index_file import IndexFile
from rocketstore.query.store_reader import StoreReader
from rocketstore.sources.files import read_at
from rocketstore.store.default_message_store import DefaultMessageStore

if TYPE_CHECKING:
    import numpy

_CHUNK = 1 << 18
_ENTRY = formats.INDEX_ENTRY
_HEADER_NBYTES = formats.INDEX_HEADER.nbytes


@dataclass(frozen=True, slots=True)
class IndexFileHealth:
    """One index file.

    Attributes
    ----------
    name, path : str
    nbytes : int
    entries, capacity : int
        Keys in the file, and keys that fit in.
    slots, used_slots : int
    longest_chain : int
        Entries of the longest chain: those that a lookup of an absent key walks at most.
    mean_chain : float
        Entries that a lookup of a key in the file walks on average, if all keys are asked for
        equally often.
    chains : dict of int to int
        Slots by length of their chain, rounded down to a power of two.
    distinct_hashes : int
        Different hashes of keys; equal keys have equal hashes.
    collisions : int
        Slots' further hashes: different hashes that share a slot with another one.
    broken : int
        Entries and slots that refer to no older entry of the same slot.
    begin_timestamp, end_timestamp : int
        Store times of the first and the last entry, as in the header.
    begin_offset, end_offset : int
        Physical offsets, likewise.
    in_memory : bool
        Derived from the log for this look; not on disk, or not completely.
    """

    name: str
    path: str
    nbytes: int
    entries: int
    capacity: int
    slots: int
    used_slots: int
    longest_chain: int
    mean_chain: float
    chains: dict[int, int]
    distinct_hashes: int
    collisions: int
    broken: int
    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    in_memory: bool

    @property
    def fullness(self) -> float:
        """Share of the entries in use, 0 to 1."""
        return self.entries / self.capacity if self.capacity else 0.0


@dataclass(slots=True)
class IndexHealth:
    """The index of a store, oldest file first.

    Attributes
    ----------
    path : str
    files : list of IndexFileHealth
    unreadable : list of (str, str)
        Paths of files that cannot be used, and why.
    gaps : list of (int, int)
        Ranges of the log whose keys no file has.
    """

    path: str
    files: list[IndexFileHealth] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """Keys of all files."""
        return sum(one.entries for one in self.files)

    @property
    def ok(self) -> bool:
        """Whether every file is readable and every chain whole."""
        return not self.unreadable and not self.gaps and not any(f.broken for f in self.files)


def keys(store: DefaultMessageStore, *, progress: Progress | None = None) -> IndexHealth:
    """Examine the index files of a store. Read-only.

    Parameters
    ----------
    store : DefaultMessageStore
        Open in any mode, with its index.
    progress : callable, optional

    Notes
    -----
    Time: about 1 s for a file of 20 million entries. Memory: about 180 MiB for such a file, one at
    a time. A file that its writer fills meanwhile is examined up to its count at the beginning.
    """
    reader = store.reader
    health = IndexHealth(str(store.path))
    health.gaps = [gap for gap in reader.index.gaps if _has_keys(reader, gap)]
    for path in reader.index.unusable:
        health.unreadable.append((str(path), "its length fits no geometry"))
    for path in reader.index.skipped:
        health.unreadable.append((str(path), "its name is no time, or it is no regular file"))
    files = reader.index.files
    for number, file in enumerate(files):
        release_pages(file.file)  # the file is read, not mapped
        try:
            health.files.append(_examine(file))
        except CorruptIndexError as error:
            health.unreadable.append((str(file.path), str(error)))
        if progress is not None:
            progress("reading the index", number + 1, len(files))
    return health


def _has_keys(reader: StoreReader, gap: tuple[int, int]) -> bool:
    """Return whether a range that no file covers has records with keys."""
    first, stop = max(gap[0], reader.log.min_offset), min(gap[1], reader.log.max_offset)
    for message in reader.scan(first, stop, "skip") if first < stop else ():
        kind = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
        is_indexed = kind != formats.SYS_FLAG_TRANSACTION_ROLLBACK
        if is_indexed and (message.unique_key or message.keys):
            return True
    return False


def _read(file: IndexFile, position: int, nbytes: int) -> bytes:
    """Read without the mapping: another process may truncate the file."""
    place = file.file
    if not isinstance(place, MappedFile) or (place.private and _has_further_keys(file, place)):
        return bytes(memoryview(place.mapping)[position : position + nbytes])
    content = place.read(position, nbytes)
    if len(content) < nbytes:
        raise CorruptIndexError(file.path, position, "the file was truncated while it was in use")
    return content


def _has_further_keys(file: IndexFile, place: MappedFile) -> bool:
    """Return whether a private copy differs from its file, by the header, which every put changes.

    Else the file is read: pages of the copy could not be released.
    """
    return place.read(0, _HEADER_NBYTES) != bytes(memoryview(file.buffer)[:_HEADER_NBYTES])


def _chunks(file: IndexFile, count: int) -> Iterator[tuple[int, numpy.ndarray[Any, Any]]]:
    """Yield number of the first entry, and entries 1 to ``count``."""
    import numpy

    for first in range(1, count + 1, _CHUNK):
        some = min(_CHUNK, count + 1 - first)
        content = _read(file, formats.index_file_nbytes(file.slots, first), some * _ENTRY.nbytes)
        yield first, numpy.frombuffer(content, _ENTRY.dtype, some)


def _examine(file: IndexFile) -> IndexFileHealth:
    import numpy

    header = file.header
    slots, count = file.slots, max(0, min(header.index_count, file.entries) - 1)
    broken = int(header.index_count < 1 or header.index_count > file.entries)
    hashes = numpy.empty(count, numpy.int32)
    for first, entries in _chunks(file, count):
        hashes[first - 1 : first - 1 + len(entries)] = entries["key_hash"]
    broken += int((hashes < 0).sum())
    numpy.maximum(hashes, 0, out=hashes)
    for first, entries in _chunks(file, count):
        broken += _broken_links(hashes, entries["previous_index"], first, slots)
    broken += _broken_heads(file, hashes, count)
    lengths = numpy.zeros(slots, numpy.int32)
    for at in range(0, count, _CHUNK):
        places, more = numpy.unique(hashes[at : at + _CHUNK] % slots, return_counts=True)
        lengths[places] += more.astype(numpy.int32)
    hashes.sort()
    distinct = int(count > 0) + int((hashes[1:] != hashes[:-1]).sum())
    del hashes
    used, walked, longest, powers = _of_lengths(lengths)
    path = file.path
    return IndexFileHealth(
        path.name, str(path), formats.index_file_nbytes(slots, file.entries), count,
        file.entries - 1, slots, used, longest, walked / count if count else 0.0, powers,
        distinct, distinct - used, broken, header.begin_timestamp, header.end_timestamp,
        header.begin_physical_offset, header.end_physical_offset,
        _is_derived(file, header.index_count),
    )  # fmt: skip


def _of_lengths(lengths: Any) -> tuple[int, int, int, dict[int, int]]:
    """Return how many chains there are, the steps of walking each to each of its entries, the
    longest one, and the number of chains by the power of two that is not above their length."""
    import numpy

    values, amounts = numpy.unique(lengths, return_counts=True)
    pairs = [pair for pair in zip(values.tolist(), amounts.tolist(), strict=True) if pair[0]]
    powers: Counter[int] = Counter()
    for length, amount in pairs:
        powers[1 << (length.bit_length() - 1)] += amount
    walked = sum(amount * length * (length + 1) // 2 for length, amount in pairs)
    return sum(amount for _, amount in pairs), walked, max(values.tolist(), default=0), dict(powers)


def _is_derived(file: IndexFile, count: int) -> bool:
    """Return whether the file on disk, if there is one, lacks entries of what was examined."""
    if isinstance(file.file, MappedFile) and not file.file.private:
        return False
    try:
        head = read_at(str(file.path), 0, formats.INDEX_HEADER.nbytes)
    except (OSError, RocketStoreError):
        return True
    names = [field.name for field in formats.INDEX_HEADER.fields]
    if len(head) < formats.INDEX_HEADER.nbytes:
        return True
    values = dict(zip(names, formats.INDEX_HEADER.struct.unpack(head), strict=True))
    return int(values["index_count"]) < count


def _broken_links(hashes: Any, previous: Any, first: int, slots: int) -> int:
    """Return the entries of a chunk whose link leads to no older entry of their slot."""
    import numpy

    own = numpy.arange(first, first + len(previous), dtype=numpy.int64)
    linked = previous != 0
    bad = linked & ((previous < 0) | (previous >= own))
    good = linked & ~bad
    targets = hashes[previous[good].astype(numpy.int64) - 1] % slots
    wrong = targets != hashes[own[good] - 1] % slots
    return int(bad.sum()) + int(wrong.sum())


def _broken_heads(file: IndexFile, hashes: Any, count: int) -> int:
    """Return the slots that do not name the newest entry of their chain."""
    import numpy

    layout, slots, broken = formats.INDEX_SLOT, file.slots, 0
    newest = numpy.zeros(slots, numpy.int32)
    for at in range(0, count, _CHUNK):
        places = hashes[at : at + _CHUNK] % slots
        numpy.maximum.at(newest, places, numpy.arange(at + 1, at + 1 + len(places), dtype="i4"))
    for first in range(0, slots, _CHUNK):
        some = min(_CHUNK, slots - first)
        position = formats.INDEX_HEADER.nbytes + first * layout.nbytes
        content = _read(file, position, some * layout.nbytes)
        heads = numpy.frombuffer(content, ">i4", some)
        # An entry that is just being written may be named already, or the next one.
        named = (heads > 0) & (heads <= count)
        expected = newest[first : first + some]
        broken += int((named & (heads != expected)).sum())
        broken += int(((heads <= 0) & (expected > 0)).sum())
        broken += int(((heads > count + 1) & (heads > file.entries)).sum())
    return broken
