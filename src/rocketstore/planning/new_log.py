"""Builds the segments of a repaired log aside, and opens the log as it will be."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import RepairRefusedError
from rocketstore.files.durable import READ_WRITE, is_zeros, make_directories
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import list_directory
from rocketstore.files.raw import data_ranges
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.damage import DamagedRange
from rocketstore.log.hidden_segments import hidden_segments
from rocketstore.log.misnamed_segments import claimed_start
from rocketstore.mending.damaged_bits import find_damaged_bits
from rocketstore.mending.salvage import SalvageJob
from rocketstore.mending.salvage_plan import LostPlace, Stretch
from rocketstore.mending.steps import FileChange, content_of
from rocketstore.mending.wrong_bits import WrongBit, find_wrong_bits
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import RecordStatus
from rocketstore.store.arguments import now_ms
from rocketstore.store.read_only import ReadOnlyParts

Files = list[tuple[int, Path, int]]
_STEP_NBYTES = 1 << 20
#: Wrong bits of one file that are named.
_MOST_TOLD = 20
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


class ViewedParts(ReadOnlyParts):
    """A store's parts with other files as its log.

    Parameters
    ----------
    paths, config
        As in ``ReadOnlyParts``.
    files : list of (start, path, bytes)
        The log's segments, wherever they are.
    is_new : bool
        The log is sound: marks, queues and index of the store do not count.
    """

    def __init__(
        self, paths: StorePaths, config: MessageStoreConfig, files: Files, *, is_new: bool
    ) -> None:
        self._files = files
        self._is_new = is_new
        super().__init__(paths, config, derive="none", as_files=True, clock=now_ms, progress=None)

    def _load_log(self) -> CommitLog:
        self.facts.listing.files = list(self._files)
        if self._is_new:
            self.facts.listing.unreadable.clear()
            self.facts.state, self.facts.aborted = None, True  # no mark counts
            self.facts.checkpoint = StoreCheckpoint()
        return super()._load_log()

    def _load_queues(self, *, load: bool) -> QueueTable:
        return super()._load_queues(load=load and not self._is_new)

    def _load_index(self, *, load: bool) -> IndexService:
        return super()._load_index(load=load and not self._is_new)


class _Job(SalvageJob):
    """A salvage of a log whose segments have the names that their records give them."""

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        progress: Progress | None,
        files: Files,
        *,
        placeholders: bool,
    ) -> None:
        super().__init__(paths.root, config, progress, placeholders=placeholders)
        self._view = (paths, config, files)
        #: Log offset of good records that end a segment without room for its end marker.
        self.given_up: list[DamagedRange] = []
        self.wrong_bits: list[WrongBit] = []

    def set_right(
        self, parts: ReadOnlyParts, damaged: list[DamagedRange]
    ) -> tuple[list[DamagedRange], set[tuple[str, int, int]]]:
        """Find the records that one inverted bit makes good, or moves to their true place."""
        whole = find_damaged_bits(parts.log, damaged)
        kept = {one.start for one, _ in whole}
        damaged = [one for one in damaged if one.start not in kept]
        moved = find_wrong_bits(
            parts.log, parts.queues, damaged, is_orderly_stop=not parts.facts.aborted
        )
        self.wrong_bits = sorted([*(bit for _, bit in whole), *moved])
        return damaged, {one.place for one in self.wrong_bits}

    def open_parts(self) -> ReadOnlyParts:
        paths, config, files = self._view
        return ViewedParts(paths, config, files, is_new=False)

    def list_segments(self) -> Files:
        return self._view[2]


@dataclass
class LogChange:
    """A file of the log that changes. ``kind``: of the step; ``ranges``: bytes that change;
    ``records``: log offsets of records, if only their wrong bits are inverted."""

    kind: str
    sentence: str
    change: FileChange
    ranges: list[tuple[int, int]]
    offset: int
    records: tuple[int, ...] = ()


@dataclass
class NewLog:
    """The log as it will be.

    Attributes
    ----------
    files : list of (start, path, bytes)
    changes : list of LogChange
    damaged : list of DamagedRange
        Lost ranges.
    places : list of LostPlace
        Lost messages whose queue offsets are known.
    stretches : list of Stretch
    tail : (start, stop) or None
        Log offsets of what is truncated after the last good record.
    past_end : PointersPastEnd
        Units and keys past the last good record.
    placeholders : list of dict
    given_up : list of (start, stop)
        Log offsets of good records that are given up.
    cut_short : list of (start, stop)
        Log offsets past the ends of short files; nothing shows how many records were there.
    wrong_bits : list of WrongBit
        Bits that are inverted, so that messages are in their true queues.
    """

    files: Files = field(default_factory=list)
    changes: list[LogChange] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)
    places: list[LostPlace] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    tail: tuple[int, int] | None = None
    past_end: Any = None
    placeholders: list[dict[str, Any]] = field(default_factory=list)
    given_up: list[tuple[int, int]] = field(default_factory=list)
    cut_short: list[tuple[int, int]] = field(default_factory=list)
    wrong_bits: list[WrongBit] = field(default_factory=list)


class LogBuild:
    """Builds the changed segments of a log below ``target``.

    Parameters
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    target : Path
    placeholders : bool
    misnamed : bool
        Segments are known to have wrong names.
    progress : callable or None
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        target: Path,
        *,
        placeholders: bool,
        misnamed: bool,
        progress: Progress | None,
    ) -> None:
        self._paths = paths
        self._config = config
        self._target = target
        self._placeholders = placeholders
        self._misnamed = misnamed
        self._progress = progress
        self.new = NewLog()

    def run(self) -> NewLog:
        """Build; return the new log. Raises ``RepairRefusedError`` if that needs a person."""
        listing = list_directory(
            self._paths.commit_log,
            self._paths.log_root,
            tolerate_unreadable=True,
            tolerate_odd=True,
        )
        self._old = {path.name: path for _, path, _ in listing.files}
        files = list(listing.files)
        if self._misnamed:
            files = self._with_true_names(files)
        self._renamed = {
            start for start, path, _ in files if path.name != formats.offset_to_file_name(start)
        }
        job = _Job(
            self._paths, self._config, self._progress, files, placeholders=self._placeholders
        )
        report = job.examine()
        self._size = job.segment_nbytes
        for note in hidden_segments(listing, self._size, self._paths.log_root):
            raise RepairRefusedError(note)
        new = self.new
        new.damaged, new.past_end = report.damaged, report.behind
        new.stretches = [one for parts in job.plan.stretches.values() for one in parts]
        new.places = job.plan.unplaced + [p for one in new.stretches for p in one.places]
        new.placeholders = [
            {"topic": one.topic, "queueId": one.queue_id, "queueOffset": one.queue_offset,
             "log": one.physical_offset} for one in report.placeholders
        ]  # fmt: skip
        new.given_up = list(self._given_up(job, files))
        new.cut_short = [
            (start + nbytes, start + self._size)
            for start, _, nbytes in files if nbytes < self._size
        ]  # fmt: skip
        by_start = {start: (path, nbytes) for start, path, nbytes in files}
        for segment in report.segments:
            path = self._build(job, segment.start, by_start.get(segment.start))
            by_start[segment.start] = path, self._size
        self._truncate(report.recovery.log_end, by_start)
        new.wrong_bits = [one for one in job.wrong_bits if self._invert(one, by_start)]
        self._finish(by_start, {one.start: one.reason for one in report.segments})
        return new

    def _with_true_names(self, files: Files) -> Files:
        """Return the files by the offsets in their records."""
        parts = ViewedParts(self._paths, self._config, files, is_new=False)
        try:
            claims = {
                file.file_from_offset: claimed_start(parts.log, file)
                for file in parts.log.queue.files
            }
        finally:
            parts.close()
        found = sorted(
            (start if claims.get(start) is None else claims[start] or 0, path, nbytes)
            for start, path, nbytes in files
        )
        for (start, path, _), (other, second, _) in itertools.pairwise(found):
            if start == other:
                raise RepairRefusedError(
                    f"{path} and {second} hold the same part of the log, from offset {start} on; "
                    "move the wrong one away"
                )
        return found

    def _given_up(self, job: SalvageJob, files: Files) -> Iterator[tuple[int, int]]:
        """Yield the log ranges of good records that the new log does not keep."""
        starts = [one.start for one in self.new.stretches]
        if not starts:
            return
        parts = job.open_parts()
        try:
            parts.log.move_end(2**62)
            for start in starts:
                status, nbytes = parts.log.check(start)
                if status in _COMPLETE:
                    yield start, start + nbytes
        finally:
            parts.close()

    # --- files --------------------------------------------------------------------------------

    def _path(self, start: int) -> Path:
        folder = self._target / self._relative(self._paths.commit_log)
        make_directories(folder, self._target)
        return folder / formats.offset_to_file_name(start)

    def _relative(self, path: Path) -> str:
        if not path.is_relative_to(self._paths.root):
            raise RepairRefusedError(
                f"the log {self._paths.commit_log} is not below {self._paths.root}, and a repair "
                "changes files below it only; use rocketstore salvage"
            )
        return path.relative_to(self._paths.root).as_posix()

    def _build(self, job: SalvageJob, start: int, source: tuple[Path, int] | None) -> Path:
        """Write the segment that begins at ``start``, with its damaged ranges filled."""
        path, old = self._path(start), None
        if source is not None and source[1]:
            nbytes = min(source[1], self._size)
            old = MappedFile(source[0], start, nbytes, self._paths.log_root)
        try:
            with _created(path) as fd:
                job.write_segment(fd, start, old)
        finally:
            if old is not None:
                old.close()
        return path

    def _truncate(self, end: int, by_start: dict[int, tuple[Path, int]]) -> None:
        """Zero what follows the last good record; give up later segments with content."""
        end = max([end, *(stretch.stop for stretch in self.new.stretches)])
        base, stop = end - end % self._size, end
        if base in by_start and by_start[base][1] == self._size:
            content = _content_end(by_start[base][0], end - base, self._size)
            if content > end - base:
                path = by_start[base][0]
                if not path.is_relative_to(self._target):
                    by_start[base] = self._copy(base, path), self._size
                _zero(by_start[base][0], end - base, self._size)
                stop = base + content
        for start in [one for one in sorted(by_start) if one >= end and one != base]:
            path, nbytes = by_start[start]
            content = _content_end(path, 0, nbytes)
            if content or nbytes != self._size:
                stop = max(stop, start + content) if content else stop
                if path.is_relative_to(self._target):
                    path.unlink()
                del by_start[start]
        if base in by_start and by_start[base][1] == 0:
            del by_start[base]
        if stop > end:
            self.new.tail = end, stop

    def _invert(self, bit: WrongBit, by_start: dict[int, tuple[Path, int]]) -> bool:
        """Invert a bit of a record; return False if the new log lacks the record."""
        base = bit.record - bit.record % self._size
        if base not in by_start:
            return False
        path = by_start[base][0]
        if not path.is_relative_to(self._target):
            path = self._copy(base, path)
            by_start[base] = path, self._size
        fd = os.open(path, READ_WRITE)
        try:
            (old,) = os.pread(fd, 1, bit.at - base)
            os.pwrite(fd, bytes((old ^ bit.mask,)), bit.at - base)
        finally:
            os.close(fd)
        return True

    def _copy(self, start: int, source: Path) -> Path:
        path = self._path(start)
        old = MappedFile(source, start, self._size, self._paths.log_root)
        try:
            with _created(path) as fd:
                os.ftruncate(fd, self._size)
                for first, last in data_ranges(old, 0):
                    for at in range(first, last, _STEP_NBYTES):
                        os.pwrite(fd, old.read(at, min(_STEP_NBYTES, last - at)), at)
        finally:
            old.close()
        return path

    def _finish(self, by_start: dict[int, tuple[Path, int]], reasons: dict[int, str]) -> None:
        """Compare the new log with the old one."""
        final = {formats.offset_to_file_name(start): start for start in by_start}
        for name in sorted(self._old.keys() | final.keys()):
            start = final.get(name)
            place = self._paths.commit_log / name
            if start is not None and by_start[start][0] == place:
                continue
            if start is not None and not by_start[start][0].is_relative_to(self._target):
                by_start[start] = self._copy(start, by_start[start][0]), self._size
            self._add(name, start, by_start, reasons)
        self.new.files = [(start, *by_start[start]) for start in sorted(by_start)]

    def _add(
        self,
        name: str,
        start: int | None,
        by_start: dict[int, tuple[Path, int]],
        reasons: dict[int, str],
    ) -> None:
        place, root = self._paths.commit_log / name, self._paths.root
        old = content_of(place, root)
        made = None if start is None else content_of(by_start[start][0], self._target)
        change = FileChange(self._relative(place), old, made)
        at = formats.file_name_to_offset(name) or 0
        ranges = [
            (one.start - at, one.stop - at)
            for one in self.new.stretches
            if start is not None and at <= one.start < at + self._size
        ]
        bits = [one for one in self.new.wrong_bits if at <= one.at < at + self._size]
        tail = self.new.tail
        records: tuple[int, ...] = ()
        is_cut = tail is not None and tail[0] < at + self._size and tail[1] > at
        if old is None or (old.size != self._size) or made is None:
            kind = "log.cut" if made is None and old is not None and old.size else "log.segment"
            why = "its content is past the log's end" if made is None else "it is written whole"
            sentence = f"{name}: {reasons.get(at, why)}"
            if made is None and old is not None and not old.size:
                sentence = f"{name}: the empty file is set aside"
        elif ranges:
            kind, sentence = "log.fill", f"{name}: {reasons.get(at, 'damaged')}; it is filled"
        elif is_cut and tail is not None:
            kind = "log.cut"
            ranges = [(max(tail[0], at) - at, min(tail[1], at + self._size) - at)]
            sentence = f"{name}: what follows the last good record at {tail[0]} is zeroed"
        elif bits and start not in self._renamed:
            kind, sentence = "log.fill", f"{name}: wrong bits are inverted"
            records = tuple(one.record for one in bits)
        else:
            kind, sentence = "log.segment", f"{name} gets the content that its name stands for"
        if bits and made is not None:
            sentence = "; ".join((sentence, *(one.sentence for one in bits[:_MOST_TOLD])))
            ranges = sorted([*ranges, *((one.at - at, one.at - at + 1) for one in bits)])
        self.new.changes.append(LogChange(kind, sentence, change, ranges, at, records))


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    fd = os.open(path, READ_WRITE | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def _content_end(path: Path, position: int, nbytes: int) -> int:
    """Return the position after the last byte from ``position`` on that is not zero, or 0."""
    if not nbytes:
        return 0
    end = 0
    file = MappedFile(path, 0, nbytes, path.parent)
    try:
        for start, stop in data_ranges(file, position):
            for at in range(start, min(stop, nbytes), _STEP_NBYTES):
                content = file.read(at, min(_STEP_NBYTES, stop - at))
                if not is_zeros(content):
                    end = at + len(content.rstrip(b"\0"))
    finally:
        file.close()
    return end


def _zero(path: Path, position: int, stop: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for at in range(position, stop, _STEP_NBYTES):
            os.pwrite(fd, bytes(min(_STEP_NBYTES, stop - at)), at)
    finally:
        os.close(fd)


def losses_of(
    new: NewLog, code_of: Callable[[int, int], str], begin_end: Callable[[int], Sequence[int]]
) -> list[dict[str, Any]]:
    """Return the lost records: each range of the log, and each run of known queue offsets.

    Parameters
    ----------
    new : NewLog
    code_of : callable
        Return the code of a log range.
    begin_end : callable
        Return the store times around what ends at a log offset.
    """
    found = []
    for start, stop, known in _ranges(new):
        found.append(_loss(None, None, None, (start, stop), known, code_of, begin_end))
    runs: list[list[LostPlace]] = []
    for place in sorted(new.places, key=lambda one: one[:3]):
        last = runs[-1][-1] if runs else None
        if last is not None and last[:2] == place[:2] and last[2] + 1 == place[2]:
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        log = (min(one.low for one in run), max(one.high for one in run))
        numbers = (run[0].queue_offset, run[-1].queue_offset + 1)
        one = _loss(run[0].topic, run[0].queue_id, numbers, log, len(run), code_of, begin_end)
        found.append(one)
    if new.past_end:
        stop = max((at + nbytes for at, nbytes in new.past_end.records.items()), default=0)
        known_places = Counter(
            one[:2] for one in new.places if one.low >= new.past_end.end
        )  # fmt: skip
        for (topic, queue_id), total in sorted(new.past_end.queues.items()):
            if (count := total - known_places[topic, queue_id]) <= 0:
                continue  # all are named by their queue offsets
            log = (new.past_end.end, stop)
            found.append(_loss(topic, queue_id, None, log, count, code_of, begin_end))
    return found


def _ranges(new: NewLog) -> Iterator[tuple[int, int, int | None]]:
    for one in new.damaged:
        stops = [stop for start, stop in new.cut_short if one.start <= start <= one.stop]
        yield one.start, max([one.stop, *stops]), None
    if new.tail is not None:
        yield *new.tail, None


def _loss(
    topic: str | None,
    queue_id: int | None,
    numbers: tuple[int, int] | None,
    log: tuple[int, int],
    count: int | None,
    code_of: Callable[[int, int], str],
    begin_end: Callable[[int], Sequence[int]],
) -> dict[str, Any]:
    begin, end = begin_end(log[1])
    return {
        "topic": topic,
        "queueId": queue_id,
        "queueOffsets": None if numbers is None else list(numbers),
        "log": list(log),
        "messages": count,
        "from": begin or None,
        "to": end or None,
        "keys": None,
        "why": code_of(*log),
    }
