"""Brings queues and index up to the log's end when a store is opened for writing."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.directory.state import StoreState
from rocketstore.dispatch.catching_up import catch_up
from rocketstore.dispatch.dispatcher import COMPARED_NBYTES, BitMapFilters, CommitLogDispatcher
from rocketstore.dispatch.named_queues import has_units_of_other_rules
from rocketstore.files.durable import make_directories
from rocketstore.index.index_service import IndexPosition, IndexService
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.recovery.index import EarlyIndexCheck, IndexRecovery
from rocketstore.recovery.report import RecoveryReport
from rocketstore.status import KernelStatus, RecordStatus
from rocketstore.store.marks import has_all_queues

if TYPE_CHECKING:
    from rocketstore.survey.lost_queues import LostQueue

_log = logging.getLogger(__name__)
#: Lost files, or queues, that are listed one by one.
_MOST_NAMED = 100
#: Record statuses of an offset where dispatch may begin.
_STARTS = (
    RecordStatus.OK,
    RecordStatus.BLANK,
    RecordStatus.GHOST,
    RecordStatus.NUL_PROPERTIES,
    RecordStatus.UNSAFE_TOPIC,
)


class DispatchRecovery:
    """Dispatches missing units and keys, for queues and index from a verified position each (D-24).

    With a valid state file, units and keys of records past its offsets are rebuilt. Their pages
    may have reached the disk in any order, and a unit that is half written looks like a good one.
    Without one, in a short log, or if nothing was dispatched yet by the state file, every unit is
    compared with its record and rewritten if it differs.

    Parameters
    ----------
    log : CommitLog
        Recovered, as ``report`` says.
    queues, index
        Loaded; they are changed.
    config : MessageStoreConfig
    dialect : Dialect
    state : StoreState or None
        The valid part of the state file.
    report : RecoveryReport
        Receives the notes.
    give_up_state : callable
        Called before files are rebuilt that the state file says are complete.
    index_check : EarlyIndexCheck or None
        Started before the log was recovered, for the same ``state``.
    filters : BitMapFilters or None
        Write bit maps by these filters.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: IndexService,
        config: MessageStoreConfig,
        dialect: Dialect,
        state: StoreState | None,
        report: RecoveryReport,
        give_up_state: Callable[[], None] = lambda: None,
        index_check: EarlyIndexCheck | None = None,
        filters: BitMapFilters | None = None,
    ) -> None:
        self.dispatcher: CommitLogDispatcher | None = None
        #: Queues that cannot be rebuilt, found by ``run``.
        self.lost: list[LostQueue] = []
        self._index_check = index_check
        self._filters = filters
        self._give_up_state = give_up_state
        self._log = log
        self._queues = queues
        self._index = index
        self._config = config
        self._dialect = dialect
        self._state = state
        self._report = report
        self._end = report.log_end
        self._names = dialect.multi_dispatch(any_name=config.enable_multi_dispatch)
        self._minimum = max(log.min_offset, 0)

    def run(self) -> CommitLogDispatcher:
        """Recover queues and index; return the dispatcher, positioned at the log's end."""
        state = self._state
        former = {topic for topic, _ in self._queues.table}
        loaded = frozenset(self._queues.table)
        had_index = bool(self._index.files)
        self._move_unfit_aside()
        if self._minimum > 0 and (state is None or not state.clean or self._is_short):
            self._fill_expired()
        compare = self._is_to_compare()
        self._recover_queues(clear=not compare)
        start = self._minimum
        known = self._known_offset()
        queues_lost = state is not None and not has_all_queues(state, self._queues, self._minimum)
        listed = self._find_listed_queues(queues_lost=queues_lost)
        if queues_lost:
            self._report.notes.append(
                "queue files are missing or short; the queues are rebuilt from the log"
            )
            self._give_up_state()
            self._drop_queues_without_head(compare=compare)
        indexed = self._recover_index()
        if state is not None and not queues_lost and not compare:
            place = min(state.dispatched_offset, indexed.offset, self._end)
            if place > start and self._is_record_start(place):
                start = place
        batch_queues = [queue for queue in self._queues if isinstance(queue, BatchConsumeQueue)]
        for batch_queue in batch_queues if compare else ():
            batch_queue.begin_comparing(self._minimum)
        dispatcher = self._dispatch(start, indexed, compare=compare)
        if compare:
            self._report.notes += dispatcher.end_comparing(self._minimum)
            for batch_queue in batch_queues:
                batch_queue.clear_after()
        elif dispatcher.notes.gaps and start > self._minimum:
            # A queue lost units before the start: rebuild all of its units.
            dispatcher = self._dispatch_again(dispatcher)
        self._note_lost_queues(listed)
        for queue in self._queues:
            queue.correct_min_index(
                self._minimum, keep_when_empty=self._dialect.empty_queue_keeps_min
            )
        self._report.notes += [
            f"moved to {path}: it was in the place of a queue's folder or file"
            for path in self._queues.moved
        ]
        displaced = {str(path) for path in self._queues.displaced}
        self._report.skipped = [one for one in self._report.skipped if one not in displaced]
        self._note_deleted_topics(former)
        self._note_lost_files(known, loaded)
        if loaded and not had_index and self._index.files:
            self._report.notes.append(
                f"{self._index.directory} had no index file; the index was rebuilt from the log"
            )
        self._report.notes += dispatcher.notes.odd_names
        self._report.take_dispatch(dispatcher.notes.gaps, dispatcher.notes.refused)
        self._report.rebuilt_units = (
            dispatcher.kernel.mended_units if compare else dispatcher.kernel.dispatched_count
        )
        return dispatcher

    @property
    def _is_short(self) -> bool:
        """Whether all units and entries are checked, even those before a valid state's offsets."""
        return self._end - self._minimum <= COMPARED_NBYTES

    def _is_to_compare(self) -> bool:
        """Return whether all units are compared with their records.

        If a killed writer had not yet stated that it dispatched any record, all units are made, and
        mostly they are there already: to compare them is faster than to delete the files, create
        them again and sync each.
        """
        state = self._state
        nothing_stated = state is None or (
            not state.clean and state.dispatched_offset <= self._minimum
        )
        return (nothing_stated or self._is_short) and not has_units_of_other_rules(
            self._log, self._queues, self._names
        )

    # --- queues -------------------------------------------------------------------------------

    def _note_deleted_topics(self, former: set[str]) -> None:
        """Report the topics that a broker had deleted and whose queues were rebuilt."""
        made = {topic for topic, _ in self._queues.table} - former
        if not made:
            return
        from rocketstore.survey.deleted_topics import deleted_topics_note, is_unlisted, known_topics

        known = known_topics(self._queues.directory.parent)
        back = [topic for topic in made if is_unlisted(topic, known)]
        note = deleted_topics_note(back, "their queues were rebuilt")
        self._report.notes += [note] if note is not None else []

    def _find_listed_queues(self, *, queues_lost: bool) -> list[LostQueue]:
        """Return the queues that tables of offsets list, but whose files are gone.

        Creates an empty folder for each before anything else changes. If the log has no message of
        the queue left, only the folder shows the loss to the next opening.
        """
        table, batch = self._queues.table, self._queues.batch_topics
        empty = {key for key, queue in table.items() if queue.max_index == 0}
        has_none = self._state is None and all(topic in batch for topic, _ in table)
        if self._minimum == 0 or not (empty or has_none or queues_lost):
            return []
        from rocketstore.survey.deleted_topics import known_topics
        from rocketstore.survey.lost_queues import find_lost_queues, read_stated_ends

        root = self._queues.directory.parent
        listed = [
            one
            for one in find_lost_queues(
                read_stated_ends(root), self._has_messages, known_topics(root), batch, self._end
            )
            if queues_lost or one[:2] in empty or (has_none and one.topic not in batch)
        ]
        for one in listed:
            is_batch = one.topic in batch
            folder = self._queues.batch_directory if is_batch else self._queues.directory
            with contextlib.suppress(FileExistsError, NotADirectoryError):  # moved away later
                make_directories(folder / one.topic / str(one.queue_id), root)
        return listed

    def _has_messages(self, topic: str, queue_id: int) -> bool:
        queue = self._queues.get(topic, queue_id)
        return queue is not None and queue.max_index > 0

    def _note_lost_queues(self, listed: list[LostQueue]) -> None:
        """Report the queues that could not be rebuilt from the log."""
        self.lost = [one for one in listed if not self._has_messages(*one[:2])]
        for one in self.lost:
            self._queues.get_or_create(one.topic, one.queue_id)
        for one in self.lost[:_MOST_NAMED]:
            text = f"{one}; its next message gets this number"
            _log.warning("%s", text)
            self._report.notes.append(text)
        if len(self.lost) > _MOST_NAMED:
            self._report.notes.append(
                f"{len(self.lost) - _MOST_NAMED} more queues have no message left"
            )

    def _fill_expired(self) -> None:
        for queue in self._queues:
            if isinstance(queue, BatchConsumeQueue):
                continue
            count = queue.fill_expired(self._minimum)
            if count:
                self._report.notes.append(
                    f"{queue.topic} queue {queue.queue_id}: {count} zeroed units of expired "
                    "messages were filled; a broker truncates a queue at the first of them"
                )

    def _known_offset(self) -> int:
        """Return the log offset up to which the log was dispatched, by state file and queue ends.

        Dispatch runs in log order, so the largest queue end counts.
        """
        known = 0 if self._state is None else self._state.dispatched_offset
        return max([known, *(queue.recovered_end for queue in self._queues)])

    def _note_lost_files(self, known: int, loaded: frozenset[tuple[str, int]]) -> None:
        """Report the queue and ext files that were rebuilt although they had been written before.

        They were deleted, or the disk lost them.
        """
        if not loaded and known > self._minimum:
            self._report.notes.append(
                f"{self._queues.directory} held no queue; all were rebuilt from the log"
            )
            return
        lost = [
            (queue, file)
            for queue in self._queues
            for file in queue.queue.created
            if self._minimum <= queue.first_place(file, self._minimum) < known
        ]
        for queue, file in lost[:_MOST_NAMED]:
            what = f"{file.path} was missing"
            if (queue.topic, queue.queue_id) not in loaded:
                what = f"{file.path} and its whole folder were missing"
            self._report.notes.append(
                f"{queue.topic} queue {queue.queue_id}: {what}; its units were rebuilt from the log"
            )
        if len(lost) > _MOST_NAMED:
            self._report.notes.append(
                f"{len(lost) - _MOST_NAMED} more queue files were missing and were rebuilt"
            )
        last = {(queue.topic, queue.queue_id): queue for queue in self._queues if queue.ext}
        for key, queue in last.items():
            was_there = key in loaded and queue.queue.min_offset >= 0 and not queue.queue.created
            if was_there and queue.ext is not None:
                self._report.notes += [
                    f"{queue.topic} queue {queue.queue_id}: {file.path} was missing; it was "
                    "rebuilt from the log"
                    for file in queue.ext.queue.created
                ]

    def _move_unfit_aside(self) -> None:
        self._report.notes += [
            f"moved to {path}: a queue file of an impossible size or offset; its units are rebuilt "
            "from the log"
            for path in self._queues.move_unfit_aside()
        ]

    def _recover_queues(self, *, clear: bool) -> None:
        """Find the queues' ends.

        With ``clear``, clear the units past them; otherwise all units are compared with the log.
        """
        state = self._state
        trusted = self._end
        if state is not None:
            # Units are synced before their segment is deleted, even past an older state's offset.
            # They hold the next queue offset of a queue that has no other message.
            trusted = min(self._end, max(state.dispatched_offset, self._minimum))
        for queue in self._queues:
            whole = state is None or not clear
            status = queue.recover(trusted, whole=whole)
            is_good = queue.recover_ext(whole=whole)
            end = queue.start_of(queue.recovered_index)
            if not is_good or (status == KernelStatus.BAD_UNIT and end < trusted):
                self._report.notes.append(
                    f"{queue.topic} queue {queue.queue_id}: units from {queue.recovered_index} on "
                    "are corrupt; they are rebuilt from the log"
                )
            if clear or isinstance(queue, BatchConsumeQueue):
                queue.clear_after()
            if state is None:
                queue.flushed_index = 0  # the last writer may not have synced it

    def _drop_queues_without_head(self, *, compare: bool) -> None:
        """Drop queues whose first files are gone, so that they are rebuilt.

        A queue whose messages have all expired stays: only its files hold its end. A queue that
        will be compared with the log stays too: the comparison completes it.
        """
        for queue in self._queues:
            if compare and not isinstance(queue, BatchConsumeQueue):
                continue
            if queue.queue.min_offset > 0 and queue.recovered_end > self._minimum:
                queue.forget()

    # --- index --------------------------------------------------------------------------------

    def _recover_index(self) -> IndexPosition:
        if not self._config.message_index_enable:
            return IndexPosition(self._end, 0)
        state = self._state
        recovery = IndexRecovery(
            self._index,
            self._log,
            self._dialect.index_tags,
            self._give_up_state,
            self._index_check,
        )
        if state is None:
            indexed = recovery.run(self._minimum, self._end)
        else:
            trusted = min(self._end, state.indexed_offset)
            indexed = recovery.run_up_to(
                trusted,
                self._minimum,
                self._end,
                state.index_file_count,
                thorough=self._is_short,
            )
        self._report.notes += recovery.notes
        return indexed

    # --- dispatching --------------------------------------------------------------------------

    def _is_record_start(self, offset: int) -> bool:
        """Return whether ``offset`` starts a record (a wrong hint only costs time)."""
        return offset == self._end or self._log.check(offset)[0] in _STARTS

    def _dispatch(
        self, start: int, indexed: IndexPosition, *, compare: bool = False
    ) -> CommitLogDispatcher:
        """Dispatch from ``start`` to the log's end.

        Raises ``CorruptMessageError`` for corruption in a part of the log that was not checked.
        """
        self.dispatcher = dispatcher = CommitLogDispatcher(
            self._log,
            self._queues,
            self._index if self._config.message_index_enable else None,
            index_tags=self._dialect.index_tags,
            delay_ms=self._config.delay_ms,
            multi_dispatch=self._names,
            start_offset=start,
            indexed=indexed,
            compare=compare,
            filters=self._filters,
        )
        status = catch_up(dispatcher, self._end)
        if status != RecordStatus.END:
            raise dispatcher.error(status)
        return dispatcher

    def _dispatch_again(self, dispatcher: CommitLogDispatcher) -> CommitLogDispatcher:
        broken = {(topic, queue_id) for topic, queue_id, _, _ in dispatcher.notes.gaps}
        indexed = IndexPosition(dispatcher.kernel.indexed_offset, dispatcher.kernel.indexed_keys)
        dispatcher.close()
        for topic, queue_id in broken:
            queue = self._queues.get(topic, queue_id)
            if queue is not None:
                queue.forget()
        return self._dispatch(self._minimum, indexed)
