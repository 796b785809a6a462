"""Judge what the timer's report found: slots, chains and units that contradict each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.timer.reader import Queues, Records, read_timers
from rocketstore.timer.report import TimerReport
from rocketstore.verify.beside.judgement import Judgement

#: These cost messages when a broker goes on.
_FAULTS = frozenset({"timer-slot", "timer-chain", "timer-log"})
#: These do no harm, or a broker corrects them.
_NOTES = frozenset({"timer-count", "timer-delete", "timer-rocksdb"})
#: Of each kind of note so many are listed; the others are counted.
_LISTED = 5


def has_timer(root: Path, dialect: Dialect, queues: Queues) -> bool:
    """Return whether a store has messages or files of a timer, or a database that may hold them."""
    if not dialect.has_timer:
        return False
    names = (formats.TIMER_WHEEL_FILE, formats.TIMER_LOG_DIR, formats.ROCKSDB_STORE_DIR)
    is_waiting = queues.get(formats.TOPIC_TIMER, 0) is not None
    return is_waiting or any((root / name).exists() for name in names)


def judge_timer_units(
    root: Path, dialect: Dialect, records: Records, queues: Queues, now: int
) -> Iterator[Judgement]:
    """Compare wheel, timer log and records; ``now`` is in epoch ms.

    Sizes of the files and the checkpoint are judged elsewhere.
    """
    if has_timer(root, dialect, queues):
        precision_ms = formats.TIMER_PRECISIONS_MS[-1]
        report = read_timers(root, dialect, records, queues, precision_ms=precision_ms, now=now)
        yield from judge_report(report)


def judge_report(report: TimerReport) -> Iterator[Judgement]:
    """Judge the findings of a report that other checks do not make."""
    if report.not_enqueued:
        due = f", {report.overdue:,} pending messages are due" if report.overdue else ""
        reason = (
            f"{report.not_enqueued:,} messages of the timer's queue, from queue offset "
            f"{report.queue_offset} on, are not in the wheel yet{due}"
        )
        path = report.wheel or formats.TOPIC_TIMER
        yield Judgement(
            "timer-lag", path, 0, reason, is_finding=False,
            code="timer.behind", count=report.not_enqueued,
        )  # fmt: skip
    seen: Counter[str] = Counter()
    for one in report.findings:
        if one.kind in _FAULTS:
            yield Judgement("timer-file", one.path, one.position, one.reason)
        elif one.kind in _NOTES:
            seen[one.kind] += 1
            if seen[one.kind] <= _LISTED:
                reason = f"position {one.position}: {one.reason}"
                yield Judgement(one.kind, one.path, one.position, reason, is_finding=False)
    for kind, count in seen.items():
        if count > _LISTED:
            more = f"{count - _LISTED} more like the last one ({kind})"
            yield Judgement(kind, report.wheel or "", 0, more, is_finding=False)
