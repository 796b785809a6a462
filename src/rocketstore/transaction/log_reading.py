"""What log and queues say about transactions: half messages, decisions, discards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.log.scan import LogScan, find_next_record
from rocketstore.message import PutMessageResult, StoredMessage
from rocketstore.query.queue_view import units_of
from rocketstore.query.store_reader import StoreReader
from rocketstore.status import (
    AppendMessageStatus,
    PutMessageStatus,
    RecordStatus,
    TransactionState,
)
from rocketstore.transaction.op_messages import offsets_in

_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
#: What the copies of one half message have in common.
Identity = tuple[object, ...]


class Progress(NamedTuple):
    """Committed offsets of the group CID_RMQ_SYS_TRANS; -1 without one.

    Half messages before ``half`` are done, and op messages before ``op`` name no others.
    """

    half: int = -1
    op: int = -1


class Half(NamedTuple):
    """A half message; ``key`` is the queue offset of the first one that it is a copy of.

    ``first`` is what its property TRAN_PREPARED_QUEUE_OFFSET says of that, -1 if it is no number.
    ``hangs_on_first``: within its own immunity, a broker takes it for decided once an op message
    names ``first``.
    """

    key: int
    queue_offset: int
    offset: int
    nbytes: int
    store_timestamp: int
    born_timestamp: int
    checks: int
    immunity_ms: int
    group: str
    identity: Identity
    first: int | None
    hangs_on_first: bool

    @property
    def is_copy(self) -> bool:
        """Whether it counts checks, or was written again while it was immune."""
        return self.checks > 0 or self.first is not None

    @property
    def has_key(self) -> bool:
        """Whether it has a unique key."""
        return self.identity[0] is not None

    @property
    def mark(self) -> tuple[object, ...]:
        """What it has in common with the message that is stored when it is discarded."""
        return self.identity if self.has_key else (*self.identity, self.checks, self.first)


class Decision(NamedTuple):
    """How a transaction was decided, and the record that says so (``None``: only its op)."""

    state: TransactionState
    record: StoredMessage | None


class Undecided(NamedTuple):
    """The undecided transactions, and queue offsets of half messages that lack an op message.

    ``renew``: by key, the half messages that may be named in an op message only once there is a
    copy that does not hang on them.
    """

    halves: list[Half]
    owed: list[int]
    renew: dict[int, list[int]]


class Chains:
    """Half messages with their copies, in the order of the first ones.

    A copy of a message without a unique key names its first half message, unless it has an immunity
    of its own: then it goes to the oldest one of its kind that counts fewer checks, and was not
    decided before.

    Parameters
    ----------
    named : dict of int to int
        As ``TransactionLog.named_in_ops`` returns it.
    """

    def __init__(self, named: dict[int, int]) -> None:
        self._named = named
        self.all: list[list[Half]] = []
        self._with_key: dict[Identity, list[Half]] = {}
        self._kinds: dict[Identity, list[list[Half]]] = {}
        self._by_first: dict[tuple[Identity, int], list[Half]] = {}

    def add(self, half: Half) -> list[Half]:
        """Add the next half message of the queue; return those that it is a copy of, and itself."""
        chain = self._of(half) if half.is_copy else None
        if chain is None:
            chain = []
            self.all.append(chain)
            if half.has_key:
                self._with_key[half.identity] = chain
            else:
                self._kinds.setdefault(half.identity, []).append(chain)
        chain.append(half)
        if not half.has_key:
            self._by_first[half.identity, half.queue_offset] = chain
            if half.first is not None:
                self._by_first.setdefault((half.identity, half.first), chain)
        return chain

    def _of(self, half: Half) -> list[Half] | None:
        if half.has_key:
            return self._with_key.get(half.identity)
        if half.first is not None:
            return self._by_first.get((half.identity, half.first))
        able = [
            chain
            for chain in self._kinds.get(half.identity, ())
            if chain[-1].checks < half.checks
            and self._named.get(chain[-1].queue_offset, half.offset) >= half.offset
        ]
        return min(able, key=lambda chain: chain[-1].queue_offset, default=None)


def count_of(properties: Mapping[str, str]) -> int:
    """Return how often a half message's producer was asked, as its property says."""
    text = properties.get(formats.PROPERTY_TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _first_of(properties: Mapping[str, str]) -> int | None:
    """Return the queue offset of the first half message that a copy names, -1 for none."""
    text = properties.get(formats.PROPERTY_TRANSACTION_FIRST_OFFSET)
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def identity_of(message: StoredMessage, properties: Mapping[str, str] | None = None) -> Identity:
    """Return what all copies of a message have in common, its final message included."""
    if properties is None:
        properties = message.properties
    return (
        properties.get(formats.PROPERTY_UNIQUE_KEY),
        properties.get(formats.PROPERTY_PRODUCER_GROUP),
        message.born_timestamp,
        message.born_host,
        message.body_crc,
    )


def half_of(message: StoredMessage) -> Half:
    """Return the half message in a record of the half topic."""
    properties = message.properties
    queue_offset = message.queue_offset
    immunity = properties.get(formats.PROPERTY_CHECK_IMMUNITY_SEC)
    first = _first_of(properties)
    return Half(
        queue_offset,
        queue_offset,
        message.physical_offset,
        message.store_size,
        message.store_timestamp,
        message.born_timestamp or 0,
        count_of(properties),
        -1 if immunity is None else kernels.transactions.immunity_ms(immunity),
        properties.get(formats.PROPERTY_PRODUCER_GROUP, ""),
        identity_of(message, properties),
        first,
        first is not None and immunity is not None,
    )


def is_lost(message: StoredMessage) -> bool:
    """Return whether a record of the half topic is a salvage's placeholder for a lost message."""
    return (
        message.topic == formats.TOPIC_HALF
        and message.born_timestamp == formats.LOST_HALF_BORN_TIMESTAMP
        and formats.PROPERTY_REAL_TOPIC not in message.properties
    )


def result_of(message: StoredMessage) -> PutMessageResult:
    """Return the outcome of the put that stored a record."""
    host = kernels.message.parse_host(message.store_host or "")
    return PutMessageResult(
        PutMessageStatus.PUT_OK,
        AppendMessageStatus.PUT_OK,
        message.physical_offset,
        message.store_size,
        message.queue_offset,
        message.store_timestamp,
        ((host, message.physical_offset),),
    )


class TransactionLog:
    """Reads half messages and what decided them.

    Notes
    -----
    Threading: as ``StoreReader``. ``catch_up`` is for a store that is written. Records that expired
    or are damaged are skipped.
    """

    def __init__(self, reader: StoreReader, catch_up: Callable[[], object] = lambda: None) -> None:
        self._reader = reader
        #: Brings records that were just put to the files, and to the queues.
        self.catch_up = catch_up

    # --- queues -------------------------------------------------------------------------------

    def bounds(self, topic: str) -> tuple[int, int]:
        """Return the first queue offset and the one after the last."""
        queue = self._reader.queues.get(topic, 0)
        return (0, 0) if queue is None else (queue.min_index, queue.max_index)

    def records(self, topic: str, start: int = 0) -> Iterator[StoredMessage]:
        """Yield the records of queue 0 of a topic from a queue offset on."""
        units = units_of(self._reader.queues.get(topic, 0))
        first = units.first_offset or 0
        log = self._reader.log
        for offset in units["physical_offset"][max(0, start - first) :].tolist():
            status, message = log.record_at(offset)
            if message is None or status not in _GOOD or message.topic != topic:
                continue
            if not is_lost(message):
                yield message

    def newest_records(self, topic: str, least_offset: int) -> Iterator[StoredMessage]:
        """Yield the records of queue 0 of a topic that lie at or after a log offset."""
        queue = self._reader.queues.get(topic, 0)
        units = units_of(queue)
        start = int((units["physical_offset"] < least_offset).sum())
        return self.records(topic, (units.first_offset or 0) + start)

    def named_in_ops(self, start: int = 0) -> dict[int, int]:
        """Return the queue offsets that op messages name, from an op message on, with the log
        offset of the first one that does."""
        named: dict[int, int] = {}
        for message in self.records(formats.TOPIC_OP, start):
            for offset in offsets_in(message.body):
                named.setdefault(offset, message.physical_offset)
        return named

    # --- the log ------------------------------------------------------------------------------

    def commits(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield (offset of the half message, own offset) of committed messages, by log order."""
        log = self._reader.log
        start, stop = max(start, log.min_offset, 0), log.max_offset
        kind = formats.SYS_FLAG_TRANSACTION_MASK
        while start < stop:
            walk = LogScan(log, start, stop, 0)
            for batch in walk:
                rows = batch.columns
                found = (rows["sys_flag"] & kind) == formats.SYS_FLAG_TRANSACTION_COMMIT
                found &= rows["status"] != RecordStatus.GHOST
                yield from zip(
                    rows["prepared_transaction_offset"][found].tolist(),
                    rows["physical_offset"][found].tolist(),
                    strict=True,
                )
            if walk.status == RecordStatus.END or walk.offset >= stop:
                return
            following = find_next_record(log, walk.offset + 1)
            if following is None:
                return
            start = following

    def has_expired(self, offset: int) -> bool:
        """Return whether the log has no record at an offset any longer, not even a damaged one."""
        return not self._reader.log.min_offset <= offset < self._reader.log.max_offset

    def missing(self, offset: int) -> str:
        """Return the words for a half message that ``record`` does not find."""
        what = "no longer in the log" if self.has_expired(offset) else "damaged"
        return f"the half message at log offset {offset} is {what}"

    def record(self, offset: int) -> StoredMessage | None:
        """Return the good record at a log offset, ``None`` without one."""
        if offset >= self._reader.log.max_offset:
            self.catch_up()
        if not 0 <= offset < self._reader.log.max_offset:
            return None
        status, message = self._reader.log.record_at(offset)
        return message if status in _GOOD else None

    def by_key(self, key: str) -> StoredMessage | None:
        """Return the newest half message with a unique key, ``None`` without one."""
        found = None
        if self._reader.index.files:
            hits = self._reader.find_by_key(
                formats.TOPIC_HALF, key, unique=True, begin=0, end=2**63 - 1, on_corruption="skip"
            )
            for message in hits:
                if message.queue_id == 0:
                    found = message
            return found
        for message in self.records(formats.TOPIC_HALF):
            if message.unique_key == key:
                found = message
        return found

    # --- answers ------------------------------------------------------------------------------

    def trusted(self, progress: Progress) -> Progress:
        """Return the progress, without what lies past the end of the queues.

        A file from another time than the log would hide half messages.
        """
        if progress.half > self.bounds(formats.TOPIC_HALF)[1]:
            return Progress()
        if progress.op > self.bounds(formats.TOPIC_OP)[1]:
            return progress._replace(op=-1)
        return progress

    def undecided(self, progress: Progress) -> Undecided:
        """Return what is undecided; ``progress`` is ``trusted``.

        Decided is a half message that an op message names; one whose committed message is in the
        log, even without an op; and one that was discarded. Of copies the newest counts.
        """
        start = max(self.bounds(formats.TOPIC_HALF)[0], progress.half)
        named = self.named_in_ops(max(progress.op, 0))
        chains = Chains(named)
        open_ones: dict[int, list[Half]] = {}
        owed: list[int] = []
        for message in self.records(formats.TOPIC_HALF, start):
            half = half_of(message)
            chain = chains.add(half)
            if half.queue_offset not in named:
                open_ones[id(chain)] = chain
            elif open_ones.pop(id(chain), None) is not None:
                owed += _unnamed(chain, named)
        if open_ones:
            owed += self._take_decided(open_ones, named)
        halves, renew = [], {}
        for chain in open_ones.values():
            newest, key = chain[-1], chain[0].queue_offset
            halves.append(newest._replace(key=key))
            superseded = _unnamed(chain[:-1], named)
            if newest.hangs_on_first and newest.first in superseded:
                renew[key] = [*superseded, newest.queue_offset]
            else:
                owed += superseded
        return Undecided(sorted(halves), sorted(owed), renew)

    def _take_decided(self, chains: dict[int, list[Half]], named: dict[int, int]) -> list[int]:
        """Remove the chains that the log shows decided; return what has no op message."""
        by_offset = {half.offset: key for key, chain in chains.items() for half in chain}
        oldest = min(by_offset)
        decided = {
            by_offset[prepared] for prepared, _ in self.commits(oldest) if prepared in by_offset
        }
        discarded = {
            half_of(message).mark
            for message in self.newest_records(formats.TOPIC_DISCARDED, oldest)
        }
        for key, chain in chains.items():
            if chain[-1].mark in discarded or (
                chain[0].is_copy and self.commit_by_key(chain[0]) is not None
            ):
                decided.add(key)
        owed = []
        for key in decided:
            owed += _unnamed(chains.pop(key), named)
        return owed

    def commit_by_key(self, half: Half) -> StoredMessage | None:
        """Return the committed message of a transaction by the index, ``None`` without one."""
        message = self.record(half.offset)
        key = None if message is None else message.unique_key
        if message is None or not key or not self._reader.index.files:
            return None
        topic = message.properties.get(formats.PROPERTY_REAL_TOPIC, "")
        hits = self._reader.find_by_key(
            topic, key, unique=True, begin=0, end=2**63 - 1, on_corruption="skip"
        )
        for hit in hits:
            if is_commit_of(hit, half):
                return hit
        return None

    def copies(self, half: Half) -> list[Half]:
        """Return a half message and the copies of it; with a unique key, only itself."""
        if half.has_key:
            return [half]
        chains = Chains(self.named_in_ops())
        found: list[Half] = []
        for message in self.records(formats.TOPIC_HALF):  # earlier ones may have the same copies
            one = half_of(message)
            if one.identity == half.identity:
                chain = chains.add(one)
                found = chain if one.queue_offset == half.queue_offset else found
        return found or [half]

    def decision(self, half: Half) -> Decision:
        """Return how a transaction was decided that is no longer undecided."""
        found = self.commit_by_key(half)
        if found is not None:
            return Decision(TransactionState.COMMIT, found)
        copies = self.copies(half)
        offsets = {one.offset for one in copies}
        for prepared, offset in self.commits(half.offset):
            if prepared not in offsets and not half.has_key:
                continue
            record = self.record(offset)
            if prepared in offsets or (record is not None and is_commit_of(record, half)):
                return Decision(TransactionState.COMMIT, record)
        marks = {one.mark for one in copies}
        for message in self.newest_records(formats.TOPIC_DISCARDED, half.offset):
            if half_of(message).mark in marks:
                return Decision(TransactionState.DISCARDED, message)
        return Decision(TransactionState.ROLLBACK, None)


def _unnamed(halves: list[Half], named: dict[int, int]) -> list[int]:
    """Return the queue offsets that no op message names."""
    return [half.queue_offset for half in halves if half.queue_offset not in named]


def is_commit_of(message: StoredMessage, half: Half) -> bool:
    """Return whether a record is the committed message of a half message or of a copy of it."""
    kind = message.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK
    if kind != formats.SYS_FLAG_TRANSACTION_COMMIT:
        return False
    return message.prepared_transaction_offset == half.offset or (
        half.identity[0] is not None and identity_of(message) == half.identity
    )
