"""Stored messages as rows of a table and as JSON, in the one vocabulary of all exports."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import chain
from typing import Any

from rocketstore.cli.output import Format, print_json, print_line, print_rows
from rocketstore.cli.quantities import format_time
from rocketstore.cli.text import preview
from rocketstore.message import StoredMessage

_PREVIEW_WIDTH = 48


def record_fields(message: StoredMessage) -> dict[str, Any]:
    """The record with RocketMQ's names; the body as text when it is UTF-8, else in base 64."""
    body = message.body
    fields = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "offsetMsgId": message.msg_id,
        "uniqKey": message.unique_key,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodySize": len(body),
    }
    text = body_text(body)
    if text is None:
        fields["bodyBase64"] = base64.b64encode(body).decode("ascii")
    else:
        fields["body"] = text
    return fields


def body_text(body: bytes) -> str | None:
    """The body as text, ``None`` when it is not UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def body_preview(body: bytes, width: int = _PREVIEW_WIDTH) -> str:
    """The beginning of the body for a table."""
    text = body_text(body[: 4 * width])
    if text is None and (cut := body_text(body)) is not None:
        text = cut  # the cut went through a character
    if text is None:
        return preview(f"0x{body[:width].hex()}", width)
    return preview(text, width)


_HEADINGS = ("topic", "queue", "offset", "log offset", "stored", "tags", "keys", "size", "body")
_NUMBERS = ("queue", "offset", "log offset", "size")


def _row(message: StoredMessage) -> tuple[Any, ...]:
    body = message.body
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        format_time(message.store_timestamp),
        message.tags or "",
        message.keys or "",
        len(body),
        body_preview(body),
    )


def print_records(messages: Iterable[StoredMessage], form: Format) -> int:
    """Write the messages; return how many there were. NDJSON is written as they come."""
    iterator = iter(messages)
    if form is Format.NDJSON:
        count = 0
        for message in iterator:
            print_line(record_fields(message))
            count += 1
        return count
    if form is Format.JSON:
        documents = [record_fields(message) for message in iterator]
        print_json(documents)
        return len(documents)
    first = next(iterator, None)
    if first is None:
        return 0
    rows = [_row(message) for message in chain([first], iterator)]
    print_rows(_HEADINGS, rows, right=_NUMBERS)
    return len(rows)
