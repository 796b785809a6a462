"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from rocketstore import formats
from rocketstore.cli.output import Format


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Topics of the store that the command line names already, for the shell's completion."""
    # With a word missing behind it the path may not have been taken for a parameter yet.
    root = context.params.get("path") or next(iter(context.args), None)
    if not isinstance(root, str | os.PathLike):
        return []
    names: set[str] = set()
    for part in (formats.CONSUME_QUEUE_DIR, formats.BATCH_QUEUE_DIR):
        with contextlib.suppress(OSError):
            names.update(os.listdir(Path(root) / part))
    return sorted(name for name in names if name.startswith(incomplete) and name.isprintable())


StorePath = Annotated[
    Path, typer.Argument(metavar="PATH", help='The store: the directory that holds "commitlog".')
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        show_default=False,
        envvar="ROCKETSTORE_FORMAT",
        help="Form of the answer [default: table on a terminal, ndjson in a pipe].",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")
]
TagsOption = Annotated[
    str | None,
    typer.Option("--tags", metavar="EXPR", help='Only these tags: "A" or "A || B".'),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        help="Only this topic; may be given several times.",
        autocompletion=complete_topics,
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", help="One of the message's keys, as a whole.")
]
UniqueKeyOption = Annotated[
    str | None, typer.Option("--unique-key", "-u", help="The message's unique key.")
]
BodyOption = Annotated[
    str | None,
    typer.Option(
        "--body-contains",
        "-b",
        metavar="TEXT",
        help="The body as it is stored holds this text (UTF-8).",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Messages at most [default: all].")
]
BeginOption = Annotated[
    str | None,
    typer.Option(
        "--begin",
        metavar="TIME",
        help="Stored at or after: epoch ms, ISO 8601, or -2h (two hours ago).",
    ),
]
EndOption = Annotated[
    str | None, typer.Option("--end", metavar="TIME", help="Stored before this time.")
]
