"""Calls as a typed program writes them: mypy checks this file, nothing runs it."""

from array import array
from typing import assert_type

from rocketstore import formats
from rocketstore.dialect import BatchProperties, Dialect
from rocketstore.errors import CorruptionError, RocketStoreError


def layouts() -> None:
    """What a layout gives."""
    assert_type(formats.CONSUME_QUEUE_UNIT.nbytes, int)
    assert_type(formats.file_name_to_offset("0" * 20), int | None)
    assert_type([at for _, at in formats.RECORD_HEAD.placed()], list[int])


def dialects() -> None:
    """What a dialect says."""
    dialect = Dialect.for_version("5.3.3")
    assert_type(dialect.batch_properties, BatchProperties)
    assert_type(dialect.max_dispatch_lag_files, int | None)


def errors(error: CorruptionError) -> RocketStoreError:
    """Corruption is one of ours and names the place."""
    assert_type(error.position, int)
    return error


def kernels() -> None:
    """Kernels take whatever has a buffer."""
    from rocketstore._native import consume_queue, index_file, message

    assert_type(message.crc32(bytearray(3)), int)
    assert_type(message.check_record(b"", 0, 0, 0, 0), tuple[int, int])
    assert_type(message.parse_properties(memoryview(b"")), dict[str, str])
    rows = array("q", [0])
    assert_type(consume_queue.put_units(bytearray(20), 0, rows, array("i", [1]), rows), int)
    assert_type(index_file.key_hash(b"topic#key"), int)
