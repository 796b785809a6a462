"""Reads queues, queue extensions and index files with plain code; see ``plain_log``."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.testing.plain_log import log_files

_UNIT = formats.CONSUME_QUEUE_UNIT
_ENTRY = formats.INDEX_ENTRY
_EXT_BASE = 2**63
_EXT_FOLDER = "consumequeue_ext"
_BATCH_FOLDER = "batchconsumequeue"
#: A batch queue's unit: offset, size, tags code, store time, first queue offset, count, and
#: eight bytes of compaction.
_BATCH_NBYTES = 46


class Unit(NamedTuple):
    """One entry of a queue, for ``messages`` messages from ``queue_offset`` on."""

    path: Path
    position: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    messages: int


def queue_folders(root: Path) -> Iterator[tuple[str, int, Path, bool]]:
    """Yield (topic, queue id, folder, whether it is a batch queue) of every queue with files."""
    for name in (formats.CONSUME_QUEUE_DIR, _BATCH_FOLDER):
        for folder in sorted((root / name).glob("*/*")):
            if folder.is_dir() and folder.name.isascii() and folder.name.isdigit():
                yield folder.parent.name, int(folder.name), folder, name == _BATCH_FOLDER


def read_units(folder: Path) -> Iterator[Unit]:
    """Yield the units of a plain queue in order, up to the first invalid one, without fillers."""
    for base, path in log_files(folder):
        data = path.read_bytes()
        for position in range(0, len(data) - _UNIT.nbytes + 1, _UNIT.nbytes):
            offset, size, code = _UNIT.struct.unpack_from(data, position)
            if offset < 0 or size <= 0:
                return
            if offset == 0 and size == formats.FILLER_UNIT_SIZE:
                continue
            yield Unit(path, position, (base + position) // _UNIT.nbytes, offset, size, code, 1)


def read_batch_units(folder: Path) -> Iterator[Unit]:
    """Yield the units of a batch queue in order, up to the first invalid one."""
    for _, path in log_files(folder):
        data = path.read_bytes()
        for position in range(0, len(data) - _BATCH_NBYTES + 1, _BATCH_NBYTES):
            number = functools.partial(_integer, data, position)
            offset, size, code = number(0, 8), number(8, 4), number(12, 8)
            first, count = number(28, 8), number(36, 2)
            if offset < 0 or size <= 0 or first < 0 or count <= 0:
                return
            yield Unit(path, position, first, offset, size, code, count)


def _integer(data: bytes, position: int, at: int, nbytes: int) -> int:
    return int.from_bytes(data[position + at : position + at + nbytes], "big", signed=True)


def ext_tags_code(root: Path, topic: str, queue_id: int, address: int) -> int | None:
    """Return the tags code at an address of the queue's extension, or ``None``."""
    place = address + _EXT_BASE
    for base, path in reversed(log_files(root / _EXT_FOLDER / topic / str(queue_id))):
        if base <= place:
            data = path.read_bytes()
            size = _integer(data, place - base, 0, 2)
            return _integer(data, place - base, 2, 8) if size >= 20 else None
    return None


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(data), 2):
        total = (31 * total + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return total - (1 << 32) if total >> 31 else total


@functools.lru_cache(maxsize=1 << 16)
def key_hash(topic: str, key: str) -> int:
    """Return the hash of a key as an index file stores it."""
    number = java_hash(f"{topic}{formats.INDEX_KEY_SEPARATOR}{key}")
    return 0 if number == -(2**31) else abs(number)


class IndexProblem(NamedTuple):
    """A fault of an index file."""

    path: Path
    what: str


def read_index(path: Path, slots: int, problems: list[IndexProblem]) -> Iterator[tuple[int, int]]:
    """Yield (key hash, physical offset) of every entry that a chain of the file reaches."""
    if path.stat().st_size < formats.INDEX_HEADER.nbytes:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        count = formats.INDEX_HEADER.struct.unpack_from(data, 0)[-1]
        base = formats.INDEX_HEADER.nbytes + formats.INDEX_SLOT.nbytes * slots
        if count <= 1:
            return
        if base + count * _ENTRY.nbytes > len(data):
            problems.append(IndexProblem(path, f"the header counts {count} entries: too many"))
            return
        reached = 0
        for slot, head in _heads(data, slots):
            number, newer = head, count
            while 0 < number < newer:
                place = base + number * _ENTRY.nbytes
                found, offset, _, previous = _ENTRY.struct.unpack_from(data, place)
                if found % slots != slot:
                    problems.append(IndexProblem(path, f"entry {number} is in wrong slot {slot}"))
                    break
                yield found, offset
                reached += 1
                newer, number = number, previous
    if reached != count - 1:
        problems.append(IndexProblem(path, f"chains reach {reached} of {count - 1} entries"))


def _heads(data: mmap.mmap, slots: int) -> Iterator[tuple[int, int]]:
    """Yield (slot, newest entry) of every slot in use."""
    import numpy

    heads = numpy.frombuffer(data, ">i4", slots, formats.INDEX_HEADER.nbytes)
    used = numpy.flatnonzero(heads)
    pairs = list(zip(used.tolist(), heads[used].tolist(), strict=True))
    del heads  # otherwise the mapping could not be closed
    return iter(pairs)
