"""Invalid delay levels and inner-batch properties, which are treated as absent and noted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rocketstore import formats
from rocketstore.inner_batch import odd_inner_batch
from rocketstore.log.scan import RecordBatch
from rocketstore.message import StoredMessage


def invalid_delay_levels(batch: RecordBatch) -> list[str]:
    """Note records of the schedule topic with a delay level that is not a number."""
    notes = []
    for number in _with_value(batch.ints("topic_nbytes"), len(formats.TOPIC_SCHEDULE.encode())):
        message = _message(batch, number)
        if message.delay_level != 0 or message.topic != formats.TOPIC_SCHEDULE:
            continue
        level = message.properties.get(formats.PROPERTY_DELAY)
        if level is not None and not _is_number(level):
            notes.append(
                f"log offset {message.physical_offset}: {formats.PROPERTY_DELAY} is "
                f"{level[:40]!r}, which is not a number; it is treated as absent"
            )
    return notes


def invalid_inner_batches(batch: RecordBatch) -> list[str]:
    """Note records with the flag of an inner batch but without its properties."""
    flags = batch.ints("sys_flag")
    chosen = {flag for flag in set(flags) if flag & formats.SYS_FLAG_INNER_BATCH}
    numbers = (number for flag in chosen for number in _with_value(flags, flag))
    messages = (_message(batch, number) for number in sorted(numbers))
    return [note for note in map(odd_inner_batch, messages) if note is not None]


def _message(batch: RecordBatch, number: int) -> StoredMessage:
    return batch.window.message(batch.row(number)["position"])


def _with_value(values: list[int], value: int) -> Iterator[int]:
    """Yield the places of a value; faster than a comparison of each in Python."""
    at = -1
    with contextlib.suppress(ValueError):
        while True:
            at = values.index(value, at + 1)
            yield at


def _is_number(text: str) -> bool:
    """Return whether Java's ``Integer.parseInt`` accepts the text (any digits, 32 bits)."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and len(digits) < 64 and -(2**31) <= int(text) < 2**31
