"""How far log, queues and index are on disk, as written to ``rocketstore.state`` and
``checkpoint``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.checkpoint import StoreCheckpoint, signed_crc
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.state import StoreState
from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.status import RecordStatus
from rocketstore.survey.facts import StoreFacts


def queues_crc(queues: Iterable[tuple[str, int, int, int]]) -> int:
    """Return the CRC-32 over (topic, queue id, first file's offset, max index) of the queues that
    have units."""
    lines = sorted(
        f"{topic}\0{queue_id}\0{start}\0{end}" for topic, queue_id, start, end in queues if end > 0
    )
    return signed_crc("\n".join(lines).encode("utf-8", "surrogateescape"))


def queue_ends(queues: Iterable[ConsumeQueue]) -> list[tuple[str, int, int, int]]:
    """Return the current values of each queue that ``queues_crc`` covers."""
    return [(q.topic, q.queue_id, max(q.queue.min_offset, 0), q.max_index) for q in queues]


def has_all_queues(state: StoreState, queues: Iterable[ConsumeQueue], log_start: int) -> bool:
    """Return whether the queues, recovered to the state's dispatched offset, are complete up to it.

    True also if the log no longer has a record before that offset.
    """
    if state.dispatched_offset <= log_start:
        return True
    return queues_crc(queue_ends(queues)) == state.queue_crc


@dataclass(frozen=True, slots=True)
class DispatchSnapshot:
    """What has been dispatched at one moment between two records.

    All of it is on disk after the next sync of queues and index.
    """

    dispatched_offset: int
    indexed_offset: int
    last_store_timestamp: int
    last_record_offset: int
    ends: list[tuple[str, int, int, int]]
    index_file_count: int

    @classmethod
    def take(cls, dispatcher: CommitLogDispatcher) -> DispatchSnapshot:
        """Take a snapshot; dispatch must be paused."""
        index = dispatcher.index
        return cls(
            dispatched_offset=dispatcher.reput_offset,
            indexed_offset=dispatcher.indexed_offset,
            last_store_timestamp=dispatcher.last_store_timestamp,
            last_record_offset=dispatcher.last_record_offset,
            ends=queue_ends(dispatcher.queues),
            index_file_count=0 if index is None else index.count_files(dispatcher.indexed_offset),
        )


class StoreMarks:
    """Writes state file and checkpoint; neither ever claims more than is on disk.

    Parameters
    ----------
    paths : StorePaths
    facts : StoreFacts
    config : MessageStoreConfig
    log : CommitLog
    state : StoreState or None
        The part of the state file that opening found valid.

    Notes
    -----
    Threading: one caller at a time.
    """

    def __init__(
        self,
        paths: StorePaths,
        facts: StoreFacts,
        config: MessageStoreConfig,
        log: CommitLog,
        state: StoreState | None,
    ) -> None:
        self._paths = paths
        self._facts = facts
        self._config = config
        self._log = log
        self._indexed_offset = state.indexed_offset if state is not None else 0
        # -1: the index was never written.
        self._index_file_count = state.index_file_count if state is not None else -1
        self._checkpoint = facts.checkpoint
        self._checkpoint_crc = facts.checkpoint_crc
        #: Log offset up to which segments are about to be deleted.
        self.expired_before = 0
        self._dispatched_offset = state.dispatched_offset if state is not None else 0

    def covers(self, offset: int) -> bool:
        """Return whether the files written last are valid for a log that begins at ``offset``.

        Queues and index are on disk up to it, and the checkpoint names no offset before it.
        """
        place = self._checkpoint.logics_physical_offset
        return self._dispatched_offset >= offset and not 0 < place < offset

    def write(
        self,
        snapshot: DispatchSnapshot,
        flushed_offset: int,
        physic_timestamp: int,
        index_timestamp: int,
        *,
        clean: bool,
    ) -> None:
        """Write state file, then checkpoint.

        The state file also accepts the former checkpoint, so that a power failure between the two
        writes invalidates neither.
        """
        checkpoint = self._next_checkpoint(snapshot, physic_timestamp, index_timestamp)
        content = checkpoint.to_bytes()
        crc = signed_crc(content)
        if self._config.message_index_enable:
            self._indexed_offset = min(snapshot.indexed_offset, flushed_offset)
            self._index_file_count = snapshot.index_file_count
        self._write_state(snapshot, flushed_offset, crc, clean=clean)
        checkpoint.write(self._paths.checkpoint)
        # Only after the write: if the disk was full, the next state file must still accept the
        # checkpoint that is on disk.
        self._checkpoint, self._checkpoint_crc = checkpoint, crc
        self._dispatched_offset = min(snapshot.dispatched_offset, flushed_offset)

    def _next_checkpoint(
        self, snapshot: DispatchSnapshot, physic_timestamp: int, index_timestamp: int
    ) -> StoreCheckpoint:
        old = self._checkpoint
        nbytes = self._facts.dialect.checkpoint_nbytes
        place, confirm = old.logics_physical_offset, old.confirm_physical_offset
        logics = snapshot.last_store_timestamp
        if logics and nbytes >= formats.CHECKPOINT.nbytes:
            place = snapshot.last_record_offset
        if logics and nbytes > formats.CHECKPOINT.at("confirm_physical_offset"):
            confirm = snapshot.last_record_offset
        # The old values may be wrong: let none be negative or ahead of what is on disk.
        logics = logics or min(old.logics_timestamp, physic_timestamp)
        index = max(index_timestamp, min(old.index_timestamp, physic_timestamp))
        return StoreCheckpoint(
            physic_timestamp=max(physic_timestamp, 0),
            logics_timestamp=max(logics, 0),
            index_timestamp=max(index, 0),
            master_flushed_offset=max(old.master_flushed_offset, 0),
            confirm_physical_offset=max(min(confirm, self._log.max_offset), 0),
            logics_physical_offset=place if self._is_record(place) else 0,
        )

    def _is_record(self, offset: int) -> bool:
        if not max(self._log.min_offset, self.expired_before, 0) <= offset < self._log.max_offset:
            return False
        status, _ = self._log.check(offset)
        return status in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)

    def _write_state(
        self, snapshot: DispatchSnapshot, flushed_offset: int, checkpoint_crc: int, *, clean: bool
    ) -> None:
        facts = self._facts
        StoreState(
            flushed_offset=flushed_offset,
            dispatched_offset=min(snapshot.dispatched_offset, flushed_offset),
            indexed_offset=self._indexed_offset,
            log_end_offset=self._log.max_offset,
            commit_log_file_size=facts.commit_log_file_size,
            consume_queue_file_size=facts.consume_queue_file_size,
            hash_slot_num=facts.index.pair[0],
            index_num=facts.index.pair[1],
            clean=clean,
            queue_count=sum(end > 0 for *_, end in snapshot.ends),
            queue_crc=queues_crc(snapshot.ends),
            index_file_count=self._index_file_count,
            checkpoint_crc=checkpoint_crc,
            former_checkpoint_crc=self._checkpoint_crc,
            broker_version=facts.dialect.name,
            timezone=self._config.timezone or "",
        ).write(self._paths.state)
