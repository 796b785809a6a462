"""A group's places in its queues: what is read next, who works on what, and what is settled."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore import formats, kernels
from rocketstore.consumer.cursor import Cursor, Lease
from rocketstore.consumer.hold import ALL_QUEUES, HeldPull
from rocketstore.errors import ConsumerError, OffsetOutOfRangeError
from rocketstore.lock_order import LockRank
from rocketstore.message import StoredMessage
from rocketstore.status import GetMessageStatus

if TYPE_CHECKING:
    from rocketstore.query.results import GetMessageResult
    from rocketstore.query.store_reader import StoreReader

Key = tuple[str, int]
_log = logging.getLogger(__name__)
#: Answers of a pull after which the next one begins further on.
_PASSED = frozenset(
    {
        GetMessageStatus.NO_MATCHED_MESSAGE,
        GetMessageStatus.MESSAGE_WAS_REMOVING,
        GetMessageStatus.OFFSET_FOUND_NULL,
        GetMessageStatus.OFFSET_TOO_SMALL,
    }
)


class StoreToConsume(Protocol):
    """What a consumer needs of its store; a ``DefaultMessageStore`` has it."""

    path: Path

    @property
    def reader(self) -> StoreReader:
        """The opened parts; raises if the store is closed."""

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        filter: Any = None,
    ) -> GetMessageResult:
        """Read messages of one queue."""

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, boundary: Any = None
    ) -> int:
        """Return the queue offset for a store time."""


class OffsetTable(Protocol):
    """Where a group's offsets are kept, see ``config_managers/live_offsets.py``."""

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset to consume, -1 if none was committed."""

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep the next offset to consume."""


