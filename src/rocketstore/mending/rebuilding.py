"""Builds all queues and the index of a log in another folder; the store is only read."""

from __future__ import annotations

import concurrent.futures
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.dispatch.catching_up import catch_up
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.index.index_service import IndexPosition, IndexService
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import RecordStatus
from rocketstore.store.read_only import ReadOnlyParts

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class Rebuild:
    """Queues and index of a store's log, rebuilt below ``target``.

    Parameters
    ----------
    paths : StorePaths
        The store; its log must be sound.
    config : MessageStoreConfig
    target : Path
        An empty folder; the files stand below it as they do below the store's root.
    index : bool
        Build the index, too.
    clock : callable
        Epoch ms, for the names of index files.
    parts : ReadOnlyParts, optional
        The store with another log; closed by ``close``.

    Raises
    ------
    CorruptionError
        The log is damaged.
    io.UnsupportedOperation
        The queues are in RocksDB.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        target: Path,
        *,
        index: bool,
        clock: Callable[[], int],
        parts: ReadOnlyParts | None = None,
    ) -> None:
        self._target = target
        self._config = config
        self.old = parts or ReadOnlyParts(
            paths, config, derive="none", as_files=True, clock=clock, progress=None
        )
        try:
            self._refuse_unfit()
            self.queues = self._make_queues()
            self.index = self._make_index(clock) if index else None
        except BaseException:
            self.old.close()
            raise

    def _refuse_unfit(self) -> None:
        if self.old.rocksdb is not None:
            raise io.UnsupportedOperation(
                f"the queues are in RocksDB ({self.old.rocksdb.directory}); a broker rebuilds them"
            )
        for damage in self.old.report.damaged:
            raise damage.refusal()

    def _make_queues(self) -> QueueTable:
        facts, target = self.old.facts, self._target
        queues = QueueTable(
            target / formats.CONSUME_QUEUE_DIR,
            facts.consume_queue_file_size,
            target,
            writable=True,
            batch_directory=target / self.old.paths.batch_consume_queue.name,
            batch_file_size=facts.batch_queue_file_size,
            batch_topics=facts.queue_types.batch,
        )
        if facts.ext_file_size:
            queues.use_ext(target / self.old.paths.consume_queue_ext.name, facts.ext_file_size)
        return queues

    def _make_index(self, clock: Callable[[], int]) -> IndexService:
        return IndexService(
            self._target / formats.INDEX_DIR,
            *self.old.facts.index.pair,
            self._target,
            writable=True,
            zone=self._config.zone,
            clock=clock,
        )

    @property
    def start(self) -> int:
        """Log offset of the first record."""
        return max(self.old.log.min_offset, 0)

    @property
    def end(self) -> int:
        """Log offset after the last record."""
        return self.old.log.max_offset

    def run(self, progress: Progress | None, jobs: int = 1) -> int:
        """Dispatch the whole log; return the number of units made.

        ``jobs`` threads sync the queues. Raises ``StoreFullError`` if the disk is full.
        """
        old, start = self.old, self.start

        def advance(offset: int) -> None:
            if progress is not None:
                progress("building", offset - start, self.end - start)

        dispatcher = CommitLogDispatcher(
            old.log,
            self.queues,
            self.index,
            index_tags=old.dialect.index_tags,
            delay_ms=self._config.delay_ms,
            multi_dispatch=old.dialect.multi_dispatch(any_name=self._config.enable_multi_dispatch),
            start_offset=start,
            indexed=IndexPosition(start, 0),
        )
        try:
            status = catch_up(dispatcher, self.end, advance)
            if status != RecordStatus.END:
                raise dispatcher.error(status)
            each(_flush, list(self.queues), jobs)
            if self.index is not None:
                self.index.flush(self.end)
            return int(dispatcher.kernel.dispatched_count)
        finally:
            dispatcher.close()

    def close(self) -> None:
        """Close all files."""
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.old.close()


def _flush(queue: ConsumeQueue | BatchConsumeQueue) -> None:
    queue.flush(queue.max_index)


def each(call: Callable[[_Item], _Answer], items: Sequence[_Item], jobs: int) -> list[_Answer]:
    """Return ``call(item)`` of each item, in their order; ``jobs`` run at a time.

    The first error in that order is raised; calls that have not begun then do not begin.
    """
    if jobs == 1 or len(items) < 2:
        return [call(item) for item in items]
    failed: list[int] = []

    def attempt(number: int) -> _Answer:
        if any(earlier < number for earlier in failed):
            raise concurrent.futures.CancelledError
        try:
            return call(items[number])
        except BaseException:
            failed.append(number)
            raise

    with concurrent.futures.ThreadPoolExecutor(jobs, "rocketstore-mending") as pool:
        tasks = [pool.submit(attempt, number) for number in range(len(items))]
        try:
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
