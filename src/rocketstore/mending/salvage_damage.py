"""Finds the lost parts of a log: corrupt ranges, missing or short segments, and a missing end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.errors import MappedFileError
from rocketstore.files.raw import data_ranges
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.continuity import good_batches
from rocketstore.log.damage import DamagedRange
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.recovery.durable_mark import DurableMark
from rocketstore.recovery.log_recovery import LogRecovery
from rocketstore.recovery.recover_log import recover_log
from rocketstore.recovery.report import RecoveryReport
from rocketstore.survey.facts import StoreFacts
from rocketstore.survey.pointers import PointersPastEnd, is_of_log, pointers_past_end

Listed = Sequence[tuple[int, Path, int]]
#: Most missing segments in a row that are filled with placeholders.
_MOST_MISSING = 4096
#: Most segments in a row that may hold no record with a unit or a key.
_UNNAMED_SEGMENTS = 2


class Hole(NamedTuple):
    """Bytes of the log that no file has, ``start`` .. ``stop``, before a later file."""

    path: Path
    start: int
    stop: int
    reason: str


@dataclasses.dataclass
class LogLosses:
    """What the check of a whole log found.

    Attributes
    ----------
    report : RecoveryReport
        Of the check; its ``log_end`` is the end of the last good record, or of a hole.
    damaged : list of DamagedRange
        Ascending; the last one may end past all files.
    past_end : PointersPastEnd
        Units and keys that point past the last good record.
    """

    report: RecoveryReport
    damaged: list[DamagedRange]
    past_end: PointersPastEnd


def find_losses(
    log: CommitLog,
    facts: StoreFacts,
    listed: Listed,
    progress: Progress | None,
    queues: Sequence[ConsumeQueue],
    index: IndexService,
) -> LogLosses:
    """Check a whole log, whose files may have holes between them.

    A file that is missing before a later one counts as lost: the writer had created it. Bytes past
    the newest file count as lost only after a clean stop (no ``abort``).
    """
    directory = log.queue.directory
    report, damaged = _check_over_holes(log, facts, listed, progress, queues)
    first = listed[0][0] if listed else 0
    if listed and log.min_offset > first:
        path = directory / formats.offset_to_file_name(first)
        reason = "the file is empty although later ones follow"
        damaged.insert(0, DamagedRange(str(path), 0, first, log.min_offset, reason))
    own = [one for one in queues if is_of_log(log, one, report.log_end, damaged)]
    past_end = pointers_past_end(report.log_end, own or queues, index)
    _add_lost_end(log, facts, report, damaged, past_end)
    _add_lack_of_room(log, report.log_end, damaged)
    return LogLosses(report, [_with_room(log, one) for one in _joined(log, damaged)], past_end)


def _joined(log: CommitLog, damaged: Sequence[DamagedRange]) -> list[DamagedRange]:
    """Join ranges that meet inside a segment: what replaces them needs room for a record."""
    found: list[DamagedRange] = []
    for one in sorted(damaged, key=lambda one: one.start):
        last = found[-1] if found else None
        if last is not None and last.stop >= one.start and last.stop % log.segment_size:
            found[-1] = dataclasses.replace(last, stop=max(last.stop, one.stop))
        else:
            found.append(one)
    return found


def _add_lack_of_room(log: CommitLog, end: int, damaged: list[DamagedRange]) -> None:
    """Add the rest of the newest segment if it is too short for an end-of-segment marker."""
    room = log.roll_next_file(end) - end
    is_known = bool(damaged) and damaged[-1].stop > end
    if room < formats.BLANK.nbytes and not is_known:
        base = end + room - log.segment_size
        path = log.queue.directory / formats.offset_to_file_name(base)
        reason = "too few bytes for the end-of-segment marker after the last record"
        damaged.append(DamagedRange(str(path), end - base, end, end + room, reason))


def _with_room(log: CommitLog, damage: DamagedRange) -> DamagedRange:
    """Return the range, extended by the record before it if it has no room for the end-of-segment
    marker, without which no reader continues."""
    end = log.roll_next_file(damage.start)
    if damage.stop < end or end - damage.start >= formats.BLANK.nbytes:
        return damage
    base, start = end - log.segment_size, damage.start
    for batch in good_batches(log, base, damage.start):
        start = batch.last()["physical_offset"]
    reason = (
        f"{damage.reason}; the record at log offset {start} ends {end - damage.start} bytes before "
        f"its segment's end, but the end-of-segment marker needs {formats.BLANK.nbytes}"
    )
    return dataclasses.replace(damage, position=start - base, start=start, reason=reason)


def holes(listed: Listed, directory: Path, size: int) -> list[Hole]:
    """Return the holes before the last of the listed files (start, path, size).

    Raises
    ------
    MappedFileError
        So many files are missing in a row that a name must be wrong.
    """
    found: list[Hole] = []
    expected: int | None = None
    for number, (start, path, nbytes) in enumerate(listed):
        missing_count = 0 if expected is None else (start - expected) // size
        if missing_count > _MOST_MISSING:
            raise MappedFileError(
                f"{path} begins {missing_count} segments after the previous file, and at most "
                f"{_MOST_MISSING} are filled; if its name is wrong, move it away"
            )
        for base in range(start if expected is None else expected, start, size):
            missing = directory / formats.offset_to_file_name(base)
            found.append(Hole(missing, base, base + size, "the segment is missing"))
        if nbytes < size and number < len(listed) - 1 and (nbytes or expected is not None):
            reason = f"the file has {nbytes} bytes instead of {size}"
            found.append(Hole(path, start + nbytes, start + size, reason))
        expected = start + size
    return found


def _check_over_holes(
    log: CommitLog,
    facts: StoreFacts,
    listed: Listed,
    progress: Progress | None,
    queues: Sequence[ConsumeQueue],
) -> tuple[RecoveryReport, list[DamagedRange]]:
    """Recover the log; where that stops at a hole, recover again after the hole."""
    recovery, state = recover_log(log, facts, progress, queues=queues, position=0)
    _refuse_misnamed(recovery)
    if recovery.report.damaged and recovery.report.damaged[0].is_another_log:
        raise recovery.report.damaged[0].refusal()
    found = holes(listed, log.queue.directory, log.segment_size)
    report, damage = recovery.report, dict(log.damage)
    damaged = list(report.damaged)
    physic, inclusive = facts.checkpoint.physic_timestamp, not facts.aborted
    mark = DurableMark(None, physic, inclusive=inclusive)
    if state is not None:
        mark = DurableMark(state.flushed_offset)
    for number, hole in enumerate(found):
        end = report.log_end
        is_last = number + 1 == len(found) or found[number + 1].start > hole.stop
        if hole.stop <= end:
            continue
        seen = [one for one in damaged if one.start < end or one.stop > hole.stop]
        damaged = [*seen, *_lost_in(log, end, hole)]
        if not is_last:
            report.log_end = hole.stop
            continue
        recovery = LogRecovery(log, hole.stop, mark, progress)
        rest = recovery.run()
        _refuse_misnamed(recovery)
        damage.update(log.damage)
        damaged += [one for one in rest.damaged if one.start >= hole.stop]
        _join(report, rest)
    log.damage = damage
    log.move_end(report.log_end)
    return report, damaged


def _refuse_misnamed(recovery: LogRecovery) -> None:
    """Raise ``CorruptionError`` for a segment with a wrong name: renaming it loses nothing, but
    filling it would."""
    if recovery.misnamed:
        raise recovery.misnamed[0]


def _lost_in(log: CommitLog, end: int, hole: Hole) -> list[DamagedRange]:
    """Return the hole, and the range between the log's end and the hole."""
    found = []
    if end < hole.start:
        file = log.queue.find_mapped_file_by_offset(end)
        base = end - end % log.segment_size
        path = (
            log.queue.directory / formats.offset_to_file_name(base) if file is None else file.path
        )
        reason = f"no good record follows, and then {hole.path.name} is lost: {hole.reason}"
        found.append(DamagedRange(str(path), end - base, end, hole.start, reason))
    start = max(end, hole.start)
    base = hole.start - hole.start % log.segment_size
    found.append(DamagedRange(str(hole.path), start - base, start, hole.stop, hole.reason))
    return found


