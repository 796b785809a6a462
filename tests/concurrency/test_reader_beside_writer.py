"""A reader (mode "r") beside writers that are killed and started again. They truncate torn tails,
rewrite them, roll and clean up. The reader shows only good records, and continues."""

from __future__ import annotations

import random
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptMessageError
from rocketstore.message import StoredMessage
from support.own_process import run_python
from support.syncs import LONG_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stores are only read there")

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 40,
    "max_index_num": 50,
}
WRITER = """
import os, random, signal, sys, zlib
import rocketstore

root, seed, count, clean, sync = sys.argv[1], *map(int, sys.argv[2:])
choose = random.Random(seed)
flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
store = rocketstore.open(root, "a", flush_disk_type=flush, file_reserved_time=0, **{options})
for number in range(count):
    body = choose.randbytes(choose.randrange(10, 900))
    crc = zlib.crc32(body).to_bytes(4, "big")
    assert store.put("T", crc + body, number % 3, "Tag", f"k{{number}}").ok
    if clean and number % 50 == 49:
        store.wait_dispatched()
        store.flush()
        store.clean_expired()
print(store.max_physical_offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def check(message: StoredMessage) -> int:
    """The body is one that was put; returns the record's offset."""
    body = bytes(message.body)
    assert zlib.crc32(body[4:]) == int.from_bytes(body[:4], "big")
    return message.physical_offset


class Reader:
    """Reads in every way, again and again, until it is stopped."""

    def __init__(self, root: Path) -> None:
        self.reads = self.refusals = self.rounds = 0
        self.failure: BaseException | None = None
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with rocketstore.open(self._root) as store:
                while not self._stop.is_set():
                    store.refresh()
                    for read in (self._scan, self._queues, self._keys):
                        try:
                            read(store)
                        except CorruptMessageError:
                            # What this refresh showed has been truncated since.
                            self.refusals += 1
                    self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - raised by stop
            self.failure = error

    def _scan(self, store: rocketstore.DefaultMessageStore) -> None:
        for message in store.scan():
            offset = check(message)
            self.reads += 1
            if self.reads % 7 == 0:
                again = store.look_message_by_offset(offset)
                assert again is None or check(again) == offset

    def _queues(self, store: rocketstore.DefaultMessageStore) -> None:
        for queue_id in store.queues("T"):
            offset = store.min_offset_in_queue("T", queue_id)
            while offset < store.max_offset_in_queue("T", queue_id):
                result = store.get_message("g", "T", queue_id, offset)
                for message in result.messages:
                    check(message)
                    self.reads += 1
                if result.next_begin_offset <= offset:
                    break
                offset = result.next_begin_offset

    def _keys(self, store: rocketstore.DefaultMessageStore) -> None:
        for number in range(0, 200, 17):
            for message in store.find(topic="T", key=f"k{number}"):
                check(message)
                self.reads += 1

    def finish_round(self) -> None:
        """Wait until it has read once more in every way, from beginning to end."""
        last, deadline = self.rounds + 1, time.monotonic() + LONG_S
        while self.rounds <= last and self._thread.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure


@contextmanager
def reading(root: Path) -> Iterator[Reader]:
    reader = Reader(root)
    try:
        yield reader
    finally:
        reader.stop()


def write_and_die(root: Path, seed: int, count: int, *, clean: bool, sync: bool) -> int:
    """A writer puts and is killed; returns the end of its log."""
    program = WRITER.format(options=repr(OPTIONS))
    done = run_python(program, str(root), str(seed), str(count), str(int(clean)), str(int(sync)))
    assert done.returncode == -9, done.stderr
    return int(done.stdout)


def tear(root: Path, end: int, nbytes: int) -> None:
    """Overwrite the last bytes of the log with zeros, as a power failure may."""
    size = OPTIONS["mapped_file_size_commit_log"]
    position = end % size or size
    path = root / "commitlog" / f"{(end - 1) // size * size:020d}"
    with open(path, "r+b", buffering=0) as file:
        file.seek(max(0, position - nbytes))
        file.write(bytes(min(nbytes, position)))


@pytest.mark.parametrize("clean", [False, True])
def test_killed_torn_and_truncated_under_a_reader(tmp_path: Path, clean: bool) -> None:
    root, choose = tmp_path / "s", random.Random(11)
    write_and_die(root, 0, 100, clean=False, sync=False)
    with reading(root) as reader:
        for number in range(1, 3):
            reader.finish_round()
            end = write_and_die(root, number, 115, clean=clean, sync=False)
            tear(root, end, choose.randrange(20, 1000))  # the last flush is 15 messages back
        reader.finish_round()
    assert reader.reads > 100
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.cut
        last = [check(message) for message in store.scan()]
    with rocketstore.open(root) as store:
        assert [check(message) for message in store.scan()] == last


def test_rolled_and_cleaned_under_a_reader_in_sync_mode(tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_and_die(root, 0, 100, clean=False, sync=True)
    with reading(root) as reader:
        for number in range(1, 3):
            reader.finish_round()
            write_and_die(root, number, 150, clean=True, sync=True)
        reader.finish_round()
    assert reader.reads > 100
    assert reader.refusals == 0  # nothing was truncated
    with rocketstore.open(root) as store:
        assert store.min_physical_offset > 0
        assert all(check(message) >= 0 for message in store.scan())
