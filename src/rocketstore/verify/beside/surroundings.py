"""Checks of a store besides its records, units and index entries.

Covers unreadable files, missing folders, the broker's tables and the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.directory.access import StoreAccess
from rocketstore.files.linked_files import hard_links_note
from rocketstore.queues.directories import is_queue_id, queue_directories
from rocketstore.queues.queue_types import BATCH_QUEUE_TYPE, QUEUE_TYPE_ATTRIBUTE, QueueTypes
from rocketstore.survey.deleted_topics import is_unlisted, known_topics
from rocketstore.survey.lost_queues import LostQueue, find_lost_queues
from rocketstore.verify.beside.checkpoint import CheckpointFile
from rocketstore.verify.beside.judgement import Judgement
from rocketstore.verify.beside.tables import BrokerTables

if TYPE_CHECKING:
    from rocketstore.directory.paths import StorePaths
    from rocketstore.log.commit_log import CommitLog
    from rocketstore.queues.queue_table import QueueTable
    from rocketstore.survey.facts import StoreFacts

#: Folders that are rebuilt from the log, and what is counted in them.
DERIVED_FOLDERS = {
    formats.CONSUME_QUEUE_DIR: ("absent_units", "units"),
    formats.BATCH_QUEUE_DIR: ("absent_batch_units", "units"),
    formats.CONSUME_QUEUE_EXT_DIR: ("absent_ext_units", "units"),
    formats.INDEX_DIR: ("absent_keys", "records' keys"),
}
#: Next queue offset by (topic, queue id), according to the records.
QueueEnds = Mapping[tuple[str, int], int]


class Surroundings:
    """Inspect a store's other files before log and queues are opened; judge them afterwards.

    Parameters
    ----------
    paths : StorePaths

    Attributes
    ----------
    dialect : Dialect
        Of the brokers that start on the store; the newest until the store is opened.
    queue_types : QueueTypes
        Of its topics, with contradictions.
    """

    def __init__(self, paths: StorePaths) -> None:
        self.paths = paths
        self.dialect = Dialect.for_version(DEFAULT_VERSION)
        self.queue_types = QueueTypes(frozenset(), [])
        self.access = StoreAccess.of(paths)
        config = paths.root / formats.CONFIG_DIR
        self.tables = BrokerTables(paths.root, is_there=config not in self.access.odd)
        self.checkpoint = CheckpointFile.read(paths.checkpoint, paths.abort, paths.root)
        self.absent = frozenset(
            name
            for name in DERIVED_FOLDERS
            if paths.root / name in self.access.odd or not os.path.lexists(paths.root / name)
        )
        self.deleted_topics: dict[str, int] = {}
        #: Queues with messages when the valid state file was written; 0 without one.
        self.queue_count = 0
        #: Records name light queues, which ``queue_count`` does not include.
        self.has_light_queues = False
        self._known_topics = known_topics(paths.root)

    def take_facts(self, facts: StoreFacts) -> None:
        """Take over the facts detected when the store was opened."""
        state = facts.valid_state
        self.dialect, self.queue_types = facts.dialect, facts.queue_types
        self.queue_count = 0 if state is None else state.queue_count

    def was_there(self, folder: str, facts: StoreFacts) -> bool:
        """Return whether a missing folder must have existed.

        That is so after an orderly stop, or if checkpoint or state file show it. Dispatched records
        prove no queue: half messages belong to none, and batches to those of the other folder.
        """
        if not self.checkpoint.aborted:
            return True
        state = facts.valid_state
        if folder == formats.INDEX_DIR:
            return self.checkpoint.content.index_timestamp > 0 or (
                state is not None and state.index_file_count > 0
            )
        others = self._queues_with_files(self.paths.batch_consume_queue)
        if state is not None:
            return state.queue_count > others
        return self.checkpoint.content.logics_timestamp > 0 and not others

    def _queues_with_files(self, folder: Path) -> int:
        found = queue_directories(folder, self.paths.root, [], tolerant=True)
        return sum(bool(_names(queue)) for _, queue in found)

    def is_deleted_topic(self, topic: str) -> bool:
        """Return whether a topic has no folder and no row in a non-empty ``topics.json``."""
        if not is_unlisted(topic, self._known_topics):
            return False
        folders = (self.paths.consume_queue, self.paths.batch_consume_queue)
        return not any(os.path.lexists(folder / topic) for folder in folders)

    # --- lost queues --------------------------------------------------------------------------

    def lost_queues(
        self, queues: QueueTable, ends: QueueEnds, log_start: int, log_end: int
    ) -> list[LostQueue]:
        """Return the queues that only the tables of offsets show."""
        if log_start <= 0:
            return []
        known = _with_messages(queues, ends)
        return find_lost_queues(
            self.tables.stated_ends(),
            lambda *key: key in known or self._is_hidden(*key),
            self._known_topics,
            queues.batch_topics,
            log_end,
        )

    def judge_lost_queues(
        self, lost: list[LostQueue], queues: QueueTable, ends: QueueEnds
    ) -> Iterator[Judgement]:
        """Judge what ``lost_queues`` found.

        A queue is a finding only if other evidence shows its loss. Otherwise the broker may have
        deleted it (``cleanExpiredCQ``), or a slave that began with the newest segment never had
        it.
        """
        lacking = self.queue_count - len(_with_messages(queues, ends))
        has_none = formats.CONSUME_QUEUE_DIR in self.absent
        for one in lost:
            folder = self._folder_of(one.topic, queues) / one.topic / str(one.queue_id)
            if has_none or lacking > 0 or queues.get(one.topic, one.queue_id) is not None:
                reason = (
                    f"{one}: it is lost. rocketstore gives the next message this queue offset; a "
                    "broker starts at 0, and does not deliver messages below it"
                )
                yield Judgement("lost-queue", str(folder), 0, reason)
            else:
                reason = f"{one}: a broker starts at 0, and does not deliver messages below it"
                yield Judgement("lost-queue", str(folder), 0, reason, is_finding=False)
        if lacking > len(lost) and not self.has_light_queues:
            reason = (
                f"{self.queue_count} queues had messages when {self.paths.state.name} was written; "
                f"{lacking - len(lost)} now have none in their files or in the log, and no table "
                "names them: their next message gets queue offset 0"
            )
            path = str(self.paths.consume_queue)
            yield Judgement("lost-queue", path, 0, reason, is_finding=has_none)

    def _folder_of(self, topic: str, queues: QueueTable) -> Path:
        is_batch = topic in queues.batch_topics
        return self.paths.batch_consume_queue if is_batch else self.paths.consume_queue

    def _is_hidden(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue has files that could not be read."""
        folders = [
            folder / topic / str(queue_id)
            for folder in (self.paths.consume_queue, self.paths.batch_consume_queue)
        ]
        return any(self.access.hides(folder) for folder in folders) or any(
            path.parent in folders for path in self.access.closed
        )

    # --- judging ------------------------------------------------------------------------------

    def hard_links_note(self, log: CommitLog, end: int) -> str | None:
        """Return a note on files with hard links that opening for writing refuses.

        ``end``: the log's end. ``None`` if there are no such files.
        """
        reported = {*self.access.shared.keys(), *self.access.shared.values()}
        linked = frozenset(self.access.linked) - reported
        if not linked:
            return None
        full = frozenset(file.path for file in log.queue.files if file.end_offset <= end)
        return hard_links_note(sorted(linked - full), (self.paths.root, *self.paths.log_folders))

    def begun_nowhere(self, size: int) -> Iterator[tuple[Path, str]]:
        """Yield files in the log's folder that begin between two segments, and the reason."""
        for path in sorted(
            folder / name for folder in self.paths.log_folders for name in _names(folder)
        ):
            start = formats.file_name_to_offset(path.name)
            is_odd = start is not None and start % size and start < 2**63 - size
            if is_odd and path.is_file() and not path.is_symlink():
                reason = f"whose offset is not a multiple of {size}: it blocks every writer"
                yield path, f"a file in the log's folder {reason}"

    def judge_no_tables(self) -> Iterator[Judgement]:
        """Judge a missing folder of tables by its consumer groups, whose offsets are lost."""
        folder = self.paths.root / formats.CONFIG_DIR
        if os.path.lexists(folder):
            return
        names = _names(self.paths.consume_queue)
        count = sum(name.startswith(formats.TOPIC_RETRY_PREFIX) for name in names)
        if count:
            reason = (
                f"the folder is missing, and there are retry topics of consumer groups ({count}): "
                "on a broker the offsets of all groups start over, and topics must be recreated"
            )
            yield Judgement("config-table", str(folder), 0, reason, is_finding=False)

    def judge_queue_types(self) -> Iterator[Judgement]:
        """Judge topics whose queues have another type than the table says, or both types."""
        folder = self.paths.batch_consume_queue
        for words in self.queue_types.contradictions:
            reason = f"{words}: no broker of 5.x starts with it, and opening for writing is refused"
            yield Judgement("queue-type", str(folder), 0, reason)
        listed = self.tables.topics()
        if listed is None or self.dialect.loads_folders:
            return
        for topic in sorted(self.queue_types.batch):
            entry = listed.get(topic)
            if entry is not None and QUEUE_TYPE_ATTRIBUTE in entry.attributes:
                continue
            if any(is_queue_id(name) for name in _names(folder / topic)):
                reason = (
                    f"topic {topic} has queues here, and topics.json does not say that it has the "
                    f"queue type {BATCH_QUEUE_TYPE}: no broker of 5.x starts with it"
                )
                yield Judgement("queue-type", str(folder / topic), 0, reason)


def _with_messages(queues: QueueTable, ends: QueueEnds) -> set[tuple[str, int]]:
    """Return the queues with a message in their files or in the log."""
    return {(queue.topic, queue.queue_id) for queue in queues if queue.max_index > 0} | set(ends)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def one_file(other: Path) -> str:
    """Describe a file that is linked to ``other``."""
    return f"it is the same file as {other}, by a link: a write to one changes both"
