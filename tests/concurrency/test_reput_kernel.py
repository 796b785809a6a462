"""Lookups beside a dispatcher at work, and a dispatcher that two threads want."""

from __future__ import annotations

import threading
import time
from array import array
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE
from support.reput_store import UNIT_NBYTES, encode_log
from support.syncs import LONG_S

COUNT = 8000
ENTRIES = 4 * COUNT
FIRST_COUNT = 10


@pytest.fixture(scope="module")
def log() -> bytes:
    return encode_log(
        REFERENCE, [{"queue_offset": n, "keys": f"k{n} a{n} b{n}"} for n in range(COUNT)]
    )


def start(log: bytes, slots: int) -> tuple[Any, bytearray, int]:
    """A dispatcher that has put the first records; its index file, and where it stopped."""
    index = bytearray(formats.index_file_nbytes(slots, ENTRIES))
    dispatcher = NATIVE.reput.Dispatcher()
    dispatcher.set_index(index, slots, ENTRIES, 0)
    dispatcher.set_queue(b"TopicA", 0, bytearray(UNIT_NBYTES * COUNT), 0, 0, -1)
    position, status = dispatcher.dispatch(log, 0, len(log), 0, len(log), FIRST_COUNT)
    assert status == RecordStatus.OK
    return dispatcher, index, position


@pytest.mark.parametrize("slots", [100, 1000, 5000])
def test_lookups_beside_the_dispatcher_miss_no_older_key(log: bytes, slots: int) -> None:
    """A batched lookup took slots newer than the header it had read for empty chains.

    The header is read once, then many slots: by then the dispatcher had put new entries on top of
    chains that held the wanted keys, and every key below them was not found.
    """
    key_hash = NATIVE.index_file.key_hash
    names = [f"TopicA#{c}{n}".encode() for n in range(FIRST_COUNT) for c in "kab"]
    hashes = array("i", [key_hash(name) for name in names] * 20)
    keys, offsets = array("q", bytes(8 * 5000)), array("q", bytes(8 * 5000))
    for _ in range(4):
        dispatcher, index, position = start(log, slots)
        thread = threading.Thread(
            target=dispatcher.dispatch, args=(log, position, len(log), 0, len(log), COUNT)
        )
        thread.start()
        lookups = 0
        while thread.is_alive() or lookups == 0:
            hits, following, status = NATIVE.index_file.lookup(
                index, slots, ENTRIES, hashes, 0, 2**62, keys, offsets, 0
            )
            lookups += 1
            assert (following, status) == (len(hashes), RecordStatus.OK)
            assert len(set(keys[:hits])) == len(hashes)
        thread.join()
        assert dispatcher.indexed_offset == len(log)


def test_positions_only_grow_for_threads_that_look_on(log: bytes) -> None:
    dispatcher, _, position = start(log, 1000)
    handle = dispatcher.handle(b"TopicA", 0)
    thread = threading.Thread(
        target=dispatcher.dispatch, args=(log, position, len(log), 0, len(log), COUNT)
    )
    thread.start()
    last, last_end = 0, 0
    while thread.is_alive():
        following, end = dispatcher.next_index(handle), dispatcher.max_physical_offset(handle)
        assert last <= following <= COUNT
        assert last_end <= end <= len(log)
        assert dispatcher.position_offset <= dispatcher.indexed_offset <= len(log)
        last, last_end = following, end
    thread.join()
    assert dispatcher.next_index(handle) == COUNT


def test_a_second_thread_is_refused(log: bytes) -> None:
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:  # mostly the first time, unless the machine is busy
        dispatcher, _, position = start(log, 1000)
        thread = threading.Thread(
            target=dispatcher.dispatch, args=(log, position, len(log), 0, len(log), COUNT)
        )
        thread.start()
        refused = []
        while thread.is_alive() and not refused:
            try:
                dispatcher.dispatch(log, len(log), len(log), 0, len(log))
            except RuntimeError as error:
                refused.append(str(error))
        thread.join()
        if refused:
            assert refused == ["another thread is inside this dispatcher"]
            return
    pytest.fail("the two threads never met")
