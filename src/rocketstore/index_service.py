"""The index files of a store: loading, rolling, lookups across files, flushing."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.durable_file import (
    list_folder,
    look_at_file,
    make_directories,
    sync_directory,
)
from rocketstore.errors import ConfigError, MappedFileError
from rocketstore.index_file import IndexFile
from rocketstore.index_geometry import contradictions_of, explain
from rocketstore.mapped_file import MappedFile, MemoryFile
from rocketstore.status import KernelStatus

#: Blocks are reserved this far ahead of the newest entry; slots are reserved whole.
ALLOCATE_AHEAD_NBYTES = 16 * 1024 * 1024
#: What to do where the defaults are taken although there are files.
_ADVICE = "; if the broker has others, configure max_hash_slot_num and max_index_num"
#: Index files up to this size are judged by their whole content against a geometry that is given.
JUDGED_WHOLE_NBYTES = 64 * 1024 * 1024


class IndexHits(NamedTuple):
    """Answer of ``query_offset``: physical offsets newest first, and the newest file's end
    values."""

    offsets: list[int]
    last_update_timestamp: int
    last_update_physical_offset: int


class IndexService:
    """All index files, oldest first.

    Parameters
    ----------
    directory : Path
        ``index``.
    slots, entries : int
        Geometry of new files.
    root : Path
        The store's root.
    writable : bool
        Whether files on disk may be written.
    in_memory : bool
        New keys go to a private copy of the last file and to memory files.
    zone : tzinfo or None
        Time zone of file names.
    clock : callable
        Epoch ms, for names.

    Notes
    -----
    Threading: the list is replaced, never changed in place; ``roll`` belongs to the dispatching
    thread. Source: RocketMQ ``store/index/IndexService.java``.
    """

    def __init__(
        self,
        directory: Path,
        slots: int,
        entries: int,
        root: Path,
        *,
        writable: bool,
        in_memory: bool = False,
        zone: datetime.tzinfo | None = None,
        clock: Callable[[], int],
    ) -> None:
        self.directory = directory
        self.slots = slots
        self.entries = entries
        self.files: tuple[IndexFile, ...] = ()
        self.skipped: list[Path] = []
        self.unusable: list[Path] = []
        #: Files that are symbolic links or have hard links.
        self.linked: list[Path] = []
        #: The newest file while it is empty: a broker has just made it, or was killed then.
        self.begun: Path | None = None
        #: Ranges of the log whose keys no file of these has, ascending: a file is missing or
        #: damaged. Of a reader only.
        self.gaps: tuple[tuple[int, int], ...] = ()
        self.moved_names: list[str] = []
        self.bad_chains = 0
        self._root = root
        self._writable = writable
        self._in_memory = in_memory
        self._zone = zone
        self._clock = clock
        self._flushed_counts: dict[Path, int] = {}

    # --- loading ------------------------------------------------------------------------------

    def load(self, geometry: Callable[[Path, int], tuple[int, int] | None]) -> None:
        """Open the files; ``geometry(path, nbytes)`` tells each one's (slots, entries) or ``None``.

        Files whose name is no timestamp go to ``skipped``, those without a usable geometry to
        ``unusable``, and for a reader an empty last one to ``begun``.
        """
        files = []
        found = index_paths(
            self.directory,
            self._root,
            self.skipped,
            tolerant=self._in_memory,
            linked=self.linked,
        )
        if self._in_memory and found and not found[-1][1]:
            self.begun = found.pop()[0]
        for path, nbytes in found:
            pair = geometry(path, nbytes)
            if pair is None or formats.index_file_nbytes(*pair) != nbytes:
                self.unusable.append(path)
                continue
            files.append(
                IndexFile(MappedFile(path, 0, nbytes, self._root, writable=self._writable), *pair)
            )
        self.files = tuple(files)

    def move_unusable_aside(self) -> list[Path]:
        """Move the files whose geometry nothing tells out of the way; return where they are now.

        They hold no key that could be read, and a broker would take them for its own.
        """
        moved = []
        for path in self.unusable:
            directory = self._root / formats.QUARANTINE_DIR
            make_directories(directory, self._root)
            name, number = f"index-{path.name}", 1
            target = directory / name
            while os.path.lexists(target):
                number += 1
                target = directory / f"{name}~{number}"
            os.rename(path, target)
            sync_directory(directory)
            sync_directory(path.parent)
            moved.append(target)
            self.moved_names.append(path.name)
        self.unusable = []
        return moved

    @property
    def writable(self) -> bool:
        """Whether files on disk are written."""
        return self._writable

    def remove(self, gone: list[IndexFile]) -> None:
        """Forget files (theirs is the caller's affair)."""
        names = {id(file) for file in gone}
        self.files = tuple(file for file in self.files if id(file) not in names)

    # --- appending ----------------------------------------------------------------------------

    def last_for_append(self) -> IndexFile | None:
        """Return the newest file made ready for new keys, ``None`` when there is none."""
        last = self.files[-1] if self.files else None
        if last is None or not isinstance(last.file, MappedFile):
            return last
        if self._in_memory and not last.file.private:
            disk = last.file
            private = MappedFile(
                disk.path, 0, disk.file_size, self._root, writable=True, private=True
            )
            last = IndexFile(private, last.slots, last.entries)
            self.files = (*self.files[:-1], last)
        elif not self._in_memory:
            self._reserve(last)
        return last

    def roll(self) -> IndexFile:
        """Create the next file, its header preset from the last one's end.

        Raises ``StoreFullError`` without room.
        """
        previous = self.files[-1].header if self.files else None
        nbytes = formats.index_file_nbytes(self.slots, self.entries)
        path = self.directory / self._next_name()
        file: MappedFile | MemoryFile
        if self._in_memory:
            file = MemoryFile(path, 0, nbytes)
        else:
            make_directories(self.directory, self._root)
            reserved = new_file_nbytes(self.slots, self.entries)
            file = MappedFile.create(path, 0, nbytes, self._root, allocated=reserved)
        index_file = IndexFile(file, self.slots, self.entries)
        if previous is not None:
            try:
                kernels.index_file.init_header(
                    file.mapping, previous.end_timestamp, previous.end_physical_offset
                )
            except OSError:
                # The next try may come in the same millisecond, with the same name.
                file.close()
                path.unlink(missing_ok=True)
                raise
        self.files = (*self.files, index_file)
        return index_file

    def _next_name(self) -> str:
        last = self.files[-1].path.name if self.files else ""
        return next_index_name(self._clock(), last, self._zone)

    def _reserve(self, index_file: IndexFile) -> None:
        file = index_file.file
        if isinstance(file, MappedFile) and file.writable and not file.private:
            used = formats.index_file_nbytes(index_file.slots, index_file.header.index_count)
            wanted = used + ALLOCATE_AHEAD_NBYTES // 2
            if file.allocated_position < min(wanted, file.file_size):
                file.allocate(used + ALLOCATE_AHEAD_NBYTES, used=used)

    def entries_with_room(self, index_file: IndexFile) -> int:
        """Entries of a file made ready for new keys that have disk blocks, as its geometry counts
        them."""
        file = index_file.file
        if not isinstance(file, MappedFile) or file.private:
            return index_file.entries
        start = formats.index_file_nbytes(index_file.slots, 0)
        room = (file.allocated_position - start) // formats.INDEX_ENTRY.nbytes
        return min(index_file.entries, room)

    def count_files(self, offset: int) -> int:
        """Files that hold a key of a record in front of ``offset``."""
        return sum(file.entry_count > 0 and file.entry(1)[1] < offset for file in self.files)

    def flush(self, flushed_offset: int) -> int:
        """Sync all entries; return the end time of the newest file that is full and on disk, with
        all its records below ``flushed_offset`` of the log (0: none).

        Raises ``OSError``; the error is final. Dispatch may go on meanwhile: of a file that it has
        filled with records beyond ``flushed_offset``, the time is not told yet.
        """
        full_timestamp = 0
        for index_file in self.files:
            file, header = index_file.file, index_file.header
            if isinstance(file, MemoryFile):
                continue
            if self._flushed_counts.get(file.path) != header.index_count:
                file.flushed_position = 0
                file.flush(formats.index_file_nbytes(index_file.slots, header.index_count))
                self._flushed_counts[file.path] = header.index_count
            is_full = header.index_count >= index_file.entries
            if is_full and header.end_physical_offset < flushed_offset:
                full_timestamp = header.end_timestamp
        return full_timestamp

    # --- lookups ------------------------------------------------------------------------------

    def query_offset(self, topic: str, key: str, max_count: int, begin: int, end: int) -> IndexHits:
        """Return hits as RocketMQ does: newest file first, hash matches only, seconds (D-3,
        D-5)."""
        text = f"{topic}#{key}".encode("utf-8", "replace")
        hits: list[int] = []
        newest = (0, 0)
        for number, file in enumerate(reversed(self.files)):
            header = file.header
            if number == 0:
                newest = (header.end_timestamp, header.end_physical_offset)
            if file.is_time_matched(begin, end):
                found, status = file.select_offsets(text, max_count - len(hits), begin, end)
                hits += found
                self.bad_chains += status == KernelStatus.BAD_CHAIN
            if header.begin_timestamp < begin or len(hits) >= max_count:
                break
        return IndexHits(hits, *newest)

    def find_offsets(
        self, topic: str, key: str, begin: int, end: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return all hits of the key's hash whose entry may lie in ``begin`` .. ``end``, ascending,
        and the ranges of the log of files in which the hash's chain is broken."""
        text = f"{topic}#{key}".encode("utf-8", "replace")
        hits: set[int] = set()
        broken = []
        for file in self.files:
            found, status = file.walk_key(text, begin, end)
            hits.update(found)
            if status == KernelStatus.BAD_CHAIN:
                self.bad_chains += 1
                broken.append((file.header.begin_physical_offset, file.header.end_physical_offset))
        return sorted(hits), broken

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()


def next_index_name(timestamp: int, last: str, zone: datetime.tzinfo | None) -> str:
    """Return the name of an index file made at ``timestamp`` (epoch ms), behind the file named
    ``last`` (empty: there is none)."""
    name = formats.timestamp_to_index_name(timestamp, zone)
    while name <= last:  # one clock step, one DST change, or two files in a millisecond (D-40)
        former, timestamp = name, timestamp + 1
        name = formats.timestamp_to_index_name(timestamp, zone)
        if name <= last and (name == former or int(last) - int(name) > 1000):
            name = f"{int(last) + 1:0{formats.INDEX_NAME_DIGITS}d}"
    return name


def new_file_nbytes(slots: int, entries: int) -> int:
    """Bytes of disk that a new index file of this geometry takes."""
    reserved = formats.index_file_nbytes(slots, 0) + ALLOCATE_AHEAD_NBYTES
    return min(reserved, formats.index_file_nbytes(slots, entries))


def index_paths(
    directory: Path,
    root: Path,
    skipped: list[Path],
    *,
    tolerant: bool = False,
    linked: list[Path] | None = None,
) -> list[tuple[Path, int]]:
    """Return (path, bytes) of the index files in order of name; other entries go to ``skipped``,
    those that are symbolic links or have hard links to ``linked`` as well.

    With ``tolerant`` also those that may not be read, and what is no regular file.
    """
    paths = []
    try:
        names = list_folder(directory)
    except PermissionError:
        if not tolerant:
            raise
        skipped.append(directory)
        return []
    for name in names:
        path = directory / name
        if not formats.is_index_name(name):
            skipped.append(path)
            continue
        try:
            nbytes, is_linked = look_at_file(path, root)
        except (PermissionError, FileNotFoundError, MappedFileError):
            if not tolerant:
                raise
            skipped.append(path)
            continue
        paths.append((path, nbytes))
        if is_linked and linked is not None:
            linked.append(path)
    return paths


class GeometryChoice(NamedTuple):
    """The (slots, entries) of new files, of each length seen, and what was not clear about it."""

    pair: tuple[int, int]
    by_nbytes: dict[int, tuple[int, int]]
    doubts: list[str]

    def of(self, nbytes: int) -> tuple[int, int] | None:
        """Return the pair of a file of ``nbytes``, also of one made after the others were looked
        at; ``None`` for a length that no file here has."""
        pair = self.by_nbytes.get(nbytes)
        return self.pair if pair is None and self.pair_nbytes == nbytes else pair

    @property
    def pair_nbytes(self) -> int:
        """Bytes of a new file."""
        return formats.index_file_nbytes(*self.pair)


def choose_geometry(
    directory: Path,
    root: Path,
    given: tuple[int, int] | None,
    hints: list[tuple[int, int]],
    default: tuple[int, int],
    *,
    tolerant: bool = False,
) -> GeometryChoice:
    """Find the slots and entries of the index files from what they hold.

    Order: ``given``; ``hints`` (the state file) and ``default`` as far as the length fits; the pair
    that explains most files of one length; else the one with the fewest contradictions. A file of a
    length that nothing explains, or that is longer or shorter than what others of as many slots
    have, or than what a full one holds, says nothing, whichever is newest.

    Raises ``ConfigError`` when ``given`` has another length than every file, or the length of some
    files whose content another pair explains.
    """
    found = index_paths(directory, root, [], tolerant=tolerant)
    paths = [(path, nbytes) for path, nbytes in found if nbytes > formats.INDEX_HEADER.nbytes]
    lengths = sorted({nbytes for _, nbytes in paths})
    if given is not None:
        wanted = formats.index_file_nbytes(*given)
        if lengths and wanted not in lengths:
            raise ConfigError(
                f"max_hash_slot_num {given[0]} and max_index_num {given[1]} make index files of "
                f"{wanted} bytes, but {directory} holds files of {lengths[0]}; leave both unset to "
                "have them detected"
            )
        _refuse_contradiction([p for p, n in paths if n == wanted], wanted, given, hints, root)
        hints = [given]
    by_nbytes: dict[int, tuple[int, int]] = {}
    doubts: list[str] = []
    for nbytes in lengths:
        known = [p for p in (*hints, default) if formats.index_file_nbytes(*p) == nbytes]
        if known:
            by_nbytes[nbytes] = known[0]
            continue
        pair = _explaining_pair([p for p, n in paths if n == nbytes], nbytes, root, doubts)
        if pair is not None:
            by_nbytes[nbytes] = pair
    full = _full_pairs(found[:-1], by_nbytes, root) if len(lengths) > 1 else Counter()
    for nbytes in _odd_lengths(by_nbytes, paths, full, [*hints, default]):
        del by_nbytes[nbytes]
    newest = [by_nbytes[size] for _, size in paths if size in by_nbytes]
    newest = newest or [pair for pair, _ in full.most_common(1)]
    pair = given or (newest[-1] if newest else (hints[0] if hints else default))
    source = "the other files" if newest else ("the state file" if hints else "RocketMQ's defaults")
    source = "what is configured" if given else source
    advice = "" if given or newest or hints else _ADVICE
    doubts += [
        f"{path} has {nbytes} bytes, and neither that length nor its content tells its slots and "
        f"entries; {pair[0]} slots and {pair[1]} entries, a file of "
        f"{formats.index_file_nbytes(*pair)} bytes, are those of {source}{advice}"
        for path, nbytes in found
        # The newest may just have been made; where the state file tells the sizes, it says nothing.
        if nbytes not in by_nbytes and (nbytes or not (newest or hints) or path != found[-1][0])
    ]
    return GeometryChoice(pair, by_nbytes, doubts)


def _full_pairs(
    older: list[tuple[Path, int]], by_nbytes: dict[int, tuple[int, int]], root: Path
) -> Counter[tuple[int, int]]:
    """Count the pairs that ``older`` files tell by their entries, whatever their length is.

    A broker begins a new file when the one before is full, so each but the newest is; its header
    counts what it has room for. One whose header and entries disagree tells nothing, nor does a
    single one that tells a length which no file has.
    """
    full: Counter[tuple[int, int]] = Counter()
    for path, nbytes in older:
        pair = by_nbytes.get(nbytes)
        if pair is None:
            continue
        file = IndexFile(MappedFile(path, 0, nbytes, root), *pair)
        try:
            if file.looks_whole():
                full[file.slots, file.header.index_count] += 1
        finally:
            file.close()
    for pair in [pair for pair, count in full.items() if count == 1]:
        if formats.index_file_nbytes(*pair) not in by_nbytes:
            del full[pair]
    return full


def _odd_lengths(
    by_nbytes: dict[int, tuple[int, int]],
    paths: list[tuple[Path, int]],
    full: Counter[tuple[int, int]],
    known: list[tuple[int, int]],
) -> list[int]:
    """Return the lengths that a file has because it was cut or grew, not because of its entries:
    another length has as many slots, and more files are ``full`` at it, or more agree on it, or
    what is known tells it, or it is longer."""
    counts = Counter(size for _, size in paths)
    votes = {formats.index_file_nbytes(*pair): count for pair, count in full.items()}

    def weight(nbytes: int) -> tuple[int, int, bool, int]:
        count = counts[nbytes]
        is_known = any(formats.index_file_nbytes(*pair) == nbytes for pair in known)
        return votes.get(nbytes, 0), count if count > 1 else 0, is_known, nbytes

    pairs = {*known, *by_nbytes.values(), *full}
    return [
        nbytes
        for nbytes, (slots, _) in by_nbytes.items()
        if any(
            pair[0] == slots and weight(formats.index_file_nbytes(*pair)) > weight(nbytes)
            for pair in pairs
        )
    ]


def _refuse_contradiction(
    paths: list[Path],
    nbytes: int,
    given: tuple[int, int],
    hints: list[tuple[int, int]],
    root: Path,
) -> None:
    """Raise ``ConfigError`` when the content of files of one length is against a given pair.

    Slots and entries of another pair lie elsewhere in a file of the same length: keys would not be
    found, and a writer would take good entries for damaged ones. A damaged file contradicts every
    pair, so another one must explain it clearly better.
    """
    if not any(_looks_otherwise(path, nbytes, given, root) for path in {*paths[:1], *paths[-1:]}):
        return
    with _mapped(paths, nbytes, root) as files:
        each = contradictions_of(files, nbytes, [given, *hints])
    scores = {pair: sum(counts) for pair, counts in each.items()}
    best = min(scores, key=lambda pair: scores[pair], default=given)
    clearly = best in hints or not scores.get(best) or 2 * scores[best] < scores[given]
    if best != given and scores[best] < scores[given] and clearly:
        raise ConfigError(
            f"max_hash_slot_num {given[0]} and max_index_num {given[1]} contradict the content of "
            f"{paths[0].parent}; {best[0]} and {best[1]} explain it: configure these, or leave "
            "both unset to have them detected"
        )


def _looks_otherwise(path: Path, nbytes: int, pair: tuple[int, int], root: Path) -> bool:
    """Whether a file does not look like one of this geometry.

    Small files are looked at as a whole, of large ones the entries that the header names and the
    slot of the newest: the whole of a file of the default size takes a second.
    """
    file = MappedFile(path, 0, nbytes, root)
    try:
        if nbytes <= JUDGED_WHOLE_NBYTES:
            return bool(kernels.index_file.contradictions(file.mapping, *pair))
        index_file = IndexFile(file, *pair)
        return index_file.entry_count > 0 and not index_file.looks_whole()
    finally:
        file.close()


def _explaining_pair(
    paths: list[Path], nbytes: int, root: Path, doubts: list[str]
) -> tuple[int, int] | None:
    """Return the pair that explains the files of one length best; ``None`` when nothing does."""
    with _mapped(paths, nbytes, root) as files:
        found = explain(files, nbytes)
    if found is None:
        return None
    slots, entries = found.pair
    if found.odd and found.whole:
        odd = ", ".join(paths[number].name for number in found.odd)
        doubts.append(
            f"{paths[0].parent}: the content of {odd} contradicts {slots} slots and {entries} "
            f"entries, which explain the other index files of {nbytes} bytes"
        )
    elif found.odd:
        doubts.append(
            f"no geometry explains the index files of {nbytes} bytes; {slots} slots and {entries} "
            f"entries have the fewest contradictions ({found.contradictions})"
        )
    return found.pair


@contextlib.contextmanager
def _mapped(paths: list[Path], nbytes: int, root: Path) -> Iterator[list[Any]]:
    """The content of files of one length."""
    files = [MappedFile(path, 0, nbytes, root) for path in paths]
    try:
        yield [file.mapping for file in files]
    finally:
        for file in files:
            file.close()
