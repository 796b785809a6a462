"""Readers beside a writer that rolls and deletes: every message read is compared with a checksum
in its body, and with what was asked for.

Usage: ``python torn_reads.py --reads 10000000 --seed 1 --readers 2``. Prints one line of JSON; the
exit status is 1 when anything torn or wrong was read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import GetMessageStatus, Message, StoredMessage
from rocketstore.query.tail import LogTail

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 256 * 1024,
    "mapped_file_size_consume_queue": 20 * 500,
    "max_hash_slot_num": 100,
    "max_index_num": 5000,
    "file_reserved_time": 0,
    "flush_interval_consume_queue": 50,
}
TOPICS = ("Orders", "Payments")
QUEUES = 3
#: Segments that are there when the writer deletes all but the newest.
MOST_SEGMENTS = 12
#: Bytes a second that the writer stores at the most, so that readers keep up now and then.
RATE_NBYTES = 12_000_000
_HEAD_NBYTES = 12


def make_body(number: int, chance: random.Random) -> bytes:
    """A body that holds its number and the CRC-32 of everything after the CRC."""
    size = chance.choice((0, 5, 80, 300, 900, 5000))
    rest = number.to_bytes(8, "big") + chance.randbytes(8) * (size // 8)
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def write(root: str, seed: int, opened: Event, stop: Event) -> None:
    """Put messages in every way, and delete old segments, until ``stop`` is set."""
    chance = random.Random(seed)
    number = 0
    with rocketstore.open(root, "x", **OPTIONS) as store:
        store.put(TOPICS[0], make_body(number, chance))
        opened.set()
        begun = time.monotonic()
        while not stop.is_set():
            topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
            count = chance.choice((1, 1, 5, 60))
            bodies = [make_body(number + 1 + n, chance) for n in range(count)]
            number += count
            if count == 1:
                assert store.put(topic, bodies[0], queue_id, "Tag", f"k{number}").ok
            else:
                messages = [Message(topic, body, queue_id=queue_id) for body in bodies]
                assert all(result.ok for result in store.put_many(messages))
            if store.max_physical_offset - store.min_physical_offset > (
                MOST_SEGMENTS * OPTIONS["mapped_file_size_commit_log"]
            ):
                store.clean_expired()
            ahead = store.max_physical_offset / RATE_NBYTES - (time.monotonic() - begun)
            if ahead > 0.02:
                stop.wait(ahead)
        assert store.wait_dispatched(120)
        assert store.verify().ok


class TornReadError(AssertionError):
    """A message that is not what was stored."""


class Reader:
    """Reads a store in every way there is, and checks every message.

    Parameters
    ----------
    store : DefaultMessageStore
        Of mode ``"r"``, or one that is written by another thread.
    seed : int
    """

    def __init__(self, store: rocketstore.DefaultMessageStore, seed: int) -> None:
        self.reads: Counter[str] = Counter()
        self.events_seen: Counter[str] = Counter()
        self._store = store
        self._chance = random.Random(seed)
        self._known: list[int] = []
        self._tail = self._new_tail()

    def _new_tail(self) -> LogTail:
        return LogTail(
            self._store, on_event=lambda text: self.events_seen.update([text.split()[-1]])
        )

    def check(self, message: StoredMessage, way: str) -> None:
        """Raise ``TornReadError`` when a message is not whole."""
        body = message.body
        if zlib.crc32(body[4:]) != int.from_bytes(body[:4], "big") or len(body) < _HEAD_NBYTES:
            raise TornReadError(f"{way}: a torn body at log offset {message.physical_offset}")
        if message.topic not in TOPICS or not 0 <= message.queue_id < QUEUES:
            raise TornReadError(f"{way}: {message.topic} {message.queue_id} was never put")
        self.reads[way] += 1

    def poll_tail(self) -> None:
        """Follow the log; each record comes after the one before."""
        last = -1
        for number, message in enumerate(self._tail.poll()):
            self.check(message, "tail")
            if message.physical_offset <= last:
                raise TornReadError(f"tail: {message.physical_offset} came after {last}")
            last = message.physical_offset
            if number % 16 == 0:
                self._known = [*self._known[-200:], last]
            if number > 5000:
                break

    def get(self) -> None:
        """Pull from a random place of a queue, in queue order from there."""
        topic, queue_id = self._chance.choice(TOPICS), self._chance.randrange(QUEUES)
        first = self._store.min_offset_in_queue(topic, queue_id)
        end = self._store.max_offset_in_queue(topic, queue_id)
        offset = self._chance.randrange(max(0, first - 3), end + 2)
        for _ in range(20):
            result = self._store.get_message("g", topic, queue_id, offset, 32)
            for message in result.messages:
                self.check(message, "get_message")
                place = message.topic, message.queue_id
                if place != (topic, queue_id) or message.queue_offset < offset:
                    raise TornReadError(f"get_message: {message} is not of {topic} {queue_id}")
                offset = message.queue_offset + 1
            if result.status != GetMessageStatus.FOUND and result.next_begin_offset <= offset:
                break
            offset = max(offset, result.next_begin_offset)

    def scan(self) -> None:
        """Scan from the log's beginning, where deletions strike, or from a known place."""
        start = self._chance.choice([None, *self._known[-3:]])
        if start is not None and start >= self._store.max_physical_offset:
            start = None
        last = -1
        for number, message in enumerate(self._store.scan(start=start)):
            self.check(message, "scan")
            if message.physical_offset <= last:
                raise TornReadError(f"scan: {message.physical_offset} came after {last}")
            last = message.physical_offset
            if number > 2000:
                break

    def look(self) -> None:
        """Look at places where records were seen; they are there, or gone."""
        for offset in self._known:
            message = self._store.look_message_by_offset(offset)
            if message is None:
                first = self._store.min_physical_offset
                if first <= offset < self._store.max_physical_offset:
                    raise TornReadError(f"look: the record at {offset} is gone")
                self.events_seen["gone"] += 1
            elif message.physical_offset not in (offset, self._store.min_physical_offset):
                raise TornReadError(f"look: {message.physical_offset} instead of {offset}")
            else:
                self.check(message, "look_message_by_offset")

    @property
    def has_met_deletions(self) -> bool:
        """Whether records were deleted under it, and more segments than there are at a time."""
        deleted = self._store.min_physical_offset // OPTIONS["mapped_file_size_commit_log"]
        return self.events_seen["gone"] > 0 and deleted > MOST_SEGMENTS

    def step(self) -> None:
        """Read in one way; in mode ``"r"`` sometimes with a new snapshot first."""
        if self._store.mode == "r" and self._chance.random() < 0.1:
            self._store.refresh()
            self.events_seen["refresh"] += 1
        if self._chance.random() < 0.01:
            self._tail = self._new_tail()
        self._chance.choice((self.poll_tail, self.get, self.get, self.scan, self.look))()


