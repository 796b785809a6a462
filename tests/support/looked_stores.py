"""A store to look into, and what a plain reader of its bytes says."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore

HOUR_MS = 3_600_000
START = 1_700_000_000_000
SEGMENT = 16 * 1024
BLANK = 0xCBD43194 - (1 << 32)


class Clock:
    """Epoch ms; the test moves it."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def open_looked(root: Path, mode: str = "a", **options: Any) -> rocketstore.DefaultMessageStore:
    """Open the store with small files."""
    given = {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 20,
        "max_index_num": 100,
    }
    return rocketstore.open(root, mode, **(given | options))


def make_store(root: Path, count: int = 150) -> Path:
    """Make a store of several segments: three topics, tags, properties and keys, over hours."""
    clock = Clock()
    with open_looked(root, clock=clock) as store:
        for number in range(count):
            clock.now = START + number * HOUR_MS // 10
            tags = ("red", "blue", None)[number % 3]
            properties = {"region": ("eu", "us")[number % 2], "n": str(number)}
            if number % 5 == 0:
                del properties["region"]
            store.put(
                ("Orders", "Pays", "Logs")[number % 3], b"%d" % number * (number % 90 + 1),
                number % 4, tags, f"k{number % 50}", properties=properties,
            )  # fmt: skip
    return root


class Record(NamedTuple):
    """One record of the log, as a reader without this library finds it; ``topic`` is ``None`` for
    the end of a segment."""

    offset: int
    nbytes: int
    topic: str | None
    queue_id: int
    body: bytes
    stored: int
    properties: dict[str, str]


def plain_records(root: Path) -> Iterator[Record]:
    """Read the segments of a store with IPv4 hosts byte by byte."""
    for path in sorted((root / "commitlog").iterdir()):
        content, at = path.read_bytes(), 0
        while at + 8 <= len(content):
            nbytes, magic = struct.unpack_from(">ii", content, at)
            if nbytes == 0:
                return
            if magic == BLANK:
                yield Record(int(path.name) + at, nbytes, None, 0, b"", 0, {})
                break
            queue_id = struct.unpack_from(">i", content, at + 12)[0]
            stored = struct.unpack_from(">q", content, at + 56)[0]
            length = struct.unpack_from(">i", content, at + 84)[0]
            place = at + 88
            body = content[place : place + length]
            place += length
            wide = magic & 0xFFFFFFFF == 0xDAA320A7 + 4
            size = 2 if wide else 1
            count = int.from_bytes(content[place : place + size], "big")
            place += size
            topic = content[place : place + count].decode()
            place += count
            count = int.from_bytes(content[place : place + 2], "big")
            text = content[place + 2 : place + 2 + count].decode()
            pairs = dict(one.split("\x01") for one in text.split("\x02") if one)
            yield Record(int(path.name) + at, nbytes, topic, queue_id, body, stored, pairs)
            at += nbytes
