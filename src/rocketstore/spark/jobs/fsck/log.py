"""The log part of ``fsck``: combine the results of the splits."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.log.commit_log import describe
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split
from rocketstore.status import RecordStatus
from rocketstore.verify.report import VerifyReport

_WORD = 2**64
#: Counts of a split that are summed up unchanged.
_ADDED = ("ghosts", "nul_properties", "unsafe_topics", "backward_times", "named", "inner_batches")


class Reading(NamedTuple):
    """How tasks read the log, as plain data."""

    delay_ms: tuple[int, ...]
    check_crc: bool
    storage_options: dict[str, Any] | None


@dataclass
class QueueSums:
    """Sums over the records of one queue, in log order.

    Attributes
    ----------
    count : int
        Number of records with a unit.
    first_offset, next_offset : int
        Queue offset of the first record, and the one after the last.
    first_physical, end_physical : int
        Start of the first record and end of the last one.
    breaks : int
        Number of queue offsets that do not follow the previous one.
    total : int
        Checksum of the units.
    """

    count: int
    first_offset: int
    next_offset: int
    first_physical: int
    end_physical: int
    breaks: int
    total: int

    def join(self, other: QueueSums) -> None:
        """Add the sums of later records."""
        self.breaks += other.breaks + (other.first_offset != self.next_offset)
        self.count += other.count
        self.next_offset, self.end_physical = other.next_offset, other.end_physical
        self.total = (self.total + other.total) % _WORD


Key = tuple[bytes, int]
Queues = dict[Key, QueueSums]


class SplitSums(NamedTuple):
    """A task's result for its split.

    ``damaged``: (first physical offset, next good one or ``None``, status).
    """

    counts: list[dict[str, int]]
    queues: Queues
    wrong_crcs: list[int]
    damaged: list[tuple[int, int | None, int]]


class Damage(NamedTuple):
    """A range of the log without records; ``next_good``: where good records resume, if they do."""

    start: int
    stop: int
    status: RecordStatus | None
    next_good: int | None


@dataclass
class LogSums:
    """The combined results of all splits.

    Attributes
    ----------
    queues : dict
        By (topic, queue id).
    damaged : list of (start, stop)
    named, inner_batches : int
        Number of records that name other queues, and of inner batches.
    in_segments : dict
        By first log offset, the queues that a segment has records of.
    """

    queues: Queues = field(default_factory=dict)
    in_segments: dict[int, list[Iterable[Key]]] = field(default_factory=dict)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    named: int = 0
    inner_batches: int = 0


def join_queue(queues: Queues, key: tuple[bytes, int], sums: QueueSums) -> None:
    """Add the sums of a queue's later records."""
    known = queues.get(key)
    if known is None:
        queues[key] = sums
    else:
        known.join(sums)


def put_together(
    log: LogFiles,
    log_end: int,
    found: Iterable[tuple[Split, SplitSums]],
    report: VerifyReport,
    counts: Counter[str],
) -> LogSums:
    """Combine the splits' results; findings go to the report, oddities to ``counts``."""
    sums = LogSums()
    last_timestamp: int | None = None
    damaged: list[tuple[int, int | None, int]] = []
    crcs: dict[int, tuple[int, list[int]]] = {}
    for split, one in found:
        valid, wrong = crcs.setdefault(split.base_offset, (0, []))
        crcs[split.base_offset] = valid + sum(c["valid_crcs"] for c in one.counts), wrong
        wrong += one.wrong_crcs
        for part in one.counts:
            report.records += part["records"]
            report.nbytes += part["nbytes"]
            counts.update({name: part[name] for name in _ADDED})
            if part["records"]:
                earlier = last_timestamp is not None and part["first_timestamp"] < last_timestamp
                counts["backward_times"] += earlier
                last_timestamp = part["last_timestamp"]
        sums.in_segments.setdefault(split.base_offset, []).append(one.queues.keys())
        for key, queue in one.queues.items():
            join_queue(sums.queues, key, queue)
        damaged += one.damaged
    for damage in damages(log, log_end, damaged):
        _add_damage(log, damage, report)
        sums.damaged.append((damage.start, damage.stop))
    _judge_crcs(log, crcs, report, counts)
    sums.named, sums.inner_batches = counts.pop("named", 0), counts.pop("inner_batches", 0)
    return sums


def place_of(log: LogFiles, offset: int) -> tuple[str, int]:
    """Return file and position of a physical offset."""
    for segment in log.segments:
        if segment.base_offset <= offset < segment.end_offset:
            return segment.uri, offset - segment.base_offset
    return log.root, 0


def damages(
    log: LogFiles, log_end: int, damaged: Sequence[tuple[int, int | None, int]]
) -> list[Damage]:
    """Return the ranges without records, including missing segments; ranges that touch are
    merged."""
    found: list[tuple[int, int | None, RecordStatus | None]] = [
        (first, next_good, RecordStatus(status)) for first, next_good, status in damaged
    ]
    found += [(start, stop, None) for start, stop in log.holes]
    joined: list[Damage] = []
    for first, next_good, status in sorted(found, key=lambda row: row[0]):
        if first >= log_end:
            continue
        stop = next_good
        if stop is None:
            ends = (one.end_offset for one in log.segments if first < one.end_offset)
            stop = min(next(ends, log_end), log_end)
        good = stop if stop < log_end else next_good
        one = Damage(first, min(stop, log_end), status, good)
        if joined and joined[-1].stop == first:
            one = joined.pop()._replace(stop=one.stop, next_good=one.next_good)
        joined.append(one)
    return joined


def _add_damage(log: LogFiles, damage: Damage, report: VerifyReport) -> None:
    start, stop, status, next_good = damage
    where = f"; {stop - start} bytes are lost, " + (
        "nothing good follows" if next_good is None else f"log offset {next_good} is good again"
    )
    if status is None:
        name = formats.offset_to_file_name(start - start % log.segment_size)
        folder = log.segments[0].uri.rsplit("/", 1)[0]
        reason = f"log offset {start}: the segment {name} is missing" + where
        report.add("record", f"{folder}/{name}", 0, start, reason)
    else:
        path, position = place_of(log, start)
        report.add("record", path, position, start, describe(status, start) + where)


def _judge_crcs(
    log: LogFiles,
    crcs: dict[int, tuple[int, list[int]]],
    report: VerifyReport,
    counts: Counter[str],
) -> None:
    """Report wrong whole-record CRCs in segments where other records have valid ones."""
    wrong_ones = itertools.chain.from_iterable(wrong for valid, wrong in crcs.values() if valid)
    for offset in sorted(wrong_ones):
        path, position = place_of(log, offset)
        report.add(
            "record", path, position, offset, describe(RecordStatus.BAD_PROPERTY_CRC, offset)
        )
    foreign = sum(len(wrong) for valid, wrong in crcs.values() if not valid)
    counts["foreign_property_crcs"] += foreign
