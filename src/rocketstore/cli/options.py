"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketstore.cli.output import Format

StorePath = Annotated[
    Path, typer.Argument(metavar="PATH", help='The store: the directory that holds "commitlog".')
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        show_default=False,
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
