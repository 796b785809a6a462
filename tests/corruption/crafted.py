"""Stores with bytes changed by hand: build one, patch records, set the durable mark, compare
directories."""

from __future__ import annotations

import os
import shutil
import stat
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import CorruptMessageError, GetMessageStatus, formats
from rocketstore.directory.checkpoint import StoreCheckpoint, signed_crc
from rocketstore.directory.state import StoreState

SEGMENT = 16 * 1024
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 320,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
    "store_host": "10.0.0.7:10911",
}
COUNT = 96
TIME = 1_700_000_000_000
LONG_TOPIC = "%RETRY%" + "L" * 150
_HEAD = formats.RECORD_HEAD
_TAIL = formats.RECORD_TAIL


class Clock:
    """Epoch ms that goes on by ``step`` at every look."""

    def __init__(self, now: int = TIME, step: int = 7) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> int:
        self.now += self.step
        return self.now


@dataclass(frozen=True)
class Record:
    """One record of the log and where its parts lie, from the record's start."""

    offset: int
    size: int
    magic: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    sys_flag: int
    key: str | None
    raw: bytes

    @property
    def end(self) -> int:
        """Log offset after it."""
        return self.offset + self.size

    @property
    def body_at(self) -> int:
        hosts = sum(
            bool(self.sys_flag & bit)
            for bit in (formats.SYS_FLAG_BORN_HOST_V6, formats.SYS_FLAG_STORE_HOST_V6)
        )
        return formats.RECORD_HEADER_V4_NBYTES + 12 * hosts

    @property
    def body_nbytes(self) -> int:
        return int.from_bytes(self.raw[self.body_at - 4 : self.body_at], "big")

    @property
    def topic_length_at(self) -> int:
        return self.body_at + self.body_nbytes

    @property
    def topic_length_nbytes(self) -> int:
        return 2 if self.magic == formats.MAGIC_V2 else 1

    @property
    def topic_at(self) -> int:
        return self.topic_length_at + self.topic_length_nbytes

    @property
    def properties_length_at(self) -> int:
        return self.topic_at + len(self.topic.encode())

    @property
    def properties_at(self) -> int:
        return self.properties_length_at + formats.PROPERTIES_LENGTH_NBYTES

    def field(self, name: str) -> tuple[int, int]:
        """Start and width of a number: a field of the head, ``body_length``, ``topic_length``,
        ``properties_length`` or ``store_timestamp``."""
        if name == "body_length":
            return self.body_at - 4, 4
        if name == "topic_length":
            return self.topic_length_at, self.topic_length_nbytes
        if name == "properties_length":
            return self.properties_length_at, 2
        if name == "store_timestamp":
            born = 12 if self.sys_flag & formats.SYS_FLAG_BORN_HOST_V6 else 0
            return _HEAD.nbytes + formats.HOST_V4.nbytes + born, 8
        field = next(field for field in _HEAD.fields if field.name == name)
        return _HEAD.at(name), int(field.type[1:])

    def number(self, name: str) -> int:
        """A number as stored."""
        at, width = self.field(name)
        return int.from_bytes(self.raw[at : at + width], "big", signed=True)

    def with_number(self, name: str, value: int) -> bytes:
        """The record's bytes with one number changed (wrapped to its width)."""
        at, width = self.field(name)
        return self.with_bytes(at, (value % (1 << 8 * width)).to_bytes(width, "big"))

    def with_bytes(self, at: int, content: bytes) -> bytes:
        """The record's bytes with some overwritten."""
        return self.raw[:at] + content + self.raw[at + len(content) :]

    def moved_to(self, offset: int) -> bytes:
        """The record's bytes with another own offset."""
        return self.with_number("physical_offset", offset)


def records_of(store: rocketstore.DefaultMessageStore) -> list[Record]:
    """Every readable record, good ones only."""
    return [
        Record(
            message.physical_offset,
            message.store_size,
            message.magic_code,
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.store_timestamp,
            message.sys_flag,
            message.keys,
            bytes(message.raw),
        )
        for message in store.scan(on_corruption="skip")
    ]


def build(root: Path, count: int = COUNT, **options: Any) -> None:
    """Write ``count`` messages of mixed size, topic, version and host, and close in order.

    Sizes repeat with a period of 8, the queues of one topic with a period of 2, so that equal
    records lie in different segments, and any record has a successor in its queue close to it.
    """
    with rocketstore.open(root, "x", clock=Clock(), **{**OPTIONS, **options}) as store:
        for number in range(count):
            put_one(store, number)


def put_one(store: rocketstore.DefaultMessageStore, number: int) -> Any:
    """Put the message of that number."""
    kind = number % 8
    topic = LONG_TOPIC if kind in (3, 7) else "Orders"
    properties = {"number": f"{number:04d}"}
    if kind in (1, 5):
        properties["wide"] = "w" * 900
    if kind in (2, 6):
        properties["wide"] = "w" * 4700 if kind == 6 else ""
        properties = {name: value for name, value in properties.items() if value}
    host = "[2001:db8::1]:4001" if kind in (4, 5) else "10.1.2.3:4000"
    body = bytes((number * 31 + i) % 251 for i in range((0, 40, 300, 90, 200, 64, 33, 128)[kind]))
    result = store.put(
        topic,
        body,
        number % 2,
        f"Tag{number % 3}",
        f"k{number}",
        properties=properties,
        born_host=host,
        born_timestamp=TIME - 5,
    )
    assert result.ok, result
    return result


