"""HTML tables of stores, queues and messages for notebooks; all data is escaped text.

They work on any object with the attributes they read, so messages of both kernel bodies work.
"""

from __future__ import annotations

import datetime
import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

_TEXT_LIMIT = 2000
_HEX_LIMIT = 128
_TOPIC_LIMIT = 50
_ROW_LIMIT = 10
_MAX_MS = 253_402_300_799_999
#: Characters that browsers interpret or hide: controls, those that reorder or hide text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff]"
)
_TABLE = '<table style="text-align:left">'
_CELL = '<td style="text-align:left;white-space:pre-wrap">'
_HEAD = '<th style="text-align:left">'


def text(value: Any, limit: int = _TEXT_LIMIT) -> str:
    """Return a value as escaped HTML text, truncated after ``limit`` characters.

    The text cannot open a tag or an attribute; invisible characters are written as escapes.
    """
    shown = str(value)
    rest = f"… ({len(shown) - limit:,} more characters)" if len(shown) > limit else ""
    return html.escape(_UNSEEN.sub(_written_out, shown[:limit]) + rest)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def time_text(timestamp: int | None) -> str:
    """Return epoch ms as UTC in ISO 8601, or the number if it is not a date."""
    if timestamp is None or not 0 < timestamp <= _MAX_MS:
        return "-" if timestamp is None else str(timestamp)
    seconds, milliseconds = divmod(timestamp, 1000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + f".{milliseconds:03d} UTC"


def fields_html(caption: str, fields: Iterable[tuple[str, Any]]) -> str:
    """Return a table of names and values."""
    rows = "".join(
        f"<tr>{_HEAD}{text(name)}</th>{_CELL}{text(value)}</td></tr>" for name, value in fields
    )
    return f"<div><strong>{text(caption)}</strong>{_TABLE}{rows}</table></div>"


def rows_html(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with headings."""
    head = "".join(f"{_HEAD}{text(name)}</th>" for name in headings)
    body = "".join(
        "<tr>" + "".join(f"{_CELL}{text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f"<div><strong>{text(caption)}</strong>"
        f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def body_text(body: bytes) -> str:
    """Return a body as text when it is UTF-8, else the beginning of its bytes."""
    try:
        return bytes(body[: 4 * _TEXT_LIMIT + 4]).decode("utf-8")
    except UnicodeDecodeError as error:
        if len(body) > 4 * _TEXT_LIMIT and error.start >= 4 * _TEXT_LIMIT:
            return bytes(body[: error.start]).decode("utf-8")
    shown = bytes(body[:_HEX_LIMIT]).hex(" ")
    return f"0x {shown}" + (f" … ({len(body):,} bytes)" if len(body) > _HEX_LIMIT else "")


def message_html(message: Any) -> str:
    """Return a message, put or read, as a table without missing fields."""
    names = (
        *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "flag"),
        *("sys_flag", "born_timestamp", "store_timestamp", "born_host", "store_host"),
        *("reconsume_times", "msg_id"),
    )
    fields: list[tuple[str, Any]] = []
    for name in names:
        if not hasattr(message, name):
            continue
        value = getattr(message, name)
        shown = time_text(value) if name.endswith("_timestamp") else value
        fields.append((name, "-" if shown is None else shown))
    fields += [(f"property {name}", value) for name, value in message.properties.items()]
    fields.append((f"body ({len(message.body):,} bytes)", body_text(message.body)))
    return fields_html(type(message).__name__, fields)


def store_html(store: Any) -> str:
    """Return an open store as two tables: its properties and its topics."""
    if store.closed:
        return fields_html(type(store).__name__, [("path", store.path), ("state", "closed")])
    start, end = store.min_physical_offset, store.max_physical_offset
    report = store.recovery_report
    fields = [
        ("path", store.path),
        ("mode", store.mode),
        ("RocketMQ", f"{store.broker_version}: {store.facts.dialect_reason}"),
        ("log", f"offsets {max(start, 0)} to {end} ({max(0, end - max(start, 0)):,} bytes)"),
        ("corrupt ranges", len(report.damaged)),
        ("notes", "\n".join(report.notes) or "-"),
    ]
    topics = store.topics()
    rows = []
    for topic in topics[:_TOPIC_LIMIT]:
        queues = store.queues(topic)
        count = sum(
            max(0, store.max_offset_in_queue(topic, one) - store.min_offset_in_queue(topic, one))
            for one in queues
        )
        rows.append((topic, len(queues), f"{count:,}"))
    hidden = f", {_TOPIC_LIMIT} of them shown" if len(topics) > _TOPIC_LIMIT else ""
    return fields_html(type(store).__name__, fields) + rows_html(
        f"{len(topics)} topics{hidden}", ("topic", "queues", "messages"), rows
    )


def array_html(caption: str, first: int | None, array: Any) -> str:
    """Return the first and last rows of a structured array.

    ``first`` is the queue offset of row 0; ``None`` leaves that column out.
    """
    names = list(array.dtype.names)
    count = len(array)
    numbers = list(range(min(count, _ROW_LIMIT)))
    numbers += list(range(max(len(numbers), count - _ROW_LIMIT), count))
    rows: list[Sequence[Any]] = []
    for number in numbers:
        if rows and number and number - 1 not in numbers:
            rows.append(["…"] * (len(names) + (first is not None)))
        offset = [] if first is None else [first + number]
        rows.append([*offset, *(array[number][name] for name in names)])
    headings = names if first is None else ["queue_offset", *names]
    return rows_html(f"{caption}, {count:,} units", headings, rows)
