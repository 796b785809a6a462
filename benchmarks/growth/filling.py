"""Stores to measure, filled with messages as a stock Java producer sends them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import DefaultMessageStore, Message

STEP = 1000
_BORN_TIMESTAMP = 1_760_000_000_000
_BODY = bytes(range(256)) * 4096


@dataclass(frozen=True)
class Shape:
    """Which messages are put.

    Attributes
    ----------
    queues : int
        Queues, 4 of each topic.
    body_nbytes : int
    properties : int
        Properties of a user beside those that every message has.
    """

    queues: int = 64
    body_nbytes: int = 100
    properties: int = 0

    def message(self, number: int) -> Message:
        """Return message ``number``."""
        queue = number % self.queues
        own = {f"property-{n:02d}": f"value-{number % 1000:03d}" for n in range(self.properties)}
        return Message(
            f"topic-{queue // 4:04d}", _BODY[: self.body_nbytes], queue_id=queue % 4,
            properties={
                "KEYS": key(number), "UNIQ_KEY": f"C0A801171F2A5FFD2B27{number:012X}",
                "WAIT": "true", "TAGS": f"Tag{number % 8}", **own,
            },
            born_timestamp=_BORN_TIMESTAMP + number, born_host="10.1.2.3:40321",
        )  # fmt: skip

    def place(self, number: int) -> tuple[str, int]:
        """Topic and queue of message ``number``."""
        queue = number % self.queues
        return f"topic-{queue // 4:04d}", queue % 4


def key(number: int) -> str:
    """The key of message ``number``."""
    return f"order-{number:09d}"


@dataclass
class Filled:
    """A store that is filled, and the number of its messages."""

    store: DefaultMessageStore
    shape: Shape
    count: int = 0

    def put(self, count: int) -> tuple[float, float]:
        """Put further messages; return nanoseconds of a put, and until all was dispatched."""
        put_ns = 0
        for first in range(self.count, self.count + count, STEP):
            many = min(STEP, self.count + count - first)
            messages = [self.shape.message(first + n) for n in range(many)]
            began = time.perf_counter_ns()
            result = self.store.put_many(messages)
            put_ns += time.perf_counter_ns() - began
            assert result.ok
        began = time.perf_counter_ns()
        assert self.store.wait_dispatched()
        waited_ns = time.perf_counter_ns() - began
        self.count += count
        return put_ns / count, (put_ns + waited_ns) / count


@contextmanager
def new_store(folder: Path, shape: Shape, **options: Any) -> Iterator[Filled]:
    """Make a store below ``folder`` and remove it at the end."""
    path = folder / "store"
    shutil.rmtree(path, ignore_errors=True)
    try:
        with rocketstore.open(path, "x", **options) as store:
            yield Filled(store, shape)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def nanoseconds(work: Callable[[], int], rounds: int = 3) -> float:
    """Return the median of nanoseconds for each of what ``work`` returns the number of."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        count = work()
        found.append((time.perf_counter_ns() - began) / count)
    return sorted(found)[rounds // 2]


def pull(filled: Filled, most: int) -> Callable[[], int]:
    """Return what reads the store's queues by pulls of 32, ``most`` messages at the most."""
    store = filled.store

    def work() -> int:
        count = 0
        for queue in range(filled.shape.queues):
            topic, queue_id = filled.shape.place(queue)
            offset = 0
            while count < most:
                answer = store.get_message("g", topic, queue_id, offset)
                if not answer.messages:
                    break
                offset = answer.next_begin_offset
                count += len(answer.messages)
        return count

    return work


def query(filled: Filled, numbers: Sequence[int]) -> Callable[[], int]:
    """Return what asks for the keys of these messages by ``query_message``."""
    asked = [(filled.shape.place(number)[0], key(number)) for number in numbers]

    def work() -> int:
        for topic, wanted in asked:
            assert filled.store.query_message(topic, wanted, 1).messages
        return len(asked)

    return work


def find(filled: Filled, numbers: Sequence[int]) -> Callable[[], int]:
    """Return what asks for the keys of these messages by ``find``."""
    asked = [(filled.shape.place(number)[0], key(number)) for number in numbers]

    def work() -> int:
        for topic, wanted in asked:
            assert list(filled.store.find(topic=topic, key=wanted))
        return len(asked)

    return work
