"""Making index files fit the log again: validate the newest, cut it, complete its last record
(D-1)."""

from __future__ import annotations

from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.commit_log import CommitLog
from rocketstore.index_file import IndexFile
from rocketstore.index_service import IndexService
from rocketstore.mapped_file import MappedFile
from rocketstore.message import StoredMessage
from rocketstore.status import KernelStatus, RecordStatus


class IndexPosition(NamedTuple):
    """Where indexing goes on: the record at ``offset``, of whose keys ``keys`` are put already."""

    offset: int
    keys: int


class IndexRecovery:
    """Brings the newest index files into a state from which dispatch can go on.

    Nothing that the files know is given up: a file is cut at its first bad entry, and the record
    whose entries stop half way is completed, so that every key of every record is found after any
    crash.
    """

    def __init__(self, index: IndexService, log: CommitLog, index_tags: bool) -> None:
        self.notes: list[str] = []
        self._index = index
        self._log = log
        self._index_tags = index_tags

    def run(self, log_min: int, log_end: int) -> IndexPosition:
        """Return the record from which keys are still to be put.

        The rule is rocketstore's own; RocketMQ deletes the newest files instead.
        """
        while self._index.files:
            file = self._index.last_for_append()
            assert file is not None
            count, status = kernels.index_file.check_entries(
                file.buffer, file.slots, file.entries, log_end
            )
            if count == 0:
                self._drop(file, "it holds no good entry")
                continue
            if status != KernelStatus.OK:
                self.notes.append(
                    f"{file.path}: entries from {count + 1} on are not good; they are made again"
                )
                self._rebuild(file, count)
            return self._position(file)
        return IndexPosition(log_min, 0)

    def _drop(self, file: IndexFile, reason: str) -> None:
        header = file.header
        self._index.remove([file])
        if header.index_count > 1:
            self.notes.append(f"{file.path} was set aside: {reason}")
        if isinstance(file.file, MappedFile) and not file.file.private:
            file.file.destroy()
        else:
            file.close()

    def _rebuild(self, file: IndexFile, count: int) -> None:
        times = []
        header = file.header
        for number in (1, count):
            message = self._message(file.entry(number)[1])
            fallback = header.begin_timestamp if number == 1 else header.end_timestamp
            times.append(message.store_timestamp if message is not None else fallback)
        kernels.index_file.rebuild(
            file.buffer, file.slots, file.entries, count, (times[0], times[1])
        )

    def _message(self, offset: int) -> StoredMessage | None:
        status, _ = self._log.check(offset)
        if status not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC):
            return None
        return self._log.view(offset)

    def _position(self, file: IndexFile) -> IndexPosition:
        """The last record that has an entry, and how many of its keys are there already."""
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
        """How many of the newest entries belong to the record at ``offset``."""
        present = 0
        for file in reversed(self._index.files):
            for number in range(file.entry_count, 0, -1):
                if file.entry(number)[1] != offset:
                    return present
                present += 1
        return present

    def _has_tag_entry_before(self, offset: int) -> bool:
        """Whether the record indexed in front of the one at ``offset`` got an entry for its tag."""
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
