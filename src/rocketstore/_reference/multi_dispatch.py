"""Multi dispatch: a record's queues besides its own (``rs_multi_dispatch.h``)."""

from __future__ import annotations

import re

from rocketstore import formats
from rocketstore._reference import record_check
from rocketstore.status import MultiDispatch

_NAMES = formats.PROPERTY_INNER_MULTI_DISPATCH.encode()
_OFFSETS = formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()
_SEPARATOR = formats.MULTI_DISPATCH_SEPARATOR.encode()
_NUMBER = re.compile(rb"\+?[0-9]+")


def is_light(name: bytes) -> bool:
    """Return whether a queue's name is that of a light queue."""
    return name.startswith(formats.TOPIC_LMQ_PREFIX.encode())


def is_excluded(topic: bytes, flags: int) -> bool:
    """Return whether records of this topic are dispatched to no other queues."""
    if flags & MultiDispatch.NOT_OF_DLQ and topic.startswith(formats.TOPIC_DLQ_PREFIX.encode()):
        return True
    prefixes = (formats.TOPIC_RETRY_PREFIX.encode(), formats.TOPIC_SYSTEM_PREFIX.encode())
    is_system = topic.startswith(prefixes) or topic == formats.TOPIC_SCHEDULE.encode()
    return bool(flags & MultiDispatch.NOT_OF_SYSTEM) and is_system


def _items(text: bytes) -> list[bytes]:
    """Return the items of Java's split, which drops empty items at the end."""
    items = text.split(_SEPARATOR)
    while items and not items[-1]:
        items.pop()
    return items


def _offset(text: bytes) -> int:
    """Return the number; -1 if it is invalid, negative or has more than 63 bits."""
    if not _NUMBER.fullmatch(text) or len(text.lstrip(b"+0")) > 19:
        return -1
    value = int(text)
    return value if value < 2**63 else -1


class Walk:
    """The queues besides its own to which a record is dispatched.

    Attributes
    ----------
    places : list of (name, queue id, queue offset)
        Names without a number at the same place, and invalid folder names, are skipped.
    odd : bool
        A name was skipped, or the lists have different lengths.
    """

    def __init__(self, properties: bytes, topic: bytes, queue_id: int, flags: int) -> None:
        self.places: list[tuple[bytes, int, int]] = []
        self.odd = False
        if not flags or is_excluded(topic, flags):
            return
        pairs = {name: properties[a:b] for name, a, b in record_check.pairs(properties)}
        names, numbers = _items(pairs.get(_NAMES, b"")), _items(pairs.get(_OFFSETS, b""))
        if not names or _OFFSETS not in pairs:
            return
        self.odd = len(names) != len(numbers)
        numbers += [b""] * len(names)
        for name, text in zip(names, numbers, strict=False):
            light = is_light(name)
            if not flags & (MultiDispatch.LIGHT if light else MultiDispatch.PLAIN):
                continue
            offset = _offset(text)
            if offset >= 0 and is_folder_name(name):
                self.places.append((name, 0 if light else queue_id, offset))
            else:
                self.odd = True


def is_batch_record(sys_flag: int, properties: bytes) -> bool:
    """Return whether a record is a batch: its flag, INNER_BASE and INNER_NUM must all match."""
    if not sys_flag & formats.SYS_FLAG_INNER_BATCH:
        return False
    pairs = {name: properties[a:b] for name, a, b in record_check.pairs(properties)}
    base = _offset(pairs.get(formats.PROPERTY_INNER_BASE.encode(), b""))
    count = _offset(pairs.get(formats.PROPERTY_INNER_NUM.encode(), b""))
    return 0 <= base < 2**63 - count and 0 < count <= formats.MAX_INNER_BATCH_COUNT


def names(properties: bytes, topic: bytes, queue_id: int, own_queue_id: int) -> bool:
    """Return whether a record names this queue besides its own."""
    if queue_id != (0 if is_light(topic) else own_queue_id):
        return False
    for name, start, stop in reversed(record_check.pairs(properties)):
        if name == _NAMES:
            return topic in properties[start:stop].split(_SEPARATOR)
    return False


def is_folder_name(name: bytes) -> bool:
    """Return whether a folder can have this name."""
    if not 0 < len(name) <= formats.MAX_FOLDER_NAME_NBYTES:
        return False
    return not record_check.is_unsafe_topic(name)
