"""Stores with delayed messages, under a clock that a test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import formats
from rocketstore.message import StoredMessage

NOW = 1_700_000_000_000
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16384,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 7,
    "max_index_num": 30,
    "message_delay_level": "1s 5s 10s",
    "start": False,
}


class Clock:
    """The store's time, epoch ms."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


class DelayedStore:
    """A store below a folder, and its clock."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.clock = Clock()
        self.options = {**OPTIONS, "clock": self.clock, **options}

    def open(self, mode: str = "a", **options: Any) -> rocketstore.DefaultMessageStore:
        return rocketstore.open(self.root, mode, **{**self.options, **options})

    def read(self, **options: Any) -> rocketstore.DefaultMessageStore:
        known = {k: v for k, v in self.options.items() if k != "start"}
        return rocketstore.open(self.root, **{**known, **options})


def deliveries(store: rocketstore.DefaultMessageStore) -> list[StoredMessage]:
    """Return the delivered messages in log order."""
    return [
        message.detach()
        for message in store.scan()
        if message.topic != formats.TOPIC_SCHEDULE
        and message.properties.get(formats.PROPERTY_REAL_TOPIC) == message.topic
    ]


def bodies(store: rocketstore.DefaultMessageStore) -> list[bytes]:
    """Return the bodies of the delivered messages in log order."""
    return [message.body for message in deliveries(store)]


def put_raw(store: rocketstore.DefaultMessageStore, body: bytes = b"", **properties: str) -> None:
    """Put a message to the schedule topic's first queue as a broker's store may hold it."""
    result = store.put(
        formats.TOPIC_SCHEDULE,
        body,
        0,
        properties={formats.PROPERTY_DELAY: "1", **properties},
    )
    assert result.ok, result
