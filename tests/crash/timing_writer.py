"""A process that puts messages with a delivery time until it is killed.

Usage and output as of ``writer.py``; the messages are those on the timer topic.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import rocketstore
from crash.writer import acknowledge
from rocketstore import formats

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "flush_interval_consume_queue": 20,
    "flush_consume_queue_thorough_interval": 60,
    "timer_wheel_enable": True,
    "broker_version": "5.3.3",
}


def main(root: str, flush_disk_type: str, seed: int) -> None:
    """Put messages that are due in an hour or later, and some that are due already."""
    chance = random.Random(seed)
    with rocketstore.open(root, "a", flush_disk_type=flush_disk_type, **OPTIONS) as store:
        print("open", flush=True)
        number = 0
        while True:
            number += 1
            key = f"k{seed}-{number}"
            body = f"{key}:" + "x" * chance.choice((0, 10, 700))
            topic = chance.choice(("Orders", "Payments"))
            delay_s = chance.choice((-1, 3600, 7200, 259_200))
            result = store.put(
                topic, body.encode(), chance.randrange(2), None, key,
                properties={formats.PROPERTY_TIMER_DELAY_SEC: str(delay_s)},
            )  # fmt: skip
            assert result.ok, result
            message = store.look_message_by_offset(result.physical_offset)
            assert message is not None
            assert (message.topic == formats.TOPIC_TIMER) == (delay_s > 0)
            row = (result.physical_offset, message.topic, message.queue_id)
            acknowledge([(*row, result.queue_offset, body, key)])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
