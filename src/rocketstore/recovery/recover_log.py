"""Find a log's valid end: choose where to start, and check that the log is complete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocketstore.arguments import Progress
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.damage import DamagedRange
from rocketstore.recovery.another_log import note_another_log
from rocketstore.recovery.crash_losses import CrashLosses
from rocketstore.recovery.durable_mark import DurableMark, check_start
from rocketstore.recovery.log_recovery import LogRecovery, _log
from rocketstore.recovery.orderly_stop import EndClaim, OrderlyStop
from rocketstore.recovery.report import RecoveryReport
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from rocketstore.directory.state import StoreState
    from rocketstore.index.index_service import IndexService
    from rocketstore.queues.consume_queue import ConsumeQueue
    from rocketstore.survey.facts import StoreFacts


def recover_log(
    log: CommitLog,
    facts: StoreFacts,
    progress: Progress | None,
    *,
    queues: Iterable[ConsumeQueue] = (),
    index: IndexService | None = None,
    position: int | None = None,
    for_writing: bool = False,
) -> tuple[LogRecovery, StoreState | None]:
    """Find the log's end; return the recovery that ran, and the state file if it is valid.

    ``queues`` (with loaded files) show whether the log is another store's. With ``index`` they show
    which log files are missing after a crash. ``for_writing``: the caller refuses damage, and no
    other code uses the log's mappings yet.
    """
    queues = list(queues)
    recovery, state = _find_end(log, facts, progress, queues, position, for_writing=for_writing)
    note_another_log(log, facts, recovery.report, queues)
    losses = CrashLosses(log, queues, index)
    if losses.note(facts, recovery.report):
        recovery.losses = losses
    return recovery, state


def _find_end(
    log: CommitLog,
    facts: StoreFacts,
    progress: Progress | None,
    queues: list[ConsumeQueue],
    position: int | None,
    *,
    for_writing: bool,
) -> tuple[LogRecovery, StoreState | None]:
    """Find the log's end from the log, the state file and the checkpoint.

    If the state file claims more than the log has, the reason depends on the last stop. After an
    orderly stop the end of the log is missing. After a crash the state file is void, because a
    broker truncated the log since then. Then, as without a state file, all of the log is checked;
    a read-only open checks from some way before ``position`` only.
    """
    orderly = None if facts.aborted else OrderlyStop(facts, log)

    def run(start: int, mark: DurableMark) -> LogRecovery:
        checked = [file for file in log.queue.files if file.end_offset > start and for_writing]
        for file in checked:
            file.mapping.advise("sequential")
        recovery = LogRecovery(
            *(log, start, mark, progress),
            stop_at_damage=for_writing,
            orderly=orderly if mark.offset is None else None,
        )
        recovery.run()
        for file in checked:
            file.mapping.advise("normal")
        return recovery

    note = None
    state = facts.valid_state
    if state is not None:
        known = min(state.flushed_offset, state.dispatched_offset, state.indexed_offset)
        clean = state.clean and not facts.aborted
        known = known if position is None else min(known, position)
        start = check_start(log, queues, known, clean=clean)
        recovery = run(start, DurableMark(state.flushed_offset, inclusive=orderly is not None))
        report = recovery.report
        is_whole = report.log_end >= state.flushed_offset
        if orderly is not None:
            if not is_whole:
                words = f"{facts.paths.state} says that it was on disk"
                orderly.note_missing_end(report, EndClaim(state.flushed_offset, words))
            return recovery, state
        if report.damaged or is_whole:
            return recovery, state
        note = (
            f"the state file says that the log was flushed up to {state.flushed_offset}, but it "
            f"ends at {report.log_end}; the state file was ignored"
        )
        _log.warning("%s", note)
    start = max(log.min_offset, 0) if position is None else check_start(log, queues, position)
    mark = DurableMark(None, facts.checkpoint.physic_timestamp, inclusive=not facts.aborted)
    recovery = run(start, mark)
    if orderly is not None:
        orderly.note_missing_end(recovery.report)
    else:
        _note_lost_beginning(log, facts, recovery.report)
    if note is not None:
        recovery.report.notes.append(note)
    return recovery, None


def _note_lost_beginning(log: CommitLog, facts: StoreFacts, report: RecoveryReport) -> None:
    """Report a log without any record although it was synced once.

    Checkpoint and state file are written after a sync of the log, so a crash is no explanation.
    A log whose beginning has expired may be empty.
    """
    state, last = facts.valid_state, log.queue.last()
    was_synced = facts.checkpoint.physic_timestamp > 0 or (state and state.flushed_offset > 0)
    if log.min_offset != 0 or report.log_end > 0 or report.damaged or not was_synced or not last:
        return
    witness = facts.paths.checkpoint if facts.checkpoint.physic_timestamp > 0 else facts.paths.state
    reason = f"no record is left in the log, but {witness} says that messages were on disk"
    stop = last.file_from_offset + last.file_size
    log.damage.setdefault(0, RecordStatus.EMPTY)
    report.damaged.append(DamagedRange(str(log.queue.files[0].path), 0, 0, stop, reason))
