"""Stored messages as table rows and as JSON, with the names that all exports use."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from rocketstore.cli.common.output import Format, Rows
from rocketstore.cli.common.quantities import format_time
from rocketstore.cli.common.table import Table
from rocketstore.cli.common.text import preview
from rocketstore.message import StoredMessage

_PREVIEW_WIDTH = 48


def record_fields(message: StoredMessage, body: bytes | None = None) -> dict[str, Any]:
    """Return the record with RocketMQ's names; the body as UTF-8 text, else in base 64.

    ``body`` replaces the stored one (decompressed).
    """
    body = message.body if body is None else body
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
    """Return the body as text, or ``None`` if it is not UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def body_preview(body: bytes, width: int = _PREVIEW_WIDTH) -> str:
    """Return the beginning of the body for a table."""
    text = body_text(body[: 4 * width])
    if text is None and (excerpt := body_text(body)) is not None:
        text = excerpt  # the slice split a character
    if text is None:
        return preview(f"0x{body[:width].hex()}", width)
    return preview(text, width)


_HEADINGS = ("topic", "queue", "offset", "log offset", "stored", "tags", "keys", "size", "body")
_NUMBERS = ("queue", "offset", "log offset", "size")
_SHRINK = ("body", "keys", "tags", "topic")
#: Column names of a record in CSV, as in NDJSON; only one of the two body columns is filled.
NAMES = (
    *("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "flag", "sysFlag"),
    *("bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "reconsumeTimes"),
    *("preparedTransactionOffset", "bodyCRC", "offsetMsgId", "uniqKey", "tags", "keys"),
    *("properties", "bodySize", "body", "bodyBase64"),
)


def record_row(message: StoredMessage, body: bytes | None = None) -> tuple[Any, ...]:
    """Return the cells of a table; ``body`` as in ``record_fields``."""
    body = message.body if body is None else body
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


def record_rows(form: Format) -> Rows:
    """Return the writer for records, in any format."""
    return Rows(form, NAMES, table=record_table(), row=record_row, document=record_fields)


def record_table() -> Table:
    """Return the table for records."""
    return Table(_HEADINGS, right=_NUMBERS, shrink=_SHRINK)


def print_records(messages: Iterable[StoredMessage], form: Format) -> int:
    """Write the messages as they arrive; return their number."""
    with record_rows(form) as out:
        for message in messages:
            out.write(message)
    return out.count


#: Field names of a put result.
RESULT_NAMES = tuple(
    ["status", "physicalOffset", "queueOffset", "storeSize", "storeTimestamp", "offsetMsgId"]
)


def result_fields(result: Any) -> dict[str, Any]:
    """Return a put result by the names that all exports use."""
    return {
        "status": result.status.name,
        "physicalOffset": result.physical_offset,
        "queueOffset": result.queue_offset,
        "storeSize": result.nbytes,
        "storeTimestamp": result.store_timestamp,
        "offsetMsgId": result.msg_id,
    }
