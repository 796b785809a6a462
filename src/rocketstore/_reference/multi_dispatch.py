"""Multi dispatch: the queues besides its own that a record goes into (``rs_multi_dispatch.h``)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocketstore import formats
from rocketstore._reference import record_check
from rocketstore.status import MultiDispatch

_NAMES = formats.PROPERTY_INNER_MULTI_DISPATCH.encode()
_OFFSETS = formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()
_SEPARATOR = formats.MULTI_DISPATCH_SEPARATOR.encode()
_NUMBER = re.compile(rb"\+?[0-9]+")


def is_light(name: bytes) -> bool:
    """Whether a queue's name is that of a light queue."""
    return name.startswith(formats.TOPIC_LMQ_PREFIX.encode())


def is_excluded(topic: bytes, flags: int) -> bool:
    """Whether records of this topic go into no other queues."""
    if flags & MultiDispatch.NOT_OF_DLQ and topic.startswith(formats.TOPIC_DLQ_PREFIX.encode()):
        return True
    prefixes = (formats.TOPIC_RETRY_PREFIX.encode(), formats.TOPIC_SYSTEM_PREFIX.encode())
    is_system = topic.startswith(prefixes) or topic == formats.TOPIC_SCHEDULE.encode()
    return bool(flags & MultiDispatch.NOT_OF_SYSTEM) and is_system


def _items(text: bytes) -> list[bytes]:
    """Java's split: empty items at the end do not count."""
    items = text.split(_SEPARATOR)
    while items and not items[-1]:
        items.pop()
    return items


def _offset(text: bytes) -> int:
    """The number, -1 for what is none or negative or has more than 63 bits."""
    if not _NUMBER.fullmatch(text) or len(text.lstrip(b"+0")) > 19:
        return -1
    value = int(text)
    return value if value < 2**63 else -1


def places(
    properties: bytes, topic: bytes, queue_id: int, flags: int
) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, queue id, queue offset) of every queue; nothing behind an offset that is no
    number."""
    if not flags or is_excluded(topic, flags):
        return
    pairs = {name: properties[start:stop] for name, start, stop in record_check.pairs(properties)}
    names, offsets = _items(pairs.get(_NAMES, b"")), _items(pairs.get(_OFFSETS, b""))
    if len(names) != len(offsets):
        return
    for name, text in zip(names, offsets, strict=True):
        offset = _offset(text)
        if offset < 0:
            return
        light = is_light(name)
        wanted = flags & (MultiDispatch.LIGHT if light else MultiDispatch.PLAIN)
        if wanted and is_folder_name(name):
            yield name, 0 if light else queue_id, offset


def names(properties: bytes, topic: bytes, queue_id: int, own_queue_id: int) -> bool:
    """Whether a record names this queue among those it goes into besides its own."""
    if queue_id != (0 if is_light(topic) else own_queue_id):
        return False
    for name, start, stop in reversed(record_check.pairs(properties)):
        if name == _NAMES:
            return topic in properties[start:stop].split(_SEPARATOR)
    return False


def is_folder_name(name: bytes) -> bool:
    """Whether a folder can have this name."""
    if not 0 < len(name) <= formats.MAX_FOLDER_NAME_NBYTES:
        return False
    return not record_check.is_unsafe_topic(name)
