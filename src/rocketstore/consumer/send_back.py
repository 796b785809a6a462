"""Records that a broker writes when a consumer gives a message back: retries and dead letters."""

from __future__ import annotations

from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.log.java_order import rewritten
from rocketstore.message import StoredMessage
from rocketstore.query.queue_records import is_packed, unpacked

#: The delay level of the first retry; each further one waits a level longer.
FIRST_RETRY_LEVEL = 3
#: A message that is retried is alone in its record.
_PACKED = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP


class SendBack(NamedTuple):
    """What becomes of a message that was not consumed.

    ``delay_level`` is 0 for a dead letter; ``topic`` is where the message is put in the end.
    """

    topic: str
    delay_level: int


def retry_topic(group: str) -> str:
    """Return the topic on which a group reads messages again."""
    return formats.TOPIC_RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of messages that a group has given up."""
    return formats.TOPIC_DLQ_PREFIX + group


def decide(
    group: str, reconsume_times: int, delay_level: int, max_reconsume_times: int, max_level: int
) -> SendBack:
    """Return where a message goes and when.

    Parameters
    ----------
    group : str
    reconsume_times : int
        How often the message was retried before.
    delay_level : int
        0: the usual one, which grows with each retry. Negative: give it up.
    max_reconsume_times : int
        After so many retries the message is a dead letter.
    max_level : int
        Number of delay levels; a higher one is this one.
    """
    if reconsume_times >= max_reconsume_times or delay_level < 0:
        return SendBack(dead_letter_topic(group), 0)
    level = delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + reconsume_times
    return SendBack(retry_topic(group), min(level, max_level))


def send_back_records(
    message: StoredMessage, target: SendBack, config: MessageStoreConfig, dialect: Dialect
) -> list[bytes]:
    """Return the staged record that a broker writes; see ``appender.put_staged``.

    Of an inner batch it is a record for each of its messages, since the topic of retries has no
    batch queue; a broker refuses them. A retry lies on the schedule topic until it is due. Light
    queues that the message names do not get it again.

    Raises
    ------
    ValueError
        The record would be too long, or is a batch that cannot be split.

    Notes
    -----
    Source: RocketMQ ``broker/processor/AbstractSendMessageProcessor.java``
    ``consumerSendMsgBack``; 4.9: ``SendMessageProcessor.java`` ``asyncConsumerSendMsgBack``.
    """
    if not message.sys_flag & formats.SYS_FLAG_INNER_BATCH:
        return [_record(message, target, config, dialect)]
    offset = message.physical_offset
    parts = unpacked(message.raw, offset) if is_packed(message.sys_flag) else None
    if not parts:
        raise ValueError("an inner batch that cannot be split into its messages cannot be retried")
    messages = (StoredMessage(part, 0, offset, offset + len(part)) for part in parts)
    return [_record(one, target, config, dialect) for one in messages]


def _record(
    message: StoredMessage, target: SendBack, config: MessageStoreConfig, dialect: Dialect
) -> bytes:
    properties = message.properties
    changes = {
        formats.PROPERTY_RETRY_TOPIC: properties.get(formats.PROPERTY_RETRY_TOPIC) or message.topic,
        formats.PROPERTY_WAIT: "false",
        formats.PROPERTY_DELAY: str(target.delay_level),
        formats.PROPERTY_ORIGIN_MESSAGE_ID: properties.get(formats.PROPERTY_ORIGIN_MESSAGE_ID)
        or message.msg_id,
    }
    topic, queue_id = target.topic, 0
    if target.delay_level > 0:
        changes[formats.PROPERTY_REAL_TOPIC] = target.topic
        changes[formats.PROPERTY_REAL_QUEUE_ID] = "0"
        topic, queue_id = formats.TOPIC_SCHEDULE, target.delay_level - 1
    gone = [formats.PROPERTY_INNER_MULTI_DISPATCH, formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET]
    gone = [name for name in gone if name in properties]  # other queues get it once
    if config.enabled_append_prop_crc:
        gone.append(formats.PROPERTY_CRC32)
    text = rewritten(
        message.properties_bytes,
        set=changes,
        remove=gone,
        buckets=dialect.property_buckets,
        trailing=dialect.trailing_separator,
    )
    born, born_host, store_host = message.born_timestamp, message.born_host, message.store_host
    assert born is not None and born_host is not None and store_host is not None  # noqa: PT018
    if dialect.version >= (5, 0, 0):
        store_host = config.store_host
    is_long = len(topic) > formats.MAX_TOPIC_LENGTH
    version = 2 if dialect.record_version_2 and is_long else 1
    try:
        return kernels.message.encode_record(
            topic, message.body, queue_id, 0, 0, message.flag, message.sys_flag & ~_PACKED,
            born, born_host, 0, store_host, message.reconsume_times + 1, 0, text, version,
        )  # fmt: skip
    except OverflowError as error:
        raise ValueError(f"the message cannot be sent back: {error}") from error