class Crafted:
    """A copy of a store that may be changed by hand."""

    def __init__(self, template: Path, root: Path) -> None:
        shutil.copytree(template, root, symlinks=True)
        self.root = root
        with rocketstore.open(root, "r") as store:
            self.records = records_of(store)
            self.segment_size = store.facts.commit_log_file_size

    # --- bytes --------------------------------------------------------------------------------

    def segment(self, offset: int) -> Path:
        """The segment file that holds a log offset."""
        start = offset - offset % self.segment_size
        return self.root / "commitlog" / formats.offset_to_file_name(start)

    def write(self, offset: int, content: bytes) -> None:
        """Overwrite bytes of one segment."""
        with self.segment(offset).open("r+b") as file:
            file.seek(offset % self.segment_size)
            file.write(content)

    def read(self, offset: int, nbytes: int) -> bytes:
        with self.segment(offset).open("rb") as file:
            file.seek(offset % self.segment_size)
            return file.read(nbytes)

    def segments(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def files_end(self) -> int:
        return int(self.segments()[-1].name) + self.segment_size

    def zero_from(self, offset: int) -> None:
        """Write zeros from ``offset`` to the end of the last segment; drop the records there."""
        for path in self.segments():
            start = int(path.name)
            if start >= offset and start > 0:
                path.unlink()
            elif start + self.segment_size > offset:
                position = max(0, offset - start)
                with path.open("r+b") as file:
                    file.seek(position)
                    file.write(bytes(self.segment_size - position))

    # --- the durable mark ---------------------------------------------------------------------

    def crashed(self) -> None:
        """As after a kill: the ``abort`` file is there."""
        (self.root / "abort").write_bytes(b"4711")

    def set_mark(self, mark: str, offset: int) -> None:
        """Let everything below ``offset`` be known as durable, by ``"state"`` or
        ``"checkpoint"``."""
        if mark == "state":
            self.set_state(offset)
        else:
            self.set_checkpoint(offset)

    def set_state(self, offset: int) -> None:
        """A valid state file of a store that was flushed up to ``offset`` and then killed."""
        path = self.root / "rocketstore.state"
        state = StoreState.from_bytes(path.read_bytes())
        assert state is not None
        checkpoint = (self.root / "checkpoint").read_bytes()
        replace(
            state,
            flushed_offset=offset,
            dispatched_offset=offset,
            indexed_offset=offset,
            log_end_offset=offset,
            clean=False,
            checkpoint_crc=signed_crc(checkpoint),
        ).write(path)

    def set_checkpoint(self, offset: int) -> None:
        """No state file; the checkpoint's physic time lies between the records around
        ``offset``."""
        (self.root / "rocketstore.state").unlink(missing_ok=True)
        above = [r.store_timestamp for r in self.records if r.offset >= offset]
        below = [r.store_timestamp for r in self.records if r.offset < offset]
        path = self.root / "checkpoint"
        old = StoreCheckpoint.from_bytes(path.read_bytes())
        old.replace(physic_timestamp=above[0] if above else below[-1] + 1).write(path)


def body_crc(body: bytes) -> int:
    """The CRC as stored."""
    return zlib.crc32(body) & 0x7FFFFFFF


# --- comparing --------------------------------------------------------------------------------


def snapshot(root: Path) -> dict[str, tuple[str, bytes]]:
    """Every entry below ``root`` by its relative path: its kind and content or target."""
    found: dict[str, tuple[str, bytes]] = {}
    for directory, folders, files in os.walk(os.fsencode(root)):
        for name in folders + files:
            path = os.path.join(directory, name)
            mode = os.lstat(path).st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.readlink(path)
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = file.read()
            relative = os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            found[relative] = (stat.filemode(mode), content)
    return found


def pull_all(
    store: rocketstore.DefaultMessageStore,
) -> tuple[list[Any], list[CorruptMessageError]]:
    """Pull every queue to its end; after an unreadable message, continue at the next offset."""
    messages, errors = [], []
    for topic in store.topics():
        for queue_id in store.queues(topic):
            offset = store.min_offset_in_queue(topic, queue_id)
            while True:
                try:
                    result = store.get_message("g", topic, queue_id, offset)
                except CorruptMessageError as error:
                    errors.append(error)
                    offset += 1
                    continue
                for message in result.messages:
                    assert (message.topic, message.queue_id) == (topic, queue_id)
                messages += list(result.messages)
                if result.next_begin_offset == offset or result.status in (
                    GetMessageStatus.OFFSET_OVERFLOW_ONE,
                    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
                ):
                    break
                offset = result.next_begin_offset
    return messages, errors


def in_log_order(messages: list[Any]) -> list[bytes]:
    """Raw bytes of messages by ascending offset."""
    return [bytes(m.raw) for m in sorted(messages, key=lambda m: m.physical_offset)]


def content_after(store_root: Path, end: int, segment_size: int) -> bytes:
    """Return what is not zero after log offset ``end`` in the segments."""
    left = b""
    for path in sorted((store_root / "commitlog").iterdir()):
        position = max(0, end - int(path.name))
        if position < segment_size:
            left += path.read_bytes()[position:].strip(b"\0")
    return left


def quarantined(root: Path) -> bytes:
    """Everything that was kept aside, in one piece."""
    directory = root / formats.QUARANTINE_DIR
    if not directory.exists():
        return b""
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())
