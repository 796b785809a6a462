"""Mode ``"r"``: a store's parts opened without taking the lock or writing anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import rocksdb_queues
from rocketstore.directory.paths import StorePaths
from rocketstore.dispatch.dispatcher import COMPARED_NBYTES, CommitLogDispatcher
from rocketstore.dispatch.named_queues import has_units_of_other_rules
from rocketstore.files.forward_pages import release_pages
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import DirectoryListing, MappedFileQueue, check_place
from rocketstore.index.index_service import IndexPosition, IndexService
from rocketstore.log.commit_log import CommitLog, modification_time, record_flags
from rocketstore.log.scan import LogScan
from rocketstore.message import StoredMessage
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.queue_table import QueueTable
from rocketstore.queues.rocksdb import BoundlessQueueTable
from rocketstore.recovery.index import EarlyIndexCheck, IndexRecovery
from rocketstore.recovery.recover_log import recover_log
from rocketstore.recovery.report import RecoveryReport
from rocketstore.status import RecordStatus
from rocketstore.survey.facts import examine
from rocketstore.survey.lost_log import refuse_another_log

_WITH_UNIT = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
_QUEUED_TYPES = (formats.SYS_FLAG_TRANSACTION_NOT, formats.SYS_FLAG_TRANSACTION_COMMIT)
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)

#: Files mapped at opening, so that the snapshot keeps them when a writer deletes them. A process
#: may have 65,530 mappings; files past these limits can vanish before their first use.
_MOST_HELD_SEGMENTS = 16_384
_MOST_HELD_QUEUE_FILES = 4096
#: Pages of queue files are released when so many bytes were searched for the queues' ends.
_MOST_CHECKED_NBYTES = 64 << 20


Gap = tuple[str, int, int, int]


def _absent_segments(listing: DirectoryListing, size: int) -> dict[int, str]:
    """Return the segments that exist but have no readable content, by offset, with the reason.

    They lack read permission, are not files, or are empty. Empty ones at the log's end are not
    among them: a writer may just have created them.
    """
    named = listing.unreadable.items()
    offsets = ((formats.file_name_to_offset(path.name), why) for path, why in named)
    absent = {offset: why for offset, why in offsets if offset is not None and offset % size == 0}
    last = max((offset for offset, _, nbytes in listing.files if nbytes), default=-1)
    for offset, _, nbytes in listing.files:
        if nbytes == 0 and offset < last and offset % size == 0:
            absent[offset] = f"the file has 0 bytes instead of {size}"
    return absent


def _may_not_be_read(path: Path) -> bool:
    return not os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK)


def _is_in_a_file_s_place(path: Path) -> bool:
    """Return whether ``path`` has the name of a queue or index file but is not a file."""
    is_name = formats.is_index_name(path.name) or formats.file_name_to_offset(path.name) is not None
    return is_name and not path.is_file()


class QueuesMovedError(Exception):
    """A writer dispatched while queues were loaded: one lacks units older than another one's."""


