"""Write, read and reopen a store of many queues; print how many mappings that took, as JSON.

Usage: ``python many_queues_program.py ROOT QUEUES CACHED PINNED PRIVATE [ext]``. The three limit
the queue files that are mapped for reading, for appending, and as private copies; ``default``
leaves a limit as it is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.dispatch import dispatcher as dispatch
from rocketstore.files import mapped_file_queue, mapping_cache

QUEUES_PER_TOPIC = 100
MESSAGES_PER_QUEUE = 2


def count_mappings() -> int:
    """Mappings of this process at this moment."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


class Figures:
    """Seconds of each part, and the largest numbers of mappings and descriptors seen."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.mappings = 0
        self.descriptors = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begun, 2)
        self.look()

    def look(self) -> None:
        self.mappings = max(self.mappings, count_mappings())
        self.descriptors = max(self.descriptors, len(os.listdir("/proc/self/fd")))


def place(number: int) -> tuple[str, int]:
    """Topic and queue id of a queue."""
    return f"Topic{number // QUEUES_PER_TOPIC}", number % QUEUES_PER_TOPIC


def write(store: rocketstore.DefaultMessageStore, count: int, look: Callable[[], None]) -> None:
    """One message into every queue, twice: queues come round when others had their turn."""
    for turn in range(MESSAGES_PER_QUEUE):
        for number in range(count):
            topic, queue_id = place(number)
            result = store.put(topic, b"%d-%d" % (number, turn), queue_id, "Tag")
            assert result.ok
            assert result.queue_offset == turn
            if number % 5000 == 0:
                look()
        assert store.wait_dispatched(3000)
        look()


def read(store: rocketstore.DefaultMessageStore, count: int, look: Callable[[], None]) -> None:
    """Every message through its queue."""
    for number in range(count):
        topic, queue_id = place(number)
        found = store.get_message("g", topic, queue_id, 0).messages
        assert [m.body for m in found] == [
            b"%d-%d" % (number, turn) for turn in range(MESSAGES_PER_QUEUE)
        ], (topic, queue_id, found)
        if number % 5000 == 0:
            look()


def set_limits(cached: str, pinned: str, private: str) -> None:
    if cached != "default":
        mapping_cache.QUEUE_MAPPINGS.limit = int(cached)
    if pinned != "default":
        dispatch.MAX_PINNED_QUEUE_FILES = int(pinned)
    if private != "default":
        mapped_file_queue.MAX_PRIVATE_FILES = int(private)


def main() -> None:
    root, count = sys.argv[1], int(sys.argv[2])
    set_limits(*sys.argv[3:6])
    options: dict[str, Any] = {
        "mapped_file_size_commit_log": 64 * 1024 * 1024,
        "mapped_file_size_consume_queue": 4000,
        "message_index_enable": False,
        "enable_consume_queue_ext": sys.argv[6:] == ["ext"],
        "mapped_file_size_consume_queue_ext": 4096,
    }
    figures = Figures()
    figures.look()
    begun_with = figures.mappings
    with rocketstore.open(root, "a", **options) as store:
        with figures.part("write and dispatch"):
            write(store, count, figures.look)
        with figures.part("read"):
            read(store, count, figures.look)
        with figures.part("flush"):
            store.flush()
    for mode in ("r+", "r"):
        with figures.part(f"open {mode}"):
            store = rocketstore.open(root, mode)
        with figures.part(f"read in {mode}"):
            read(store, count, figures.look)
        assert sum(len(store.queues(topic)) for topic in store.topics()) == count
        with figures.part(f"close {mode}"):
            store.close()
    print(
        json.dumps(
            {
                "queues": count,
                "mappings": figures.mappings - begun_with,
                "descriptors": figures.descriptors,
                "seconds": figures.seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
