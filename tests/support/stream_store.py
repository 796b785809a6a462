"""A small store that grows, for tests of streams: what stands in it, and what batches read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rocketstore
from rocketstore.message import Message

SEGMENT_NBYTES = 16 * 1024
FIRST_TIME = 1_700_000_000_000


class Row(NamedTuple):
    """What tests look at of a message."""

    physical_offset: int
    store_size: int
    topic: str
    queue_id: int
    queue_offset: int
    tags: str | None
    store_timestamp: int
    body: bytes


def message(number: int) -> Message:
    """Message ``number``: topics, queues, tags and lengths vary."""
    topic = ("Orders", "Orders", "Bills", "Alerts-1")[number % 4]
    tags = (None, "red", "blue")[number % 3]
    properties = {} if tags is None else {"TAGS": tags}
    body = b"%06d" % number + b"x" * (number * 37 % 400)
    return Message(topic, body, queue_id=number // 4 % 3, properties=properties)


class Clock:
    """Ten milliseconds pass with each look."""

    def __init__(self, begin: int) -> None:
        self.now = begin

    def __call__(self) -> int:
        self.now += 10
        return self.now


def grow(root: Path, first: int, count: int, segment_nbytes: int = SEGMENT_NBYTES) -> None:
    """Put the messages ``first`` to ``first + count``, and close the store."""
    clock = Clock(FIRST_TIME + first * 1000)
    with rocketstore.open(root, "a", clock=clock, mapped_file_size_commit_log=segment_nbytes) as s:
        for at in range(first, first + count, 10):
            chunk = [message(n) for n in range(at, min(at + 10, first + count))]
            assert s.put_many(chunk).ok


def rows_of(root: Path) -> list[Row]:
    """Every message, in log order."""
    with rocketstore.open(root, "r", derive="none") as store:
        return list(_rows(store))


def _rows(store: rocketstore.DefaultMessageStore) -> Iterator[Row]:
    for m in store.scan():
        yield Row(
            m.physical_offset,
            m.store_size,
            m.topic,
            m.queue_id,
            m.queue_offset,
            m.tags,
            m.store_timestamp,
            m.body,
        )


def segments(root: Path) -> list[Path]:
    """The files of the log."""
    return sorted((root / "commitlog").iterdir())
