"""Where the records of a split or merged store were before: a file of CSV, and lookups."""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rocketstore.files.durable import sync_descriptor

#: The columns of the file.
COLUMNS = (
    "store", "oldOffset", "newOffset", "topic", "queueId", "oldQueueOffset", "newQueueOffset",
)  # fmt: skip
_PAIR = struct.Struct("=qq")


class Moved(NamedTuple):
    """One record: its log offsets, its queue, and its queue offsets."""

    store: int
    old_offset: int
    new_offset: int
    topic: str
    queue_id: int
    old_queue_offset: int
    new_queue_offset: int


class OffsetMap:
    """Written while records are copied; ``find`` reads what was written. Not for several threads.

    Parameters
    ----------
    path : Path
        The file of CSV; beside it is one with pairs of log offsets for each store.
    names : sequence of str
        What the file calls the stores.
    sizes : sequence of int
        Bytes of an earlier call that count, first of the CSV, then of each store's pairs.
    """

    def __init__(self, path: Path, names: Sequence[str], sizes: Sequence[int] | None) -> None:
        self.path = path
        self._names = [_quoted(name) for name in names]
        self._topics: dict[str, str] = {}
        paths = [path, *(path.with_name(f"{path.name}.{number}") for number in range(len(names)))]
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._fds: list[int] = []
        try:
            for one in paths:
                self._fds.append(os.open(one, flags, 0o644))
            self._sizes = list(sizes) if sizes is not None else [0] * len(paths)
            for fd, nbytes in zip(self._fds, self._sizes, strict=True):
                os.ftruncate(fd, nbytes)
        except BaseException:
            self.close()
            raise
        self._held: list[list[bytes]] = [[] for _ in paths]
        self._recent: list[dict[int, int]] = [{} for _ in names]
        if sizes is None:
            self._held[0].append(",".join(COLUMNS).encode() + b"\n")

    def add(self, moved: Moved) -> None:
        """Note one record; the old offsets of a store ascend."""
        topic = self._topics.get(moved.topic)
        if topic is None:
            topic = self._topics[moved.topic] = _quoted(moved.topic)
        self._held[0].append(
            f"{self._names[moved.store]},{moved.old_offset},{moved.new_offset},{topic},"
            f"{moved.queue_id},{moved.old_queue_offset},{moved.new_queue_offset}\n".encode(
                "utf-8", "surrogateescape"
            )
        )
        self._held[moved.store + 1].append(_PAIR.pack(moved.old_offset, moved.new_offset))
        self._recent[moved.store][moved.old_offset] = moved.new_offset

    def find(self, store: int, old_offset: int) -> int | None:
        """Return the new log offset of a record that was copied; ``None`` if it was not."""
        found = self._recent[store].get(old_offset)
        if found is not None:
            return found
        fd, count = self._fds[store + 1], self._sizes[store + 1] // _PAIR.size

        def old(number: int) -> int:
            return int(_PAIR.unpack(os.pread(fd, _PAIR.size, number * _PAIR.size))[0])

        number = bisect.bisect_left(range(count), old_offset, key=old)
        if number == count or old(number) != old_offset:
            return None
        return int(_PAIR.unpack(os.pread(fd, _PAIR.size, number * _PAIR.size))[1])

    def flush(self) -> None:
        """Hand what was added to the system."""
        for number, parts in enumerate(self._held):
            content = b"".join(parts)
            while content:
                written = os.pwrite(self._fds[number], content, self._sizes[number])
                self._sizes[number] += written
                content = content[written:]
            parts.clear()
        for recent in self._recent:
            recent.clear()

    def sync(self) -> list[int]:
        """Bring everything to disk; return ``sizes`` for a later call."""
        self.flush()
        for fd in self._fds:
            sync_descriptor(fd)
        return list(self._sizes)

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.pop())


def _quoted(text: str) -> str:
    if any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
