"""The index part of ``fsck`` by file: geometry, header, chains, and entry ranges of splits."""

from __future__ import annotations

import bisect
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats, kernels
from rocketstore.config import DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM
from rocketstore.directory.state import StoreState
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.raw import read_bytes
from rocketstore.index.geometry import choose_geometry, explain, index_paths
from rocketstore.index.index_file import IndexFile
from rocketstore.sources.files import local_path, read_at, remote_files
from rocketstore.status import KernelStatus
from rocketstore.verify.index import check_file
from rocketstore.verify.index_entries import EntryStream
from rocketstore.verify.report import VerifyReport

_DEFAULT = (DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM)
#: Findings that one task lists; the others are only counted.
MAX_FINDINGS = 1000

#: kind, severity, path, position, physical offset, topic, queue id, queue offset, reason.
FindingRow = tuple[str, str, str, int, int | None, str | None, int | None, int | None, str]


class IndexFileItem(NamedTuple):
    """An index file to judge, as plain data.

    ``edges`` are ascending physical offsets: the beginning of each split, and the log's end.
    """

    uri: str
    nbytes: int
    slots: int
    entries: int
    edges: tuple[int, ...]
    storage_options: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class IndexFileFacts:
    """The result of judging one index file.

    Attributes
    ----------
    item : IndexFileItem
    begin_timestamp, end_timestamp : int
        From the header, epoch ms.
    end_physical_offset : int
        From the header.
    count : int
        Number of entries.
    ordered : bool
        Whether log offsets never decrease. If they do, bounds refer to entries sorted by offset.
    bounds : tuple of int
        Number of entries (sorted by offset) before each edge.
    negatives : tuple of (number, physical offset)
        The first entries with a negative offset.
    past_end : tuple of (number, physical offset)
        The first entries at or past the last edge.
    findings : tuple of FindingRow
    finding_counts : dict
        Number of all findings, by kind.
    counts : dict
        Counts of what is odd but allowed.
    """

    item: IndexFileItem
    begin_timestamp: int
    end_timestamp: int
    end_physical_offset: int
    count: int
    ordered: bool
    bounds: tuple[int, ...]
    negatives: tuple[tuple[int, int], ...] = ()
    negative_count: int = 0
    past_end: tuple[tuple[int, int], ...] = ()
    past_end_count: int = 0
    findings: tuple[FindingRow, ...] = ()
    finding_counts: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class IndexListing(NamedTuple):
    """The index files of a store: (uri, bytes, slots, entries); findings about unusable files."""

    files: list[tuple[str, int, int, int]]
    findings: list[FindingRow]


class _Scope:
    """The report of one file's task."""

    def __init__(self, root: Path) -> None:
        self.report = VerifyReport(max_findings=MAX_FINDINGS)
        self.root = root
        self.counts: Counter[str] = Counter()


def finding(kind: str, path: str, position: int, offset: int | None, reason: str) -> FindingRow:
    """Return the row of an error."""
    return kind, "error", path, position, offset, None, None, None, reason


# --- listing ----------------------------------------------------------------------------------


