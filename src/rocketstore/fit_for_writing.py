"""What opening for writing refuses of a store, apart from damage of its log; nothing is changed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketstore.commit_log import check_put_switches
from rocketstore.config import MessageStoreConfig
from rocketstore.index_service import IndexService
from rocketstore.queue_table import QueueTable, refuse_contradictions
from rocketstore.rocksdb_queues import refuse_rocksdb_queues
from rocketstore.store_arguments import now_ms
from rocketstore.store_files import StoreFacts, StorePaths, examine


def examine_for_writing(paths: StorePaths, config: MessageStoreConfig) -> StoreFacts:
    """Return a store's facts; raise what makes it unfit, as ``examine`` does and more."""
    refuse_rocksdb_queues(paths)
    facts = examine(paths, config)
    refuse_contradictions(facts.queue_types)
    check_put_switches(config, facts.dialect)
    return facts


def load_index(
    facts: StoreFacts, config: MessageStoreConfig, clock: Callable[[], int]
) -> IndexService:
    """Load the index files of a store that is written."""
    paths = facts.paths
    index = IndexService(
        paths.index, *facts.index.pair, paths.root, writable=True, zone=config.zone, clock=clock
    )
    index.load(lambda _, nbytes: facts.index.by_nbytes.get(nbytes))
    return index


def load_queues(facts: StoreFacts) -> QueueTable:
    """Load the queues' files of a store that is written."""
    paths = facts.paths
    queues = QueueTable(
        paths.consume_queue,
        facts.consume_queue_file_size,
        paths.root,
        writable=True,
        batch_directory=paths.batch_consume_queue,
        batch_file_size=facts.batch_queue_file_size,
        batch_topics=facts.queue_types.batch,
    )
    if facts.ext_file_size:
        queues.use_ext(paths.consume_queue_ext, facts.ext_file_size)
    try:
        queues.load()
    except BaseException:
        queues.close()
        raise
    return queues


def refuse_unfit(paths: StorePaths, config: MessageStoreConfig) -> None:
    """Raise what an opening for writing would raise, whatever becomes of the log.

    Who mends a log asks before the first change: a store that nobody can open afterwards is left
    as it was.

    Raises
    ------
    ConfigError, MappedFileError, UnsafePathError
        As ``examine`` and ``load``.
    PermissionError
        A file or folder that is written may not be.
    """
    facts = examine_for_writing(paths, config)
    with (
        contextlib.closing(load_index(facts, config, now_ms)) as index,
        contextlib.closing(load_queues(facts)) as queues,
    ):
        for path in (*_written(facts), *_files_of(index, queues)):
            _refuse_read_only(path)


def _written(facts: StoreFacts) -> Iterator[Path]:
    """Files and folders that every opening for writing may change, as far as they are there."""
    paths = facts.paths
    folders = (paths.consume_queue, paths.batch_consume_queue, paths.consume_queue_ext, paths.index)
    marks = (paths.abort, paths.state, paths.checkpoint)
    newest = (path for _, path, _ in facts.listing.files[-1:])
    for path in (paths.root, paths.commit_log, *folders, *marks, *newest):
        if path.exists():
            yield path


def _files_of(index: IndexService, queues: QueueTable) -> Iterator[Path]:
    for file in index.files:
        yield file.path
    for queue in queues:
        for mapped in queue.queue.files:
            yield mapped.path


def _refuse_read_only(path: Path) -> None:
    as_writer = os.access in os.supports_effective_ids
    if not os.access(path, os.W_OK, effective_ids=as_writer) and path.exists():
        raise PermissionError(errno.EACCES, "it may not be written", str(path))
