"""Single kernels that many paths share."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from check import messages
from check.counter import CountedPath
from rocketstore import formats, kernels

CALLS = 256
UNITS = 1000
SLOTS, ENTRIES = 10_000, 40_000


def paths() -> Iterator[CountedPath]:
    """Yield the paths; their buffers lie in memory."""
    crc32, key_hash = kernels.message.crc32, kernels.index_file.key_hash
    bodies = {size: messages.body_of(1, nbytes) for size, nbytes in messages.SIZES.items()}
    for size in ("100B", "4KiB"):
        yield _calls(f"kernel.crc.{size}", crc32, bodies[size])
    text = f"{messages.topic_of(0)}#{messages.key_of(1)}".encode()
    yield _calls("kernel.key-hash", key_hash, text)
    yield _put_keys()
    yield _put_units()


def _calls(name: str, kernel: Callable[[bytes], object], argument: bytes) -> CountedPath:
    numbers = range(CALLS)

    def work() -> None:
        for _ in numbers:
            kernel(argument)

    return CountedPath(name=name, work=work, units=CALLS, of="call", loops=CALLS)


def _put_keys() -> CountedPath:
    nbytes = formats.index_file_nbytes(SLOTS, ENTRIES)
    file, empty = bytearray(nbytes), bytes(nbytes)
    keys = [f"{messages.topic_of(n)}#{messages.key_of(n)}".encode() for n in range(CALLS)]
    put_key = kernels.index_file.put_key

    def clear() -> None:
        file[:] = empty
        kernels.index_file.init_header(file, 0, 0)

    def work() -> None:
        for key in keys:
            put_key(file, SLOTS, ENTRIES, key, 1, messages.BORN)

    return CountedPath(
        name="kernel.index.put-key", work=work, units=CALLS, of="call", loops=CALLS, prepare=clear
    )


def _put_units() -> CountedPath:
    file = bytearray(UNITS * formats.CONSUME_QUEUE_UNIT.nbytes)
    columns = (
        array("q", range(0, 200 * UNITS, 200)),
        array("i", [200] * UNITS),
        array("q", [7] * UNITS),
    )
    put_units = kernels.consume_queue.put_units

    def work() -> None:
        put_units(file, 0, *columns)

    return CountedPath(name="kernel.queue.put-units", work=work, units=UNITS, of="unit", loops=0)
