"""Log files that are gone after a crash: what names them is reported, and kept before it is cut."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.files.disk_room import RoomNeeded, allocated_nbytes
from rocketstore.files.durable import make_directories, write_file
from rocketstore.files.mapped_file import MappedFile
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.recovery.another_log import written_units
from rocketstore.recovery.orderly_stop import EndClaim, OrderlyStop, end_of_files
from rocketstore.recovery.report import RecoveryReport
from rocketstore.recovery.truncate import quarantine_path
from rocketstore.survey.pointers import PointersBehind, pointers_behind, units_behind

if TYPE_CHECKING:
    from rocketstore.index.index_service import IndexService
    from rocketstore.queues.consume_queue import ConsumeQueue
    from rocketstore.survey.facts import StoreFacts

_log = logging.getLogger(__name__)
_STEP_NBYTES = 1 << 20


class CrashLosses:
    """What queues and index name behind the last log file that a crash left.

    Parameters
    ----------
    log : CommitLog
        Its end is known.
    queues : iterable of ConsumeQueue
        Their files, loaded.
    index : IndexService or None
    """

    def __init__(
        self, log: CommitLog, queues: Iterable[ConsumeQueue], index: IndexService | None
    ) -> None:
        self._log = log
        self._queues = list(queues)
        self._index = index
        self._files_end = end_of_files(log)

    def note(self, facts: StoreFacts, report: RecoveryReport) -> bool:
        """Report what is named in log files that are not there; return whether anything is.

        Nothing after an orderly stop, where all of the end that is missing is damage. After a crash
        it is only what was on disk for sure: two segments at least, and marks that are written
        behind a sync of the log tell of later messages. One segment may have been made right before
        a power cut, and its name not synced yet.
        """
        if not facts.aborted or report.damaged or not self._log.queue.files:
            return False
        if not any(self._names_missing(queue) for queue in self._queues) and not self._has_keys():
            return False
        if self._was_made_meanwhile():
            return False
        behind = pointers_behind(report.log_end, self._queues, self._index)
        size = self._log.segment_size
        if behind.reach(2 * size) <= self._files_end:
            return False  # what names it is damaged itself
        # A broker that cuts its log cuts the queues, not the index.
        stop = pointers_behind(report.log_end, self._queues).reach(size)
        if stop > self._files_end + size and self._was_synced(facts, report):
            claim = EndClaim(stop, "queues name later messages, and the marks of a sync do")
            OrderlyStop(facts, self._log).note_missing_end(report, claim)
            return False
        self._tell(report, behind)
        return True

    def _was_synced(self, facts: StoreFacts, report: RecoveryReport) -> bool:
        state = facts.valid_state
        if state is not None:
            return state.flushed_offset > self._files_end + self._log.segment_size
        # A broker's times are not exact to a record: beside a torn one they may be its own.
        is_whole = report.log_end >= self._files_end
        return is_whole and OrderlyStop(facts, self._log).is_newer(report.newest_store_timestamp)

    def _tell(self, report: RecoveryReport, behind: PointersBehind) -> None:
        reason = (
            f"log files after {self._log.queue.files[-1].path} are gone since the crash, which "
            f"queues or index name: {behind}"
        )
        _log.warning("%s", reason)
        report.notes.append(reason)

    def _names_missing(self, queue: ConsumeQueue) -> bool:
        """Whether a queue's newest unit names a place in no log file."""
        if isinstance(queue, BatchConsumeQueue):
            files = queue.queue.files[-2:]
            return any(units_behind(queue, file, self._files_end)[0] for file in files)
        newest = queue.recovered_index  # behind what names places in the log, if known
        if queue.recovered_end < 0:
            newest = written_units(queue)[1] - 1
        start, nbytes, _ = queue.raw_unit(newest)
        return start >= self._files_end and nbytes > 0

    def _was_made_meanwhile(self) -> bool:
        """Whether a writer has made the next file since the log was listed."""
        path = self._log.queue.directory / formats.offset_to_file_name(self._files_end)
        try:
            return path.stat().st_size > 0
        except OSError:
            return False

    def _has_keys(self) -> bool:
        files = [] if self._index is None else self._index.files[-1:]
        return any(
            file.header.index_count > 1 and file.header.end_physical_offset >= self._files_end
            for file in files
        )

    # --- keeping it ---------------------------------------------------------------------------

    def keep(self, root: Path, report: RecoveryReport, clock: Callable[[], int]) -> None:
        """Copy the queue and index files that hold what is cut now into ``quarantine``.

        Raises ``StoreFullError`` before anything is written where there is no room.
        """
        files = list(self._cut_files(report.log_end))
        room = RoomNeeded("copies of queue and index files that name lost log files")
        room.add(root, (allocated_nbytes(file.path) for file in files))
        room.add_marks(root)
        room.refuse_lack()
        folder = quarantine_path(root, f"{clock()}-behind-the-log")
        for file in files:
            target = folder / file.path.relative_to(root)
            make_directories(target.parent, root)
            steps = range(0, file.file_size, _STEP_NBYTES)
            write_file(
                target, (file.read(at, min(_STEP_NBYTES, file.file_size - at)) for at in steps)
            )
        report.notes.append(f"queue and index files that name them were copied to {folder} first")

    def _cut_files(self, end: int) -> Iterator[MappedFile]:
        """The files with units or keys of what lies behind the log's ``end``."""
        for queue in self._queues:
            for file in reversed(queue.queue.files):
                count, _, is_all = units_behind(queue, file, end)
                if count:
                    yield file
                if not is_all:
                    break
        for index_file in () if self._index is None else reversed(self._index.files):
            if index_file.header.end_physical_offset < end:
                break
            if isinstance(index_file.file, MappedFile):
                yield index_file.file
