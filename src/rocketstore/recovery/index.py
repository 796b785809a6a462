"""Index recovery: validate the newest file, truncate it, and complete its last record (D-1)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from rocketstore import formats, kernels
from rocketstore.errors import StoreClosedError
from rocketstore.files.durable import sync_directory
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.raw import data_ranges
from rocketstore.index.index_file import IndexFile, entry_seconds
from rocketstore.index.index_service import IndexPosition, IndexService
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan, find_next_record
from rocketstore.message import StoredMessage
from rocketstore.status import KernelStatus, RecordFlags, RecordStatus

MAX_OFFSET = 2**63 - 1
#: Bytes of log after the last entry of a complete index that are searched for records with keys.
_SEARCHED_NBYTES = 16 * 1024 * 1024
#: From this entry count on, checking a file takes longer than starting a thread (0.1 to 0.2 ms).
WORTH_A_THREAD = 65_536


def check_file(file: IndexFile, limit: int) -> tuple[int, int]:
    """Return the number of good leading entries, and whether these are all (``KernelStatus``)."""
    return file.check(limit)


class EarlyIndexCheck:
    """Check an index file's entries on a separate thread, while the log is checked.

    Parameters
    ----------
    file : IndexFile
    limit : int
        Entries of records from this log offset on are invalid.
    """

    def __init__(self, file: IndexFile, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._header = file.header
        self._checked: tuple[int, int] | None = None
        self._thread = threading.Thread(
            target=self._run, name="rocketstore-index-check", daemon=True
        )
        self._thread.start()

    @classmethod
    def of_newest(cls, index: IndexService, limit: int) -> EarlyIndexCheck | None:
        """Start to check the newest file if it is large enough to be worth a thread."""
        file = index.files[-1] if index.files else None
        if file is None or file.entry_count < WORTH_A_THREAD:
            return None
        try:
            return cls(file, limit)
        except RuntimeError:  # no thread could start; the file is checked later
            return None

    def _run(self) -> None:
        # The caller repeats a failed check and gets the same error, unless the store was closed.
        with contextlib.suppress(MemoryError, OSError, StoreClosedError):
            self._checked = check_file(self._file, self._limit)

    def result(self, file: IndexFile, limit: int) -> tuple[int, int] | None:
        """Wait for the thread; return the result of ``check_file``.

        ``None`` if it failed, if ``file`` or ``limit`` differ, or if keys were put meanwhile.
        """
        self._thread.join()
        is_same = self._limit == limit and self._file.path == file.path
        return self._checked if is_same and self._header == file.header else None


class IndexRecovery:
    """Bring the newest index files into a state from which dispatch can continue.

    All good entries are kept: a file is truncated at its first bad entry, and a record with only
    some of its entries is completed. So every key of every record is found after any crash.
    """

    def __init__(
        self,
        index: IndexService,
        log: CommitLog,
        index_tags: bool,
        give_up_state: Callable[[], None] = lambda: None,
        check: EarlyIndexCheck | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._damaged: list[IndexFile] = []
        #: A check that was started before.
        self._begun_check = check
        #: Called before files are dropped that the state file declares durable: their replacements
        #: are not on disk yet, and must not be trusted after another crash.
        self._give_up_state = give_up_state
        self._index = index
        self._log = log
        self._index_tags = index_tags

    def run(
        self, log_min: int, log_end: int, trusted: int | None = None, *, thorough: bool = True
    ) -> IndexPosition:
        """Recover the index; return the record from which keys are still to be put.

        Entries of records from ``trusted`` (default ``log_end``) on are invalid. ``thorough``:
        also check everything that is on disk already. The rule is rocketstore's own; RocketMQ
        deletes the newest files instead.
        """
        limit = log_end if trusted is None else trusted
        self._judge_older_files(log_min, limit, thorough=thorough)
        if thorough and self._index.writable:
            self._look_for_missing_files(log_min)
        while self._index.files:
            file = self._index.last_for_append()
            assert file is not None
            count, status = self._check(file, limit)
            count, status = self._without_strangers(file, count, KernelStatus(status))
            if trusted is None and not self._is_last_whole(file, count, log_min):
                count, status = count - 1, KernelStatus.BAD_ENTRY
            if self._is_of_another_log(file, count, log_min, limit):
                count = 0
            if count == 0:
                self._give_up_state()
                self._drop(file, "it holds no good entry")
                continue
            complete = trusted is not None and self._is_all_below(file, count, limit)
            if self._header_is_wrong(file, count):
                status, complete = KernelStatus.BAD_ENTRY, False
            if status != KernelStatus.OK:
                if not complete:
                    self.notes.append(
                        f"{file.path}: entries from {count + 1} on are invalid; they are rebuilt"
                    )
                self._rebuild(file, count)
            position = self._position(file)
            if complete and not self._is_older_copy(position, log_min, limit):
                return IndexPosition(limit, 0)
            return position
        return IndexPosition(log_min, 0)

    def _check(self, file: IndexFile, limit: int) -> tuple[int, int]:
        begun, self._begun_check = self._begun_check, None
        checked = None if begun is None else begun.result(file, limit)
        return check_file(file, limit) if checked is None else checked

    def _is_older_copy(self, position: IndexPosition, log_min: int, limit: int) -> bool:
        """Return whether the newest file lacks keys of records before ``limit``.

        All of them were in it once, so it was replaced by an older copy.
        """
        start = max(position.offset, log_min)
        stop = min(limit, start + _SEARCHED_NBYTES)
        if not self._has_keys(start, stop):
            return False
        self.notes.append(f"keys of records from {start} on are missing; they are rebuilt")
        self._give_up_state()
        return True

    def _is_of_another_log(self, file: IndexFile, count: int, log_min: int, limit: int) -> bool:
        """Return whether the first or last of ``count`` entries is not a key of its record.

        That is so in a file of another store. An entry whose record has expired or was lost proves
        nothing, except an entry of zeros: then the file's first page never reached the disk.
        """
        for number in {min(count, 1), count} - {0}:
            key_hash, offset, _, _ = file.entry(number)
            if key_hash == 0 and offset == 0 < log_min:
                return True
            if not log_min <= offset < limit:
                continue
            message = self._message(offset)
            if message is None and self._log.is_lost(offset):
                continue
            texts = () if message is None else record_keys(message, index_tags=True)
            if key_hash not in map(kernels.index_file.key_hash, texts):
                return True
        return False

    def _judge_older_files(self, log_min: int, limit: int, *, thorough: bool) -> None:
        """Drop all files if one before the newest is damaged, not full, of another log, or moved.

        Keys are appended after the newest entry only, so lost earlier ones come back only if the
        whole index is rebuilt. In mode "r" that costs memory, so it is only noted. A file that is
        not full is an older copy.
        """
        bad = [
            file
            for file in self._index.files[:-1]
            if not file.is_full
            or not self._is_whole(file, thorough)
            or self._is_of_another_log(file, file.entry_count, log_min, limit)
        ]
        gone = [name for name in self._index.moved_names if self._is_older(name)]
        if not bad and not gone:
            return
        if not self._index.writable:
            self.notes += [
                f"{file.path} is damaged; find reads the log for its keys, and query_message finds "
                'them after opening with derive="full"'
                for file in bad
            ]
            self._damaged = bad
            return
        names = ", ".join([*(file.path.name for file in bad), *gone])
        self._give_up_all(f"index files are damaged ({names}); the index is rebuilt")

    def _give_up_all(self, note: str) -> None:
        self.notes.append(note)
        self._give_up_state()
        for file in reversed(self._index.files):
            self._drop(file, None)

    def _look_for_missing_files(self, log_min: int) -> None:
        """Drop all files if records before the first, or between two, have keys.

        Then an index file is missing.
        """
        start = log_min
        for file in self._index.files:
            stop = file.entry(1)[1] if file.entry_count > 0 else start
            if self._has_keys(start, stop):
                self._give_up_all(
                    f"an index file before {file.path} is missing; the index is rebuilt"
                )
                return
            message = self._message(file.header.end_physical_offset)
            if message is not None:
                stop = message.physical_offset + message.store_size
            start = max(start, stop)

    def gaps(self, log_min: int) -> tuple[tuple[int, int], ...]:
        """Return the log ranges before the last file's end whose records are in no complete file.

        Call it after ``run`` in mode "r". If no file is missing or damaged, the ranges hold only
        records without keys. Only what ``run`` has examined is read.
        """
        found: list[tuple[int, int]] = []
        start = log_min
        for file in self._index.files:
            if file in self._damaged or file.entry_count <= 0:
                continue
            first = file.entry(1)[1]
            if first > start:
                is_covered = bool(found) or start > log_min  # the record at ``start`` has its keys
                gap = self._end_of_record(start, first) if is_covered else start
                if gap < first:
                    found.append((gap, first))
            start = max(start, file.header.end_physical_offset)
        return tuple(found)

    def _end_of_record(self, offset: int, most: int) -> int:
        """Return the end of the record at ``offset``.

        If it is unreadable, return the start of the next good one, or ``most`` if there is none.
        """
        message = self._message(offset)
        if message is not None:
            return offset + message.store_size
        found = find_next_record(self._log, offset + 1)
        return most if found is None else found

    def _has_keys(self, start: int, stop: int) -> bool:
        """Return whether a record in ``start`` .. ``stop`` has keys."""
        for batch in LogScan(self._log, start, stop, RecordFlags.PARSE_PROPERTIES):
            columns = batch.columns
            keyed = (columns["keys_at"] >= 0) | (columns["unique_key_at"] >= 0)
            for number in keyed.nonzero()[0].tolist():
                message = self._message(int(columns["physical_offset"][number]))
                if message is not None and record_keys(message, index_tags=False):
                    return True
        return False

    def _is_older(self, name: str) -> bool:
        return bool(self._index.files) and name < self._index.files[-1].path.name

    def _is_whole(self, file: IndexFile, thorough: bool) -> bool:
        if not file.looks_whole():
            return False
        if not thorough or not self._index.writable:
            return True
        count, status = check_file(file, MAX_OFFSET)
        return count == file.entry_count and status == KernelStatus.OK

    @staticmethod
    def _header_is_wrong(file: IndexFile, count: int) -> bool:
        """Return whether the header has the right count but the wrong end: then entries follow."""
        return count == file.entry_count and file.entry(count)[1] != file.header.end_physical_offset

    def run_up_to(
        self, trusted: int, log_min: int, log_end: int, file_count: int, *, thorough: bool
    ) -> IndexPosition:
        """Drop the entries of records from ``trusted`` on, then do as ``run``.

        They may have reached the disk only in part. All earlier entries were on disk, in
        ``file_count`` files; if the count differs, the index is rebuilt.
        """
        while self._index.files and self._begins_from(self._index.files[-1], trusted):
            self._drop(self._index.files[-1], None)
        if not self._index.files and file_count == 0:
            return IndexPosition(max(trusted, log_min), 0)  # no earlier record has a key
        if len(self._index.files) != max(file_count, 0):
            self._give_up_all(
                f"{self._index.directory} has {len(self._index.files)} index files instead of "
                f"{max(file_count, 0)}; the index is rebuilt from the log"
            )
        return self.run(log_min, log_end, trusted, thorough=thorough)

    @staticmethod
    def _begins_from(file: IndexFile, offset: int) -> bool:
        return file.entry_count == 0 or file.entry(1)[1] >= offset

    def _drop(self, file: IndexFile, reason: str | None) -> None:
        header = file.header
        self._index.remove([file])
        if header.index_count > 1 and reason is not None:
            self.notes.append(f"{file.path} was dropped: {reason}; its keys are rebuilt")
        if isinstance(file.file, MappedFile) and not file.file.private:
            file.file.destroy()
            sync_directory(file.path.parent)
        else:
            file.close()

    def _without_strangers(
        self, file: IndexFile, count: int, status: KernelStatus
    ) -> tuple[int, KernelStatus]:
        """Remove the last entries that are not keys of their record.

        Zeros after the entries of the log's first record look like another entry of it.
        """
        if count == 0:
            return count, status
        message = self._message(file.entry(count)[1])
        if message is None:
            return count, status
        texts = record_keys(message, index_tags=True)
        hashes = {kernels.index_file.key_hash(text) for text in texts}
        while count > 0:
            key_hash, offset, _, _ = file.entry(count)
            if offset != message.physical_offset or key_hash in hashes:
                break
            count, status = count - 1, KernelStatus.BAD_ENTRY
        return count, status

    def _is_last_whole(self, file: IndexFile, count: int, log_min: int) -> bool:
        """Return whether the last of ``count`` entries reached the disk completely.

        Then it names a record and has that record's time.
        """
        if count == 0:
            return True
        _, offset, time_diff, _ = file.entry(count)
        if offset < log_min:
            return True
        message = self._message(offset)
        if message is None:
            return False
        # The time of entry 1 of a later file counts from the end of the previous file (D-2).
        begin = file.header.begin_timestamp
        return count == 1 or time_diff == entry_seconds(begin, message.store_timestamp)

    @staticmethod
    def _is_all_below(file: IndexFile, count: int, limit: int) -> bool:
        """Return whether the ``count`` good entries are all that the file has before ``limit``."""
        return count >= file.entry_count or file.entry(count + 1)[1] >= limit

    def _rebuild(self, file: IndexFile, count: int) -> None:
        times = []
        header = file.header
        for number in (1, count):
            message = self._message(file.entry(number)[1])
            fallback = header.begin_timestamp if number == 1 else header.end_timestamp
            times.append(message.store_timestamp if message is not None else fallback)
        end = None
        if isinstance(file.file, MappedFile):
            # Reading the holes of a sparse file would fill the page cache with zeros.
            end = max((stop for _, stop in data_ranges(file.file, 0)), default=0)
        kernels.index_file.rebuild(
            file.buffer, file.slots, file.entries, count, (times[0], times[1]), end
        )
        if isinstance(file.file, MappedFile) and not file.file.private:
            # Truncated entries must not reappear after entries that are synced later.
            file.file.flushed_position = 0
            file.file.flush(file.file.file_size)

    def _message(self, offset: int) -> StoredMessage | None:
        status, _ = self._log.check(offset)
        if status not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC):
            return None
        return self._log.view(offset)

    def _position(self, file: IndexFile) -> IndexPosition:
        """Return the last record with an entry, and how many of its keys are present."""
        offset = file.header.end_physical_offset
        message = self._message(offset)
        if message is None:
            return IndexPosition(offset + 1, 0)
        present = self._entries_of(offset)
        plain = len(record_keys(message, index_tags=False))
        wanted = len(record_keys(message, index_tags=self._index_tags))
        if present >= wanted or (present >= plain and not self._has_tag_entry_before(offset)):
            return IndexPosition(offset + message.store_size, 0)
        return IndexPosition(offset, present)

    def _entries_of(self, offset: int) -> int:
        """Return how many of the newest entries belong to the record at ``offset``."""
        present = 0
        for file in reversed(self._index.files):
            for number in range(file.entry_count, 0, -1):
                if file.entry(number)[1] != offset:
                    return present
                present += 1
        return present

    def _has_tag_entry_before(self, offset: int) -> bool:
        """Return whether the record indexed before the one at ``offset`` has a tag entry."""
        for file in reversed(self._index.files):
            for number in range(file.entry_count, 0, -1):
                place = file.entry(number)[1]
                if place == offset:
                    continue
                message = self._message(place)
                if message is None or not message.tags:
                    return self._index_tags
                tag_key = record_keys(message, index_tags=True)[-1]
                return file.entry(number)[0] == kernels.index_file.key_hash(tag_key)
        return self._index_tags


def record_keys(message: StoredMessage, *, index_tags: bool) -> list[bytes]:
    """Return the ``topic#key`` texts that a record is indexed under, in order."""
    transaction = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
    if transaction == formats.SYS_FLAG_TRANSACTION_ROLLBACK:
        return []
    texts = []
    if message.unique_key:
        texts.append(message.unique_key)
    texts += [key for key in (message.keys or "").split(formats.KEY_SEPARATOR) if key]
    if index_tags and message.tags:
        texts.append(formats.TAG_KEY_INFIX + message.tags)
    return [f"{message.topic}#{text}".encode("utf-8", "replace") for text in texts]
