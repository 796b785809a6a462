"""``rocketstore show``: print everything about one record."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Format, chosen, print_document, print_fields
from rocketstore.cli.common.quantities import format_time
from rocketstore.cli.common.records import body_text, print_records, record_fields
from rocketstore.cli.common.text import hex_dump
from rocketstore.message import StoredMessage
from rocketstore.store.default_message_store import DefaultMessageStore

_MSG_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_TEXT_LIMIT = 4096
_HEX_LIMIT = 256


def show(
    path: StorePath,
    which: Annotated[
        str,
        typer.Argument(metavar="OFFSET|MSGID", help="Log offset, or an offsetMsgId."),
    ],
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show one record: all fields, properties and body.

    \b
    Examples:
      rocketstore show /data/store 34365
      rocketstore show /data/store 0A09080700002A9F000000000000863D
      rocketstore show /data/store 34365 --format json | jq .properties
    """
    if not _MSG_ID.fullmatch(which) and not (which.isascii() and which.isdigit()):
        raise typer.BadParameter(
            f"{which!r} is neither a log offset nor a message id of 32 or 56 digits"
        )
    with reading(path, quiet=quiet, config=store_config(config, commit_log)) as store:
        message = _look(store, which)
        if message is None:
            if not quiet:
                complain(
                    f"no record starts there; the log holds the offsets "
                    f"{store.min_physical_offset} to {store.max_physical_offset - 1}"
                )
            raise typer.Exit(int(ExitCode.FINDINGS))
        _print(message, chosen(form))


def _look(store: DefaultMessageStore, which: str) -> StoredMessage | None:
    if _MSG_ID.fullmatch(which):
        return store.look_message_by_id(which)
    offset = int(which)
    if offset >= 2**63:
        return None
    message = store.look_message_by_offset(offset)
    # Like RocketMQ, the library returns the first record for 0; here the offset must match.
    return message if message is not None and message.physical_offset == offset else None


def _print(message: StoredMessage, form: Format) -> None:
    fields = record_fields(message)
    if form is Format.CSV:
        print_records([message], form)
    elif not print_document(fields, form):
        print_fields(_table_fields(message, fields))


def _table_fields(message: StoredMessage, fields: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in fields.items():
        if name in ("body", "bodyBase64"):
            continue
        if name.endswith("Timestamp"):
            value = f"{value} ({format_time(value)})"
        elif name == "properties":
            value = [f"{key}={text}" for key, text in value.items()]
        rows.append((name, value))
    return [*rows, ("body", _body_lines(message.body))]


def _body_lines(body: bytes) -> list[str]:
    text = body_text(body)
    if text is not None:
        lines = text[:_TEXT_LIMIT].split("\n")
        omitted = len(text) - _TEXT_LIMIT
        return [*lines, f"… and {omitted} more characters"] if omitted > 0 else lines
    lines = hex_dump(body, _HEX_LIMIT)
    omitted = len(body) - _HEX_LIMIT
    return [*lines, f"… and {omitted} more bytes"] if omitted > 0 else lines
