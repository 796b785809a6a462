"""How far a group has consumed one queue, and the messages of it that are being worked on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from rocketstore import formats
from rocketstore.consumer.retried import RetriedMessage
from rocketstore.dispatch.named_queues import named_queues
from rocketstore.message import StoredMessage
from rocketstore.status import MultiDispatch

_EVERY_NAME = MultiDispatch.LIGHT | MultiDispatch.PLAIN


class Cursor:
    """A group's place in one queue.

    Attributes
    ----------
    key : tuple of (str, int)
        Topic and queue id.
    next_offset : int
        Queue offset from which the next pull reads.
    filter : MessageFilter or None
    is_retry : bool
        Whether it is the group's retry topic.
    lease : Lease or None
        The messages of the last pull, while a loop or a caller of ``poll`` works on them.
    pending : OrderedDict of int to int
        Messages that were handed out and are settled one by one: physical offset, queue offset.
    leaving : set of int
        Physical offsets of those that are being written to another topic.
    seen_end : int
        The queue's end when messages were last looked for.
    pulled_count : int
        Messages that were pulled; what is pulled again counts again.
    """

    __slots__ = (
        "filter",
        "is_retry",
        "key",
        "lease",
        "leaving",
        "next_offset",
        "pending",
        "pulled_count",
        "seen_end",
    )

    def __init__(self, key: tuple[str, int], next_offset: int, filter: Any, group: str) -> None:
        self.key = key
        self.next_offset = next_offset
        self.is_retry = key[0] == formats.TOPIC_RETRY_PREFIX + group
        self.filter = None if self.is_retry else filter
        self.lease: Lease | None = None
        self.pending: OrderedDict[int, int] = OrderedDict()
        self.leaving: set[int] = set()
        self.seen_end = 0
        self.pulled_count = 0

    def position(self) -> int:
        """Return the queue offset before which everything is settled."""
        if self.pending:
            return next(iter(self.pending.values()))
        return self.next_offset if self.lease is None else self.lease.position()

    def offset_of(self, message: StoredMessage) -> int | None:
        """Return a message's offset in this queue, which need not be its own one."""
        if (message.topic, message.queue_id) == self.key:
            return message.queue_offset
        for topic, queue_id, offset in named_queues(message, _EVERY_NAME):
            if (topic, queue_id) == self.key:
                return offset
        return None

    def move(self, offset: int) -> None:
        """Go on at another offset; forget what was handed out."""
        if self.lease is not None:
            self.lease.revoked = True
            self.lease = None
        self.pending.clear()
        self.next_offset = offset


class Lease:
    """The messages of one pull, which one loop works on.

    Attributes
    ----------
    cursor : Cursor
    messages : sequence of StoredMessage
    start, end : int
        Queue offsets of the pull, and of the next one.
    handed : int
        Messages that were handed out; the last of them is not settled yet.
    acked : bool
        The last one is settled.
    settles : bool
        Asking for a message settles the one before it; otherwise only what was handed out counts.
    is_done : bool
        All messages are settled, or were handed out. Says nothing if it was ``revoked`` before.
    revoked : bool
        The rest is not handed out: the place in the queue was changed, or the loop was left.
    over : bool
        The loop has given it back.
    """

    __slots__ = (
        "acked",
        "cursor",
        "end",
        "handed",
        "is_done",
        "messages",
        "over",
        "revoked",
        "settles",
        "start",
    )

    def __init__(self, cursor: Cursor, *, settles: bool) -> None:
        self.cursor = cursor
        self.messages: Sequence[StoredMessage] = ()
        self.start = self.end = cursor.next_offset
        self.handed = 0
        self.settles = settles
        self.acked = self.is_done = self.revoked = self.over = False

    def shown(self) -> Iterable[Any]:
        """Return the messages as the group sees them."""
        return map(RetriedMessage, self.messages) if self.cursor.is_retry else self.messages

    def position(self) -> int:
        """Return the queue offset before which all is settled, or was handed out."""
        if self.is_done and not self.revoked:
            return self.end
        done = self.handed
        if self.settles and not self.acked:
            done = max(0, done - 1)
        if done == 0:
            return self.start
        if done >= len(self.messages):
            return self.end
        offset = self.cursor.offset_of(self.messages[done])
        return self.start if offset is None else offset
