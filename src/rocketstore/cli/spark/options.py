"""Arguments and options that several Spark commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rocketstore.cli.common.options import (
    check_path_word,
    check_size,
    check_version,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import ConfigError

SourcePath = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        callback=check_path_word,
        help="The store or its commitlog: a directory or a URI.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Where Spark runs [default: all cores of this machine]."
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable."),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="An fsspec option for the URI's file system; repeatable.",
    ),
]
SplitOption = Annotated[
    str,
    typer.Option(
        "--split-size",
        metavar="SIZE",
        callback=check_size,
        help="Bytes of the log per task.",
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", callback=check_words, help="Only this topic; repeatable."
    ),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", callback=check_words, help="Only messages with this tag; repeatable."),
]
KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        "-k",
        metavar="KEY",
        callback=check_words,
        help="Only messages with this key; repeatable.",
    ),
]
UnpackOption = Annotated[
    bool,
    typer.Option(
        "--unpack/--as-stored",
        help="Decompress bodies, or keep them compressed without their compression flag.",
    ),
]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker-version",
        metavar="VERSION",
        callback=check_version,
        help="RocketMQ version whose format to write, e.g. 5.3.3 [default: the store's].",
    ),
]


def configured_log(path: str, config: Path | None) -> tuple[str, MessageStoreConfig]:
    """Return what Spark reads, and the settings of ``--config``.

    That is ``path``, or the log's folder if the file places it elsewhere. A log in several folders
    ends the command.
    """
    settings = store_config(config)
    if not settings.store_path_commit_log or "://" in path:
        return path, settings
    paths = StorePaths.of(Path(path), settings)
    try:
        paths.refuse_several_logs("is not read by Spark")
    except ConfigError as error:
        raise fail(ExitCode.USAGE, str(error)) from None
    log = paths.commit_log
    inside = StorePaths.of(Path(path), MessageStoreConfig()).commit_log
    is_inside = os.path.realpath(log) == os.path.realpath(inside)
    return (path if is_inside else str(log)), settings
