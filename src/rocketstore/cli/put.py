"""``rocketstore put``: one message, or one a line, into a store."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import rocketstore
from rocketstore.cli.opening import check_is_store, quieten
from rocketstore.cli.options import FormatOption, QuietOption, StorePath, complete_topics
from rocketstore.cli.outcome import ExitCode, fail
from rocketstore.cli.output import Format, chosen, print_document, print_text
from rocketstore.cli.progress import progress_bar
from rocketstore.cli.put_lines import put_lines
from rocketstore.cli.quantities import format_time, parse_size
from rocketstore.cli.records import result_fields
from rocketstore.errors import CorruptionError, MappedFileError
from rocketstore.store_kinds import is_store, rocksdb_queues, store_parts


def put(
    path: StorePath,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Topic.", autocompletion=complete_topics),
    ] = None,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help='The body as text; "-" reads stdin.')
    ] = None,
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
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            help='Messages from a file of JSON objects, one a line, instead; "-" reads stdin.',
        ),
    ] = None,
    skip: Annotated[
        int, typer.Option("--skip", min=0, help="With --lines: leave out so many lines.")
    ] = 0,
    each: Annotated[
        bool,
        typer.Option("--each", help="With --lines: an answer a message, once it is on disk."),
    ] = False,
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
    """Store messages; they are on disk when the command returns. No broker may be running.

    With --lines each line is a message as `scan` and the other commands write it: topic, queueId,
    tags, keys, properties, body or bodyBase64 and so on. What only the store can give (offsets,
    store time) is made anew. A line that cannot be put ends it, and is named with the --skip that
    goes on there.

    \b
    Examples:
      rocketstore put /data/store TopicA "hello" --tags TagA --key order-17
      rocketstore put /data/store TopicA - --queue 2 --property source=import < body.json
      rocketstore put /tmp/new TopicA "first" --create --segment-size 64MiB
      rocketstore scan /data/old --topic TopicA | rocketstore put /data/new --lines -
    """
    given = topic is not None and body is not None
    options: dict[str, Any] = {"broker_version": broker_version}
    if segment_size is not None:
        options["mapped_file_size_commit_log"] = parse_size(segment_size)
    if lines is None:
        if not given:
            raise typer.BadParameter("give TOPIC and BODY, or --lines")
        if skip or each:
            raise typer.BadParameter("--skip and --each go with --lines")
        content = sys.stdin.buffer.read() if body == "-" else os.fsencode(body or "")
        pairs = _pairs(properties or [])
        with _writing(os.fspath(path), create=create, quiet=quiet, **options) as store:
            result = _put_one(
                store, topic, content, queue_id, tags, keys or None,
                properties=pairs or None, delay_level=delay_level, unique_key=unique_key or None,
            )  # fmt: skip
        _print(result, chosen(form))
        if not result.ok:
            raise typer.Exit(int(ExitCode.FINDINGS))
        return
    if topic is not None or tags is not None or keys or properties or unique_key or delay_level:
        raise typer.BadParameter("with --lines everything about a message stands in its line")
    options["flush_disk_type"] = "ASYNC_FLUSH"
    with (
        _writing(os.fspath(path), create=create, quiet=quiet, **options) as store,
        progress_bar(quiet=quiet or sys.stdout.isatty()) as progress,
    ):
        put_lines(store, lines, chosen(form), skip=skip, each=each, progress=progress)


@contextlib.contextmanager
def _writing(
    path: str, *, create: bool, quiet: bool, **options: Any
) -> Iterator[rocketstore.DefaultMessageStore]:
    if quiet:
        quieten()
    _check_place(Path(path), create=create)
    try:
        with progress_bar(quiet=quiet) as progress:
            mode = "a" if create else "r+"
            store = rocketstore.open(path, mode, progress=progress, **options)
    except CorruptionError as error:
        raise fail(
            ExitCode.UNSAFE, f"the store is damaged, nothing was written: {error}"
        ) from error
    except io.UnsupportedOperation as error:
        raise fail(ExitCode.UNSAFE, str(error)) from error
    except MappedFileError as error:
        if rocksdb_queues(Path(path)) is None:
            raise
        raise fail(ExitCode.UNSAFE, str(error)) from error
    except ValueError as error:
        raise fail(ExitCode.USAGE, str(error)) from error
    with store:
        yield store


def _check_place(path: Path, *, create: bool) -> None:
    """Make no store out of a directory that is something else."""
    if not create:
        check_is_store(path, hint="; --create makes one in an empty directory, or a new one")
    elif path.is_dir() and any(path.iterdir()) and not is_store(store_parts(path)):
        raise fail(
            ExitCode.UNSAFE, f"{path} holds other things and is no store; nothing was written"
        )


def _put_one(store: rocketstore.DefaultMessageStore, *message: Any, **others: Any) -> Any:
    try:
        return store.put(*message, **others)
    except (ValueError, TypeError) as error:
        raise fail(ExitCode.USAGE, str(error)) from error


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
    if print_document(result_fields(result), form):
        return
    if result.physical_offset is None:
        print_text(f"{result.status.name}: nothing was stored")
    else:
        print_text(
            f"{result.status.name}: queue offset {result.queue_offset}, log offset "
            f"{result.physical_offset}, {result.nbytes} bytes, id {result.msg_id}, stored "
            f"{format_time(result.store_timestamp)}"
        )
