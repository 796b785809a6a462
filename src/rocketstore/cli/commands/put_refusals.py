"""Explain why the store refused a message; a status has only a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocketstore import formats
from rocketstore.status import AppendMessageStatus, PutMessageStatus
from rocketstore.store.default_message_store import DefaultMessageStore

_NO_SERVICE = "the store accepts no messages: its disk is nearly full, or it belongs to a slave"


def why_refused(
    store: DefaultMessageStore,
    most: int,
    result: Any,
    topic: str,
    body: bytes,
    properties: Mapping[str, str],
) -> str:
    """Return the status and, if known, its reason.

    For example ``MESSAGE_ILLEGAL: the body has 5,000,000 bytes; max_message_size allows
    4,194,304``.

    ``most`` is the store's ``max_message_size``.
    """
    status = result.status
    reason = ""
    if status == PutMessageStatus.SERVICE_NOT_AVAILABLE:
        reason = _NO_SERVICE
    elif status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
        reason = _too_long(store, most, result, topic, body, properties)
    return f"{status.name}: {reason}" if reason else str(status.name)


def _too_long(
    store: DefaultMessageStore,
    most: int,
    result: Any,
    topic: str,
    body: bytes,
    properties: Mapping[str, str],
) -> str:
    """Return which limit a message exceeds, or an empty string."""
    nbytes = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
    is_retry = topic.startswith(formats.TOPIC_RETRY_PREFIX)
    long_retry = is_retry and store.facts.dialect.long_retry_topics
    longest = formats.MAX_RETRY_TOPIC_NBYTES if long_retry else formats.MAX_TOPIC_LENGTH
    if len(topic.encode()) > longest:
        return f"the topic has {len(topic.encode()):,} bytes; {longest} are allowed"
    if nbytes > formats.MAX_PROPERTIES_NBYTES:
        allowed = f"{formats.MAX_PROPERTIES_NBYTES:,} are allowed"
        return f"tags, keys and properties have {nbytes:,} bytes; {allowed}"
    if len(body) > most:
        return f"the body has {len(body):,} bytes; max_message_size allows {most:,}"
    record = len(body) + nbytes + len(topic.encode()) + formats.RECORD_MIN_NBYTES
    segment = store.facts.commit_log_file_size
    if result.append_status == AppendMessageStatus.MESSAGE_SIZE_EXCEEDED or record > segment:
        return (
            f"a record of about {record:,} bytes does not fit into a log file of {segment:,} bytes"
        )
    if record > most:
        return f"the record would have about {record:,} bytes; max_message_size allows {most:,}"
    return ""
