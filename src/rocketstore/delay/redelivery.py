"""The record of one delayed message, for those that no kernel stages."""

from __future__ import annotations

from typing import Any

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.log.java_order import rewritten
from rocketstore.message import Message, StoredMessage
from rocketstore.message_copy import real_queue_id

#: What the map of a delivered message lacks, so that it is not delayed again (D-53: all three of
#: the timer's).
_NOT_AGAIN = (
    formats.PROPERTY_DELAY,
    formats.PROPERTY_TIMER_DELIVER_MS,
    formats.PROPERTY_TIMER_DELAY_SEC,
    formats.PROPERTY_TIMER_DELAY_MS,
)
#: Characters of a bad value that a reason shows.
_SHOWN = 40


class BadDelayedError(Exception):
    """A message of the schedule topic that no attempt can deliver; the text says why."""


class LostDelayedError(BadDelayedError):
    """A placeholder that a salvage left for a lost message; brokers drop it."""


def is_lost(message: StoredMessage) -> bool:
    """Return whether a message of the schedule topic is a salvage's placeholder."""
    topic = message.properties.get(formats.PROPERTY_REAL_TOPIC)
    return topic == formats.TOPIC_HALF and message.delay_level == 0


def redelivery(
    message: StoredMessage,
    queue_id: int,
    queue_offset: int,
    config: MessageStoreConfig,
    dialect: Dialect,
) -> tuple[str, Any]:
    """Return the name of the appender's method that delivers a message, and its argument.

    Parameters
    ----------
    message : StoredMessage
        The record that the unit names.
    queue_id, queue_offset : int
        Place of the unit in the schedule topic.
    config : MessageStoreConfig
    dialect : Dialect

    Raises
    ------
    BadDelayedError
        If it is not that unit's record, or has no valid real topic or queue.
    """
    place = (message.topic, message.queue_id, message.queue_offset)
    if place != (formats.TOPIC_SCHEDULE, queue_id, queue_offset):
        raise BadDelayedError(f"its unit names a record of {place[0]}-{place[1]} at {place[2]}")
    topic, real_queue_id = _real_place(message, dialect)
    if message.sys_flag & (formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_TRANSACTION_PREPARED):
        raise BadDelayedError(f"a message with sys_flag {message.sys_flag} cannot be delayed")
    if is_lost(message):
        raise LostDelayedError("the message was lost before a salvage")
    if topic == formats.TOPIC_HALF:
        raise BadDelayedError("a half message cannot be delayed; brokers drop it (D-76)")
    if topic == formats.TOPIC_SCHEDULE:
        raise BadDelayedError("its real topic is the schedule topic")
    if _gets_light_offsets(message, topic, config, dialect):
        return "put_message", _as_message(message, topic, real_queue_id, dialect)
    return "put_staged", _as_record(message, topic, real_queue_id, config, dialect)


def _gets_light_offsets(
    message: StoredMessage, topic: str, config: MessageStoreConfig, dialect: Dialect
) -> bool:
    """Return whether a put gives the message offsets in other queues.

    Only such a put stores the properties of the message's map, without the level.
    """
    by_lmq = dialect.light_offsets_by_lmq
    is_on = config.enable_lmq if by_lmq else config.enable_multi_dispatch
    names = message.properties.get(formats.PROPERTY_INNER_MULTI_DISPATCH, "")
    return is_on and bool(names.strip()) and dialect.gives_light_offsets(topic)


def _real_place(message: StoredMessage, dialect: Dialect) -> tuple[str, int]:
    topic = message.properties.get(formats.PROPERTY_REAL_TOPIC)
    if topic is None:
        raise BadDelayedError(f"it has no {formats.PROPERTY_REAL_TOPIC}")
    is_retry = dialect.long_retry_topics and topic.startswith(formats.TOPIC_RETRY_PREFIX)
    longest = formats.MAX_RETRY_TOPIC_NBYTES if is_retry else formats.MAX_TOPIC_LENGTH
    if (nbytes := len(topic.encode(errors="replace"))) > longest:
        raise BadDelayedError(
            f"its {formats.PROPERTY_REAL_TOPIC} has {nbytes} bytes, more than {longest}"
        )
    queue_id = real_queue_id(message.properties)
    if queue_id is None:
        text = message.properties.get(formats.PROPERTY_REAL_QUEUE_ID, "")
        raise BadDelayedError(f"its {formats.PROPERTY_REAL_QUEUE_ID} is {text[:_SHOWN]!r}")
    return topic, queue_id


def _as_message(message: StoredMessage, topic: str, queue_id: int, dialect: Dialect) -> Message:
    """Return a message that a put gives offsets in other queues; a broker puts it likewise."""
    order = kernels.message.hash_map_order(message.properties, dialect.property_buckets)
    properties = {name: message.properties[name] for name in order if name not in _NOT_AGAIN}
    properties.pop(formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET, None)
    return Message(
        topic,
        message.body,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        properties=properties,
    )


def _as_record(
    message: StoredMessage,
    topic: str,
    queue_id: int,
    config: MessageStoreConfig,
    dialect: Dialect,
) -> bytes:
    """Return a staged record."""
    gone = (formats.PROPERTY_CRC32,) if config.enabled_append_prop_crc else ()
    properties = rewritten(
        message.properties_bytes,
        remove=gone,
        buckets=dialect.property_buckets,
        trailing=dialect.trailing_separator,
    )
    is_long = len(topic) > formats.MAX_TOPIC_LENGTH
    born, born_host, store_host = message.born_timestamp, message.born_host, message.store_host
    assert born is not None and born_host is not None and store_host is not None  # noqa: PT018
    version = 2 if dialect.record_version_2 and is_long else 1
    try:
        return kernels.message.encode_record(
            topic, message.body, queue_id, 0, 0, message.flag, message.sys_flag,
            born, born_host, 0, store_host, message.reconsume_times, 0, properties, version,
        )  # fmt: skip
    except (ValueError, OverflowError) as error:
        raise BadDelayedError(str(error)) from None
