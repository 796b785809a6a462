"""Damage of the log, segment by segment, from its parsed records; works on one segment, too."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from rocketstore.diagnosis.broker import LogContent
from rocketstore.diagnosis.image import Entry, Record, Segment, StoreImage
from rocketstore.diagnosis.pointers import Pointers
from rocketstore.diagnosis.verdict import DataEffect, Findings, Place

#: A zeroed stretch of a record that shows that a page or sector was lost.
_ZERO_RUN = bytes(48)
_MOST_READ = 1 << 20


class _Range(NamedTuple):
    """Bytes of a segment without a complete record; ``bad``: records with a wrong checksum."""

    start: int
    stop: int
    bad: list[Record]


class LogCheck:
    """Finds what is wrong with the log.

    Parameters
    ----------
    image : StoreImage
    content : LogContent
    findings : Findings
    pointers : Pointers
        What queues and index know of the log.
    segment_nbytes : int
    is_unclean : bool
    condemned : collection of int
        Log offsets at which ``verify`` found damage.
    wrong_units : collection of (topic, queue id, queue offset)
        Units that ``verify`` found wrong.
    """

    def __init__(
        self,
        image: StoreImage,
        content: LogContent,
        findings: Findings,
        pointers: Pointers,
        segment_nbytes: int,
        *,
        is_unclean: bool,
        condemned: Collection[int] = (),
        wrong_units: Collection[tuple[str, int, int]] = (),
    ) -> None:
        self._image = image
        self._segments = content.segments
        self._findings = findings
        self._pointers = pointers
        self._size = segment_nbytes
        self._is_unclean = is_unclean
        self._condemned = condemned
        self._wrong_units = wrong_units

    def run(self) -> None:
        """Add the findings."""
        starts = sorted(self._segments)
        filled = [one for one in starts if self._segments[one].records or self._segments[one].later]
        newest = max(filled, default=-1)
        for start in starts:
            segment = self._segments[start]
            if not self._check_name(segment):
                self._check_ghosts(segment)
            for one in list(self._ranges(segment, is_last=start >= newest)):
                self._judge(segment, one, is_last=start >= newest)
        if filled and not self._findings.has("log.torn", "log.end-missing", "log.segment.name"):
            self._check_end(self._segments[newest])

    def _check_end(self, segment: Segment) -> None:
        """Report records past the log's end that queues or index name."""
        records = [*segment.records, *segment.later]
        end = max(one.place + one.size for one in records)
        following = segment.start + self._size
        lost = self._pointers.between(end, 2**62, self._wrong_units)
        is_next = any(
            self._pointers.between(at, at + 1).messages for at in (end, following)
        )  # fmt: skip
        known = self._findings.tells_offset(following)
        if not lost.messages or known or not (is_next or lost.messages > 1):
            return
        place = Place(self._relative(segment.entry), end - segment.start, None, end)
        nbytes = max(0, self._pointers.highest - end)
        data = DataEffect("lost", lost.messages, nbytes, topics=lost.topics, keys=lost.keys)
        what = f"the log ends at {end}, but queues or index name {lost.messages:,} records past it"
        severity = "error" if self._is_unclean else ""
        self._findings.add("log.end-missing", what, [place], data=data, severity=severity)
        self._findings.ranges.append((end, 2**62))

    def _check_name(self, segment: Segment) -> bool:
        records = [*segment.records, *segment.later]
        moved = [one for one in records if one.offset != one.place]
        count = sum(one.records for one in moved)
        if not moved or 2 * count <= sum(one.records for one in records):
            return False
        base = moved[0].offset - moved[0].position
        where = Place(self._relative(segment.entry), 0, segment.entry.nbytes, segment.start)
        self._findings.add(
            "log.segment.name",
            f"{segment.entry.name} holds the records of the segment at offset {base}",
            [where],
            data=DataEffect("invisible", count, segment.entry.nbytes),
        )
        return True

    def _check_ghosts(self, segment: Segment) -> None:
        file = self._relative(segment.entry)
        for one in segment.records:
            if one.offset < one.place and one.place not in self._condemned:
                place = Place(file, one.position, one.size, one.place)
                self._findings.add("log.ghost", "", [place], run=file)

    def _ranges(self, segment: Segment, *, is_last: bool) -> Iterator[_Range]:
        """Yield the ranges without complete records, in order."""
        records = sorted((*segment.records, *segment.later), key=lambda one: one.position)
        at, bad = 0, list[Record]()
        for record in records:
            if not record.is_crc_good:
                bad.append(record)
                continue
            if record.position > at:
                yield _Range(at, record.position, bad)
            at, bad = record.position + record.size, []
        is_closed = segment.reason == "blank" or not segment.records
        if segment.later and not bad and at < segment.entry.nbytes:
            return  # the walk past the damage ended as a log does
        is_torn = bool(bad) or (segment.reason == "damage" and not segment.later)
        if is_torn or not (is_closed or is_last or at >= segment.entry.nbytes):
            yield _Range(at, segment.entry.nbytes, bad)

    def _judge(self, segment: Segment, one: _Range, *, is_last: bool) -> None:
        records = (*segment.records, *segment.later)
        follows = any(r.is_crc_good and r.position >= one.stop for r in records)
        lost = self._pointers.between(segment.start + one.start, segment.start + one.stop)
        content = self._read(segment.entry.path, one)
        code, what = self._kind(one, content)
        nbytes = one.stop - one.start
        stale = self._stale(segment, one) if is_last and follows else []
        if stale and self._is_unclean and not lost.messages:
            nbytes = stale[-1].position + stale[-1].size - one.start
            code = "log.stale-tail"
            what = f"{len(stale)} old records follow a torn one at the end of the log"
            segment.later[:] = [r for r in segment.later if r.position < one.stop]
        elif is_last and not follows:
            nbytes = max(1, len(content.rstrip(b"\0")))
            code, what = "log.torn", "half a record at the end of the log"
            if not self._is_unclean and lost.messages:
                code, what = "log.end-missing", "the log's last records are damaged"
        elif not follows and not lost.messages and not one.bad and one.stop == segment.entry.nbytes:
            code, what = "log.marker", "the end marker of the segment is missing or wrong"
        place = Place(self._relative(segment.entry), one.start, nbytes, segment.start + one.start)
        around = self._times(segment, one)
        is_harmless = code in ("log.marker", "log.stale-tail")
        data = DataEffect(
            "none" if is_harmless else "lost", lost.messages or len(one.bad), nbytes,
            topics=lost.topics, keys=lost.keys, begin=around[0], end=around[1],
        )  # fmt: skip
        if not lost.messages and not is_harmless:
            data.estimated, data.unknown = True, max(1, len(one.bad))
            data.messages = data.messages or 1
        self._findings.add(code, what, [place], data=data)

    def _stale(self, segment: Segment, one: _Range) -> list[Record]:
        """Return the records after a range if all are older than those before it."""
        records = sorted((*segment.records, *segment.later), key=lambda r: r.position)
        before = [r.time for r in records if r.is_crc_good and r.position < one.start]
        after = [r for r in records if r.position >= one.stop]
        if before and after and all(r.time < before[-1] for r in after):
            return after
        return []

    def _kind(self, one: _Range, content: bytes) -> tuple[str, str]:
        zeros = len(content) - len(content.lstrip(b"\0"))
        longest = max((len(run) for run in _zero_runs(content)), default=0)
        if zeros == len(content) or longest >= 512 or (one.bad and longest >= len(_ZERO_RUN)):
            return (
                "log.record.zeros",
                f"{max(longest, zeros):,} zeroed bytes inside the log, good records after them",
            )
        if one.bad and sum(record.size for record in one.bad) >= one.stop - one.start:
            return "log.record.crc", f"{len(one.bad)} records whose checksum is wrong"
        if longest >= len(_ZERO_RUN):
            return "log.record.zeros", f"{longest:,} zeroed bytes inside the log"
        return "log.record.shape", f"{one.stop - one.start:,} bytes that are no records"

    def _read(self, path: Path, one: _Range) -> bytes:
        with open(path, "rb") as file:  # its kind was checked when it was parsed
            return os.pread(file.fileno(), min(one.stop - one.start, _MOST_READ), one.start)

    def _times(self, segment: Segment, one: _Range) -> tuple[int | None, int | None]:
        good = [r for r in (*segment.records, *segment.later) if r.is_crc_good]
        before = [r.time for r in good if r.position < one.start]
        after = [r.time for r in good if r.position >= one.stop]
        return (before[-1] if before else None), (after[0] if after else None)

    def _relative(self, entry: Entry) -> str:
        return self._image.relative(entry.path)


def _zero_runs(content: bytes) -> Iterator[bytes]:
    """Yield runs of at least 48 zeros."""
    at = content.find(_ZERO_RUN)
    while at >= 0:
        rest = content[at:]
        run = len(rest) - len(rest.lstrip(b"\0"))
        yield rest[:run]
        at = content.find(_ZERO_RUN, at + run)


def missing_ranges(starts: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each gap between segments."""
    for before, after in itertools.pairwise(sorted(starts)):
        if after > before + size:
            yield before + size, after