class GroupProgress:
    """A group's places in the queues of its topics.

    Parameters
    ----------
    store : StoreToConsume
    offsets : OffsetTable
    group : str
    topics : sequence of str
    queue_ids : collection of int, optional
    filter : MessageFilter, optional
    start : "earliest", "latest" or int
        Where a queue without a committed offset begins.
    settles : bool
        Asking for a message settles the one before it.
    catch_up : callable
        Makes what was stored up to now readable.

    Attributes
    ----------
    cursors : dict of (str, int) to Cursor
    returned : deque of Lease
        What loops have given back. They may do so within any step of the same thread, from a
        finalizer for example; so they take no lock.

    Notes
    -----
    Threading: any thread.
    """

    def __init__(
        self,
        store: StoreToConsume,
        offsets: OffsetTable,
        group: str,
        topics: Sequence[str],
        *,
        queue_ids: Collection[int] | None,
        filter: Any,
        start: str | int,
        settles: bool,
        catch_up: Callable[[], object] = lambda: None,
    ) -> None:
        self._catch_up = catch_up
        self.cursors: dict[Key, Cursor] = {}
        self.returned: deque[Lease] = deque()
        self.group = group
        self._store = store
        self._offsets = offsets
        self._topics = frozenset(topics)
        self._queue_ids = None if queue_ids is None else frozenset(queue_ids)
        self._filter = filter
        self._start = start
        self._settles = settles
        self._lock = kernels.locks.OrderedLock(LockRank.LEAF)
        self._committing = kernels.locks.OrderedLock(LockRank.WAITING)
        self._is_over = False  # guarded by: _committing
        self._order: tuple[Cursor, ...] = ()
        self._turn = 0
        self._seen_table: Any = None
        self._seen_count = -1
        self._is_first = True
        self.reads_retries = False
        self._has_light = any(topic.startswith(formats.TOPIC_LMQ_PREFIX) for topic in topics)

    @property
    def path(self) -> Path:
        """The store's root."""
        return self._store.path

    def check_store(self) -> None:
        """Raise if the store is closed, or was opened by the parent process."""
        self._store.reader  # noqa: B018 - the property checks

    # --- queues -------------------------------------------------------------------------------

    def discover(self, *, again: bool = False) -> None:
        """Take in queues that were not there before.

        Raises ``CorruptionError`` if the table of committed offsets is damaged.
        """
        table = self._store.reader.queues.table
        count = len(table)
        if not again and table is self._seen_table and count == self._seen_count:
            return
        found = {key for key in list(table) if self._wants(key)}
        if self._queue_ids is not None and self._is_first:
            found |= {(topic, queue_id) for topic in self._topics for queue_id in self._queue_ids}
        for key in sorted(found - self.cursors.keys()):
            cursor = Cursor(key, self._first_offset(key), self._filter, self.group)
            self._check_committed(cursor)
            with self._lock:
                self.cursors.setdefault(key, cursor)
                self._order = tuple(self.cursors.values())
        self._seen_table, self._seen_count = table, count
        self._is_first = False

    def _wants(self, key: Key) -> bool:
        topic, queue_id = key
        if topic == formats.TOPIC_RETRY_PREFIX + self.group:
            return self.reads_retries
        if topic not in self._topics:
            return False
        return self._queue_ids is None or queue_id in self._queue_ids

    def _first_offset(self, key: Key) -> int:
        """Return where to begin: at what was committed, otherwise as ``start`` says.

        A queue that appears later is read from its first message on, also with ``"latest"``: its
        messages are newer than the consumer.
        """
        topic, queue_id = key
        committed = self._offsets.query_offset(self.group, topic, queue_id)
        if committed >= 0:
            return committed
        first, end = self._bounds(key)
        if topic.startswith(formats.TOPIC_RETRY_PREFIX) or self._start == "earliest":
            return first
        if isinstance(self._start, int):
            return self._offset_at(key, self._start)
        return end if self._is_first else first

    def _offset_at(self, key: Key, timestamp: int) -> int:
        """Return the offset of the first message from a time on, the queue's end without one."""
        first, end = self._bounds(key)
        offset = self._store.get_offset_in_queue_by_time(*key, timestamp, boundary="lower")
        return min(max(offset, first), end)

    def _bounds(self, key: Key) -> tuple[int, int]:
        queue = self._store.reader.queues.table.get(key)
        return (0, 0) if queue is None else (queue.min_index, queue.max_index)

    def _check_committed(self, cursor: Cursor) -> None:
        first, end = self._bounds(cursor.key)
        if cursor.next_offset > end:
            _log.warning("%s", self._past_end(cursor.key, cursor.next_offset, first, end))

    def _past_end(self, key: Key, offset: int, first: int, end: int) -> str:
        return (
            f"the group {self.group} is to read queue {key[1]} of {key[0]} from offset {offset} "
            f"on, but the queue holds {first} to {end}: its files are older than the offset; "
            "seek() to where to go on"
        )

    # --- reading ------------------------------------------------------------------------------

    def lease(self, max_count: int, keep: Callable[[Lease], object]) -> Lease | None:
        """Pull from the next queue that has messages and that no other loop works on.

        Parameters
        ----------
        max_count : int
        keep : callable
            Called with the lease before it takes the queue, so that an interrupt cannot lose it.

        Returns
        -------
        Lease or None
            ``None`` if no queue has messages now.

        Raises
        ------
        OffsetOutOfRangeError
            A group is to go on past the end of a queue.
        CorruptMessageError
            The next message of a queue is corrupt.
        """
        if self.returned:
            self.take_back()
        table = self._store.reader.queues.table
        if table is not self._seen_table or len(table) != self._seen_count:
            self.discover()
        order = self._order
        count, turn = len(order), self._turn
        for step in range(count):
            cursor = order[(turn + step) % count]
            if cursor.lease is not None:
                continue
            queue = table.get(cursor.key)
            end = cursor.seen_end = 0 if queue is None else queue.max_index
            if cursor.next_offset == end:
                continue
            with self._lock:
                if cursor.lease is not None:
                    continue
                lease = Lease(cursor, settles=self._settles)
                keep(lease)
                cursor.lease = lease
            self._turn = turn + step + 1
            if self._fill(lease, max_count):
                return lease
        return None

    def _fill(self, lease: Lease, max_count: int) -> bool:
        """Pull messages; return whether there are any. If not, give the lease back."""
        filled = False
        try:
            filled = self._pull(lease, max_count)
        finally:
            if not filled:  # it is at the first message that may have been pulled
                self.returned.append(lease)
                lease.over = True
                self.take_back()
        return filled

    def pulls(self) -> list[HeldPull]:
        """Return what to wait for after a look that found nothing.

        Queues that other loops work on are not among it.
        """
        free = (cursor for cursor in self._order if cursor.lease is None)
        pulls = [HeldPull(*ALL_QUEUES, self._seen_count)]
        pulls += [HeldPull(*cursor.key, cursor.seen_end) for cursor in free]
        return pulls

    def extend(self, lease: Lease, max_count: int) -> bool:
        """Pull the messages that follow those of a lease, to be settled together with them.

        Return whether there are any. An error is met by the next pull.
        """
        start, end, former = lease.start, lease.end, lease.messages
        try:
            return self._pull(lease, max_count)
        except Exception:  # noqa: BLE001 - the next call meets it
            lease.end = end
            return False
        finally:
            lease.start = start
            lease.messages = lease.messages or former

    def _pull(self, lease: Lease, max_count: int) -> bool:
        cursor = lease.cursor
        topic, queue_id = cursor.key
        has_caught_up = False
        while not lease.revoked:
            offset = lease.end
            result = self._store.get_message(
                self.group, topic, queue_id, offset, max_count, filter=cursor.filter
            )
            if result.messages:
                cursor.pulled_count += len(result.messages)
                lease.start = offset
                lease.messages, lease.end = result.messages, result.next_begin_offset
                return True
            following = result.next_begin_offset
            if result.status in _PASSED and following > offset:
                if result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
                    _log.warning(
                        "the group %s cannot read queue %d of %s from offset %d to %d: these "
                        "messages were deleted",
                        self.group, queue_id, topic, offset, following - 1,
                    )  # fmt: skip
                lease.start = lease.end = following
                continue
            first, end = self._bounds(cursor.key)
            if offset > end and not has_caught_up:
                has_caught_up = True  # a writer may have committed after the files were read
                self._catch_up()
                continue
            if offset > end or result.status in _PASSED:
                words = self._past_end(cursor.key, offset, first, end)
                raise OffsetOutOfRangeError(words, topic, queue_id, offset, first, end)
            return False
        return False

    # --- settling -----------------------------------------------------------------------------

    def take_back(self) -> None:
        """Free the queues whose loops have ended."""
        while self.returned:
            with self._lock:
                if not self.returned:
                    return
                lease = self.returned[0]  # taken from there at last: an interrupt may come before
                cursor = lease.cursor
                if cursor.lease is lease:
                    cursor.next_offset = lease.position()
                    cursor.lease = None
                self.returned.popleft()

    def hand_out(self, lease: Lease, message: StoredMessage) -> None:
        """Remember a message that will be settled by name."""
        cursor, place = lease.cursor, message.physical_offset
        if lease.end - lease.start == len(lease.messages):
            offset = lease.start + lease.handed
        else:
            found = cursor.offset_of(message)
            offset = lease.start if found is None else found
        with self._lock:
            if not lease.revoked:
                lease.handed += 1
                cursor.pending[place] = offset

    def take_away(self, leases: Iterable[Lease], messages: Iterable[StoredMessage]) -> None:
        """Undo ``hand_out`` for the messages of leases that did not reach the caller."""
        places = [message.physical_offset for message in messages]
        with self._lock:
            for lease in leases:
                lease.handed = 0
                for place in places:
                    lease.cursor.pending.pop(place, None)
                for message in lease.messages:
                    lease.cursor.pending.pop(message.physical_offset, None)

    def settle(self, message: StoredMessage) -> None:
        """Settle one message; nothing happens if it is settled already."""
        place = message.physical_offset
        with self._lock:
            cursor = self._pending_in(message)
            if cursor is not None and place not in cursor.leaving:
                del cursor.pending[place]

    def begin_leaving(self, message: StoredMessage) -> Cursor:
        """Return the queue of a message that is being written to another topic.

        Raises ``ConsumerError`` if it is settled already, or was not handed out here.
        """
        with self._lock:
            cursor = self._pending_in(message)
            if cursor is None or message.physical_offset in cursor.leaving:
                raise ConsumerError(
                    f"the message at log offset {message.physical_offset} is settled already, or "
                    "this consumer has not handed it out since the last seek"
                )
            cursor.leaving.add(message.physical_offset)
        return cursor

    def end_leaving(self, cursor: Cursor, message: StoredMessage, *, stored: bool) -> None:
        """Settle the message if it was ``stored`` elsewhere; otherwise it stays pending."""
        with self._lock:
            cursor.leaving.discard(message.physical_offset)
            if stored:
                cursor.pending.pop(message.physical_offset, None)

    def _pending_in(self, message: StoredMessage) -> Cursor | None:
        """Return the queue in which a message is pending; the caller holds the lock.

        A message that is pending in light queues too is settled there first.
        """
        place = message.physical_offset
        if not self._has_light:
            own = self.cursors.get((message.topic, message.queue_id))
            if own is not None and place in own.pending:
                return own
        return next((one for one in self._by_lightness() if place in one.pending), None)

    def _by_lightness(self) -> list[Cursor]:
        light = formats.TOPIC_LMQ_PREFIX
        return sorted(self.cursors.values(), key=lambda one: not one.key[0].startswith(light))

    # --- positions ----------------------------------------------------------------------------

    def positions(self) -> dict[Key, int]:
        """Return the offset of each queue before which everything is settled."""
        self.take_back()
        with self._lock:
            return {key: cursor.position() for key, cursor in self.cursors.items()}

    def pulled(self) -> dict[Key, int]:
        """Return the offset of each queue up to which messages were read."""
        with self._lock:
            return {key: cursor.next_offset for key, cursor in self.cursors.items()}

    def pulled_counts(self) -> Counter[str]:
        """Return how many messages were pulled, by topic; what came again counts again."""
        counts: Counter[str] = Counter()
        with self._lock:
            for (topic, _), cursor in self.cursors.items():
                counts[topic] += cursor.pulled_count
        return counts

    def lag(self, positions: Mapping[Key, int]) -> dict[Key, int]:
        """Return how many queue units follow each position."""
        return {key: max(0, self._bounds(key)[1] - at) for key, at in positions.items()}

    def commit(self, *, last: bool = False) -> None:
        """Keep the positions in the table of offsets; ``persist`` writes it.

        With ``last``, later calls do nothing: the group's next consumer commits.
        """
        with self._committing:  # older positions must not replace newer ones
            if self._is_over:
                return
            self._is_over = last
            for (topic, queue_id), offset in self.positions().items():
                self._offsets.commit_offset(self.group, topic, queue_id, offset)

    def seek(self, key: Key, offset: int) -> None:
        """Go on at another offset of a queue.

        Raises ``OffsetOutOfRangeError`` outside the queue, ``ValueError`` for another queue.
        """
        self.discover(again=True)
        cursor = self.cursors.get(key)
        if cursor is None:
            raise ValueError(f"this consumer does not read queue {key[1]} of {key[0]}")
        first, end = self._bounds(key)
        if not first <= offset <= end:
            words = f"queue {key[1]} of {key[0]} has the offsets {first} to {end}, not {offset}"
            raise OffsetOutOfRangeError(words, *key, offset, first, end)
        self.take_back()
        with self._lock:
            cursor.move(offset)

    def seek_to_time(self, timestamp: int) -> None:
        """Go on at the first message from a time on, in every queue but the retry topic's."""
        self.discover(again=True)
        for key, cursor in list(self.cursors.items()):
            if not cursor.is_retry:
                self.seek(key, self._offset_at(key, timestamp))

    def revoke(self) -> None:
        """End all loops at their next message; what was settled stays so."""
        self.take_back()
        with self._lock:
            for cursor in self.cursors.values():
                lease = cursor.lease
                if lease is not None:
                    lease.revoked = lease.over = True
                    cursor.next_offset, cursor.lease = lease.position(), None
