"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore import formats
from rocketstore.cli.common.outcome import ExitCode, complain, fail, fail_by_lines, words_of
from rocketstore.cli.common.output import Format
from rocketstore.cli.common.quantities import parse_size, parse_span, parse_time
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ConfigError

#: Unknown keys of a configuration file for which a similar one is searched.
_MOST_UNKNOWN = 100
#: The command that is running: its parameters are complete only after they were all parsed.
_CONTEXT: ContextVar[typer.Context | None] = ContextVar("_CONTEXT", default=None)


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


def remember_command(context: typer.Context, file: Path | None) -> Path | None:
    """Keep the command's parameters for ``store_config``, as the callback of ``--config``."""
    _CONTEXT.set(context)
    return file


def store_config(file: Path | None = None, commit_log: str | None = None) -> MessageStoreConfig:
    """Return the settings that ``--config`` and ``--commit-log`` give.

    What a user may not expect is written to stderr: keys that look like typing errors, and that
    PATH wins over the file's root. A file that cannot be read or is not a configuration ends the
    command with exit status 2.
    """
    settings = MessageStoreConfig()
    if file is not None:
        try:
            settings = MessageStoreConfig.from_properties(file)
        except ConfigError as error:
            text = str(error).replace("\n", "\n--config: ")
            raise fail_by_lines(ExitCode.USAGE, f"--config: {text}") from None
        except (ValueError, OSError) as error:
            raise fail(ExitCode.USAGE, f"--config: {words_of(error)}") from None
        _tell(file, settings)
    if commit_log is not None:
        settings = settings.replace(
            store_path_root_dir=None,
            store_path_commit_log=commit_log,
            read_only_commit_log_store_paths=None,
        )
    return settings


def _tell(file: Path, settings: MessageStoreConfig) -> None:
    """Write notes about a configuration file to stderr, unless ``--quiet`` is given."""
    context = _CONTEXT.get()
    given = {} if context is None else context.params
    if given.get("quiet"):
        return
    for entry in [one for one in settings.entries if one.use == "unknown"][:_MOST_UNKNOWN]:
        if entry.suggestion is not None:
            complain(
                f"{file}:{entry.line}: {entry.key} is unknown; did you mean {entry.suggestion}?"
            )
    root, path = settings.store_path_root_dir, given.get("path")
    if root and path is not None and os.path.realpath(root) != os.path.realpath(path):
        complain(f"{file}: storePathRootDir is {root}; the store is {path} as asked")


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
    bool | None,
    typer.Option(
        "--index/--no-index",
        show_default=False,
        help="Whether the broker keeps an index [default: index, or as the configuration says].",
    ),
]
CommitLogOption = Annotated[
    str | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        callback=optional_path_word,
        help="The log's folder if it is not PATH/commitlog (a broker's storePathCommitLog, commas "
        "too).",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=path,
        callback=remember_command,
        help="A broker's configuration file; options of the command line win.",
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
#: Of checks, which read the log on a second thread.
CheckJobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, max=256,
        help="Threads, at most 8; the answer is the same [default: the processors, at most 2].",
    ),
]  # fmt: skip
StartOption = Annotated[
    int | None,
    typer.Option("--start", metavar="OFFSET", min=0, help="Only records from this log offset on."),
]
StopOption = Annotated[
    int | None,
    typer.Option("--stop", metavar="OFFSET", min=0, help="Only records before this log offset."),
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
        metavar="TOPIC",
        callback=check_words,
        help="Only this topic; repeatable.",
        autocompletion=complete_topics,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", "-k", metavar="KEY", callback=check_words, help="One complete key of the message."
    ),
]
UniqueKeyOption = Annotated[
    str | None,
    typer.Option(
        "--unique-key", "-u", metavar="KEY", callback=check_words, help="The message's unique key."
    ),
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
    typer.Option(
        "--limit", "-n", metavar="N", min=1, help="Maximum number of messages [default: all]."
    ),
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


class RecordWord(StrEnum):
    """Which records to read."""

    LOG = "log"
    QUEUES = "queues"


RecordsOption = Annotated[
    RecordWord,
    typer.Option(
        "--records",
        help="log: every record, including half messages and rollbacks of transactions; "
        "queues: what consumers see, with batches split into messages.",
    ),
]


def check_versions(given: list[str] | None) -> list[str] | None:
    """Refuse unknown RocketMQ versions, as the callback of an option."""
    for one in given or []:
        check_version(one)
    return given


def option_pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Return names and values of ``--broker-option``."""
    pairs = [one.partition("=") for one in given or ()]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise typer.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="'--broker-option'")
    return {name: value for name, _, value in pairs}


BrokerVersionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-version",
        metavar="VERSION",
        callback=check_versions,
        help="Forecast for this RocketMQ version; repeatable [default: the store's own, "
        "4.9.8 and the newest].",
    ),
]
BrokerOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-option",
        metavar="NAME=VALUE",
        help="An option of the broker that decides its recovery, such as "
        "messageIndexSafe=true; repeatable.",
    ),
]
#: Of commands that build files: the broker that is to read them.
BuiltVersionOption = Annotated[
    str | None,
    typer.Option(
        "--broker-version",
        metavar="VERSION",
        callback=check_version,
        help="RocketMQ version to build files for [default: the store's].",
    ),
]
BuiltOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-option",
        metavar="NAME=VALUE",
        help="An option of the broker as in its file, such as "
        "mappedFileSizeConsumeQueue=6000000; repeatable.",
    ),
]


def with_broker(
    settings: MessageStoreConfig, version: str | None, options: Sequence[str] | None
) -> MessageStoreConfig:
    """Return the settings with those of ``--broker-version`` and ``--broker-option``."""
    pairs = option_pairs(options)
    try:
        made = MessageStoreConfig.from_properties(pairs)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="'--broker-option'") from None
    changes: dict[str, Any] = {}
    for entry in made.entries:
        if entry.option is None:
            why = entry.note or "RocketMQ has no such option"
            raise typer.BadParameter(
                f"{entry.key} means nothing here: {why}", param_hint="'--broker-option'"
            )
        changes[entry.option] = getattr(made, entry.option)
    if version is not None:
        changes["broker_version"] = version
    return settings.replace(**changes) if changes else settings
