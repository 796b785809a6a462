"""Invalid delay levels and inner-batch properties, which are treated as absent and noted."""

from __future__ import annotations

from rocketstore import formats
from rocketstore.inner_batch import odd_inner_batch
from rocketstore.log.scan import RecordBatch


def invalid_delay_levels(batch: RecordBatch) -> list[str]:
    """Note records of the schedule topic with a delay level that is not a number."""
    notes = []
    columns = batch.columns
    of_that_length = columns["topic_nbytes"] == len(formats.TOPIC_SCHEDULE.encode())
    for position in columns["position"][of_that_length].tolist():
        message = batch.window.message(position)
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
    columns = batch.columns
    flagged = columns["sys_flag"] & formats.SYS_FLAG_INNER_BATCH != 0
    if not flagged.any():
        return []
    messages = (batch.window.message(at) for at in columns["position"][flagged].tolist())
    return [note for note in map(odd_inner_batch, messages) if note is not None]


def _is_number(text: str) -> bool:
    """Return whether Java's ``Integer.parseInt`` accepts the text (any digits, 32 bits)."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and len(digits) < 64 and -(2**31) <= int(text) < 2**31
