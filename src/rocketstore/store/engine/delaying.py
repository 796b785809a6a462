"""Delayed messages of an open store: the report, and the service that delivers them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.delay.offset_table import DelayOffsetTable, load_for_reading
from rocketstore.delay.progress import DelayProgress
from rocketstore.delay.report import DelayReport
from rocketstore.delay.service import DelayService
from rocketstore.lock_order import LockRank
from rocketstore.store.arguments import now_ms

if TYPE_CHECKING:
    from rocketstore.dialect import Dialect
    from rocketstore.directory.paths import StorePaths
    from rocketstore.dispatch.reput_service import ReputMessageService
    from rocketstore.flush.flush import FlushedLog
    from rocketstore.log.commit_log import CommitLog
    from rocketstore.log.writable_commit_log import WritableCommitLog
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.queues.queue_table import QueueTable
    from rocketstore.recovery.report import RecoveryReport
    from rocketstore.survey.facts import StoreFacts


class StoreToReport(Protocol):
    """What a report needs of an open store."""

    path: Path

    @property
    def mode(self) -> str:
        """Return how it was opened."""

    def refresh(self) -> None:
        """Show what was written since; mode ``"r"`` only."""

    @property
    def config(self) -> MessageStoreConfig:
        """The options."""

    @property
    def clock(self) -> Callable[[], int]:
        """Return epoch ms."""

    @property
    def reader(self) -> StoreReader:
        """The opened parts."""

    @property
    def delay_service(self) -> DelayService | None:
        """What delivers, if anything does."""

    @property
    def facts(self) -> StoreFacts:
        """What the files showed."""

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening found."""


class WriterToDeliver(Protocol):
    """What delivery needs of a store that is open for writing."""

    paths: StorePaths
    config: MessageStoreConfig
    clock: Callable[[], int]
    facts: StoreFacts
    report: RecoveryReport
    log: WritableCommitLog
    queues: QueueTable
    dialect: Dialect
    flushed: FlushedLog
    reput: ReputMessageService
    delay: DelayService | None

    def wait_dispatched(self, timeout_s: float | None) -> bool:
        """See ``DefaultMessageStore.wait_dispatched``."""

    def fail(self, error: BaseException) -> Any:
        """Stop accepting puts."""


_log = logging.getLogger(__name__)
#: Only one service may deliver a store's messages. Held while the log is read for deliveries.
MAKING = kernels.locks.OrderedLock(LockRank.REFRESH)


def report_delays(store: StoreToReport) -> DelayReport:
    """Return the report of a store; see ``DefaultMessageStore.delays``."""
    notes: list[str] = []
    service = store.delay_service
    progress = _read_progress(store, notes) if service is None else service.progress
    return DelayReport(store.reader.log, progress, store.clock, lambda: store.reader, notes)


def _read_progress(store: StoreToReport, notes: list[str]) -> DelayProgress:
    table, problem = load_for_reading(store.path, store.clock)
    if problem is not None:
        notes.append(f"{problem}; all delayed messages in the log are shown as waiting")
    if store.mode == "r" and (table.log_offset or 0) > store.reader.log.max_offset:
        store.refresh()  # a writer wrote the table since the log was read
    return DelayProgress(
        store.reader.log,
        store.reader.queues,
        store.config.delay_ms,
        table,
        aborted=store.facts.aborted,
        newest=store.recovery_report.newest_store_timestamp,
    )


def waiting_notes(
    root: Path,
    config: MessageStoreConfig,
    log: CommitLog,
    queues: QueueTable,
    aborted: bool,
    newest: int,
) -> list[tuple[str, int]]:
    """Return notes for ``verify``: how many delayed messages wait, are due, and were given up.

    Each comes with the number of messages that are due, 0 for those that cannot be delivered.

    An unreadable offset table and offsets past a queue are findings, so they are not noted here.
    """
    table, problem = load_for_reading(root, now_ms)
    if problem is not None:
        return []
    progress = DelayProgress(log, queues, config.delay_ms, table, aborted=aborted, newest=newest)
    report = DelayReport(log, progress, now_ms, lambda: None)
    parked = sum(len(level.parked) for level in report.levels)
    overdue = report.overdue
    rows = (
        (f"delayed messages that are not delivered yet ({overdue} are due)", report.pending,
         overdue),
        ("delayed messages that cannot be delivered", parked, 0),
    )  # fmt: skip
    return [(f"{text}: {count}", due) for text, count, due in rows if count]


def deliver(writer: WriterToDeliver, max_count: int | None) -> int:
    """Deliver what is due; see ``DefaultMessageStore.deliver_due``."""
    if max_count is not None:
        is_count = isinstance(max_count, int) and not isinstance(max_count, bool)
        if not is_count or max_count < 0:
            raise ValueError(f"max_count is {max_count!r}; it must be 0 or a higher int, or None")
    if writer.config.broker_role == "SLAVE":
        return 0
    writer.wait_dispatched(None)
    if writer.delay is None:
        with MAKING:
            if writer.delay is None:
                writer.delay = make_delay_service(writer)
    return writer.delay.deliver_due(max_count)


def make_delay_service(writer: WriterToDeliver) -> DelayService:
    """Return the service for a store that is open for writing; read what was delivered before.

    Raises ``CorruptionError`` if the offset table and its ``.bak`` cannot be read.
    """
    table = DelayOffsetTable(writer.paths.root, writer.clock)
    table.load()
    progress = DelayProgress(
        writer.log,
        writer.queues,
        writer.config.delay_ms,
        table,
        aborted=writer.facts.aborted,
        newest=writer.report.newest_store_timestamp,
    )
    for note in progress.notes:
        _log.warning("%s", note)
    service = DelayService(
        writer.log,
        progress,
        table,
        writer.config,
        writer.dialect,
        writer.clock,
        writer.flushed.flush,
        writer.fail,
    )
    writer.reput.call_after_steps(service.note_dispatch)
    return service
