"""Delay levels that are no numbers: RocketMQ stops recovery at them, here they count as absent."""

from __future__ import annotations

from rocketstore import formats
from rocketstore.log_scan import RecordBatch


def odd_delays(batch: RecordBatch) -> list[str]:
    """Say which records of the schedule topic carry a delay level that is no number."""
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
                f"{level[:40]!r}, which is no number; it is taken as absent"
            )
    return notes


def _is_number(text: str) -> bool:
    """Whether Java's ``Integer.parseInt`` takes the text (digits of any script, 32 bits)."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and len(digits) < 64 and -(2**31) <= int(text) < 2**31
