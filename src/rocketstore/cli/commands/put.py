"""``rocketstore put``: append one message, or one per line of a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore import formats
from rocketstore.arguments import Mode
from rocketstore.cli.commands.put_lines import put_lines
from rocketstore.cli.commands.put_refusals import why_refused
from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_version,
    complete_topics,
    configures,
    optional_path_word,
    store_config,
)
from rocketstore.cli.common.outcome import (
    ExitCode,
    answering,
    complain,
    exit_code_of,
    fail,
    words_of,
)
from rocketstore.cli.common.output import Format, chosen, print_document, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import format_time, parse_size
from rocketstore.cli.common.records import result_fields
from rocketstore.cli.common.text import is_utf8
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.directory.place import is_there
from rocketstore.errors import (
    ConfigError,
    CorruptionError,
    MappedFileError,
    RocketStoreError,
    StoreFullError,
)
from rocketstore.files.durable import naming
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store


def put(
    path: StorePath,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Topic.", autocompletion=complete_topics),
    ] = None,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help='The body as text; "-" reads stdin.')
    ] = None,
    queue_id: Annotated[int, typer.Option("--queue", metavar="N", min=0, help="Queue id.")] = 0,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="TAG", help="The message's tag.")
    ] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="A key; repeatable.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; repeatable."),
    ] = None,
    unique_key: Annotated[
        bool,
        typer.Option("--unique-key", help="Generate a unique key, like RocketMQ's client."),
    ] = False,
    delay_level: Annotated[
        int, typer.Option("--delay-level", metavar="N", min=0, help="Delay level.")
    ] = 0,
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            callback=optional_path_word,
            help='Read messages from a file of JSON objects, one per line; "-" reads stdin.',
        ),
    ] = None,
    skip: Annotated[
        int, typer.Option("--skip", metavar="N", min=0, help="With --lines: skip so many lines.")
    ] = 0,
    each: Annotated[
        bool,
        typer.Option("--each", help="With --lines: answer each message once it is on disk."),
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create the store if it does not exist.")
    ] = False,
    broker_version: Annotated[
        str | None,
        typer.Option(
            "--broker-version",
            metavar="VERSION",
            callback=check_version,
            help="RocketMQ version to write, e.g. 5.3.3.",
        ),
    ] = None,
    segment_size: Annotated[
        str | None,
        typer.Option(
            "--segment-size",
            metavar="SIZE",
            callback=configures("mapped_file_size_commit_log", parse_size),
            help="Log file size of a new store, e.g. 64MiB.",
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Store messages; they are on disk when the command returns. No broker may be running.

    With --lines each line is a message as `scan` and the other commands write it: topic, queueId,
    tags, keys, properties, body or bodyBase64 and so on. The store assigns new offsets and a new
    store time. A line that cannot be put ends the command; the message gives the --skip that
    continues there.

    \b
    Examples:
      rocketstore put /data/store TopicA "hello" --tags TagA --key order-17
      rocketstore put /data/store TopicA - --queue 2 --property source=import < body.json
      rocketstore put /tmp/new TopicA "first" --create --segment-size 64MiB
      rocketstore scan /data/old --topic TopicA | rocketstore put /data/new --lines -
    """
    given = topic is not None and body is not None
    place = Place(path, create=create, quiet=quiet)
    place.settings = store_config(config, commit_log).replace(clean_resource_enable=False)
    if config is not None:
        place.set("--config")
    if broker_version is not None:
        place.set("--broker-version", broker_version=broker_version)
    if segment_size is not None:
        place.set("--segment-size", mapped_file_size_commit_log=parse_size(segment_size))
    if lines is None:
        if not given:
            raise typer.BadParameter("give TOPIC and BODY, or --lines")
        if skip or each:
            raise typer.BadParameter("--skip and --each need --lines")
        for option, texts in (
            *(("TOPIC", [topic]), ("--tags", [tags])),
            *(("--key", keys), ("--property", properties)),
        ):
            _check_utf8(option, texts or ())
        pairs = _pairs(properties or [])
        if unique_key and formats.PROPERTY_UNIQUE_KEY in pairs:
            raise typer.BadParameter(
                f"give --unique-key or --property {formats.PROPERTY_UNIQUE_KEY}=…, not both"
            )
        content = _stdin() if body == "-" else os.fsencode(body or "")
        result = _put_one(
            place, topic, content, queue_id, tags, keys or None,
            properties=pairs or None, delay_level=delay_level, unique_key=unique_key or None,
        )  # fmt: skip
        with answering(_what_became(result)):
            _print(result, chosen(form))
        if not result.ok:
            raise typer.Exit(int(ExitCode.FINDINGS))
        return
    if topic is not None or tags is not None or keys or properties or unique_key or delay_level:
        raise typer.BadParameter("with --lines give everything about a message in its line")
    place.settings = place.settings.replace(flush_disk_type="ASYNC_FLUSH")
    with progress_bar(quiet=quiet or sys.stdout.isatty()) as progress:
        most = place.settings.max_message_size
        put_lines(place.open, lines, chosen(form), skip, most, each=each, progress=progress)


