"""Reads the written records with separate code that shares nothing with the fuzzed kernels."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from store_fuzz.tree import Tree

MAGIC_1, MAGIC_2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_BORN_V6, _STORE_V6 = 16, 32
_TRANSACTION_PREPARED_OR_ROLLBACK = 4
_LOG = "commitlog/"


@dataclass(frozen=True)
class Original:
    """One record as it was written.

    ``body``, ``topic`` and ``properties`` are their positions from the record's start.
    """

    offset: int
    raw: bytes
    body: slice
    topic: slice
    properties: slice

    @property
    def end(self) -> int:
        """Log offset after the record."""
        return self.offset + len(self.raw)

    @property
    def sys_flag(self) -> int:
        """Its system flags."""
        return int.from_bytes(self.raw[36:40], "big")

    @property
    def is_transient(self) -> bool:
        """Whether the record is in no queue: prepared, or rolled back."""
        return bool(self.sys_flag & _TRANSACTION_PREPARED_OR_ROLLBACK)

    @property
    def queue(self) -> tuple[str, int]:
        """Topic and queue id."""
        topic = self.raw[self.topic].decode("utf-8", "replace")
        return topic, int.from_bytes(self.raw[12:16], "big")

    @property
    def queue_offset(self) -> int:
        """Its queue offset."""
        return int.from_bytes(self.raw[20:28], "big")

    @property
    def store_timestamp(self) -> int:
        """Epoch ms."""
        at = 68 if self.sys_flag & _BORN_V6 else 56
        return int.from_bytes(self.raw[at : at + 8], "big", signed=True)

    @cached_property
    def keys(self) -> list[str]:
        """Its keys."""
        for part in self.raw[self.properties].split(b"\x02"):
            name, _, value = part.partition(b"\x01")
            if name == b"KEYS":
                return [key for key in value.decode("utf-8", "replace").split(" ") if key]
        return []

    def is_variant(self, raw: bytes) -> bool:
        """Return whether ``raw`` is this record with changes that no check can detect: sizes, own
        offset and body are equal."""
        if len(raw) != len(self.raw):
            return False
        guarded = [
            slice(0, 12 if self.body.stop > self.body.start else 8),
            slice(28, 36),
            slice(self.body.start - 4, self.topic.start),
            slice(self.topic.stop, self.properties.start),
        ]
        return all(raw[part] == self.raw[part] for part in guarded)

    def is_without_body(self, raw: bytes) -> bool:
        """Return whether ``raw`` is this record with a body length of 0.

        Its body then reads as the beginning of a topic of the right length. RocketMQ does not check
        the CRC of an empty body, and neither does rocketstore.
        """
        length = slice(self.body.start - 4, self.body.start)
        rest = raw[: length.start] + self.raw[length] + raw[length.stop :]
        return raw[length] == bytes(4) and rest == self.raw


def parse(raw: bytes, offset: int) -> Original | None:
    """Return the complete record with a correct CRC at the start of ``raw``, or ``None``.

    Its own offset must be ``offset``.
    """
    if len(raw) < 92:
        return None
    size, magic, crc = struct.unpack_from(">iII", raw)
    own, sys_flag = struct.unpack_from(">qi", raw, 28)
    if magic not in (MAGIC_1, MAGIC_2) or own != offset or not 92 <= size <= len(raw):
        return None
    start = 88 + 12 * (bool(sys_flag & _BORN_V6) + bool(sys_flag & _STORE_V6))
    body_nbytes = int.from_bytes(raw[start - 4 : start], "big", signed=True)
    if not 0 <= body_nbytes <= size - start:
        return None
    body = slice(start, start + body_nbytes)
    width = 2 if magic == MAGIC_2 else 1
    topic_nbytes = int.from_bytes(raw[body.stop : body.stop + width], "big")
    topic = slice(body.stop + width, body.stop + width + topic_nbytes)
    properties_nbytes = int.from_bytes(raw[topic.stop : topic.stop + 2], "big")
    properties = slice(topic.stop + 2, topic.stop + 2 + properties_nbytes)
    if not topic_nbytes or properties.stop != size:
        return None
    if body_nbytes and zlib.crc32(raw[body]) & 0x7FFFFFFF != crc:
        return None
    return Original(offset, raw[:size], body, topic, properties)


def segments(tree: Tree, *, forbidden: bool = False) -> dict[int, bytes]:
    """Return the content of the regular files with segment names, by first offset.

    With ``forbidden`` those without read permission, otherwise the readable ones.
    """
    found = {}
    for path, entry in tree.items():
        name = path.removeprefix(_LOG)
        plain = path.startswith(_LOG) and len(name) == 20 and name.isdigit()
        if plain and entry.kind == "file" and entry.forbidden == forbidden:
            found[int(name)] = entry.content
    return found


def originals(tree: Tree) -> Iterator[Original]:
    """Yield every record of an undamaged log, in order."""
    for base, content in sorted(segments(tree).items()):
        at = 0
        while at < len(content):
            found = parse(content[at : at + 65536], base + at)
            if found is None:
                break
            yield found
            at += len(found.raw)