class ReadOnlyParts:
    """Log, queues and index as they are on disk, completed in memory as ``derive`` says.

    Parameters
    ----------
    paths : StorePaths
    config : MessageStoreConfig
    derive : {"tail", "full", "none"}
        Derive in memory the units and keys past the ends of queues and index; or all of them; or
        none.
    clock : callable
        Epoch ms.
    progress : callable or None
    accept_gaps : callable
        Returns whether the queues may lack the given units; if not, ``QueuesMovedError`` is raised.
        Called only for a store that another process may be writing.
    as_files : bool
        With ``"none"``: use the queue files alone, even if the queues are in RocksDB. Otherwise
        RocksDB queues are derived from the log whatever ``derive`` says.
    """

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        *,
        derive: str,
        as_files: bool = False,
        accept_gaps: Callable[[list[Gap]], bool] = lambda gaps: True,
        clock: Callable[[], int],
        progress: Progress | None,
    ) -> None:
        self.paths = paths
        self.config = config
        self.dispatcher: CommitLogDispatcher | None = None
        self._progress = progress
        self._clock = clock
        self._index_check: EarlyIndexCheck | None = None
        try:
            self._open(derive, accept_gaps, as_files=as_files)
        except BaseException:
            self.close()  # open mappings would keep the disk space of files deleted meanwhile
            raise

    def _open(
        self, derive: str, accept_gaps: Callable[[list[Gap]], bool], *, as_files: bool
    ) -> None:
        directory_time = modification_time(*self.paths.log_folders)
        self.facts = examine(self.paths, self.config, tolerate_unreadable=True)
        self.dialect = self.facts.dialect
        self.rocksdb = rocksdb_queues(self.paths.root)
        self.log = self._load_log()
        self.log.directory_time = directory_time
        self.queues = self._load_queues(load=derive != "full")
        self.index = self._load_index(load=derive != "full")
        if derive == "tail" and self._cannot_read_queues_or_index():
            derive = "full"
            self.queues.close()
            self.index.close()
            self.queues = self._load_queues(load=False)
            self.index = self._load_index(load=False)
        if derive == "tail":
            self._begin_index_check()
        # RocksDB may have queues that the files lack, so the files do not show how far dispatch is.
        whole = derive == "full" or (self.rocksdb is not None and not as_files)
        # If all plain queues are gone, the batch queues do not show how far those went.
        whole_queues = whole or not self.paths.consume_queue.is_dir()
        reached = self._minimum if whole else self._dispatched_offset()
        dispatched = self._minimum if whole_queues else reached
        self.report = self._recover(dispatched)
        if derive != "none" or whole:
            self._derive(dispatched, derive)
            gaps = self.report.gaps
            if self.facts.aborted and gaps and not accept_gaps(gaps):
                raise QueuesMovedError
        if derive == "full":
            self._take_expired_queues()
        self.report.warn(self.paths.root)
        self.behind_nbytes = 0 if self.dispatcher else self._missing_nbytes(dispatched, reached)
        #: The log's end up to which ``follow`` brought the queues.
        self._followed_end = self.log.max_offset
        self._correct_min_indexes()
        if as_files:
            for file in self.log.queue.files:
                release_pages(file)  # the caller walks the log itself

    def _correct_min_indexes(self) -> None:
        for queue in self.queues:
            queue.correct_min_index(
                self._minimum, keep_when_empty=self.dialect.empty_queue_keeps_min
            )

    def load_again(self) -> None:
        """Reload the files of queues and index.

        They then cover all that the writer had dispatched when these parts were opened. The first
        load listed one queue after another while the writer went on.
        """
        self.facts.queue_listings.clear()
        queues = self._load_queues(load=True)
        try:
            index = self._load_index(load=True)
        except BaseException:
            queues.close()
            raise
        self.queues.close()
        self.index.close()
        self.queues, self.index = queues, index
        self._correct_min_indexes()

    @property
    def _minimum(self) -> int:
        return max(self.log.min_offset, 0)

    # --- loading ------------------------------------------------------------------------------

    def _load_log(self) -> CommitLog:
        listing, size = self.facts.listing, self.facts.commit_log_file_size
        newest = listing.files[-1][1] if listing.files else None
        self._odd_segments = [
            f"{path} has {nbytes} bytes instead of {size}; the bytes present are read"
            for _, path, nbytes in listing.files
            if nbytes != size
            # A broker creates an empty segment, then extends it.
            and not (path == newest and nbytes == 0 and self.paths.has_writer())
        ]
        self._odd_segments += [f"{path} {why}" for path, why in listing.unreadable.items()]
        misnamed = [(offset, path) for offset, path, _ in listing.files if offset % size]
        if misnamed and misnamed[0][0] == listing.files[0][0]:
            check_place(*misnamed[0], size)  # where the log begins is unknown
        self._odd_segments += [
            f"{path} does not begin at a multiple of {size}; it is not read" for _, path in misnamed
        ]
        absent = _absent_segments(listing, size)
        listing.files = [
            (offset, path, nbytes)
            for offset, path, nbytes in listing.files
            if nbytes > 0 and offset % size == 0
        ]
        if not listing.files:
            listing.refuse_unreadable()
        queue = MappedFileQueue(
            self.paths.commit_log,
            size,
            self.paths.log_root,
            writable=False,
            more_directories=self.paths.more_logs,
        )
        queue.load(listing)
        queue.hold(_MOST_HELD_SEGMENTS)
        log = CommitLog(queue, 0, record_flags(self.config))
        log.absent = absent
        return log

    def _load_queues(self, *, load: bool) -> QueueTable:
        only_rocksdb = self.rocksdb is not None and not self.rocksdb.beside_files
        kind = BoundlessQueueTable if only_rocksdb else QueueTable
        queues = kind(
            self.paths.consume_queue,
            self.facts.consume_queue_file_size,
            self.paths.root,
            writable=False,
            in_memory=True,
            batch_directory=self.paths.batch_consume_queue,
            batch_file_size=self.facts.batch_queue_file_size,
            batch_topics=self.facts.queue_types.batch,
        )
        if isinstance(queues, BoundlessQueueTable):
            queues.pull_looks_no_further = self.dialect.pull_asks_for_count
        if self.facts.ext_file_size:
            queues.use_ext(self.paths.consume_queue_ext, self.facts.ext_file_size)
        try:
            if load:
                self._fill(queues)
        except BaseException:
            queues.close()
            raise
        return queues

    def _fill(self, queues: QueueTable) -> None:
        """Load the queues' files, map them, and find the queues' ends."""
        queues.load(self.facts.queue_listings)
        left = _MOST_HELD_QUEUE_FILES
        for queue in queues:
            left -= queue.queue.hold(left)
        last = self.log.queue.last()
        end = last.file_from_offset + last.file_size if last is not None else 0
        checked: list[MappedFile] = []
        for queue in queues:
            queue.recover(end, whole=False)
            checked += queue.queue.files[-3:]
            if sum(file.file_size for file in checked) >= _MOST_CHECKED_NBYTES:
                for file in checked:
                    release_pages(file)
                checked.clear()

    def _load_index(self, *, load: bool) -> IndexService:
        index = IndexService(
            self.paths.index,
            *self.facts.index.pair,
            self.paths.root,
            writable=False,
            in_memory=True,
            zone=self.config.zone,
            clock=self._clock,
        )
        if load:
            index.load(lambda _, nbytes: self.facts.index.of(nbytes))
            for file in index.files:
                file.buffer  # noqa: B018 - maps the file, so that it cannot vanish
        return index

    def _cannot_read_queues_or_index(self) -> bool:
        """Return whether a file or folder of queues or index lacks read permission or is not a
        file; queues and index are then derived from the log."""
        skipped = [*self.queues.skipped, *self.index.skipped]
        closed = [path for path in skipped if _may_not_be_read(path)]
        odd = [path for path in skipped if path not in closed and _is_in_a_file_s_place(path)]
        derived = "queues and index are derived from the log"
        self._odd_segments += [f"{path}: no read permission; {derived}" for path in closed]
        self._odd_segments += [f"{path} is not a regular file; {derived}" for path in odd]
        return bool(closed or odd)

    def _begin_index_check(self) -> None:
        """Start the index check early if a clean stop left the log's end in the state file."""
        state = self.facts.valid_state
        if self.config.message_index_enable and state is not None and not self.facts.aborted:
            self._index_check = EarlyIndexCheck.of_newest(self.index, state.log_end_offset)

    # --- the log's end ------------------------------------------------------------------------

    def _dispatched_offset(self) -> int:
        """Return the largest queue end that is the end of a good record (dispatch runs in log
        order)."""
        limit = self.log.queue.last()
        self.log.move_end(limit.file_from_offset + limit.file_size if limit is not None else 0)
        ends = sorted({queue.recovered_end for queue in self.queues}, reverse=True)
        for end in ends[:64]:
            for queue in self.queues:
                if queue.recovered_end != end:
                    continue
                unit = queue.unit(queue.recovered_index - 1)
                if unit is None:
                    continue
                status, size = self.log.check(unit[0])
                if status in _COMPLETE and size == unit[1]:
                    return max(end, self._minimum)
        return self._minimum

    def _missing_nbytes(self, dispatched: int, reached: int) -> int:
        """Return the bytes of the log from the first record past ``dispatched`` that lacks a unit
        it must have. Batch queues have the units of their topics up to ``reached``."""
        end = self.log.max_offset
        scan = LogScan(self.log, dispatched, end, int(self.log.record_flags))
        for batch in scan:
            for number in range(batch.count):
                row = batch.row(number)
                kind = row["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
                if row["status"] not in _WITH_UNIT or kind not in _QUEUED_TYPES:
                    continue
                message = batch.window.message(row["position"])
                if message.physical_offset >= reached or not self._has_batch_unit(message):
                    return end - message.physical_offset
        return end - max(scan.offset, dispatched)

    def _has_batch_unit(self, message: StoredMessage) -> bool:
        """Return whether batch queues alone have units of the message."""
        is_listed = formats.PROPERTY_INNER_MULTI_DISPATCH in message.properties
        return message.topic in self.facts.queue_types.batch and not is_listed

    def _recover(self, start: int) -> RecoveryReport:
        recovery, _ = recover_log(
            self.log,
            self.facts,
            self._progress,
            queues=self.queues,
            index=self.index,
            position=start,
        )
        report = recovery.report
        report.clean = not self.facts.aborted
        report.notes += [*self.facts.notes, *self._odd_segments]
        report.notes += self.facts.queue_types.contradictions
        if self.rocksdb is not None:
            report.notes.append(
                f"{self.rocksdb.directory} holds consume queues in RocksDB, which are not read; "
                "queues are derived from the log"
            )
        report.skipped += [
            str(path)
            for path in (
                *self.facts.listing.foreign,
                *self.queues.skipped,
                *self.index.skipped,
                *self._odd_index_files(),
            )
            if self.rocksdb is None or path.parent != self.rocksdb.directory
        ]
        return report

    def _odd_index_files(self) -> list[Path]:
        """Return the index files of unknown geometry."""
        begun = self.index.begun
        if begun is None or self.paths.has_writer():
            return self.index.unusable
        return [*self.index.unusable, begun]

    # --- deriving -----------------------------------------------------------------------------

    def _derive(self, dispatched: int, derive: str) -> None:
        end = self.log.max_offset
        for queue in self.queues:
            if queue.recovered_end > end:
                queue.recover(end, whole=True)
        is_short = end - self._minimum <= COMPARED_NBYTES
        may_index = self.config.message_index_enable and derive != "none"
        wants_index = may_index and (
            derive == "full"
            or is_short
            or bool(self.index.files)
            or len(self.queues) == 0
            or self._has_no_keys_yet()
        )
        if may_index and not wants_index and end > self._minimum:
            self.report.notes.append(
                "there is no index file; find() scans the log for a key, query_message() needs "
                'derive="full" at opening'
            )
            self.index.gaps = ((self._minimum, end),)
        indexed = IndexPosition(end, 0)
        if wants_index:
            recovery = IndexRecovery(
                self.index, self.log, self.dialect.index_tags, check=self._index_check
            )
            indexed = recovery.run(self._minimum, end)
            self.report.notes += recovery.notes
            self.index.gaps = recovery.gaps(self._minimum)
            state = self.facts.valid_state
            if state is not None and not self.index.files and self._has_no_keys_yet():
                indexed = IndexPosition(min(max(self._minimum, state.indexed_offset), end), 0)
        # In a corrupt log, keep the units: they still show where an unreadable message was.
        names = self.dialect.multi_dispatch(any_name=self.config.enable_multi_dispatch)
        compare = derive == "tail" and is_short and not self.report.damaged
        compare = compare and not has_units_of_other_rules(self.log, self.queues, names)
        start = self._minimum if compare else max(self._minimum, min(dispatched, indexed.offset))
        for queue in self.queues:
            if compare and isinstance(queue, BatchConsumeQueue):
                queue.begin_comparing(self._minimum)
        self.dispatcher = CommitLogDispatcher(
            self.log,
            self.queues,
            self.index if wants_index else None,
            index_tags=self.dialect.index_tags,
            delay_ms=self.config.delay_ms,
            multi_dispatch=names,
            start_offset=start,
            indexed=indexed,
            compare=compare,
        )
        self._dispatch_around_damage(end)
        if compare:
            self.dispatcher.end_comparing(self._minimum)
        notes = self.dispatcher.notes
        self.report.notes += notes.odd_names
        self.report.take_dispatch(notes.gaps, notes.refused)
        kernel = self.dispatcher.kernel
        self.report.rebuilt_units = kernel.mended_units if compare else kernel.dispatched_count

    def _take_expired_queues(self) -> None:
        """Take queues whose messages have all expired from the files: only these hold the queues'
        ends."""
        files = self._load_queues(load=True)
        for key, queue in list(files.table.items()):
            if key not in self.queues.table and 0 < queue.recovered_end <= self._minimum:
                self.queues.table[key] = files.table.pop(key)
        files.close()

    def _has_no_keys_yet(self) -> bool:
        """Return whether the state file counts no index file: no record before its offset has a
        key."""
        state = self.facts.valid_state
        return state is not None and state.index_file_count == 0

    def _dispatch_around_damage(self, end: int) -> None:
        assert self.dispatcher is not None
        ends = {damage.start: damage.stop for damage in self.report.damaged}
        while True:
            for start in sorted(ends):
                if start >= self.dispatcher.reput_offset:
                    self.dispatcher.dispatch_until(min(start, end))
                    self.dispatcher.skip_to(max(ends[start], self.dispatcher.reput_offset))
            status = self.dispatcher.dispatch_until(end)
            if status in (RecordStatus.END, RecordStatus.OK):
                return
            # Corruption before the checked part of the log: continue after it, as reads do.
            from rocketstore.log.scan import find_next_record

            place = self.dispatcher.reput_offset
            next_record = find_next_record(self.log, place + 1)
            if next_record is None or next_record >= end:
                return
            ends[place] = next_record
            self.dispatcher.skip_to(next_record)

    def follow(self) -> bool | None:
        """Bring the queues up to the log's end, which was moved past new records.

        Return whether they may have changed; ``None`` if the parts must be opened again for that.
        """
        end = self.log.max_offset
        if self.dispatcher is None:
            return None if end > self._followed_end or self.behind_nbytes else False
        if end <= self._followed_end:
            return False
        if self.dispatcher.dispatch_until(end) not in (RecordStatus.END, RecordStatus.OK):
            return None
        self._followed_end = end
        return True

    @property
    def covered_offset(self) -> int:
        """Physical offset up to which the queues cover the log."""
        return self._followed_end - self.behind_nbytes

    def come_after(self, old: ReadOnlyParts | None) -> None:
        """Close these parts and raise ``MappedFileError`` unless their log can be a later state of
        the log of ``old``."""
        if old is None:
            return
        try:
            for damage in self.report.damaged[:1]:
                if damage.is_another_log and not any(d.is_another_log for d in old.report.damaged):
                    raise damage.refusal()
            refuse_another_log(old.log, self.log)
        except BaseException:
            self.close()
            raise

    def abandon(self) -> None:
        """Leave all parts to their current readers: they are closed with the last one."""
        self.queues.abandon()

    def close(self) -> None:
        """Close all files that were opened, also after a failed opening. Messages in use stay
        valid."""
        if self.dispatcher is not None:
            self.dispatcher.close()
        for name in ("log", "queues", "index"):
            part = getattr(self, name, None)
            if part is not None:
                part.close()
