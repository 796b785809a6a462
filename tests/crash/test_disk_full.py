"""Disks that are full and have room again: nothing is acknowledged without it, reads go on, and
writing resumes without opening the store again."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden import golden_stores
from rocketstore import Message, MessageBatch, StoreFullError
from rocketstore.testing import check_invariants
from support.command_line import lines, make_store, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a tmpfs")

DISK_NBYTES = 24 << 20
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 500,
    "max_index_num": 2000,
}
FLUSHES = ("SYNC_FLUSH", "ASYNC_FLUSH")


class SmallDisk:
    """A file system of its own, which a file can fill."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._filler = place / "filler"

    def fill(self) -> None:
        """Leave no block."""
        with open(self._filler, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                return

    def fill_but(self, nbytes: int) -> None:
        """Leave so many bytes."""
        self.fill()
        os.truncate(self._filler, self._filler.stat().st_size - nbytes)

    def make_room(self) -> None:
        """Give the blocks back."""
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_NBYTES}", "none", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root and the right to mount")
    yield SmallDisk(place)
    gc.collect()  # errors hold what they met, and that its mappings
    subprocess.run(["umount", str(place)], check=True)


class Puts:
    """Puts numbered messages in every way there is; knows which were acknowledged."""

    def __init__(self, store: rocketstore.DefaultMessageStore) -> None:
        self.store = store
        self.known: list[int] = []
        self._next = 0

    def _message(self, nbytes: int = 0) -> Message:
        number = self._next
        self._next += 1
        keys = {"KEYS": f"k{number}"}
        body = b"%d " % number + bytes(nbytes)
        return Message("T", body, queue_id=number % 2, properties=keys)

    def _put(self, way: str, messages: list[Message]) -> bool:
        store, first = self.store, messages[0]
        if way == "put_message":
            return bool(store.put_message(first).ok)
        if way == "put_messages":
            batch = MessageBatch(messages, topic="T", queue_id=0)
            return bool(store.put_messages(batch).ok)
        if way == "put_many":
            return bool(store.put_many(messages).ok)
        if way == "aput":
            keys = first.properties["KEYS"]
            put = store.aput("T", first.body, first.queue_id, None, keys)
            return bool(asyncio.run(put).ok)

        async def many() -> bool:
            return bool((await store.aput_many(messages)).ok)

        return asyncio.run(many())

    def some(self, way: str, count: int, nbytes: int = 0) -> None:
        """Put ``count`` messages; they are known once the call has returned."""
        one_by_one = way in ("put_message", "aput")
        messages = [self._message(nbytes) for _ in range(count)]
        for group in [[m] for m in messages] if one_by_one else [messages]:
            assert self._put(way, group)
            self.known += [int(message.body.split()[0]) for message in group]

    def until_full(self, way: str) -> None:
        """Put until there is no room."""
        try:
            while True:
                self.some(way, 5, 3000)
        except StoreFullError:
            return

    def check(self, *, dispatched: bool = True) -> None:
        """Whatever was acknowledged is read, in each way to read."""
        store, known = self.store, self.known
        found = [int(message.body.split()[0]) for message in store.scan()]
        assert set(known) <= set(found)
        assert len(found) == len(set(found))
        first = next(store.scan())
        assert store.look_message_by_offset(first.physical_offset) is not None
        assert store.get_message("g", "T", 0, 0).messages
        for number in known[:20] if not dispatched else known[:: max(1, len(known) // 40)]:
            assert len(list(store.find(topic="T", key=f"k{number}"))) == 1


WAYS = ("put_message", "put_messages", "put_many", "aput", "aput_many")


@pytest.mark.parametrize("flush_disk_type", FLUSHES)
@pytest.mark.parametrize("way", WAYS)
def test_g01_full_and_back(disk: SmallDisk, flush_disk_type: str, way: str) -> None:
    root = disk.place / "s"
    with rocketstore.open(root, "x", flush_disk_type=flush_disk_type, **OPTIONS) as store:
        puts = Puts(store)
        puts.some(way, 20)
        assert store.wait_dispatched(120)
        for _ in range(2):
            disk.fill()
            for _ in range(2):
                puts.until_full(way)
            assert int(store.runtime_info()["putMessageFailedTimes"]) > 0
            puts.check(dispatched=False)
            disk.make_room()
            puts.some(way, 20)
            assert store.wait_dispatched(120)
            puts.check()
    check_invariants(root, clock_steps=True, reopen=False).require()
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.clean


@pytest.mark.parametrize("flush_disk_type", FLUSHES)
def test_g01_threads_and_loops_at_once(disk: SmallDisk, flush_disk_type: str) -> None:
    with rocketstore.open(
        disk.place / "s", "x", flush_disk_type=flush_disk_type, **OPTIONS
    ) as store:
        disk.fill()
        errors: list[type[BaseException]] = []
        stored: list[int] = []

        def put_until_full(number: int) -> None:
            try:
                while True:
                    result = store.put("T", bytes(2000), number)
                    assert result.ok
                    stored.append(result.physical_offset)
            except StoreFullError as error:
                errors.append(type(error))

        async def put_all_until_full() -> None:
            async def put_on(number: int) -> None:
                while True:
                    result = await store.aput("T", bytes(2000), number)
                    assert result.ok
                    stored.append(result.physical_offset)

            outcomes = await asyncio.gather(*map(put_on, range(20)), return_exceptions=True)
            errors.extend(map(type, outcomes))

        threads = [threading.Thread(target=put_until_full, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        asyncio.run(put_all_until_full())
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert errors == [StoreFullError] * 26
        assert {message.physical_offset for message in store.scan()} == set(stored)
        disk.make_room()
        assert store.put("T", b"again").ok
        assert asyncio.run(store.aput("T", b"again")).ok


def test_marks_that_find_no_room_stay_and_are_written_later(disk: SmallDisk) -> None:
    root = disk.place / "s"
    with rocketstore.open(root, "x", **OPTIONS) as store:
        puts = Puts(store)
        puts.some("put_many", 20)
        store.flush()
        marks = [(root / name).read_bytes() for name in ("rocketstore.state", "checkpoint")]
        puts.some("put_many", 20)
        disk.fill()
        with pytest.raises(StoreFullError):
            store.flush()
        now = [(root / name).read_bytes() for name in ("rocketstore.state", "checkpoint")]
        assert now == marks
        puts.some("put_many", 20)  # there is room in the segment
        disk.make_room()
        assert store.flush() == store.max_physical_offset
        assert (root / "rocketstore.state").read_bytes() != marks[0]
        assert store.wait_dispatched(120)
        puts.check()
    with rocketstore.open(root, "r+") as store:
        assert store.recovery_report.clean


@pytest.mark.parametrize("flush_disk_type", FLUSHES)
def test_closed_on_a_full_disk_and_opened_again(disk: SmallDisk, flush_disk_type: str) -> None:
    root = disk.place / "s"
    store = rocketstore.open(root, "x", flush_disk_type=flush_disk_type, **OPTIONS)
    puts = Puts(store)
    puts.some("put_many", 20)
    assert store.wait_dispatched(120)
    disk.fill()
    puts.until_full("put_message")
    with pytest.raises(StoreFullError):
        store.close()
    assert (root / "abort").exists()
    known = set(puts.known)
    with rocketstore.open(root) as reader:
        assert known <= {int(message.body.split()[0]) for message in reader.scan()}
        last = max(known)
        assert len(list(reader.find(topic="T", key=f"k{last}"))) == 1
    with pytest.raises(StoreFullError):
        rocketstore.open(root, "r+")
    disk.make_room()
    with rocketstore.open(root, "r+") as store:
        assert not store.recovery_report.clean
        again = Puts(store)
        again.known = sorted(known)
        again.check()
        assert store.put("T", b"1000000 ").ok
    check_invariants(root, clock_steps=True, reopen=False).require()


# --- the commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 4096, 12288])
@pytest.mark.parametrize(
    "kind", ["own", "own aborted", "own stateless", "plain-5.3.3", "plain-4.9.8 aborted"]
)
def test_clean_frees_space_on_a_full_disk(disk: SmallDisk, kind: str, room: int) -> None:
    """``clean`` ended with "no room for …/abort … free space and try again"."""
    name, _, how = kind.partition(" ")
    if name == "own":
        root = make_store(disk.place / "store")
    else:
        root = golden_stores.unpack(name, disk.place)
    if how == "aborted":
        (root / "abort").touch()
    elif how == "stateless":
        (root / "rocketstore.state").unlink()
    with rocketstore.open(root) as store:
        ends = {(t, q): store.max_offset_in_queue(t, q) for t in store.topics()
                for q in store.queues(t)}  # fmt: skip
    segments = sorted((root / "commitlog").iterdir())
    disk.fill_but(room)
    run("clean", root, "--hours", 0, "--what-if")
    assert sorted((root / "commitlog").iterdir()) == segments
    run("clean", root, "--hours", 0)
    assert sorted((root / "commitlog").iterdir()) == segments[-1:]
    disk.make_room()
    with rocketstore.open(root, "r+") as store:
        assert {key: store.max_offset_in_queue(*key) for key in ends} == ends
        assert store.verify().ok
    check_invariants(root).require()


@pytest.mark.parametrize("room", [4096, 8192, 24576, 80_000])
@pytest.mark.parametrize("how", [(), ("--each",)])
def test_lines_that_find_no_room_are_named(
    disk: SmallDisk, room: int, how: tuple[str, ...]
) -> None:
    """ "lines up to 0 are on disk" was said with 1,600 in the store, of ``rocketstore.state`` and
    not of the segment that had no room: going on stored them twice."""
    root = make_store(disk.place / "store")
    text = b"".join(b'{"topic": "L", "body": "line %05d"}\n' % number for number in range(3000))
    disk.fill_but(room)
    result = run("put", root, "--lines", "-", *how, stdin=text, code=3)
    with rocketstore.open(root) as store:
        stored = sum(1 for _ in store.scan(topics=["L"]))
    assert 0 < stored < 3000
    first, second = result.stderr.splitlines()[-2:]
    assert f"stdin, line {stored + 1}: no room for {root}/commitlog/" in first
    assert f"lines up to {stored} are on disk; --skip {stored} continues" in second
    if how:
        assert [row["status"] for row in lines(result)] == ["PUT_OK"] * stored
    disk.make_room()
    run("put", root, "--lines", "-", "--skip", stored, stdin=text)
    with rocketstore.open(root) as store:
        bodies = [message.body for message in store.scan(topics=["L"])]
    assert bodies == [b"line %05d" % number for number in range(3000)]


@pytest.mark.parametrize("room", [0, 4096, 8192, 16384])
def test_a_put_is_fine_if_and_only_if_it_is_stored(disk: SmallDisk, room: int) -> None:
    root = make_store(disk.place / "store")
    disk.fill_but(room)
    result = run("put", root, "New", "x", code=3 if room == 0 else 0)
    with rocketstore.open(root) as store:
        stored = sum(1 for _ in store.scan(topics=["New"]))
    assert stored == (result.exit_code == 0)
