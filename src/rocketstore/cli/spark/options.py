"""Arguments and options that several Spark commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rocketstore.cli.common.options import check_path_word, check_size, check_version, check_words

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
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's; may be repeated."),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="For the file system of a URI, as fsspec takes it; may be repeated.",
    ),
]
SplitOption = Annotated[
    str,
    typer.Option(
        "--split-size",
        metavar="SIZE",
        callback=check_size,
        help="How much of the log one task reads.",
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", callback=check_words, help="Only this topic; may be given several times."
    ),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", callback=check_words, help="Only messages with this tag; may be repeated."
    ),
]
KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key", "-k", callback=check_words, help="Only messages with this key; may be repeated."
    ),
]
UnpackOption = Annotated[
    bool,
    typer.Option(
        "--unpack/--as-stored",
        help="Unpack compressed bodies; as stored, nothing tells any more that they are packed.",
    ),
]


class Corruption(StrEnum):
    """What to do about a damaged place."""

    FAIL = "fail"
    SKIP = "skip"
    STOP = "stop"


CorruptionOption = Annotated[
    Corruption,
    typer.Option(
        "--on-corruption",
        help="At damage, or where a segment is missing: fail, skip to the next good record, or "
        "stop (read up to it).",
    ),
]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker-version",
        metavar="VERSION",
        callback=check_version,
        help="Write what this line of RocketMQ writes, such as 5.3.3 [default: the store's].",
    ),
]
