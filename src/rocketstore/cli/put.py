"""``rocketstore put``: one message into a store."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

import rocketstore
from rocketstore.cli.options import FormatOption, QuietOption, StorePath
from rocketstore.cli.outcome import ExitCode, fail
from rocketstore.cli.output import Format, chosen, print_json, print_line, print_text
from rocketstore.cli.progress import progress_bar
from rocketstore.cli.quantities import format_time, parse_size
from rocketstore.errors import ConfigError, CorruptionError


def put(
    path: StorePath,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic.")],
    body: Annotated[str, typer.Argument(metavar="BODY", help='The body as text; "-" reads stdin.')],
    queue_id: Annotated[int, typer.Option("--queue", min=0, help="Queue id.")] = 0,
    tags: Annotated[str | None, typer.Option("--tags", help="The message's tag.")] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="A key; may be given several times.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; several times."),
    ] = None,
    unique_key: Annotated[
        bool, typer.Option("--unique-key", help="Make a unique key, as RocketMQ's client does.")
    ] = False,
    delay_level: Annotated[int, typer.Option("--delay-level", min=0, help="Delay level.")] = 0,
    create: Annotated[
        bool, typer.Option("--create", help="Make the store when there is none.")
    ] = False,
    broker_version: Annotated[
        str | None, typer.Option("--broker-version", help="RocketMQ line to write, e.g. 5.3.3.")
    ] = None,
    segment_size: Annotated[
        str | None,
        typer.Option("--segment-size", metavar="SIZE", help="Log file size of a new store: 64MiB."),
    ] = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Store one message; it is on disk when the command returns. No broker may be running.

    \b
    Examples:
      rocketstore put /data/store TopicA "hello" --tags TagA --key order-17
      rocketstore put /data/store TopicA - --queue 2 --property source=import < body.json
      rocketstore put /tmp/new TopicA "first" --create --segment-size 64MiB
    """
    content = sys.stdin.buffer.read() if body == "-" else os.fsencode(body)
    pairs = _pairs(properties or [])
    options: dict[str, Any] = {"broker_version": broker_version}
    if segment_size is not None:
        options["mapped_file_size_commit_log"] = parse_size(segment_size)
    try:
        with progress_bar(quiet=quiet) as progress:
            mode = "a" if create else "r+"
            store = rocketstore.open(path, mode, progress=progress, **options)
    except CorruptionError as error:
        raise fail(
            ExitCode.UNSAFE, f"the store is damaged, nothing was written: {error}"
        ) from error
    except ConfigError as error:
        raise fail(ExitCode.USAGE, str(error)) from error
    with store:
        try:
            result = store.put(
                topic,
                content,
                queue_id,
                tags,
                keys or None,
                properties=pairs or None,
                delay_level=delay_level,
                unique_key=unique_key or None,
            )
        except (ValueError, TypeError) as error:
            raise fail(ExitCode.USAGE, str(error)) from error
    _print(result, chosen(form))
    if not result.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--property {text!r} is no NAME=VALUE")
        if name in pairs:
            raise typer.BadParameter(f"--property {name} is given twice")
        pairs[name] = value
    return pairs


def _print(result: Any, form: Format) -> None:
    fields = {
        "status": result.status.name,
        "physicalOffset": result.physical_offset,
        "queueOffset": result.queue_offset,
        "storeSize": result.nbytes,
        "storeTimestamp": result.store_timestamp,
        "offsetMsgId": result.msg_id,
    }
    if form is Format.JSON:
        print_json(fields)
    elif form is Format.NDJSON:
        print_line(fields)
    elif result.physical_offset is None:
        print_text(f"{result.status.name}: nothing was stored")
    else:
        print_text(
            f"{result.status.name}: queue offset {result.queue_offset}, log offset "
            f"{result.physical_offset}, {result.nbytes} bytes, id {result.msg_id}, stored "
            f"{format_time(result.store_timestamp)}"
        )
