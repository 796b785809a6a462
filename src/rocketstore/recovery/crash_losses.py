"""Log files that are missing after a crash.

Units and index entries that name them are reported, and copied before they are truncated.
"""

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
from rocketstore.recovery.orderly_stop import EndClaim, OrderlyStop, end_of_files
from rocketstore.recovery.report import RecoveryReport
from rocketstore.recovery.truncate import quarantine_path
from rocketstore.recovery.written_units import written_units
from rocketstore.survey.pointers import PointersPastEnd, pointers_past_end, units_behind

if TYPE_CHECKING:
    from rocketstore.index.index_service import IndexService
    from rocketstore.queues.consume_queue import ConsumeQueue
    from rocketstore.survey.facts import StoreFacts

_log = logging.getLogger(__name__)
_STEP_NBYTES = 1 << 20


class CrashLosses:
    """Detect what queues and index name past the last log file after a crash.

    Parameters
    ----------
    log : CommitLog
        With a known end.
    queues : iterable of ConsumeQueue
        With loaded files.
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
        """Report units and index entries that name missing log files; return whether any do.

        After an orderly stop there are none, because a missing end is reported as damage. After a
        crash a missing end is damage only if it was on disk for sure. That takes at least two
        missing segments, and state or checkpoint, which are written after a sync of the log, must
        show later messages. A single segment may have been created right before a power failure,
        before its name was synced.
        """
        if not facts.aborted or report.damaged or not self._log.queue.files:
            return False
        if not any(self._names_missing(queue) for queue in self._queues) and not self._has_keys():
            return False
        if self._was_made_meanwhile():
            return False
        pointers = pointers_past_end(report.log_end, self._queues, self._index)
        size = self._log.segment_size
        if pointers.reach(2 * size) <= self._files_end:
            return False  # the units or entries are damaged themselves
        # A broker that truncates its log truncates the queues, but not the index.
        stop = pointers_past_end(report.log_end, self._queues).reach(size)
        if stop > self._files_end + size and self._was_synced(facts, report):
            claim = EndClaim(stop, "queues and the marks of a sync name later messages")
            OrderlyStop(facts, self._log).note_missing_end(report, claim)
            return False
        self._report(report, pointers)
        return True

    def _was_synced(self, facts: StoreFacts, report: RecoveryReport) -> bool:
        state = facts.valid_state
        if state is not None:
            return state.flushed_offset > self._files_end + self._log.segment_size
        # A broker's times are not exact: after a torn write they may be the torn record's.
        is_whole = report.log_end >= self._files_end
        return is_whole and OrderlyStop(facts, self._log).is_newer(report.newest_store_timestamp)

    def _report(self, report: RecoveryReport, pointers: PointersPastEnd) -> None:
        reason = (
            f"log files after {self._log.queue.files[-1].path} are missing since the crash, but "
            f"queues or index name them: {pointers}"
        )
        _log.warning("%s", reason)
        report.notes.append(reason)

    def _names_missing(self, queue: ConsumeQueue) -> bool:
        """Return whether a queue's newest unit names a place past the last log file."""
        if isinstance(queue, BatchConsumeQueue):
            files = queue.queue.files[-2:]
            return any(units_behind(queue, file, self._files_end)[0] for file in files)
        newest = queue.recovered_index  # the first unit past those in the log, if known
        if queue.recovered_end < 0:
            newest = written_units(queue)[1] - 1
        start, nbytes, _ = queue.raw_unit(newest)
        return start >= self._files_end and nbytes > 0

    def _was_made_meanwhile(self) -> bool:
        """Return whether a writer has created the next file since the log was listed."""
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

    # --- copies -------------------------------------------------------------------------------

    def keep(self, root: Path, report: RecoveryReport, clock: Callable[[], int]) -> None:
        """Copy the queue and index files that are about to be truncated to ``quarantine``.

        Raises ``StoreFullError`` before it writes anything if there is no room.
        """
        files = list(self._files_to_copy(report.log_end))
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

    def _files_to_copy(self, end: int) -> Iterator[MappedFile]:
        """Yield the files with units or keys of records past the log's ``end``."""
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
