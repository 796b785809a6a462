"""Comparing two stores' index entries: which keys of which records each has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rocketstore import formats
from rocketstore.files.raw import read_bytes
from rocketstore.index.index_file import IndexFile
from rocketstore.index.index_service import IndexService
from rocketstore.moving.comparing.difference import Findings

_ENTRY = formats.INDEX_ENTRY.dtype
#: Entries that are read at once; a window of the log holds about as many of each store.
_STEP_COUNT = 1 << 16

Array = np.ndarray[Any, Any]

_KEY = np.dtype([("physical_offset", "i8"), ("key_hash", "i4")])


class _Chunk(NamedTuple):
    """Some entries of a file, and the log offsets between which they are."""

    file: IndexFile
    first: int
    length: int
    low: int
    high: int


class KeysDiff:
    """Compares the entries for records from ``start`` to ``stop``, whatever files they are in.

    An entry that is in an index twice counts once. The first pass notes the log offsets of each
    chunk of entries; the second compares windows of the log, which few chunks belong to, because
    entries are mostly in the log's order.

    Parameters
    ----------
    a, b : IndexService
        Loaded.
    names : tuple of str
        How the words name the stores.
    roots : tuple of Path
    start, stop : int
        Log offsets.
    found : Findings
    advance : callable
        Called with the entries done and the number of all.
    """

    def __init__(
        self,
        a: IndexService,
        b: IndexService,
        names: tuple[str, str],
        *,
        roots: tuple[Path, Path],
        start: int,
        stop: int,
        found: Findings,
        advance: Callable[[int, int], None],
    ) -> None:
        self._services = (a, b)
        self._names = names
        self._roots = roots
        self._start, self._stop = start, stop
        self._found = found
        self._advance = advance

    def run(self) -> None:
        """Compare the entries."""
        for service in self._services:
            self._note_unread(service)
        chunks = [self._chunks(number) for number in (0, 1)]
        bounds = {chunk.low for each in chunks for chunk in each}
        bounds |= {chunk.high + 1 for each in chunks for chunk in each}
        windows = sorted(bounds)
        total = len(windows)
        lowest = [0, 0]
        for each in chunks:
            each.sort(key=lambda chunk: chunk.low)
        held: list[list[_Chunk]] = [[], []]
        for number, (low, high) in enumerate(pairwise(windows), 1):
            keys = []
            for side in (0, 1):
                while lowest[side] < len(chunks[side]) and chunks[side][lowest[side]].low < high:
                    held[side].append(chunks[side][lowest[side]])
                    lowest[side] += 1
                held[side] = [chunk for chunk in held[side] if chunk.high >= low]
                keys.append(self._keys(side, held[side], low, high))
            self._compare(*keys)
            self._advance(number, total)

    def _note_unread(self, service: IndexService) -> None:
        for path in service.unusable:
            self._found.cannot_read(f"{path} is no index file: its size does not fit")
        for path in service.skipped:
            if formats.is_index_name(path.name):
                self._found.cannot_read(f"{path} is not read as part of the index")
        for one in service.files:
            if one.header.index_count > 1 and not one.looks_whole():
                self._found.cannot_read(f"{one.path}: header and entries contradict each other")

    def _chunks(self, side: int) -> list[_Chunk]:
        found = []
        for file in self._services[side].files:
            count = min(file.header.index_count, file.entries) - 1
            for first in range(1, count + 1, _STEP_COUNT):
                chunk = _Chunk(file, first, min(_STEP_COUNT, count + 1 - first), 0, 0)
                offsets = self._read(side, chunk)["physical_offset"]
                offsets = offsets[(offsets >= self._start) & (offsets < self._stop)]
                if len(offsets):
                    low, high = int(offsets.min()), int(offsets.max())
                    found.append(chunk._replace(low=low, high=high))
        return found

    def _read(self, side: int, chunk: _Chunk) -> Array:
        position = formats.index_file_nbytes(chunk.file.slots, chunk.first)
        nbytes = chunk.length * _ENTRY.itemsize
        content = read_bytes(chunk.file.file, self._roots[side], position, nbytes)
        return np.frombuffer(content, _ENTRY)

    def _keys(self, side: int, chunks: Sequence[_Chunk], low: int, high: int) -> Array:
        """Return the distinct keys of the window, sorted."""
        keys = np.empty(0, _KEY)
        for chunk in chunks:
            entries = self._read(side, chunk)
            offsets = entries["physical_offset"]
            entries = entries[(offsets >= low) & (offsets < high)]
            more = np.empty(len(entries), _KEY)
            more["physical_offset"] = entries["physical_offset"]
            more["key_hash"] = entries["key_hash"]
            keys = np.unique(np.concatenate((keys, more)))
        return keys

    def _compare(self, a: Array, b: Array) -> None:
        self._found.compared["keys"] += len(a)
        if a.tobytes() == b.tobytes():
            return
        for number, (there, lacking) in enumerate(((a, b), (b, a))):
            for key in np.setdiff1d(there, lacking, assume_unique=True):
                pair: list[int | None] = [None, None]
                pair[number] = int(key["key_hash"])
                offset = int(key["physical_offset"])
                name = self._names[1 - number]
                self._found.add(
                    "key.missing", formats.INDEX_DIR, pair,
                    f"the index of {name} lacks a key of the record",
                    offset=offset,
                )  # fmt: skip
