"""A process that puts delayed messages and delivers them until it is killed.

Usage and output as of ``writer.py``; the messages are those in the schedule topic.
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
    "message_delay_level": "0s 1s",
    "schedule_message_enable": True,
}


def main(root: str, flush_disk_type: str, seed: int) -> None:
    """Put messages of two levels, singly and by hand; the service delivers them."""
    chance = random.Random(seed)
    options = {**OPTIONS, "flush_delay_offset_interval": chance.choice((1, 20, 10_000))}
    with rocketstore.open(root, "a", flush_disk_type=flush_disk_type, **options) as store:
        print("open", flush=True)
        number = 0
        while True:
            number += 1
            key = f"k{seed}-{number}"
            level = chance.choice((1, 1, 2))
            body = f"{key}:" + "x" * chance.choice((0, 10, 700))
            topic = chance.choice(("Orders", "Payments"))
            result = store.put(
                topic, body.encode(), chance.randrange(2), None, key,
                delay_level=level, unique_key=chance.choice((None, True)),
            )  # fmt: skip
            assert result.ok, result
            row = (result.physical_offset, formats.TOPIC_SCHEDULE, level - 1)
            acknowledge([(*row, result.queue_offset, body, key)])
            if chance.random() < 0.02:
                store.deliver_due(max_count=chance.choice((None, 1, 3)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
