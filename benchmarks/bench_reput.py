"""Dispatch of log records: parse, one queue unit and two index keys a message, pages resident.

``message_ns`` in a result's extra information is the time of one message. The index file has
RocketMQ's default geometry (5,000,000 slots), so slots lie all over 20 MB.
"""

from __future__ import annotations

import mmap
import random
from typing import Any

import pytest

from rocketstore import formats
from rocketstore.status import RecordStatus
from support.kernel_bodies import Bodies
from support.reput_store import record

MESSAGE_COUNT = 50_000
SLOTS, ENTRIES = 5_000_000, 20_000_000
UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
#: A page for the queue, or what its share of the messages needs.
PAGE_NBYTES = 4096
CASES = {
    "100B": (4, lambda pick: 100),
    "1KiB-variable": (4, lambda pick: pick.randrange(2048)),
    "4KiB": (4, lambda pick: 4096),
    "100B-10000-queues": (10_000, lambda pick: 100),
}


def make_log(kernels: Bodies, queue_count: int, body_nbytes: Any) -> bytes:
    """``MESSAGE_COUNT`` messages in random order of queues, four queues a topic."""
    pick = random.Random(20)
    following = [0] * queue_count
    log = bytearray()
    body = pick.randbytes(8192)
    for number in range(MESSAGE_COUNT):
        queue = pick.randrange(queue_count)
        log += record(
            kernels,
            len(log),
            topic=f"Topic-{queue // 4}",
            queue_id=queue % 4,
            queue_offset=following[queue],
            body=body[: body_nbytes(pick)],
            store_timestamp=1_700_000_000_000 + number,
            unique_key=f"{pick.getrandbits(128):032X}",
            keys=f"order-{number}",
            tags=f"Tag{number % 5}",
        )
        following[queue] += 1
    return bytes(log)


class Work:
    """The files of one case; ``reset`` makes a dispatcher that finds them new and resident."""

    def __init__(self, kernels: Bodies, log: bytes, queue_count: int) -> None:
        self.kernels = kernels
        self.log = log
        nbytes = max(PAGE_NBYTES, 2 * UNIT_NBYTES * MESSAGE_COUNT // queue_count)
        self.queues = [bytearray(nbytes) for _ in range(queue_count)]
        self.index = mmap.mmap(-1, formats.index_file_nbytes(SLOTS, ENTRIES))
        self.used_nbytes = formats.index_file_nbytes(SLOTS, 2 * MESSAGE_COUNT + 1)
        self.zeros = bytes(self.used_nbytes)

    def reset(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self.index[: self.used_nbytes] = self.zeros
        dispatcher = self.kernels.reput.Dispatcher(index_tags=False)
        dispatcher.set_index(self.index, SLOTS, ENTRIES, 0)
        for number, queue in enumerate(self.queues):
            queue[:] = bytes(len(queue))
            topic = f"Topic-{number // 4}".encode()
            dispatcher.set_queue(topic, number % 4, queue, 0, 0, -1)
        return (dispatcher,), {}

    def dispatch(self, dispatcher: Any) -> Any:
        position, status = 0, int(RecordStatus.OK)
        while status == RecordStatus.OK:
            position, status = dispatcher.dispatch(
                self.log, position, len(self.log), 0, len(self.log)
            )
        return dispatcher, status


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("body", ["native", "reference"])
def test_dispatch(benchmark: Any, case: str, body: str) -> None:
    queue_count, body_nbytes = CASES[case]
    kernels = Bodies(body)
    work = Work(kernels, make_log(Bodies("reference"), queue_count, body_nbytes), queue_count)
    rounds = 15 if body == "native" else 1
    dispatcher, status = benchmark.pedantic(work.dispatch, setup=work.reset, rounds=rounds)
    assert status == RecordStatus.END
    assert dispatcher.dispatched_count == MESSAGE_COUNT
    assert dispatcher.repeated_units == 0
    assert kernels.index_file.read_header(work.index)[5] == 2 * MESSAGE_COUNT + 1
    benchmark.extra_info["log_nbytes"] = len(work.log)
    benchmark.extra_info["message_ns"] = benchmark.stats.stats.median / MESSAGE_COUNT * 1e9
