"""The work that ``rocketstore bench`` measures, through the calls that programs use."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocketstore.cli.bench.clock import Clock, Figure
from rocketstore.cli.bench.messages import QUEUES, TOPICS, Messages
from rocketstore.cli.bench.sqlite import SqliteLog
from rocketstore.errors import RocketStoreError
from rocketstore.status import FlushDiskType
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

#: Messages made at a time, before the clock starts.
_STEP = 1000
_GROUP = "bench-group"
#: Questions of one kind in a round, at most.
_QUESTIONS = 5000
#: A round of synced puts ends after this long, or after ``_SYNCED`` puts of each thread.
_SYNC_S = 0.5
_SYNCED = 20
_THREADS = 64
_FUTURES = 1000
#: The rows, in their order.
NAMES = (
    "put_message",
    "put_many",
    "put_columns",
    "put_dispatched",
    "get_32",
    "get_32_body",
    "get_1",
    "query_message",
    "find",
    "by_id",
    "scan",
    "scan_arrow",
    "open",
    "sync_1",
    "sync_64",
    "sync_futures",
    "sqlite_1",
    "sqlite_1000",
    "sqlite_sync_1",
)
#: Those that need a filled store.
_FILLED = NAMES[3:13]


def _check(*results: Any) -> None:
    """Raise unless all messages were stored: other work must not count."""
    for result in results:
        if not result.ok:
            raise RocketStoreError(f"a put of the bench failed: {result}")


class Bench:
    """Runs rounds; each writes new stores below ``folder`` and removes them.

    Parameters
    ----------
    folder : Path
    messages : Messages
    count : int
        Messages of a store.
    wanted : callable
        ``wanted(name)`` says whether a row is measured.
    """

    def __init__(
        self, folder: Path, messages: Messages, count: int, wanted: Callable[[str], bool]
    ) -> None:
        self.figures: dict[str, Figure] = {}
        self._folder = folder
        self._messages = messages
        self._count = count
        self._wanted = wanted
        self._numbers = itertools.count()
        self._record_nbytes = 0.0
        self._steps: list[Callable[[], None]] = [
            self._put_one_by_one,
            self._put_lists,
            self._put_columns,
            self._filled,
            self._synced,
            self._sqlite,
        ]

    def round(self) -> Iterator[int]:
        """Run one round; yield the steps that are done, of ``steps``."""
        for number, step in enumerate(self._steps):
            step()
            yield number + 1

    @property
    def steps(self) -> int:
        """Steps of a round."""
        return len(self._steps)

    def _figure(
        self, name: str, meaning: str, of: str = "message", nbytes: float = 0
    ) -> Figure | None:
        if not self._wanted(name):
            return None
        figure = self.figures.setdefault(name, Figure(name, meaning, of))
        figure.nbytes = nbytes
        return figure

    @contextmanager
    def _store(self, **options: Any) -> Iterator[DefaultMessageStore]:
        path = self._folder / f"store-{next(self._numbers)}"
        try:
            with open_store(path, "x", **options) as store:
                yield store
        finally:
            shutil.rmtree(path, ignore_errors=True)

    # --- puts ---------------------------------------------------------------------------------

    def _fill(self, put: Callable[[DefaultMessageStore, int, int, Clock], None],
              name: str, meaning: str) -> None:  # fmt: skip
        """Measure a way to put all messages, and the time until all are dispatched."""
        figure = self._figure(name, meaning)
        if figure is None:
            return
        with self._store() as store:
            clock = Clock()
            for first in range(0, self._count, _STEP):
                put(store, first, min(_STEP, self._count - first), clock)
            figure.take(clock, self._count)
            figure.nbytes = store.max_physical_offset / self._count
            store.wait_dispatched()

    def _put_one_by_one(self) -> None:
        def put(store: DefaultMessageStore, first: int, count: int, clock: Clock) -> None:
            messages, put_message = self._messages.some(first, count), store.put_message
            with clock:
                results = [put_message(message) for message in messages]
            _check(*results)

        self._fill(put, "put_message", "put_message, one by one")

    def _put_lists(self) -> None:
        def put(store: DefaultMessageStore, first: int, count: int, clock: Clock) -> None:
            messages = self._messages.some(first, count)
            with clock:
                result = store.put_many(messages)
            _check(result)

        self._fill(put, "put_many", "put_many, lists of 1,000 Message")

    def _put_columns(self) -> None:
        import numpy

        def put(store: DefaultMessageStore, first: int, count: int, clock: Clock) -> None:
            example = self._messages.make(first)
            bodies = b"".join(self._messages.body(first + n) for n in range(count))
            offsets = numpy.arange(count + 1, dtype=numpy.int64) * self._messages.body_nbytes
            with clock:
                result = store.put_columns(
                    example.topic, offsets, bodies, queue_id=example.queue_id,
                    properties=example.properties, born_timestamp=example.born_timestamp,
                )  # fmt: skip
            _check(result)

        self._fill(put, "put_columns", "put_columns, 1,000 bodies with equal properties")

    # --- a filled store -----------------------------------------------------------------------

    def _filled(self) -> None:
        """Fill a store, ask it, and open it again."""
        if not any(map(self._wanted, _FILLED)):
            return
        path = self._folder / f"store-{next(self._numbers)}"
        try:
            with open_store(path, "x") as store:
                clock = Clock()
                for first in range(0, self._count, _STEP):
                    messages = self._messages.some(first, min(_STEP, self._count - first))
                    with clock:
                        result = store.put_many(messages)
                    _check(result)
                with clock:
                    store.wait_dispatched()
                nbytes = store.max_physical_offset / self._count
                if figure := self._figure(
                    "put_dispatched", "put_many, until all is dispatched", nbytes=nbytes
                ):
                    figure.take(clock, self._count)
                self._record_nbytes = nbytes
                self._ask(store)
            self._open(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _ask(self, store: DefaultMessageStore) -> None:
        self._read(store, 32, "get_32", "get_message of 32, to the end of all queues")
        self._read(store, 32, "get_32_body", "the same, each body copied", bodies=True)
        self._read(store, 1, "get_1", "get_message of 1, and its body", bodies=True)
        numbers = [n * 7919 % self._count for n in range(min(_QUESTIONS, self._count))]
        keys = [(self._messages.topic(n), self._messages.key(n)) for n in numbers]
        self._questions(
            keys, "query_message", "query_message by key, 1 hit",
            lambda asked: store.query_message(asked[0], asked[1], 1).messages[0],
        )  # fmt: skip
        self._questions(
            keys, "find", "find by key, all hits compared",
            lambda asked: list(store.find(topic=asked[0], key=asked[1])),
        )  # fmt: skip
        ids = [store.query_message(topic, key, 1).messages[0].msg_id for topic, key in keys]
        self._questions(ids, "by_id", "look_message_by_id and the body", lambda msg_id: (
            store.look_message_by_id(msg_id).body))  # type: ignore[union-attr]  # fmt: skip
        self._scans(store)

    def _read(
        self, store: DefaultMessageStore, most: int, name: str, meaning: str, *,
        bodies: bool = False,
    ) -> None:  # fmt: skip
        figure = self._figure(name, meaning, nbytes=self._record_nbytes)
        if figure is None:
            return
        limit = self._count if most > 1 else min(self._count, 4 * _QUESTIONS)
        clock, count = Clock(), 0
        with clock:
            for number in range(TOPICS * QUEUES):
                topic, queue, offset = self._messages.topic(number), number // TOPICS, 0
                while count < limit:
                    answer = store.get_message(_GROUP, topic, queue, offset, most)
                    if not answer.messages:
                        break
                    offset = answer.next_begin_offset
                    if bodies:
                        for message in answer.messages:
                            message.body  # noqa: B018 - copies it
                    count += len(answer.messages)
        figure.take(clock, max(count, 1))

    def _questions(
        self, asked: list[Any], name: str, meaning: str, ask: Callable[[Any], Any]
    ) -> None:
        if figure := self._figure(name, meaning, "call"):
            clock = Clock()
            with clock:
                for one in asked:
                    ask(one)
            figure.take(clock, len(asked))

    def _scans(self, store: DefaultMessageStore) -> None:
        nbytes = self._record_nbytes
        if figure := self._figure("scan", "scan() in log order, CRCs compared", nbytes=nbytes):
            clock = Clock()
            with clock:
                count = sum(1 for _ in store.scan())
            figure.take(clock, count)
        if importlib.util.find_spec("pyarrow") is None:
            return
        if figure := self._figure("scan_arrow", 'scan_arrow("core") to Arrow', nbytes=nbytes):
            clock = Clock()
            with clock:
                count = sum(batch.num_rows for batch in store.scan_arrow("core"))
            figure.take(clock, count)

    def _open(self, path: Path) -> None:
        if figure := self._figure("open", "open and close the store", "call"):
            clock = Clock()
            with clock, open_store(path, "r+"):
                pass
            figure.take(clock, 1)

    # --- synced puts --------------------------------------------------------------------------

    def _synced(self) -> None:
        """Puts that return when the disk has them, alone and in groups."""
        if not any(self._wanted(name) for name in NAMES if name.startswith("sync_")):
            return
        with self._store(flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:
            if figure := self._figure("sync_1", "synced put_message, 1 thread"):
                self._synced_alone(store, figure)
            if figure := self._figure("sync_64", "synced put_message, 64 threads"):
                self._synced_by_threads(store, figure)
            if figure := self._figure("sync_futures", "synced aput, 1,000 awaited at once"):
                self._synced_by_futures(store, figure)

    def _synced_alone(self, store: DefaultMessageStore, figure: Figure) -> None:
        messages, clock, done = self._messages.some(0, _STEP), Clock(), 0
        until = time.perf_counter() + _SYNC_S
        with clock:
            while done < len(messages) and time.perf_counter() < until:
                _check(store.put_message(messages[done]))
                done += 1
        figure.take(clock, done)

    def _synced_by_threads(self, store: DefaultMessageStore, figure: Figure) -> None:
        barrier = threading.Barrier(_THREADS + 1)
        results: list[Any] = []

        def put(messages: list[Any]) -> None:
            barrier.wait()
            results.extend([store.put_message(message) for message in messages])

        threads = [
            threading.Thread(target=put, args=(self._messages.some(n * _SYNCED, _SYNCED),))
            for n in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        clock = Clock()
        barrier.wait()
        with clock:
            for thread in threads:
                thread.join()
        _check(*results)
        if len(results) != _THREADS * _SYNCED:
            raise RocketStoreError("a thread of the bench failed")
        figure.take(clock, _THREADS * _SYNCED)

    def _synced_by_futures(self, store: DefaultMessageStore, figure: Figure) -> None:
        calls = [
            (m.topic, m.body, m.queue_id, dict(m.properties))
            for m in self._messages.some(0, _FUTURES)
        ]

        async def put_all() -> list[Any]:
            return await asyncio.gather(
                *(store.aput(topic, body, queue, properties=properties)
                  for topic, body, queue, properties in calls)
            )  # fmt: skip

        clock = Clock()
        with clock:
            results = asyncio.run(put_all())
        _check(*results)
        figure.take(clock, _FUTURES)

    # --- for comparison -----------------------------------------------------------------------

    def _sqlite(self) -> None:
        """The same messages in a table of SQLite with an index on the key."""
        for name, meaning, synced, step in (
            ("sqlite_1", "SQLite (WAL, synchronous=OFF): a transaction each", False, 1),
            ("sqlite_1000", "SQLite (WAL, synchronous=OFF): 1,000 in a transaction", False, _STEP),
            ("sqlite_sync_1", "SQLite (WAL, synchronous=FULL): a transaction each", True, 1),
        ):
            figure = self._figure(name, meaning)
            if figure is None:
                continue
            path = self._folder / f"sqlite-{next(self._numbers)}"
            path.mkdir()
            count = min(self._count, 200 if synced else 10_000 if step == 1 else self._count)
            try:
                with SqliteLog(path / "log.db", synced=synced) as log:
                    clock = Clock()
                    for first in range(0, count, _STEP):
                        messages = self._messages.some(first, min(_STEP, count - first))
                        with clock:
                            log.put(messages, step)
                figure.take(clock, count)
            finally:
                shutil.rmtree(path, ignore_errors=True)