class Place:
    """The store to write to, and how to open it."""

    def __init__(self, path: Path, *, create: bool, quiet: bool) -> None:
        self.settings = MessageStoreConfig()
        self._path = path
        self._create = create
        self._quiet = quiet
        self._options: list[str] = []

    def set(self, option: str, **fields: Any) -> None:
        """Apply an option; an error about a contradiction with the files names it."""
        self.settings = self.settings.replace(**fields)
        self._options.append(option)

    def open(self) -> DefaultMessageStore:
        """Open the store for writing."""
        if self._quiet:
            quieten()
        _check_place(self._path, create=self._create, config=self.settings)
        mode: Mode = "a" if self._create else "r+"
        try:
            with progress_bar(quiet=self._quiet) as progress:
                return open_store(self._path, mode, config=self.settings, progress=progress)
        except ConfigError as error:
            hint = " / ".join(f"'{name}'" for name in self._options) or None
            raise typer.BadParameter(str(error), param_hint=hint) from error
        except (CorruptionError, MappedFileError) as error:
            raise fail(exit_code_of(error), f"nothing was written: {error}") from error


def _check_place(path: Path, *, create: bool, config: MessageStoreConfig) -> None:
    """Refuse to create a store in a directory that holds something else."""
    if not create:
        hint = "--create creates one"
        if not is_there(path):
            raise fail(ExitCode.CANNOT_READ, f"there is no store {path}; {hint}")
        check_is_store(path, hint=f"; {hint} in an empty directory, or a new one", config=config)
    elif path.is_dir() and any(path.iterdir()) and not is_store(store_parts(path)):
        raise fail(
            ExitCode.UNSAFE, f"{path} is not a store but holds other files; nothing was written"
        )


def _put_one(place: Place, *message: Any, **others: Any) -> Any:
    """Put one message, and close the store.

    Once the message is stored, an error of closing reports it too. Otherwise the caller would
    retry and store it twice.
    """
    result: Any = None
    most = place.settings.max_message_size
    try:
        with place.open() as store:
            try:
                result = store.put(*message, **others)
            except (ValueError, TypeError) as error:
                raise fail(ExitCode.USAGE, str(error)) from error
            if not result.appended:
                complain(f"nothing was stored: {_why(store, most, result, *message, **others)}")
    except StoreFullError as error:
        if result is None or not result.ok:
            raise
        complain(f"{_what_became(result)}; the disk is too full for the store's final state, so "
                 f"the next opening takes longer: {words_of(error)}")  # fmt: skip
    except (RocketStoreError, OSError, KeyboardInterrupt) as error:
        if result is None or not result.appended:
            raise
        interrupted = isinstance(error, KeyboardInterrupt)
        code = ExitCode.INTERRUPTED if interrupted else exit_code_of(error)
        why = "interrupted" if interrupted else words_of(error)
        what = _what_became(result)
        raise fail(code, f"{what}, but the store was not closed in order: {why}") from error
    return result


def _why(
    store: DefaultMessageStore,
    most: int,
    result: Any,
    topic: str,
    body: bytes,
    _: int,
    tags: str | None,
    keys: list[str] | None,
    **others: Any,
) -> str:
    """Return why nothing was stored, given the arguments of the put."""
    pairs = dict(others.get("properties") or {})
    if tags is not None:
        pairs[formats.PROPERTY_TAGS] = tags
    if keys:
        pairs[formats.PROPERTY_KEYS] = formats.KEY_SEPARATOR.join(keys)
    return why_refused(store, most, result, topic, body, pairs)


def _what_became(result: Any) -> str:
    if not result.appended:
        return f"nothing was stored ({result.status.name})"
    return f"the message is stored ({result.status.name}, log offset {result.physical_offset})"


def _stdin() -> bytes:
    with naming(Path("stdin")):
        return sys.stdin.buffer.read()


def _check_utf8(option: str, texts: Iterable[str | None]) -> None:
    """Refuse bytes that are not UTF-8: RocketMQ would store them as ``?``."""
    for text in texts:
        if text is not None and not is_utf8(text):
            raise typer.BadParameter(f"{text!r} is not UTF-8", param_hint=f"'{option}'")


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--property {text!r} is not NAME=VALUE")
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
