"""A process that puts and consumes messages until it is killed.

Usage: ``consuming_program.py ROOT FLUSH_DISK_TYPE SEED``. It prints a line before it settles a
message, and after offsets are on disk.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import rocketstore
from rocketstore import Consumer

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "message_delay_level": "0s 0s 0s 0s 0s 0s",
    "flush_delay_offset_interval": 20,
}
GROUP = "killed"
TOPICS = ("Orders", "Payments")
QUEUES = 2
MAX_RECONSUME_TIMES = 2


def say(*words: object) -> None:
    """Print a line at once."""
    print(*words, flush=True)


def place(message: Any) -> tuple[str, int, int]:
    """Where a message was read from."""
    topic = getattr(message, "retry_topic", message.topic)
    return topic, message.queue_id, message.queue_offset


def settle(consumer: Consumer, message: Any, chance: random.Random) -> None:
    """Settle a message by hand, in one of the ways."""
    say("settle", *place(message))
    way = chance.random()
    if way < 0.8:
        consumer.ack(message)
        return
    body = message.body.decode()
    if way < 0.95:
        consumer.retry(message, chance.choice((0, 0, 1, 30)))
        say("retried", body)
    else:
        consumer.dead(message)
        say("dead", body)


def commit(consumer: Consumer) -> None:
    """Commit, and print what is on disk then."""
    positions = consumer.positions
    consumer.commit(sync=True)
    for (topic, queue_id), offset in positions.items():
        say("commit", topic, queue_id, offset)


def by_hand(consumer: Consumer, chance: random.Random) -> None:
    """Settle polled messages in any order, some of them later."""
    held = consumer.poll(chance.choice((1, 7, 40)), 0.01)
    while held:
        settle(consumer, held.pop(chance.randrange(len(held))), chance)
        if chance.random() < 0.05:
            held += consumer.poll(3)
            commit(consumer)


def by_loop(consumer: Consumer, chance: random.Random) -> None:
    """Settle messages by asking for the next one."""
    former = None
    try:
        for message in consumer:
            if former is not None:
                say("settled", *place(former))
            say("settle", *place(message))
            if chance.random() < 0.02:
                raise KeyError
            if chance.random() < 0.05:
                commit(consumer)
            former = message
    except KeyError:
        pass


def main(root: str, flush_disk_type: str, seed: int) -> None:
    """Put a few messages, consume what is there, and so on."""
    chance = random.Random(seed)
    options = {**OPTIONS, "flush_consumer_offset_interval": chance.choice((1, 10, 5000))}
    with rocketstore.open(root, "a", flush_disk_type=flush_disk_type, **options) as store:
        manual = chance.random() < 0.6
        consumer = store.consumer(
            GROUP,
            TOPICS,
            ack="manual" if manual else "next",
            idle_timeout_s=0,
            max_reconsume_times=MAX_RECONSUME_TIMES,
        )
        say("open")
        number = 0
        while True:
            for _ in range(chance.randrange(60)):
                number += 1
                body = f"{seed}-{number}:" + "x" * chance.choice((0, 10, 700))
                store.put(chance.choice(TOPICS), body.encode(), chance.randrange(QUEUES))
            (by_hand if manual else by_loop)(consumer, chance)
            if chance.random() < 0.1:
                commit(consumer)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
