"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore import formats
from rocketstore.cli.common.output import Format
from rocketstore.cli.common.quantities import parse_size, parse_span, parse_time
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ConfigError


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Complete topics of the store that the command line already names."""
    # If a later argument is missing, the path may not have been parsed as a parameter yet.
    root = context.params.get("path") or next(iter(context.args), None)
    if not isinstance(root, str | os.PathLike):
        return []
    names: set[str] = set()
    for part in (formats.CONSUME_QUEUE_DIR, formats.BATCH_QUEUE_DIR):
        with contextlib.suppress(OSError):
            names.update(os.listdir(Path(root) / part))
    return sorted(name for name in names if name.startswith(incomplete) and name.isprintable())


def check_path_word(text: str) -> str:
    """Refuse a word that names no file: a script's unset variable must not mean the current folder.

    Raises ``typer.BadParameter``.
    """
    if not text:
        raise typer.BadParameter('the path is empty; "." is the current folder')
    if "\0" in text:
        raise typer.BadParameter(f"{text!r} contains a NUL character, which is invalid in a path")
    return text


def path(text: str) -> Path:
    """Return the path that a command-line word names (help shows this function's name)."""
    return Path(check_path_word(text))


def optional_path_word(text: str | None) -> str | None:
    """Apply ``check_path_word`` as the callback of an option."""
    return None if text is None else check_path_word(text)


def configures(
    name: str, convert: Callable[[Any], Any] = lambda value: value
) -> Callable[[Any], Any]:
    """Return the callback of an option that sets the field ``name`` of the configuration.

    A value that the field refuses is wrong usage; the message begins with the option's name.
    """

    def check(value: Any) -> Any:
        if value is not None:
            try:
                MessageStoreConfig(**{name: convert(value)})
            except ConfigError as error:
                raise typer.BadParameter(str(error)) from None
        return value

    return check


def check_version(text: str | None) -> str | None:
    """Refuse an unknown RocketMQ version, as the callback of an option."""
    if text is not None:
        try:
            Dialect.for_version(text)
        except ConfigError as error:
            words = str(error).partition("; allow_newer")[0]  # drop advice for Python callers
            raise typer.BadParameter(words) from None
    return text


def check_words(given: Any) -> Any:
    """Refuse an empty text, as the callback of an option: a script's unset variable must not
    select everything."""
    if given is not None and "" in (given if isinstance(given, list) else [given]):
        raise typer.BadParameter("the text is empty; omit the option to select everything")
    return given


def check_tags(text: str | None) -> str | None:
    """Refuse an expression that names no tag, as the callback of an option."""
    if text is not None and not text.replace("||", "").strip():
        raise typer.BadParameter(f'{text!r} names no tag; "*" allows every tag')
    return text


def check_time(text: str | None) -> str | None:
    """Refuse an invalid time, as the callback of an option."""
    if text is not None:
        parse_time(text)
    return text


def check_span(text: str | None) -> str | None:
    """Refuse an invalid duration, as the callback of an option."""
    if text is not None:
        parse_span(text)
    return text


def check_size(text: str) -> str:
    """Refuse an invalid size, as the callback of an option."""
    parse_size(text)
    return text


def store_config(file: Path | None = None, commit_log: str | None = None) -> MessageStoreConfig:
    """Return the settings that ``--config`` and ``--commit-log`` give.

    Raises ``typer.BadParameter`` when the file is not a configuration, ``OSError`` when it cannot
    be read.
    """
    settings = MessageStoreConfig()
    if file is not None:
        try:
            settings = MessageStoreConfig.from_properties(file)
        except ValueError as error:
            raise typer.BadParameter(f"{file}: {error}", param_hint="'--config'") from None
    if commit_log is not None:
        settings = settings.replace(store_path_commit_log=commit_log)
    return settings


StorePath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", parser=path, help='The store: the directory that holds "commitlog".'
    ),
]
WhatIfOption = Annotated[
    bool, typer.Option("--what-if", help="Only report what would be done; change nothing.")
]
IndexOption = Annotated[
    bool, typer.Option("--index/--no-index", help="Whether the broker keeps an index.")
]
CommitLogOption = Annotated[
    str | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        callback=optional_path_word,
        help="The log's folder if it is not PATH/commitlog (a broker's storePathCommitLog).",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=path,
        help="A broker's configuration file: the log's folder, sizes, times.",
    ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        show_default=False,
        envvar="ROCKETSTORE_FORMAT",
        help="Output format [default: table on a terminal, ndjson in a pipe].",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress and no notes on stderr.")
]
TagsOption = Annotated[
    str | None,
    typer.Option(
        "--tags", metavar="EXPR", callback=check_tags, help='Only these tags: "A" or "A || B".'
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        callback=check_words,
        help="Only this topic; repeatable.",
        autocompletion=complete_topics,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", "-k", callback=check_words, help="One complete key of the message."),
]
UniqueKeyOption = Annotated[
    str | None,
    typer.Option("--unique-key", "-u", callback=check_words, help="The message's unique key."),
]
BodyOption = Annotated[
    str | None,
    typer.Option(
        "--body-contains",
        "-b",
        metavar="TEXT",
        callback=check_words,
        help="The stored body contains this text (UTF-8).",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, help="Maximum number of messages [default: all]."),
]
BeginOption = Annotated[
    str | None,
    typer.Option(
        "--begin",
        metavar="TIME",
        callback=check_time,
        help="Stored at or after: epoch ms, ISO 8601, or -2h (two hours ago).",
    ),
]
EndOption = Annotated[
    str | None,
    typer.Option("--end", metavar="TIME", callback=check_time, help="Stored before this time."),
]


class OnCorruption(StrEnum):
    """What to do at a corrupt range."""

    FAIL = "fail"
    SKIP = "skip"
    STOP = "stop"


OnCorruptionOption = Annotated[
    OnCorruption,
    typer.Option(
        "--on-corruption",
        help="At a corrupt range or a missing segment: fail, skip to the next good record, or "
        "stop without an error.",
    ),
]
