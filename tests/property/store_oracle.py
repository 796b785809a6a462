"""What a store must hold, as lists and dicts, and how a store is compared with it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import rocketstore
from rocketstore import GetMessageStatus, TagFilter

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BATCH_TOPIC = "BCQ"
#: How the oracle searches a key that was never put.
NOWHERE = "nowhere"

Place = tuple[str, int]


class Put(NamedTuple):
    """One record as it must be found again."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    unique_key: str | None
    sys_flag: int
    store_timestamp: int


def as_put(message: rocketstore.StoredMessage) -> Put:
    """The same of a message that was read."""
    return Put(
        message.physical_offset,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.body,
        message.tags,
        tuple((message.keys or "").split()),
        message.unique_key,
        message.sys_flag,
        message.store_timestamp,
    )


class Oracle:
    """Every record in log order, every queue, every key."""

    def __init__(self, segment_nbytes: int) -> None:
        self.log: list[Put] = []
        self.end = 0
        #: Messages by place; light queues share theirs with the queues of their topics.
        self.queues: dict[Place, list[Put]] = defaultdict(list)
        self.keys: dict[tuple[str, str], list[int]] = defaultdict(list)
        #: Messages that a record of a batch queue stands for, by physical offset.
        self.counts: dict[int, int] = {}
        self._segment_nbytes = segment_nbytes

    def place(self, nbytes: int) -> int:
        """Where ``nbytes`` more go: after the last record, or into the next segment."""
        left = self._segment_nbytes - self.end % self._segment_nbytes
        return self.end if nbytes + 8 <= left else self.end + left

    def take(self, put: Put, nbytes: int, count: int = 1, light: tuple[str, ...] = ()) -> None:
        """Take a record that was stored."""
        self.log.append(put)
        self.end = put.physical_offset + nbytes
        transaction = put.sys_flag & ROLLBACK
        if transaction in (0, COMMIT):
            self.queues[put.topic, put.queue_id].append(put)
            for name in light:
                self.queues[name, 0].append(put)
        if count != 1:
            self.counts[put.physical_offset] = count
        if transaction != ROLLBACK:
            for key in put.keys:
                self.keys[put.topic, key].append(put.physical_offset)

    def count(self, puts: list[Put]) -> int:
        """Queue offsets that these take up."""
        return sum(self.counts.get(put.physical_offset, 1) for put in puts)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message."""
        return self.count(self.queues.get((topic, queue_id), []))

    def filled(self) -> set[Place]:
        """Queues that have a message."""
        return {place for place, puts in self.queues.items() if puts}


def check(store: rocketstore.DefaultMessageStore, oracle: Oracle) -> None:
    """Everything in the store is what the oracle says, asked in every way there is."""
    assert store.wait_dispatched()
    assert [as_put(message) for message in store.scan()] == oracle.log
    known = {(t, q) for t in store.topics() for q in store.queues(t)}
    filled = oracle.filled()
    assert {place for place in known if store.max_offset_in_queue(*place)} == filled
    for place in sorted(filled):
        check_queue(store, oracle, *place)
    for (topic, key), offsets in oracle.keys.items():
        check_key(store, oracle, topic, key, offsets)
    for put in oracle.log[-20:]:
        message = store.look_message_by_offset(put.physical_offset)
        assert message is not None
        assert as_put(message) == put
        by_id = store.look_message_by_id(message.msg_id)
        assert by_id is not None
        assert as_put(by_id) == put
        if put.unique_key and put.sys_flag & ROLLBACK != ROLLBACK:
            found = store.find(topic=put.topic, unique_key=put.unique_key)
            assert [as_put(m) for m in found] == [put]
    verified = store.verify()
    assert verified.ok, verified.findings[:5]


def check_queue(
    store: rocketstore.DefaultMessageStore, oracle: Oracle, topic: str, queue_id: int
) -> None:
    """One queue: bounds, messages, tags, times."""
    puts = oracle.queues[topic, queue_id]
    end = oracle.count(puts)
    assert store.min_offset_in_queue(topic, queue_id) == 0
    assert store.max_offset_in_queue(topic, queue_id) == end
    for offset, status in (
        (-1, GetMessageStatus.OFFSET_TOO_SMALL),
        (end, GetMessageStatus.OFFSET_OVERFLOW_ONE),
        (end + 1, GetMessageStatus.OFFSET_OVERFLOW_BADLY),
    ):
        assert store.get_message("g", topic, queue_id, offset).status == status
    check_pulls(store, topic, queue_id, None, puts)
    if topic == BATCH_TOPIC:
        return  # its units name several messages
    if topic != SCHEDULE_TOPIC:
        tagged = [number for number, put in enumerate(puts) if put.tags == "TagA"]
        wanted = [puts[number] for number in tagged]
        check_pulls(store, topic, queue_id, TagFilter("TagA"), wanted)
        assert store.filter_units(topic, queue_id, "TagA").tolist() == tagged
    times = [put.store_timestamp for put in puts]
    if times != sorted(times):
        return  # a search by time finds its way only where times do not go back
    for time in {times[0] - 1, times[0], times[-1], times[-1] + 1, times[len(times) // 2]}:
        by_time = store.get_offset_in_queue_by_time
        lower, upper = sum(t < time for t in times), sum(t <= time for t in times)
        assert by_time(topic, queue_id, time, boundary="lower") == lower
        assert by_time(topic, queue_id, time, boundary="upper") == max(upper - 1, 0)


def check_pulls(
    store: rocketstore.DefaultMessageStore,
    topic: str,
    queue_id: int,
    chosen: TagFilter | None,
    wanted: list[Put],
) -> None:
    """Pull by pull through a queue."""
    offset, found = 0, []
    end = store.max_offset_in_queue(topic, queue_id)
    while offset < end:
        result = store.get_message("g", topic, queue_id, offset, 5, filter=chosen)
        assert offset < result.next_begin_offset <= end
        assert (result.status == GetMessageStatus.FOUND) == bool(result.messages)
        offset = result.next_begin_offset
        found += [as_put(message) for message in result.messages]
    assert found == wanted


def check_key(
    store: rocketstore.DefaultMessageStore,
    oracle: Oracle,
    topic: str,
    key: str,
    offsets: list[int],
) -> None:
    """One key: exactly, in arrays, by time, and as RocketMQ answers."""
    assert [m.physical_offset for m in store.find(topic=topic, key=key)] == offsets
    hits, splits = store.index_offsets(topic, [key, NOWHERE])
    assert set(offsets) <= set(hits[: splits[1]].tolist())
    middle = oracle.log[len(oracle.log) // 2].store_timestamp
    times = {put.physical_offset: put.store_timestamp for put in oracle.log}
    late = [offset for offset in offsets if times[offset] >= middle]
    found = store.find(topic=topic, key=key, begin=middle)
    assert [m.physical_offset for m in found] == late
    answer = store.query_message(topic, key, 64).messages
    assert len(answer) <= 64
    answered = [message.physical_offset for message in answer]
    assert set(answered) <= set(times)
    assert len(answered) == 64 or set(offsets) <= set(answered)
