"""Checks that can refuse opening for writing, except for log corruption; they change nothing."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.lock import refuse_odd_lock
from rocketstore.directory.parts import refuse_rocksdb_queues
from rocketstore.directory.paths import StorePaths
from rocketstore.files.durable import READ_ONLY, is_zeros, naming, open_regular_file
from rocketstore.files.linked_files import refuse_hard_linked_files, refuse_shared_files
from rocketstore.files.mapped_file_queue import DirectoryListing, MappedFileQueue
from rocketstore.index.index_service import IndexService
from rocketstore.log.writable_commit_log import check_put_switches
from rocketstore.queues.queue_table import QueueTable
from rocketstore.queues.queue_types import refuse_contradictions
from rocketstore.store.arguments import now_ms
from rocketstore.survey.facts import StoreFacts, examine


def examine_for_writing(paths: StorePaths, config: MessageStoreConfig) -> StoreFacts:
    """Return a store's facts; raise, in addition to ``examine``, if it cannot be written."""
    paths.refuse_several_logs()
    refuse_rocksdb_queues(paths)
    facts = examine(paths, config)
    refuse_contradictions(facts.queue_types)
    check_put_switches(config, facts.dialect)
    return facts


def load_index(
    facts: StoreFacts, config: MessageStoreConfig, clock: Callable[[], int]
) -> IndexService:
    """Load the index files of a store open for writing."""
    paths = facts.paths
    index = IndexService(
        paths.index, *facts.index.pair, paths.root, writable=True, zone=config.zone, clock=clock
    )
    index.load(lambda _, nbytes: facts.index.by_nbytes.get(nbytes))
    return index


def load_queues(facts: StoreFacts) -> QueueTable:
    """Load the queue files of a store open for writing."""
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
        queues.load(facts.queue_listings)
    except BaseException:
        queues.close()
        raise
    return queues


def refuse_linked(facts: StoreFacts, index: IndexService, queues: QueueTable) -> None:
    """Raise if two names are one file, or if a queue or index file has a hard link elsewhere.

    Any part of these files may be written.

    Raises
    ------
    MappedFileError
        Two names in the store are links to one file.
    UnsafePathError
        A queue or index file has another name outside the store.
    """
    if not (facts.listing.linked or index.linked or queues.linked):
        return
    derived = list(_files_of(index, queues))
    log = (path for _, path, _ in facts.listing.files)
    refuse_shared_files([*log, *derived, *index.unusable, *queues.unfit])
    refuse_hard_linked_files(derived, _roots(facts))


def refuse_linked_end(facts: StoreFacts, end: int) -> None:
    """Raise ``UnsafePathError`` if a segment that may be written has a hard link elsewhere.

    These are the segment in which the log ends at ``end`` and those after it.
    """
    if facts.listing.linked:
        size = facts.commit_log_file_size
        written = [path for start, path, _ in facts.listing.files if start + size > end]
        refuse_hard_linked_files(written, _roots(facts))


def _roots(facts: StoreFacts) -> tuple[Path, Path]:
    return facts.paths.root, facts.paths.log_root


def _newest_with_content(facts: StoreFacts) -> int:
    """Return the offset of the newest segment that does not begin with zeros, 0 if none."""
    for start, path, _ in reversed(facts.listing.files):
        fd = open_regular_file(path, READ_ONLY, facts.paths.log_root)
        try:
            with naming(path):
                if not is_zeros(os.pread(fd, formats.RECORD_HEAD.nbytes, 0)):
                    return start
        finally:
            os.close(fd)
    return 0


def take_unused_segments(listing: DirectoryListing) -> list[Path]:
    """Remove segments of 0 bytes from the end of ``listing``; return their paths.

    They remain when a writer is killed between creating and extending a segment, and never held
    data. A single one that does not begin at 0 stays: only its name holds the log's next offset.
    """
    files, unused = listing.files, []
    while files and files[-1][2] == 0 and (len(files) > 1 or files[0][0] == 0):
        unused.append(files.pop()[1])
    return unused


def refuse_unfit(paths: StorePaths, config: MessageStoreConfig, *, log_files: bool = False) -> None:
    """Raise what opening for writing would raise, apart from errors about the log's content.

    Repair commands call this before their first change, so that they do not change a store that
    cannot be opened afterwards.

    Parameters
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    log_files : bool
        Also raise for log files that are missing, misnamed or of a wrong size; their content is not
        checked.

    Raises
    ------
    ConfigError, MappedFileError, UnsafePathError
        As ``examine``, ``load`` and ``refuse_linked``; also for ``lock``.
    PermissionError
        A file or folder that must be writable is not.
    """
    refuse_odd_lock(paths.root / formats.LOCK_FILE, paths.root)
    facts = examine_for_writing(paths, config)
    if log_files:
        take_unused_segments(facts.listing)
        size = facts.commit_log_file_size
        MappedFileQueue(paths.commit_log, size, paths.log_root, writable=False).check(facts.listing)
    with (
        contextlib.closing(load_index(facts, config, now_ms)) as index,
        contextlib.closing(load_queues(facts)) as queues,
    ):
        refuse_linked(facts, index, queues)
        if facts.listing.linked:
            refuse_linked_end(facts, _newest_with_content(facts))
        for path in (*_written(facts), *_files_of(index, queues)):
            _refuse_read_only(path)


def _written(facts: StoreFacts) -> Iterator[Path]:
    """Yield the existing files and folders that any opening for writing may change."""
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
        rows = [queue.queue] if queue.ext is None else [queue.queue, queue.ext.queue]
        for row in rows:
            for mapped in row.files:
                yield mapped.path


def _refuse_read_only(path: Path) -> None:
    as_writer = os.access in os.supports_effective_ids
    if not os.access(path, os.W_OK, effective_ids=as_writer) and path.exists():
        raise PermissionError(errno.EACCES, "no write permission", str(path))