def list_index(
    root: str, *, index_uri: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> IndexListing | None:
    """List a store's index files with their geometry (driver).

    Parameters
    ----------
    root : str
        The store's root.
    index_uri : str, optional
        The index folder; default: ``index`` in the root.
    storage_options : mapping, optional

    Returns
    -------
    IndexListing or None
        ``None`` if the folder does not exist.
    """
    path = local_path(root)
    folder = index_uri or f"{root.rstrip('/')}/{formats.INDEX_DIR}"
    directory = local_path(folder)
    if directory is None:
        return _list_remote(folder, storage_options)
    if not directory.is_dir():
        return None
    # An executor has its own working directory.
    directory = Path(os.path.abspath(directory))
    top = directory.parent if path is None else Path(os.path.abspath(path))
    state = StoreState.read(top / formats.STATE_FILE, top)
    hints = [(state.hash_slot_num, state.index_num)] if state else []
    skipped: list[Path] = []
    by_nbytes = choose_geometry(directory, top, None, hints, _DEFAULT).by_nbytes
    rows = [(str(name), nbytes) for name, nbytes in index_paths(directory, top, skipped)]
    return _listing(rows, by_nbytes)


def _listing(
    rows: Sequence[tuple[str, int]], by_nbytes: Mapping[int, tuple[int, int]]
) -> IndexListing:
    listing = IndexListing([], [])
    for uri, nbytes in rows:
        pair = by_nbytes.get(nbytes)
        if pair is None:
            reason = "its size fits no known geometry"
            listing.findings.append(finding("index-file", uri, 0, None, reason))
        else:
            listing.files.append((uri, nbytes, *pair))
    return listing


def _list_remote(folder: str, storage_options: Mapping[str, Any] | None) -> IndexListing | None:
    files, path = remote_files(folder, storage_options)
    try:
        entries = files.entries(path)
    except FileNotFoundError:
        return None
    rows = [
        (f"{folder.rstrip('/')}/{entry.name}", entry.size)
        for entry in entries
        if not entry.is_folder and formats.is_index_name(entry.name)
    ]
    if not rows:
        return None  # an object store has no empty folders
    by_nbytes = {formats.index_file_nbytes(*_DEFAULT): _DEFAULT}
    for nbytes in {nbytes for _, nbytes in rows} - by_nbytes.keys():
        same = [uri for uri, size in rows if size == nbytes]
        contents = [read_at(uri, 0, nbytes, storage_options=storage_options) for uri in same[:2]]
        found = explain(contents, nbytes)
        if found is not None:
            by_nbytes[nbytes] = found.pair
    return _listing(rows, by_nbytes)


# --- one file ---------------------------------------------------------------------------------


def look_up_bounds(item: IndexFileItem) -> IndexFileFacts:
    """Find a local file's entry numbers at the edges by a few reads each, assuming a valid file.

    For a valid file, count, times and bounds equal those of ``judge_file``.
    """
    file = _open(item)
    try:
        index_file = IndexFile(file, item.slots, item.entries)
        header = index_file.header
        count = max(0, min(header.index_count, item.entries) - 1)
        offsets: Any = _Offsets(index_file, count)
        return IndexFileFacts(
            item,
            header.begin_timestamp,
            header.end_timestamp,
            header.end_physical_offset,
            count,
            True,
            tuple(bisect.bisect_left(offsets, edge) for edge in item.edges),
        )
    finally:
        file.close()


def judge_file(item: IndexFileItem) -> IndexFileFacts:
    """Judge one index file, and find its entry numbers at the edges (a task)."""
    file = _open(item)
    try:
        index_file = IndexFile(file, item.slots, item.entries)
        scope = _Scope(file.path.parent.parent)
        count, is_sound = _look(scope, index_file)
        ordered, stream = True, None
        if not is_sound:
            stream = EntryStream(scope, index_file, 0)
            count = stream.count
            check_file(scope, stream)
            ordered = "index-entry" not in scope.report.finding_counts
        if ordered or stream is None:
            offsets: Any = _Offsets(index_file, count)
            bounds = [bisect.bisect_left(offsets, edge) for edge in (0, *item.edges)]
            numbers: Any = range(1, count + 1)
        else:
            placed = stream.below(None)
            offsets, numbers = placed["physical_offset"], placed["number"]
            bounds = np.searchsorted(offsets, (0, *item.edges)).tolist()
        negative_count, bounds = bounds[0], bounds[1:]
        last = bounds[-1] if bounds else negative_count
        shown = range(last, min(count, last + MAX_FINDINGS))
        header = index_file.header
        return IndexFileFacts(
            item,
            header.begin_timestamp,
            header.end_timestamp,
            header.end_physical_offset,
            count,
            ordered,
            tuple(bounds),
            _placed(numbers, offsets, range(min(negative_count, MAX_FINDINGS))),
            negative_count,
            _placed(numbers, offsets, shown),
            count - last,
            tuple(
                finding(one.kind, item.uri, one.position, one.offset, one.reason)
                for one in scope.report.findings
            ),
            dict(scope.report.finding_counts),
            dict(scope.counts),
        )
    finally:
        file.close()


def _look(scope: _Scope, file: IndexFile) -> tuple[int, bool]:
    """Return the number of entries, and whether a quick pass finds the whole file valid.

    Reports nothing.
    """
    count, status = kernels.index_file.check_entries(
        file.buffer, file.slots, file.entries, 2**63 - 1
    )
    if status != KernelStatus.OK:
        return count, False
    content = read_bytes(
        file.file, scope.root, formats.INDEX_HEADER.nbytes, file.slots * formats.INDEX_SLOT.nbytes
    )
    header = file.header
    slots = np.frombuffer(content, formats.INDEX_SLOT.dtype)["index"]
    used = int(((slots > 0) & (slots <= header.index_count)).sum())
    # Before 4.7.1 RocketMQ counted every entry, not every slot in use.
    return count, header.hash_slot_count in (used, count)


def _placed(numbers: Any, offsets: Any, which: range) -> tuple[tuple[int, int], ...]:
    return tuple((int(numbers[n]), int(offsets[n])) for n in which)


class _Offsets:
    """Log offsets of an index file's entries, read one by one."""

    def __init__(self, file: IndexFile, count: int) -> None:
        self._file = file
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> int:
        return self._file.entry(number + 1)[1]


def _open(item: IndexFileItem) -> MappedFile | MemoryFile:
    path = local_path(item.uri)
    if path is not None:
        return MappedFile(path, 0, item.nbytes, path.parent.parent)
    content = read_at(item.uri, 0, item.nbytes, storage_options=item.storage_options)
    file = MemoryFile(Path(os.path.basename(item.uri)), 0, item.nbytes)
    memoryview(file.mapping)[: len(content)] = content
    return file


def read_entries(item: IndexFileItem) -> Any:
    """Return all entries of a file sorted by log offset: a structured array with their numbers."""
    file = _open(item)
    try:
        scope = _Scope(file.path.parent.parent)
        stream = EntryStream(scope, IndexFile(file, item.slots, item.entries), 0)
        return stream.below(None)
    finally:
        file.close()
