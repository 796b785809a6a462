"""Copies of messages without the properties that show where a message was before.

RocketMQ leaves these properties in records that it delivers, commits or sends again. Put once
more, such a copy would be delayed, timed or prepared again (D-75).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocketstore import formats

#: Wishes that were fulfilled, and notes of the store about a message's former places.
HISTORY_PROPERTIES = frozenset(
    {
        *(formats.PROPERTY_DELAY, formats.PROPERTY_REAL_TOPIC, formats.PROPERTY_REAL_QUEUE_ID),
        *(formats.PROPERTY_TIMER_DELIVER_MS, formats.PROPERTY_TIMER_DELAY_SEC),
        *(formats.PROPERTY_TIMER_DELAY_MS, formats.PROPERTY_TIMER_OUT_MS),
        *(formats.PROPERTY_TIMER_ENQUEUE_MS, formats.PROPERTY_TIMER_DEQUEUE_MS),
        *(formats.PROPERTY_TIMER_ROLL_TIMES, formats.PROPERTY_TIMER_DELETE_UNIQUE_KEY),
        *(formats.PROPERTY_TRANSACTION, formats.PROPERTY_PRODUCER_GROUP),
        *(formats.PROPERTY_TRANSACTION_ID, formats.PROPERTY_TRANSACTION_CHECK_TIMES),
        *(formats.PROPERTY_TRANSACTION_FIRST_OFFSET, formats.PROPERTY_CHECK_IMMUNITY_SEC),
        *(formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET, formats.PROPERTY_CRC32),
    }
)
_LARGEST_QUEUE_ID = 2**31 - 1
#: Topics on which messages wait for their own one.
_WAITING_TOPICS = frozenset({formats.TOPIC_SCHEDULE, formats.TOPIC_TIMER, formats.TOPIC_HALF})


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which a message can be put again, in their order."""
    return {name: text for name, text in properties.items() if name not in HISTORY_PROPERTIES}


def real_queue_id(properties: Mapping[str, str]) -> int | None:
    """Return the queue that ``REAL_QID`` names; ``None`` if that is no queue id.

    Digits of any number are read, as brokers do, up to the highest queue id.
    """
    text = properties.get(formats.PROPERTY_REAL_QUEUE_ID, "")
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit()) or len(digits) > len(str(_LARGEST_QUEUE_ID)):
        return None
    queue_id = int(digits or "0")
    return queue_id if queue_id <= _LARGEST_QUEUE_ID else None


def copied(message: Any, cls: type[Any]) -> Any:
    """Return a copy of ``message`` as a ``cls``; see ``Message.copy``."""
    properties = message.properties
    topic, queue_id = message.topic, message.queue_id
    real_topic = properties.get(formats.PROPERTY_REAL_TOPIC)
    if topic in _WAITING_TOPICS and real_topic:
        topic = real_topic
        queue_id = real_queue_id(properties) or 0
    kept = ~(
        formats.SYS_FLAG_TRANSACTION_MASK
        | formats.SYS_FLAG_BORN_HOST_V6
        | formats.SYS_FLAG_STORE_HOST_V6
    )
    return cls(
        topic,
        message.body,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag & kept,
        properties=user_properties(properties),
    )
