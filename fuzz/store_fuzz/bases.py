"""The stores to damage: those that a real RocketMQ wrote, and some written here with every kind of
put."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Message, MessageBatch
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.state import StoreState
from store_fuzz import records
from store_fuzz.records import Original
from store_fuzz.tree import Tree, read_tree

_GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
_TIME = 1_700_000_000_000
_SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 320,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


@dataclass
class Base:
    """An undamaged store.

    Attributes
    ----------
    name : str
    tree : dict
    originals : list of Original
        Its records in log order.
    mark : int
        The durable offset, valid as long as state file, checkpoint and ``abort`` are not changed.
    options : dict
        Its geometry, as options of ``open``.
    whole : dict of str to bool
        The checks that the undamaged store passes (``openable``, ``writable``, ``verified``,
        ``pulled``, ``found``). The others are skipped for a damaged one.
    """

    name: str
    tree: Tree
    originals: list[Original]
    mark: int
    options: dict[str, int]
    whole: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def by_offset(self) -> dict[int, Original]:
        """Its records by log offset."""
        return {original.offset: original for original in self.originals}

    @property
    def end(self) -> int:
        """Log offset after the last record."""
        return self.originals[-1].end if self.originals else 0


def golden_names() -> list[str]:
    """Return the names of the stores that RocketMQ wrote."""
    return sorted(path.parent.name for path in _GOLDEN.glob("*/about.json"))


def load(name: str, directory: Path) -> Base:
    """Unpack or write the store ``name``; ``directory`` is for temporary files."""
    root = _OWN[name](directory) if name in _OWN else _unpack(name, directory)
    tree = read_tree(root)
    originals = list(records.originals(tree))
    shutil.rmtree(directory)
    return Base(name, tree, originals, _mark(tree, originals), _geometry(name))


def names() -> list[str]:
    """Return the names of all stores."""
    return [*golden_names(), *_OWN]


def _golden_stores() -> Any:
    sys.path.insert(0, str(_GOLDEN))
    try:
        import golden_stores
    finally:
        sys.path.remove(str(_GOLDEN))
    return golden_stores


def _unpack(name: str, directory: Path) -> Path:
    return Path(_golden_stores().unpack(name, directory))


def _geometry(name: str) -> dict[str, int]:
    if name in _OWN:
        return dict(_SIZES)
    found = _golden_stores().geometry(name)
    values = (
        found.commit_log_nbytes,
        found.consume_queue_nbytes // 20 * 20,
        found.slots,
        found.entries,
    )
    return dict(zip(_SIZES, values, strict=True))


def _mark(tree: Tree, originals: list[Original]) -> int:
    checkpoint = StoreCheckpoint.from_bytes(tree["checkpoint"].content)
    if "rocketstore.state" in tree:
        state = StoreState.from_bytes(tree["rocketstore.state"].content)
        if state is not None:
            return state.flushed_offset
    if "abort" not in tree:
        return originals[-1].end if originals else 0
    ends = [r.end for r in originals if r.store_timestamp < checkpoint.physic_timestamp]
    return max(ends, default=0)


# --- written here -------------------------------------------------------------------------------


class _Clock:
    def __init__(self) -> None:
        self.now = _TIME

    def __call__(self) -> int:
        self.now += 11
        return self.now


def fill(store: rocketstore.DefaultMessageStore, rng: random.Random, count: int) -> None:
    """Put about ``count`` messages, using every kind of put."""
    for number in range(count):
        topic = rng.choice(("Orders", "Payments", "%RETRY%" + "g" * 140))
        queue_id, key = rng.randrange(3), f"k{number} common"
        host = rng.choice(("10.0.0.9:4711", "[2001:db8::7]:4711"))
        body = rng.randbytes(rng.choice((0, 1, 60, 600)))
        way = rng.randrange(12)
        if way == 0:
            several = [Message(topic, body, queue_id=queue_id, properties={"KEYS": key})] * 3
            store.put_many(several)
        elif way == 1:
            several = [Message(topic, body), Message(topic, b"second")]
            store.put_messages(MessageBatch(several, topic=topic, queue_id=queue_id))
        elif way == 2:
            store.put(topic, body, queue_id, "Tag", key, delay_level=rng.randrange(1, 4))
        elif way == 3:
            store.put(topic, body, queue_id, "Tag", key, sys_flag=rng.choice((4, 8, 12)))
        elif way == 4:
            wide = {"wide": "w" * rng.choice((600, 5000))}
            store.put(topic, body, queue_id, "Tag", key, properties=wide, born_host=host)
        else:
            tags = rng.choice((None, "TagA", "TagB"))
            unique = f"UNIQUE{number}" if way == 5 else None
            store.put(topic, body, queue_id, tags, key, born_host=host, unique_key=unique)


def _closed(directory: Path, version: str, **options: Any) -> Path:
    root = directory / "store"
    settings = {**_SIZES, "broker_version": version, **options}
    with rocketstore.open(root, "x", clock=_Clock(), **settings) as store:
        fill(store, random.Random(version), 90)
    return root


def _killed(directory: Path, version: str, **options: Any) -> Path:
    """Write a store as after a kill: a child flushes in the middle and ends without closing."""
    root = directory / "store"
    settings = {**_SIZES, "broker_version": version, **options}
    child = os.fork()
    if child == 0:
        try:
            store = rocketstore.open(root, "x", clock=_Clock(), start=False, **settings)
            fill(store, random.Random(version), 60)
            store.reader  # noqa: B018 - keeps the store alive until here
            store._writer.reput.drain()
            store.flush()
            fill(store, random.Random(version + "!"), 25)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("the child that writes a store to be killed failed")
    return root


_OWN = {
    "own-5.5.0": lambda directory: _closed(directory, "5.5.0"),
    "own-4.9.8": lambda directory: _closed(directory, "4.9.8"),
    "own-killed-5.3.3": lambda directory: _killed(directory, "5.3.3"),
}


def working_directory() -> Path:
    """Create a new folder in memory if possible, else among the temporary files."""
    memory = Path("/dev/shm")
    place = str(memory) if os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="rocketstore-fuzz-", dir=place))
