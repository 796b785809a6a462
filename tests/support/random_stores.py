"""Stores of many small messages of all sorts, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import rocketstore

ROWS = 300_000
FIRST_TIME = 1_700_000_000_000
TAGS = (None, "red", "green", "blue", "größer")


def random_messages(count: int, seed: int) -> Iterator[rocketstore.Message]:
    """Messages of all sorts of lengths, with and without tags, keys and properties."""
    chance = random.Random(seed)
    data = chance.randbytes(4096)
    topics = [f"Topic{letter}" for letter in "ABCD"]
    for number in range(count):
        first = chance.randrange(4000)
        properties = {"trace": f"t{number}"} if number % 7 == 0 else {}
        message = rocketstore.Message(
            topics[number % 4 if number % 3 else 0],
            data[first : first + (first % 96 if number % 1000 else 3000)],
            queue_id=number % 5,
            flag=number % 3,
            born_timestamp=1_600_000_000_000 + number,
            properties=properties,
        )
        message.tags = TAGS[first % 5]
        message.keys = f"k{number} common" if number % 2 else None
        yield message


def make(root: Path, count: int, seed: int = 6, segment_nbytes: int = 12 << 20) -> None:
    """Write a store of ``count`` messages and close it; its clock goes on by 1 ms at every look."""
    now = FIRST_TIME

    def clock() -> int:
        nonlocal now
        now += 1
        return now

    with rocketstore.open(
        root,
        "x",
        clock=clock,
        mapped_file_size_commit_log=segment_nbytes,
        mapped_file_size_consume_queue=1_200_000,
        message_index_enable=False,
    ) as store:
        results = store.put_many(random_messages(count, seed))
        assert len(results) == count
        assert all(result.ok for result in results)
