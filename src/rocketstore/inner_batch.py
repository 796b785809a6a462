"""A stored record that is a batch of messages: its queue offsets, and its unit."""

from __future__ import annotations

import re
from typing import NamedTuple

from rocketstore import formats
from rocketstore.message import StoredMessage

_NUMBER = re.compile(r"\+?0*[0-9]{1,19}")
_MAX_OFFSET = 2**63 - 1


class BatchUnit(NamedTuple):
    """One unit: a record of the log and the queue offsets of the messages in it."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int

    @property
    def next_offset(self) -> int:
        """Queue offset after the record's last message."""
        return self.base_offset + self.batch_size


def inner_batch(message: StoredMessage) -> tuple[int, int] | None:
    """Return (queue offset of the first message, number of messages) of a batch record.

    The flag, ``INNER_BASE`` and ``INNER_NUM`` must all be those of a batch; ``None`` otherwise: the
    record is one message.
    """
    if not message.sys_flag & formats.SYS_FLAG_INNER_BATCH:
        return None
    base = _number_in(message, formats.PROPERTY_INNER_BASE)
    count = _number_in(message, formats.PROPERTY_INNER_NUM)
    if 0 < count <= formats.MAX_INNER_BATCH_COUNT and 0 <= base <= _MAX_OFFSET - count:
        return base, count
    return None


def odd_inner_batch(message: StoredMessage) -> str | None:
    """Describe what is wrong with a record that has the batch flag but is not a valid batch."""
    if not message.sys_flag & formats.SYS_FLAG_INNER_BATCH or inner_batch(message) is not None:
        return None
    faults = []
    for name, least, most in (
        (formats.PROPERTY_INNER_BASE, 0, _MAX_OFFSET - formats.MAX_INNER_BATCH_COUNT),
        (formats.PROPERTY_INNER_NUM, 1, formats.MAX_INNER_BATCH_COUNT),
    ):
        text = message.properties.get(name)
        if text is None:
            faults.append(f"{name} is missing")
        elif not least <= _number_in(message, name) <= most:
            faults.append(f"{name} is {text[:40]!r}")
    return (
        f"log offset {message.physical_offset}: it has the batch flag, but "
        f"{' and '.join(faults)}; it is read as one message"
    )


def _number_in(message: StoredMessage, name: str) -> int:
    text = message.properties.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) is not None else -1


def unit_of(message: StoredMessage, tags_code: int) -> BatchUnit | None:
    """Return the unit of a stored record, a batch or one message at its own queue offset.

    ``None`` if the offset leaves no room for it in any queue.
    """
    base, count = inner_batch(message) or (message.queue_offset, 1)
    if base > _MAX_OFFSET - count:
        return None
    return BatchUnit(
        message.physical_offset, message.store_size, tags_code, message.store_timestamp, base, count
    )
