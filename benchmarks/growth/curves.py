"""The curves: each yields points (x, {series: nanoseconds})."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rocketstore
from growth.filling import Filled, Shape, find, nanoseconds, new_store, pull, query

Point = tuple[float, dict[str, float]]
_MIB = 1 << 20
#: An index small enough that many files hold few messages; every message has two keys.
_SMALL_INDEX = {"max_hash_slot_num": 50_000, "max_index_num": 40_000}


@dataclass(frozen=True)
class Curve:
    """One plot: what grows, its values, and the measurement."""

    name: str
    label: str
    values: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[Path, tuple[int, ...], int], Iterator[Point]]
    #: What a value is in nanoseconds of.
    of: str = "message"


def _reading(filled: Filled) -> dict[str, float]:
    return {
        "get_message of 32, a message": nanoseconds(pull(filled, 200_000)),
        "query_message": nanoseconds(query(filled, [n * 7919 % filled.count for n in range(3000)])),
    }


def _queues(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    for queues in values:
        with new_store(folder, Shape(queues=queues)) as filled:
            filled.put(max(queues, 1000))  # queues exist, as in a store that has been used
            put, dispatched = filled.put(count)
            yield queues, {
                "put_many": put, "put_many, until dispatched": dispatched,
                "get_message of 32, a message": nanoseconds(pull(filled, 200_000)),
            }  # fmt: skip


def _segments(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    """Segments of 1 MiB; the last messages count."""
    with new_store(folder, Shape(), mapped_file_size_commit_log=_MIB) as filled:
        filled.put(1000)
        for segments in values:
            while filled.store.max_physical_offset < (segments - 1) * _MIB:
                filled.put(2000)
            put, dispatched = filled.put(min(count, 3000 * segments))
            yield segments, {
                "put_many": put, "put_many, until dispatched": dispatched, **_reading(filled),
            }  # fmt: skip


def _index_files(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    with new_store(folder, Shape(), **_SMALL_INDEX) as filled:
        for files in values:
            while filled.count < files * 19_000:
                filled.put(19_000)
            newest, oldest = range(filled.count - 3000, filled.count), range(3000)
            yield files, {
                "query_message, newest": nanoseconds(query(filled, newest)),
                "query_message, oldest": nanoseconds(query(filled, oldest)),
                "find, oldest": nanoseconds(find(filled, oldest)),
            }  # fmt: skip


def _messages(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    with new_store(folder, Shape()) as filled:
        filled.put(1000)
        for wanted in values:
            last = min(count, max(wanted - filled.count, 1000))
            if wanted - last > filled.count:
                filled.put(wanted - last - filled.count)
            put, dispatched = filled.put(last)
            yield wanted, {
                "put_many": put, "put_many, until dispatched": dispatched, **_reading(filled),
            }  # fmt: skip


def _bodies(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    for nbytes in values:
        with new_store(folder, Shape(body_nbytes=nbytes)) as filled:
            filled.put(1000 if nbytes < 10_000 else 64)
            many = max(200, min(count, 400 * _MIB // (nbytes + 300)))
            put, dispatched = filled.put(many)
            yield nbytes, {
                "put_many": put, "put_many, until dispatched": dispatched,
                "get_message of 32, a message": nanoseconds(pull(filled, filled.count)),
            }  # fmt: skip


def _properties(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    for properties in values:
        with new_store(folder, Shape(properties=properties - 4)) as filled:
            filled.put(1000)
            put, dispatched = filled.put(count // 4)
            yield properties, {
                "put_many": put, "put_many, until dispatched": dispatched,
                "get_message of 32, a message": nanoseconds(pull(filled, 100_000)),
            }  # fmt: skip


def _threads(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    """All threads together: each reads all queues."""
    with new_store(folder, Shape()) as filled:
        filled.put(count)
        for threads in values:

            def work(threads: int = threads) -> int:
                counts: list[int] = []
                read = pull(filled, count)
                workers = [
                    threading.Thread(target=lambda: counts.append(read())) for _ in range(threads)
                ]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                assert len(counts) == threads
                return sum(counts)

            yield threads, {"get_message of 32, a message": nanoseconds(work)}


def _dirty_tail(folder: Path, values: tuple[int, ...], count: int) -> Iterator[Point]:
    """Opening after a kill; x is MiB of the log that no checkpoint covers."""
    for mib in values:
        path = folder / "store"
        shutil.rmtree(path, ignore_errors=True)
        child = os.fork()
        if child == 0:
            _write_until_killed(path, mib)
        os.waitpid(child, 0)
        began = time.perf_counter_ns()
        store = rocketstore.open(path, "r+")
        opened = time.perf_counter_ns() - began
        assert store.max_physical_offset >= mib * _MIB
        store.close()
        shutil.rmtree(path)
        yield mib, {"open after a kill": opened}


def _write_until_killed(path: Path, mib: int) -> None:
    """In a child: put the MiB, and die as by a kill; nothing is flushed meanwhile."""
    slow: dict[str, Any] = {
        "flush_interval_commit_log": 3_600_000, "flush_interval_consume_queue": 3_600_000,
    }  # fmt: skip
    try:
        filled = Filled(rocketstore.open(path, "x", **slow), Shape(body_nbytes=1024))
        while filled.store.max_physical_offset < mib * _MIB or filled.count == 0:
            filled.put(1000)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


CURVES = (
    Curve("queues", "queues", (1, 16, 64, 1000, 10_000), (1, 8), _queues),
    Curve("segments", "segments of 1 MiB", (1, 10, 100, 1000), (1, 3), _segments),
    Curve("index-files", "index files of 40,000 keys", (1, 5, 10, 20), (1, 2), _index_files,
          "call"),
    Curve("messages", "messages", (10_000, 100_000, 1_000_000, 10_000_000), (2000, 5000),
          _messages),
    Curve("bodies", "bytes of a body", (16, 128, 1024, 8192, 65_536, 1 << 20), (16, 1024),
          _bodies),
    Curve("properties", "properties", (4, 8, 16, 32, 60), (4, 8), _properties),
    Curve("threads", "reading threads", (1, 2, 4, 8, 16), (1, 2), _threads),
    Curve("dirty-tail", "MiB written since the last checkpoint", (1, 64, 256, 1024), (1, 2),
          _dirty_tail, "opening"),
)  # fmt: skip
