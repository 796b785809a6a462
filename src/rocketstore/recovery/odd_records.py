"""Delay levels and numbers of batches that are none: here they count as absent, and are told."""

from __future__ import annotations

from rocketstore import formats
from rocketstore.inner_batch import odd_inner_batch
from rocketstore.log.scan import RecordBatch


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


def odd_batches(batch: RecordBatch) -> list[str]:
    """Say which records have a batch's flag without the numbers of one."""
    columns = batch.columns
    flagged = columns["sys_flag"] & formats.SYS_FLAG_INNER_BATCH != 0
    if not flagged.any():
        return []
    messages = (batch.window.message(at) for at in columns["position"][flagged].tolist())
    return [told for told in map(odd_inner_batch, messages) if told is not None]


def _is_number(text: str) -> bool:
    """Whether Java's ``Integer.parseInt`` takes the text (digits of any script, 32 bits)."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and len(digits) < 64 and -(2**31) <= int(text) < 2**31
