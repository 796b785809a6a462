"""Stores whose messages are numbers, and what groups read from them."""

from __future__ import annotations

from typing import Any

import rocketstore

#: A deadline, not a goal: the machine may be busy.
PATIENCE_S = 30.0
Store = rocketstore.DefaultMessageStore


def fill(store: Store, count: int, queues: int = 1, topic: str = "T", first: int = 0) -> None:
    for number in range(first, first + count):
        store.put(topic, b"%d" % number, number % queues, tags="even" if number % 2 == 0 else "odd")
    store.wait_dispatched()


def numbers(messages: Any) -> list[int]:
    return [int(message.body) for message in messages]


def everything(store: Store, group: str = "g", **options: Any) -> list[int]:
    with store.consumer(group, options.pop("topics", "T"), idle_timeout_s=0, **options) as consumer:
        return numbers(consumer)
