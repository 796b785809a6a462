"""The seeds of the kernels' fuzzer, files that a real RocketMQ wrote, and how they are changed."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import numpy

from rocketstore import formats
from rocketstore._reference.message import StoredMessage

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
_STORES = ("broker-5.3.3", "ext-4.9.8", "inner-5.3.3", "lmq-5.3.3", "crc-5.3.3", "plain-4.9.8")
_PHYSICAL_OFFSET_AT = formats.RECORD_HEAD.at("physical_offset")
#: Numbers at limits; the fuzzer also uses their neighbours.
_EDGES = (0, 20, 40, 46, 91, 4096, 2**15, 2**16, 2**30, 2**31, 2**32, 2**40, 2**62, 2**63 - 2)
_INT64 = 2**63 - 1


@dataclass
class Queue:
    """The units of one queue file and the log segments that they point into."""

    topic: bytes
    queue_id: int
    first_index: int
    units: bytes


@dataclass
class Seeds:
    """Parts of golden stores by kind."""

    logs: list[tuple[int, bytes]] = field(default_factory=list)
    #: Records with their physical offsets.
    records: list[tuple[int, bytes]] = field(default_factory=list)
    queues: list[tuple[Queue, list[tuple[int, bytes]]]] = field(default_factory=list)
    #: ``topic#key`` as the index files have them.
    keys: list[bytes] = field(default_factory=list)
    ext_files: list[bytes] = field(default_factory=list)
    batch_files: list[bytes] = field(default_factory=list)
    index_files: list[tuple[int, int, bytes]] = field(default_factory=list)
    checkpoints: list[bytes] = field(default_factory=list)
    tables: list[bytes] = field(default_factory=list)


@cache
def load() -> Seeds:
    """Unpack the stores, once."""
    for directory in (TESTS, TESTS / "golden"):
        if str(directory) not in sys.path:
            sys.path.insert(0, str(directory))
    import golden_stores

    seeds = Seeds()
    for name in _STORES:
        geometry = golden_stores.geometry(name)
        with tempfile.TemporaryDirectory() as directory:
            root = golden_stores.unpack(name, Path(directory))
            files = sorted(path for path in root.rglob("*") if path.is_file())
            tree = {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
            _take(seeds, tree, geometry.slots, geometry.entries)
    blank = formats.BLANK_MAGIC.to_bytes(4, "big", signed=True)
    for offset, record in seeds.records[::5]:
        if record[4:8] == blank:
            continue
        message = StoredMessage(record, 0, offset, offset + len(record))
        names = [message.unique_key or "", *(message.keys or "").split()]
        seeds.keys += [f"{message.topic}#{name}".encode() for name in names if name]
    return seeds


def _take(seeds: Seeds, tree: dict[str, bytes], slots: int, entries: int) -> None:
    logs = [(int(p[-20:]), c) for p, c in tree.items() if p.startswith("commitlog/")]
    seeds.logs += logs
    for base, content in logs:
        seeds.records += [(base + at, content[at : at + size]) for at, size in _places(content)]
    for path, content in tree.items():
        kind, *rest = path.split("/")
        if kind == formats.CONSUME_QUEUE_DIR and len(rest) == 3 and len(seeds.queues) < 200:
            first = int(rest[2]) // formats.CONSUME_QUEUE_UNIT.nbytes
            queue = Queue(rest[0].encode(), int(rest[1]), first, content)
            seeds.queues.append((queue, logs))
        elif kind == formats.CONSUME_QUEUE_EXT_DIR:
            seeds.ext_files.append(content[:4096])
        elif kind == formats.BATCH_QUEUE_DIR:
            seeds.batch_files.append(content[: 46 * 100])
        elif kind == formats.INDEX_DIR and len(content) <= 1 << 16:
            seeds.index_files.append((slots, entries, content))
        elif kind == formats.CHECKPOINT_FILE:
            seeds.checkpoints.append(content)
        elif kind == formats.CONFIG_DIR and len(content) <= 1 << 14:
            seeds.tables.append(content)


def _places(content: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at + 8 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        if size < formats.RECORD_MIN_NBYTES or at + size > len(content):
            break
        found.append((at, size))
        at += size
    return found


# --- changing -----------------------------------------------------------------------------------


def number(random: Random) -> int:
    """Return a signed 64-bit number, mostly one near an edge."""
    choice = random.random()
    if choice < 0.5:
        value = random.choice(_EDGES) + random.randint(-2, 2)
    elif choice < 0.8:
        value = random.randint(0, 5000)
    else:
        value = random.getrandbits(random.randint(1, 63))
    value = -value if random.random() < 0.2 else value
    return max(-_INT64 - 1, min(_INT64, value))


def mutate(random: Random, content: bytes, most: int = 4) -> bytes:
    """Change up to ``most`` places of ``content``, sometimes none."""
    changed = bytearray(content)
    for _ in range(random.randint(0, most)):
        if not changed:
            return bytes(random.randbytes(random.randint(0, 64)))
        at = random.randrange(len(changed))
        kind = random.randrange(8)
        if kind < 2:
            changed[at] ^= 1 << random.randrange(8)
        elif kind < 4:
            width = random.choice((1, 2, 4, 8))
            value = number(random) % (1 << (8 * width))
            changed[at : at + width] = value.to_bytes(width, "big")[: len(changed) - at]
        elif kind == 4:
            other = random.randrange(len(changed))
            length = random.randint(1, 48)
            changed[at : at + length] = changed[other : other + length]
        elif kind == 5:
            changed[at : at + random.randint(1, 48)] = b""
        elif kind == 6:
            changed[at:at] = random.choice((b"\x01", b"\x02", b"\xff\xfe", bytes(8), b"\xc3", b" "))
        else:
            del changed[at:]
    return bytes(changed)


def mutate_fields(random: Random, content: bytes, stride: int, start: int = 0) -> bytes:
    """Change some fields of ``content``, whose rows have ``stride`` bytes; the length stays."""
    changed = bytearray(content)
    rows = (len(changed) - start) // stride
    for _ in range(random.randint(0, 4) if rows > 0 else 0):
        at = start + random.randrange(rows) * stride
        kind = random.randrange(4)
        if kind == 0:
            changed[at : at + stride] = bytes(stride)
        elif kind == 1:
            other = start + random.randrange(rows) * stride
            changed[at : at + stride] = changed[other : other + stride]
        else:
            width = random.choice((4, 8))
            at += random.randrange(0, stride - width + 1, 4)
            value = number(random) % (1 << (8 * width))
            changed[at : at + width] = value.to_bytes(width, "big")
    if random.random() < 0.1:
        changed[: min(8, len(changed))] = random.randbytes(min(8, len(changed)))
    return bytes(changed[: len(content)])


def rebase(record: bytes, offset: int) -> bytes:
    """Return the record with another physical offset."""
    end = _PHYSICAL_OFFSET_AT + 8
    return record[:_PHYSICAL_OFFSET_AT] + offset.to_bytes(8, "big") + record[end:]


def exact(content: bytes | bytearray) -> memoryview:
    """Return a writable copy; a sanitizer detects accesses past its last byte."""
    return memoryview(numpy.frombuffer(content, "u1").copy())
