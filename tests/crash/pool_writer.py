"""A process that writes through the transient store pool until it is killed.

Usage: ``python pool_writer.py ROOT FLUSH_DISK_TYPE SEED``. Standard output is as of ``writer.py``:
with SYNC_FLUSH every message whose put was a success, with ASYNC_FLUSH every one that was
committed.
"""

from __future__ import annotations

import collections
import os
import random
import sys
from typing import Any

import rocketstore
from rocketstore import Message

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 32 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 160,
    "flush_interval_consume_queue": 20,
    "flush_consume_queue_thorough_interval": 60,
    "transient_store_pool_enable": True,
    "commit_interval_commit_log": 5,
    "commit_commit_log_thorough_interval": 5,
}
Row = tuple[int, str, int, int, str, str]


class PoolWriter:
    """Puts messages one by one and in groups; prints them once they are promised."""

    def __init__(self, store: rocketstore.DefaultMessageStore, seed: int, *, is_sync: bool) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._seed = seed
        self._is_sync = is_sync
        self._number = 0
        self._waiting: collections.deque[Row] = collections.deque()

    def put(self) -> None:
        """Put one or many, then print what is promised by now."""
        count = self._random.choice((1, 1, 1, 15))
        messages, keys = [], []
        for _ in range(count):
            self._number += 1
            keys.append(f"k{self._seed}-{self._number}")
            body = f"{keys[-1]}:" + "x" * self._random.choice((0, 10, 100, 3000))
            queue_id = self._random.randrange(3)
            messages.append(
                Message("T", body.encode(), queue_id=queue_id, properties={"KEYS": keys[-1]})
            )
        for message, key, result in zip(
            messages, keys, self._store.put_many(messages), strict=True
        ):
            assert result.ok, result
            place = (result.physical_offset, "T", message.queue_id, result.queue_offset)
            self._waiting.append((*place, message.body.decode(), key))
        self._tell()

    def _tell(self) -> None:
        committed = self._store.max_physical_offset
        lines = []
        while self._waiting and (self._is_sync or self._waiting[0][0] < committed):
            lines.append("\t".join(map(str, self._waiting.popleft())) + "\n")
        os.write(1, "".join(lines).encode())


def main() -> None:
    root, flush_disk_type, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = rocketstore.open(
        root, "a", flush_disk_type=flush_disk_type, transient_store_pool_size=1 + seed % 3,
        **OPTIONS,
    )  # fmt: skip
    writer = store._writer
    assert writer is not None
    assert writer.log.pool is not None
    os.write(1, b"open\n")
    putting = PoolWriter(store, seed, is_sync=flush_disk_type == "SYNC_FLUSH")
    while True:
        putting.put()


if __name__ == "__main__":
    main()
