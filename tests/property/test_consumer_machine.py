"""A random life of one consumer group against a plain table: puts, loops, polls, retries, seeks,
closings and crashes."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats

RUNS = int(os.environ.get("ROCKETSTORE_CONSUMER_RUNS", "30"))
STEPS = 60
GROUP, TOPICS, QUEUES, MAX_RECONSUME_TIMES = "g", ("A", "B"), 2, 2
RETRY, DEAD = (formats.TOPIC_RETRY_PREFIX + GROUP, 0), (formats.TOPIC_DLQ_PREFIX + GROUP, 0)
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "message_delay_level": "0s 0s 0s 0s 0s",
}
Queue = tuple[str, int]


def queue_of(message: Any) -> Queue:
    return getattr(message, "retry_topic", message.topic), message.queue_id


class Life:
    """The store and its consumer, and what a plain table says of them."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.number = 0
        self.stored: dict[Queue, list[bytes]] = {}
        #: What is settled of each queue, from where the group was at last.
        self.settled: dict[Queue, set[int]] = {}
        self.first: dict[Queue, int] = {}
        #: What was on disk for sure, when it was last written by name.
        self.durable: dict[Queue, int] = {}
        #: Where the consumer reads next.
        self.next: dict[Queue, int] = {}
        self.held: list[Any] = []
        self.copies = 0
        self.root = folder / "s0"
        self.open()

    # --- the real one -------------------------------------------------------------------------

    def open(self) -> None:
        self.store = rocketstore.open(self.root, "a", start=False, **OPTIONS)
        self.consume()

    def consume(self) -> None:
        self.manual = self.chance.random() < 0.5
        self.consumer = self.store.consumer(
            GROUP, TOPICS, ack="manual" if self.manual else "next", idle_timeout_s=0,
            max_reconsume_times=MAX_RECONSUME_TIMES,
            max_count=self.chance.choice((1, 3, 32)),
        )  # fmt: skip

    # --- the table ----------------------------------------------------------------------------

    def position(self, queue: Queue) -> int:
        at = self.first.get(queue, 0)
        while at in self.settled.get(queue, ()):
            at += 1
        return at

    def begin_at(self, queue: Queue, offset: int) -> None:
        self.first[queue] = self.next[queue] = offset
        self.settled[queue] = set()

    def begin_again(self) -> None:
        """The consumer was closed: it begins where everything before is settled."""
        self.held = []
        for queue in self.stored:
            self.begin_at(queue, self.position(queue))

    def take(self, message: Any) -> None:
        """A message was handed out: the next one of its queue, and the right one."""
        queue = queue_of(message)
        at = self.next.get(queue, 0)
        assert message.queue_offset == at
        assert message.body == self.stored[queue][at]
        assert message.topic in TOPICS
        self.next[queue] = at + 1

    def settle(self, message: Any) -> None:
        self.settled.setdefault(queue_of(message), set()).add(message.queue_offset)

    def check(self) -> None:
        positions = self.consumer.positions
        for queue in self.stored:
            if queue != DEAD and queue in positions:
                assert positions[queue] == self.position(queue), queue
        ends = {queue: len(bodies) for queue, bodies in self.stored.items()}
        assert ends == {queue: self.store.max_offset_in_queue(*queue) for queue in ends}

    # --- what happens -------------------------------------------------------------------------

    def put(self) -> None:
        for _ in range(self.chance.randrange(1, 30)):
            self.number += 1
            queue = self.chance.choice(TOPICS), self.chance.randrange(QUEUES)
            body = b"%d" % self.number
            self.store.put(queue[0], body, queue[1])
            self.stored.setdefault(queue, []).append(body)
        self.store.wait_dispatched()

    def poll(self) -> None:
        found = self.consumer.poll(self.chance.choice((1, 5, 50)))
        if not self.manual:
            for message in self.held:
                self.settle(message)
            self.held = []
        for message in found:
            self.take(message)
        self.held += found

    def loop(self) -> None:
        """Begin a loop, and leave it in some way. It settles what ``poll`` returned."""
        leave = self.chance.choice((1, 4, 40, 10**9))
        if not self.manual:
            for message in self.held:
                self.settle(message)
            self.held = []
        former = None
        messages = iter(self.consumer)
        for count, message in enumerate(messages):
            if former is not None and not self.manual:
                self.settle(former)
            former = message
            self.take(message)
            if self.manual:
                self.held.append(message)
            if count + 1 == leave:
                break
        else:
            if former is not None and not self.manual:
                self.settle(former)
            former = None
        del messages
        if former is not None and not self.manual:
            self.next[queue_of(former)] = former.queue_offset

    def acknowledge(self) -> None:
        if not self.manual:
            return
        for _ in range(min(len(self.held), self.chance.randrange(1, 12))):
            message = self.held.pop(self.chance.randrange(len(self.held)))
            way = self.chance.random()
            if way < 0.7:
                self.consumer.ack(message)
            else:
                self.send_back(message, dead=way > 0.9)
            self.settle(message)

    def send_back(self, message: Any, *, dead: bool) -> None:
        is_last = message.reconsume_times >= MAX_RECONSUME_TIMES
        if dead:
            self.consumer.dead(message)
        else:
            self.consumer.retry(message, self.chance.choice((0, 1, 5)))
        target = DEAD if dead or is_last else RETRY
        while self.store.deliver_due():
            pass
        self.store.wait_dispatched()
        self.stored.setdefault(target, []).append(message.body)

    def commit(self) -> None:
        sync = self.chance.random() < 0.6
        self.consumer.commit(sync=sync)
        if not self.manual:
            for message in self.held:
                self.settle(message)
            self.held = []
        if sync:
            for queue in self.consumer.positions:
                self.durable[queue] = self.position(queue)

    def seek(self) -> None:
        queues = [queue for queue in self.stored if queue[0] in TOPICS]
        if queues:
            queue = self.chance.choice(queues)
            offset = self.chance.randrange(len(self.stored[queue]) + 1)
            self.consumer.seek(*queue, offset)
            self.begin_at(queue, offset)
            self.held = [message for message in self.held if queue_of(message) != queue]

    def close(self) -> None:
        self.consumer.close()
        self.begin_again()
        self.durable = {queue: self.position(queue) for queue in self.stored}
        if self.chance.random() < 0.5:
            self.store.close()
            self.open()
        else:
            self.consume()

    def crash(self) -> None:
        """Go on with the files as they are now, without closing."""
        self.copies += 1
        copy = self.folder / f"s{self.copies}"
        shutil.copytree(self.root, copy)
        self.store.close()
        shutil.rmtree(self.root)
        self.root = copy
        before = {queue: self.position(queue) for queue in self.stored}
        self.held = []
        self.open()
        for queue, offset in self.consumer.positions.items():
            places = self.durable.get(queue, 0), before.get(queue, 0)  # a seek may lead back
            assert min(places) <= offset <= max(places), queue
            self.begin_at(queue, offset)


STEPS_BY_NAME = ("put", "put", "poll", "poll", "loop", "acknowledge", "acknowledge")


@pytest.mark.parametrize("run", range(RUNS))
def test_a_random_life_of_a_group(run: int, tmp_path: Path) -> None:
    seed = run if RUNS <= 100 else random.SystemRandom().randrange(1 << 40)
    print(f"seed {seed}")
    chance = random.Random(seed)
    life = Life(tmp_path, chance)
    try:
        for _ in range(STEPS):
            name = chance.choice((*STEPS_BY_NAME, "commit", "seek", "close", "crash"))
            print(name)
            getattr(life, name)()
            life.check()
    finally:
        life.store.close()
