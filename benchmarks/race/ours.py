"""The worker process of rocketstore: the same lines as ``java/Race.java``, by the public calls.

    python ours.py name=value ...

Arguments are options of ``rocketstore.open``. ``ROCKETSTORE_KERNELS`` chooses the kernels.
"""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from race import asking, beside, putting
from race.messages import MessageSet
from race.worker import Answer, Clock, serve

#: Puts by several threads, or with several under way; the first word says how many.
_MANY: dict[str, Callable[..., Answer]] = {
    "put_threads": putting.threads,
    "put_futures": putting.futures,
    "put_beside": beside.put_and_read,
}


class Ours:
    """An open store and what was put into it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._set: MessageSet | None = None
        self._store: Any = None
        self._put = 0
        self._durable = False
        self._lines: dict[str, Callable[..., Answer]] = {
            "open": self._open,
            "reopen": self._reopen,
            "rebuild": self._rebuild,
            "close": self._close,
            "dispatched": self._dispatched,
        }

    def handle(self, words: list[str]) -> Answer:
        """Do what one line asks for."""
        name, *rest = words
        if name == "set":
            self._set = MessageSet.read(Path(rest[0]))
            return {"count": len(self._set)}
        if name in self._lines:
            return self._lines[name](*rest)
        if self._set is None or self._store is None:
            raise RuntimeError("a set and an open store are needed first")
        if name == "end":
            return self._end(self._set, int(rest[0]))
        if name.startswith("put"):
            first, count, step = (int(word) for word in rest[1:4])
            self._put = max(self._put, first + count)
            answer = self._putting(self._set, name, rest[0], first, count, step)
            if self._durable and self._store.flushed_offset < self._store.max_physical_offset:
                raise AssertionError("puts were answered before they were on disk")
            return answer
        return asking.ask(self._store, self._set, self._put, name, rest)

    def _putting(
        self, chosen: MessageSet, name: str, how: str, first: int, count: int, step: int
    ) -> Answer:
        if name in _MANY:
            return _MANY[name](self._store, chosen, int(how), first, count, step)
        wait = name == "put_dispatched"
        return putting.put(self._store, chosen, how, first, count, step, wait=wait)

    def _open(self, folder: str, durability: str = "async") -> Answer:
        self._put = 0
        options = dict(self._options)
        self._durable = durability == "sync"
        if self._durable:
            options["flush_disk_type"] = "SYNC_FLUSH"
        clock = Clock()
        with clock:
            self._store = rocketstore.open(folder, "x", **options)
        return clock.answer(1)

    def _reopen(self, folder: str) -> Answer:
        """Open an existing store; the clock stops when all of its log is dispatched."""
        clock = Clock()
        with clock:
            self._store = rocketstore.open(folder, "r+", **self._options)
        opened = clock.wall
        with clock:
            assert self._store.wait_dispatched()
        return {**clock.answer(1), "opened": opened}

    def _rebuild(self, folder: str) -> Answer:
        for part in ("consumequeue", "index"):
            shutil.rmtree(Path(folder) / part)
        return self._reopen(folder)

    def _close(self) -> Answer:
        clock = Clock()
        with clock:
            self._store.close()
        self._store = None
        return clock.answer(1)

    def _dispatched(self) -> Answer:
        clock = Clock()
        with clock:
            assert self._store.wait_dispatched()
        return clock.answer(1)

    def _end(self, chosen: MessageSet, queues: int) -> Answer:
        """Bytes of the log, and the messages of the queues."""
        messages = sum(
            self._store.max_offset_in_queue(topic, queue)
            for topic in chosen.topics
            for queue in range(queues)
        )
        return {**Clock().answer(messages), "end": self._store.max_physical_offset}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def main() -> None:
    """Serve with the options of the command line."""
    pairs = (argument.split("=", 1) for argument in sys.argv[1:])
    serve(Ours({name: _value(value) for name, value in pairs}).handle)


if __name__ == "__main__":
    main()
