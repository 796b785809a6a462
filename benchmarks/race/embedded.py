"""The worker process of one embedded store: ``python embedded.py NAME``.

It obeys the lines ``set``, ``open FOLDER async|sync``, ``put each|group FIRST COUNT STEP``, ``end``
and ``close`` of ``contestants.py``. With "async" nothing is synced by a put: a killed process loses
nothing, a power cut may. With "sync" each put, or each group of STEP, is on disk when the call
returns. A value is topic, queue, properties and body; there is no index of the keys.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from race.messages import MessageSet
from race.worker import Answer, Clock, serve

#: Bytes that LMDB may map.
MAP_NBYTES = 8 << 30
#: So that persist-queue's file queue starts no second file, which it would sync.
CHUNK_COUNT = 1 << 30


class Embedded(Protocol):
    """What a store must do; ``each`` has a transaction for each value, ``group`` one for all."""

    def __init__(self, folder: Path, sync: bool) -> None: ...

    def each(self, first: int, values: Sequence[bytes]) -> None: ...

    def group(self, first: int, values: Sequence[bytes]) -> None: ...

    def count(self) -> int: ...

    def close(self) -> None: ...


def key_of(number: int) -> bytes:
    """The key of message ``number``."""
    return number.to_bytes(8, "big")


class Lmdb:
    """py-lmdb; keys ascend, so values are appended."""

    def __init__(self, folder: Path, sync: bool) -> None:
        lmdb = importlib.import_module("lmdb")
        self._env = lmdb.open(str(folder), map_size=MAP_NBYTES, sync=sync)

    def each(self, first: int, values: Sequence[bytes]) -> None:
        begin = self._env.begin
        for number, value in enumerate(values, first):
            with begin(write=True) as transaction:
                transaction.put(key_of(number), value, append=True)

    def group(self, first: int, values: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as transaction:
            for number, value in enumerate(values, first):
                transaction.put(key_of(number), value, append=True)

    def count(self) -> int:
        return int(self._env.stat()["entries"])

    def close(self) -> None:
        self._env.close()


class Sqlite:
    """SQLite with a write-ahead log; one table, the number as its key."""

    def __init__(self, folder: Path, sync: bool) -> None:
        self._connection = sqlite3.connect(folder / "messages.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
        self._connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, value BLOB)")

    def each(self, first: int, values: Sequence[bytes]) -> None:
        execute = self._connection.execute
        for pair in enumerate(values, first):
            execute("INSERT INTO messages VALUES (?, ?)", pair)

    def group(self, first: int, values: Sequence[bytes]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO messages VALUES (?, ?)", enumerate(values, first))
        self._connection.execute("COMMIT")

    def count(self) -> int:
        (found,) = self._connection.execute("SELECT count(*) FROM messages").fetchone()
        return int(found)

    def close(self) -> None:
        self._connection.close()


class PersistQueue:
    """persist-queue: its file queue, or with "sync" its SQLite queue, as its file queue syncs only
    at the end of a file. Neither puts several values in one transaction."""

    def __init__(self, folder: Path, sync: bool) -> None:
        package = importlib.import_module("persistqueue")
        self._queue: Any
        if sync:
            self._queue = package.SQLiteQueue(str(folder), auto_commit=True)
        else:
            self._queue = package.Queue(str(folder), chunksize=CHUNK_COUNT)

    def each(self, first: int, values: Sequence[bytes]) -> None:
        put = self._queue.put
        for value in values:
            put(value)

    def group(self, first: int, values: Sequence[bytes]) -> None:
        raise io.UnsupportedOperation("persist-queue puts each value in a transaction")

    def count(self) -> int:
        return int(self._queue.qsize())

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self._queue.close()


STORES: dict[str, type[Embedded]] = {
    "lmdb": Lmdb,
    "sqlite": Sqlite,
    "persist-queue": PersistQueue,
}


def values_of(chosen: MessageSet, first: int, count: int) -> Iterable[bytes]:
    """The values of these messages."""
    for plain in chosen.plain(first, count):
        texts = [plain.topic, str(plain.queue)]
        texts += [f"{name}\1{value}" for name, value in plain.properties.items()]
        yield "\2".join(texts).encode() + b"\0" + plain.body


class Worker:
    """An open store."""

    def __init__(self, name: str) -> None:
        self._make = STORES[name]
        self._set: MessageSet | None = None
        self._store: Any = None

    def handle(self, words: list[str]) -> Answer:
        """Do what one line asks for."""
        match words:
            case ["set", path]:
                self._set = MessageSet.read(Path(path))
            case ["open", folder, durability]:
                Path(folder).mkdir()
                self._store = self._make(Path(folder), durability == "sync")
            case ["put", call, first, count, step]:
                return self._put(call, int(first), int(count), int(step))
            case ["end", _]:
                return {"count": self._store.count()}
            case ["close"]:
                self._store.close()
            case _:
                raise ValueError(f"no such line: {words}")
        return {"count": 0}

    def _put(self, call: str, first: int, count: int, step: int) -> Answer:
        assert self._set is not None
        clock, put = Clock(), getattr(self._store, call)
        for at in range(first, first + count, step):
            values = list(values_of(self._set, at, min(step, first + count - at)))
            with clock:
                put(at, values)
        return clock.answer(count)


if __name__ == "__main__":
    serve(Worker(sys.argv[1]).handle)