def read(root: str, seed: int, wanted: int, results: Any) -> None:
    """Read ``wanted`` messages, and on until some were deleted; the outcome goes to the queue
    ``results``."""
    error, reader = None, None
    try:
        with rocketstore.open(root) as store:
            reader = Reader(store, seed)
            while reader.reads.total() < wanted or not reader.has_met_deletions:
                reader.step()
    except Exception as caught:  # noqa: BLE001 - sent to the parent, which fails
        error = f"{type(caught).__name__}: {caught}"
    reads = dict(reader.reads) if reader is not None else {}
    events_seen = dict(reader.events_seen) if reader is not None else {}
    results.put((error, reads, events_seen))


def campaign(root: Path, seed: int, wanted: int, readers: int) -> dict[str, Any]:
    """Let ``readers`` processes read ``wanted`` messages in all beside one that writes.

    Returns
    -------
    dict
        ``torn`` (a list of what was wrong), ``reads`` by way, ``seconds``, ``deleted_nbytes``.
    """
    context = multiprocessing.get_context("spawn")
    opened, stop, results = context.Event(), context.Event(), context.Queue()
    writer = context.Process(target=write, args=(str(root), seed, opened, stop))
    begun = time.monotonic()
    writer.start()
    try:
        if not opened.wait(120):
            raise AssertionError("the writer did not open the store")
        shares = [
            context.Process(
                target=read, args=(str(root), seed * 100 + number, wanted // readers, results)
            )
            for number in range(readers)
        ]
        for share in shares:
            share.start()
        outcomes = [_outcome(results, [writer, *shares]) for _ in shares]
        for share in shares:
            share.join(120)
    finally:
        stop.set()
        writer.join(120)
        writer.kill()
    errors = [error for error, _, _ in outcomes if error is not None]
    if writer.exitcode:
        errors.append(f"the writer ended with {writer.exitcode}")
    reads, events_seen = Counter[str](), Counter[str]()
    for _, counts, events in outcomes:
        reads.update(counts)
        events_seen.update(events)
    with rocketstore.open(root) as store:
        deleted = store.min_physical_offset
    return {
        "torn": errors,
        "reads": dict(reads),
        "total": reads.total(),
        "events_seen": dict(events_seen),
        "deleted_segments": deleted // OPTIONS["mapped_file_size_commit_log"],
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _outcome(results: Any, processes: list[Any]) -> tuple[str | None, Any, Any]:
    """The next outcome; one of its own when a process was ended by a signal."""
    while results.empty():
        dead = [process for process in processes if process.exitcode not in (None, 0)]
        if dead and results.empty():
            return f"a process ended with {dead[0].exitcode}", {}, {}
        time.sleep(0.02)
    outcome: tuple[str | None, Any, Any] = results.get()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reads", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--readers", type=int, default=1)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)
    print(f"torn reads: {arguments.reads} reads, SEED={seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        result = campaign(Path(directory) / "store", seed, arguments.reads, arguments.readers)
    print(json.dumps(result))
    return 1 if result["torn"] else 0


if __name__ == "__main__":
    sys.exit(main())
