"""The first part of opening for writing: check the log, refuse corruption, truncate its tail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.state import StoreState
from rocketstore.files.durable import remove_leftovers
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.index.index_service import IndexService
from rocketstore.log.commit_log import CommitLog, record_flags
from rocketstore.queues.queue_table import QueueTable
from rocketstore.recovery.index import EarlyIndexCheck
from rocketstore.recovery.log_recovery import LogRecovery
from rocketstore.recovery.recover_log import recover_log
from rocketstore.recovery.report import RecoveryReport
from rocketstore.recovery.truncate import (
    drop_cached_pages,
    renew_cached_pages,
    sync_log,
    truncate_tail,
)
from rocketstore.store.fit_for_writing import (
    examine_for_writing,
    load_index,
    load_queues,
    refuse_linked,
    refuse_linked_end,
    take_unused_segments,
)
from rocketstore.store.opening_undo import OpeningUndo
from rocketstore.survey.facts import StoreFacts


@dataclass(frozen=True)
class TakenOver:
    """A store whose log is fit for writing: nothing is missing, and torn writes are truncated.

    Attributes
    ----------
    facts : StoreFacts
    segments : MappedFileQueue
        The log's, mapped once for the check and for all later use.
    queues : QueueTable
    index : IndexService
        Both loaded, and not yet compared with the log.
    index_check : EarlyIndexCheck or None
        The check of the newest index file, started before the log's check.
    state : StoreState or None
        The valid part of the state file.
    report : RecoveryReport
    unused : list of Path
        Empty segments at the log's end, to be deleted.
    """

    facts: StoreFacts
    segments: MappedFileQueue
    queues: QueueTable
    index: IndexService
    index_check: EarlyIndexCheck | None
    state: StoreState | None
    report: RecoveryReport
    unused: list[Path]


class TakeOver:
    """One opening for writing, up to the point where the log is fit.

    Parameters
    ----------
    paths : StorePaths
        Locked by the caller.
    config : MessageStoreConfig
    clock : callable
        Epoch ms.
    progress : callable or None
    undo : OpeningUndo
        Records which queues and index files exist.
    opened : ExitStack
        Receives the parts that must be closed.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        clock: Callable[[], int],
        progress: Progress | None,
        undo: OpeningUndo,
        opened: contextlib.ExitStack,
    ) -> None:
        self._paths = paths
        self._config = config
        self._clock = clock
        self._progress = progress
        self._undo = undo
        self._opened = opened

    def run(self) -> TakenOver:
        """Examine the files, check the log, refuse corruption, truncate a torn tail, and sync.

        Nothing on disk changes until the log is found fit.
        """
        facts = examine_for_writing(self._paths, self._config)
        unused = take_unused_segments(facts.listing)
        index = load_index(facts, self._config, self._clock)
        self._opened.callback(index.close)
        index_check = self._begin_index_check(facts, index)
        queues = self._load_queues(facts, index)
        segments = self._map_segments(facts)
        log = CommitLog(segments, 0, record_flags(self._config))
        recovery, state = self._recover_log(log, facts, queues, index)
        self._make_fit(log, facts, recovery, state)
        return TakenOver(
            facts, segments, queues, index, index_check, state, recovery.report, unused
        )

    def _begin_index_check(self, facts: StoreFacts, index: IndexService) -> EarlyIndexCheck | None:
        state = facts.valid_state
        if state is None or not self._config.message_index_enable:
            return None
        return EarlyIndexCheck.of_newest(index, state.indexed_offset)

    def _load_queues(self, facts: StoreFacts, index: IndexService) -> QueueTable:
        """Load the queues' files, and refuse unfit ones before the log is truncated."""
        queues = load_queues(facts)
        self._opened.callback(queues.close)
        self._undo.note_parts(queues, index)
        refuse_linked(facts, index, queues)
        return queues

    def _map_segments(self, facts: StoreFacts) -> MappedFileQueue:
        segments = MappedFileQueue(
            self._paths.commit_log, facts.commit_log_file_size, self._paths.log_root, writable=True
        )
        self._opened.callback(segments.close)
        segments.check(facts.listing)
        segments.load(facts.listing)
        return segments

    def _recover_log(
        self, log: CommitLog, facts: StoreFacts, queues: QueueTable, index: IndexService
    ) -> tuple[LogRecovery, StoreState | None]:
        if facts.aborted:
            known = facts.valid_state
            drop_cached_pages(log, known.flushed_offset if known is not None else 0)
            for queue in queues:  # their units may be compared with the log
                renew_cached_pages(queue.queue.files)
        recovery, state = recover_log(
            log, facts, self._progress, queues=queues, index=index, for_writing=True
        )
        report = recovery.report
        report.clean = not facts.aborted
        report.notes += facts.notes
        report.skipped += [str(path) for path in facts.listing.foreign]
        return recovery, state

    def _make_fit(
        self,
        log: CommitLog,
        facts: StoreFacts,
        recovery: LogRecovery,
        state: StoreState | None,
    ) -> None:
        root, report = self._paths.root, recovery.report
        if report.damaged:
            raise report.damaged[0].refusal()
        refuse_linked_end(facts, report.log_end)
        if recovery.losses is not None:
            recovery.losses.keep(root, report, self._clock)
        for directory in {root, self._paths.log_root}:
            remove_leftovers(directory)
        end = report.log_end
        if not recovery.is_end_clean:
            report.cut = truncate_tail(log, end, recovery.torn_reason, root, self._clock)
        sync_log(log, 0 if state is None else report.durable_mark, end)