def _join(report: RecoveryReport, rest: RecoveryReport) -> None:
    """Add the results of the check after a hole to ``report``."""
    report.log_end = rest.log_end
    report.scanned_count += rest.scanned_count
    report.newest_store_timestamp = max(report.newest_store_timestamp, rest.newest_store_timestamp)
    for name in ("ghosts", "nul_properties", "unsafe_topics", "gaps", "repeated", "notes"):
        getattr(report, name).extend(getattr(rest, name))


# --- the end --------------------------------------------------------------------------------------


def _add_lost_end(
    log: CommitLog,
    facts: StoreFacts,
    report: RecoveryReport,
    damaged: list[DamagedRange],
    past_end: PointersPastEnd,
) -> None:
    """Add the range of a lost end, so that no offset is assigned twice."""
    last = log.queue.last()
    files_end = last.end_offset if last is not None else 0
    # A range that recovery found missing at the end may start inside a file or past all files.
    is_end = bool(damaged) and (
        damaged[-1].stop >= files_end or damaged[-1].start >= report.log_end
    )
    at_end = damaged.pop() if is_end else None
    end = report.log_end if at_end is None else at_end.start
    reached, reason = end, ""
    if not facts.aborted:
        reached, reason = _reach(log, facts, past_end, end)
    if at_end is not None:
        # Past the last good record, only the bytes written there show how far the log went.
        stop = at_end.stop if at_end.stop > files_end else _content_end(log)
        state = facts.valid_state
        flushed = 0 if state is None else state.flushed_offset
        reached, reason = max(reached, stop, flushed, end + 1), at_end.reason
    if reached <= end:
        return
    base = end - end % log.segment_size
    path = log.queue.directory / formats.offset_to_file_name(base)
    damaged.append(DamagedRange(str(path), end - base, end, reached, reason))


def _reach(
    log: CommitLog, facts: StoreFacts, past_end: PointersPastEnd, end: int
) -> tuple[int, str]:
    """Return the log's end before a clean stop, and the reason to assume it."""
    reached, reason = end, ""
    state = facts.valid_state
    if state is not None and state.flushed_offset > end:
        reached = state.flushed_offset
        reason = f"the log was flushed up to {reached}, but ends at {end}: its end is missing"
    named = past_end.reach(_UNNAMED_SEGMENTS * log.segment_size)
    if named > reached:
        reached = named
        reason = f"queues or index name records up to {named}, but the log ends at {end}: its end "
        reason += "is missing"
    return reached, reason


def _content_end(log: CommitLog) -> int:
    """Return the log offset after the last byte that is not zero."""
    for file in reversed(log.queue.files):
        for start, stop in reversed(list(data_ranges(file, 0))):
            while stop > start:
                at = max(start, stop - (1 << 20))
                chunk = file.read(at, stop - at).rstrip(b"\0")
                if chunk:
                    return file.file_from_offset + at + len(chunk)
                stop = at
    return max(log.min_offset, 0)
