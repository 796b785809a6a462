"""A process that writes until it is killed; it prints its acknowledged messages.

Usage: ``python writer.py ROOT FLUSH_DISK_TYPE SEED``. Each line is one acknowledged message:
``physical offset, topic, queue id, queue offset, body, key``, separated by tabs.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

import rocketstore
from rocketstore import Message, MessageBatch
from rocketstore.message import decode_message_id

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "flush_interval_consume_queue": 20,
    "flush_consume_queue_thorough_interval": 60,
}
TOPICS = ("Orders", "Payments", "%RETRY%group")


def acknowledge(rows: list[tuple[Any, ...]]) -> None:
    """Write all rows with one call, so that a line is whole or was never acknowledged."""
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    os.write(1, text.encode())


class Writer:
    """Puts messages in every way there is."""

    def __init__(self, store: rocketstore.DefaultMessageStore, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._seed = seed
        self._number = 0

    def _next(self) -> tuple[str, int, str, str]:
        self._number += 1
        topic = self._random.choice(TOPICS)
        key = f"k{self._seed}-{self._number}"
        body = f"{key}:" + "x" * self._random.choice((0, 10, 100, 700))
        return topic, self._random.randrange(3), key, body

    def put(self) -> None:
        topic, queue_id, key, body = self._next()
        result = self._store.put(topic, body.encode(), queue_id, "Tag", key)
        assert result.ok, result
        acknowledge([(result.physical_offset, topic, queue_id, result.queue_offset, body, key)])

    def put_many(self) -> None:
        drafts = [self._next() for _ in range(self._random.randrange(1, 20))]
        results = self._store.put_many(
            [
                Message(topic, body.encode(), queue_id=queue_id, properties={"KEYS": key})
                for topic, queue_id, key, body in drafts
            ]
        )
        acknowledge(
            [
                (result.physical_offset, topic, queue_id, result.queue_offset, body, key)
                for (topic, queue_id, key, body), result in zip(drafts, results, strict=True)
            ]
        )

    def put_batch(self) -> None:
        drafts = [self._next() for _ in range(self._random.randrange(1, 6))]
        topic, queue_id = "Batches", drafts[0][1]
        result = self._store.put_messages(
            MessageBatch(
                [
                    Message(topic, body.encode(), properties={"KEYS": key})
                    for _, _, key, body in drafts
                ],
                topic=topic,
                queue_id=queue_id,
            )
        )
        assert result.ok, result
        rows = []
        msg_ids = result.msg_id.split(",")
        for number, ((_, _, key, body), msg_id) in enumerate(zip(drafts, msg_ids, strict=True)):
            _, offset = decode_message_id(msg_id)
            rows.append((offset, topic, queue_id, result.queue_offset + number, body, key))
        acknowledge(rows)

    def run(self, also: Callable[[], object] | None = None) -> None:
        """Write until killed; ``also`` is done now and then."""
        steps: list[Callable[[], object]] = [self.put, self.put, self.put]
        steps += [self.put_many, self.put_batch]
        if also is not None:
            steps.append(also)
        while True:
            self._random.choice(steps)()


def main() -> None:
    root, flush_disk_type, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = rocketstore.open(root, "a", flush_disk_type=flush_disk_type, **OPTIONS)
    os.write(1, b"open\n")
    Writer(store, seed).run()


if __name__ == "__main__":
    main()
