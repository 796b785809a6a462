"""One row of ``bench_store``: ``python store_program.py ROW DIRECTORY ROUNDS`` prints JSON."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BODY_NBYTES = 100
QUEUES = 4
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
REFERENCE = os.environ.get("ROCKETSTORE_KERNELS") == "reference"
COUNT = 5_000 if REFERENCE else 100_000
OPTIONS: dict[str, Any] = {"max_hash_slot_num": 500_000, "max_index_num": 1_000_000}


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def fill(store: Any, count: int = COUNT) -> None:
    body = random.Random(7).randbytes(BODY_NBYTES)
    put = store.put
    for number in range(count):
        put("TopicTest", body, number % QUEUES, "TagA", f"key-{number}")


class Rows:
    """Each method is one row: returns seconds per round and what they were spent on."""

    def __init__(self, directory: Path, rounds: int) -> None:
        import rocketstore

        self._open = rocketstore.open
        self._directory = directory
        self._rounds = rounds
        self._number = 0

    def _fresh(self, **options: Any) -> Any:
        self._number += 1
        path = self._directory / f"s{self._number}"
        return self._open(path, "x", **{**OPTIONS, **options})

    def _drop(self, store: Any) -> None:
        store.close()
        shutil.rmtree(store.path)

    def _filled(self) -> Any:
        store = self._fresh(start=False)
        fill(store)
        store.wait_dispatched()
        return store

    def put_fresh(self) -> dict[str, Any]:
        seconds = []
        for _ in range(self._rounds):
            store = self._fresh(start=False)
            seconds.append(timed(lambda store=store: fill(store)))
            nbytes = store.max_physical_offset
            version = store.broker_version
            self._drop(store)
        return {
            "seconds": seconds, "operations": COUNT, "of": "put of 100 B", "pages": "fresh",
            "nbytes": nbytes, "clock": f"stops at the last put, dispatch paused, {version}",
        }  # fmt: skip

    def put_dispatched_fresh(self) -> dict[str, Any]:
        seconds = []

        def work(store: Any) -> None:
            fill(store)
            store.wait_dispatched()

        for _ in range(self._rounds):
            store = self._fresh()
            seconds.append(timed(lambda store=store: work(store)))
            nbytes, version = store.max_physical_offset, store.broker_version
            self._drop(store)
        return {
            "seconds": seconds, "operations": COUNT, "of": "put of 100 B", "pages": "fresh",
            "nbytes": nbytes, "clock": f"stops at wait_dispatched, services running, {version}",
        }  # fmt: skip

    def dispatch_resident(self) -> dict[str, Any]:
        seconds = []
        for _ in range(self._rounds):
            store = self._fresh(start=False)
            fill(store)
            seconds.append(timed(store.wait_dispatched))
            nbytes, version = store.max_physical_offset, store.broker_version
            self._drop(store)
        return {
            "seconds": seconds, "operations": COUNT, "of": "message dispatched",
            "pages": "resident log, fresh queue and index", "nbytes": nbytes,
            "clock": f"stops at wait_dispatched, unit and keys, {version}",
        }  # fmt: skip

    def _asked(self, of: str, count: int, work: Callable[[Any], Any]) -> dict[str, Any]:
        store = self._filled()
        work(store)
        seconds = [timed(lambda: work(store)) for _ in range(self._rounds)]
        nbytes = store.max_physical_offset
        self._drop(store)
        return {
            "seconds": seconds, "operations": count, "of": of, "pages": "resident",
            "nbytes": nbytes, "clock": "around the calls",
        }  # fmt: skip

    def get_32(self) -> dict[str, Any]:
        calls = COUNT // QUEUES // 32

        def work(store: Any) -> None:
            for number in range(calls):
                result = store.get_message("g", "TopicTest", 1, number * 32, 32)
                assert len(result.messages) == 32

        return self._asked("message of get_message(32), views", calls * 32, work)

    def find_by_key(self) -> dict[str, Any]:
        keys = [f"key-{number}" for number in random.Random(3).sample(range(COUNT), 1000)]

        def work(store: Any) -> None:
            for key in keys:
                (message,) = store.find(topic="TopicTest", key=key)
                assert message.body

        return self._asked("find of one key, message read", len(keys), work)

    def index_offsets(self) -> dict[str, Any]:
        chosen = random.Random(3).sample(range(COUNT), min(COUNT, 5000))
        keys = [f"key-{number}" for number in chosen]

        def work(store: Any) -> None:
            found, _ = store.index_offsets("TopicTest", keys)
            assert len(found) >= len(keys)

        return self._asked("key of a batched lookup, from str", len(keys), work)

    def scan(self) -> dict[str, Any]:
        def work(store: Any) -> None:
            assert sum(1 for _ in store.scan()) == COUNT

        return self._asked("message of scan()", COUNT, work)

    def recovery_scan(self) -> dict[str, Any]:
        from rocketstore.log.scan import LogScan
        from rocketstore.status import RecordFlags

        def work(store: Any) -> None:
            log = store.reader.log
            walk = LogScan(log, 0, log.max_offset, int(RecordFlags.CHECK_BODY_CRC))
            assert sum(batch.count for batch in walk) == COUNT

        return self._asked("record checked with CRC", COUNT, work)

    def open_clean(self) -> dict[str, Any]:
        store = self._filled()
        nbytes = store.max_physical_offset
        store.close()
        seconds = []
        for _ in range(self._rounds):
            begin = time.perf_counter()
            again = self._open(store.path, "r+")
            seconds.append(time.perf_counter() - begin)
            again.close()
        shutil.rmtree(store.path)
        return {
            "seconds": seconds, "operations": 1, "of": "open r+ after a clean close",
            "pages": "resident", "nbytes": nbytes, "clock": "around open",
        }  # fmt: skip


def import_row(rounds: int) -> dict[str, Any]:
    program = (
        "import time; b = time.perf_counter(); import rocketstore; print(time.perf_counter() - b)"
    )
    with tempfile.TemporaryDirectory() as cache:
        # As pip leaves a package: with its bytecode beside it.
        kept = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        environment = {**kept, "PYTHONPYCACHEPREFIX": cache}
        seconds = [
            float(
                subprocess.run(
                    [sys.executable, "-c", program], check=True, capture_output=True,
                    env=environment,
                ).stdout
            )
            for _ in range(rounds + 1)
        ][1:]  # fmt: skip
    return {
        "seconds": seconds, "operations": 1, "of": "import rocketstore", "pages": "resident",
        "nbytes": 0, "clock": "around the import, a new interpreter each, bytecode cached",
    }  # fmt: skip


def main() -> None:
    row, directory, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if row == "import":
        print(json.dumps(import_row(rounds)))
    else:
        print(json.dumps(getattr(Rows(directory, rounds), row)()))


if __name__ == "__main__":
    main()
