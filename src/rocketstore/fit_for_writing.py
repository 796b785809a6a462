"""What opening for writing refuses of a store, apart from damage of its log; nothing is changed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.commit_log import check_put_switches
from rocketstore.config import MessageStoreConfig
from rocketstore.durable_file import regular_file_name
from rocketstore.index_service import IndexService
from rocketstore.mapped_file_queue import DirectoryListing, MappedFileQueue
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


def take_unused_segments(listing: DirectoryListing) -> list[Path]:
    """Take segments of 0 bytes off the end of ``listing``; return their paths.

    A kill between create and extend leaves them: they held nothing. One that is alone and does not
    begin at 0 stays, because only its name tells where the log goes on.
    """
    files, unused = listing.files, []
    while files and files[-1][2] == 0 and (len(files) > 1 or files[0][0] == 0):
        unused.append(files.pop()[1])
    return unused


def refuse_unfit(paths: StorePaths, config: MessageStoreConfig, *, log_files: bool = False) -> None:
    """Raise what an opening for writing would raise, whatever becomes of the log.

    Who mends a log asks before the first change: a store that nobody can open afterwards is left
    as it was.

    Parameters
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    log_files : bool
        Also raise for log files that are missing, misnamed or of a wrong size; what is in them is
        not looked at.

    Raises
    ------
    ConfigError, MappedFileError, UnsafePathError
        As ``examine`` and ``load``.
    PermissionError
        A file or folder that is written may not be.
    """
    lock = paths.root / formats.LOCK_FILE
    if os.path.lexists(lock):
        regular_file_name(lock, paths.root)
    facts = examine_for_writing(paths, config)
    if log_files:
        take_unused_segments(facts.listing)
        size = facts.commit_log_file_size
        MappedFileQueue(paths.commit_log, size, paths.log_root, writable=False).check(facts.listing)
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
    marks = (paths.abort, paths.state, paths.checkpoint, paths.root / formats.LOCK_FILE)
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
