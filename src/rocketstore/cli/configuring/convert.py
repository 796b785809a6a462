"""``rocketstore config convert``: a broker's file rewritten for another RocketMQ version."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rocketstore.broker_file.conversion import ConvertedConfig
from rocketstore.cli.common.options import FormatOption, path
from rocketstore.cli.common.outcome import ExitCode, answering, complain, fail
from rocketstore.cli.common.output import chosen, print_report, print_text
from rocketstore.cli.common.quantities import counted
from rocketstore.cli.common.streams import OUTPUT_NAME
from rocketstore.cli.common.text import escape
from rocketstore.cli.configuring.lint import (
    ROW_NAMES,
    counts_of,
    print_remarks,
    remark_rows,
)
from rocketstore.config import convert_config
from rocketstore.files import durable

#: RocketMQ reads a file in this encoding.
_ENCODING = "iso-8859-1"


def convert(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", parser=path, help="A broker's configuration file."),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="VERSION", help="4.9 (4.9.8), 5.x (5.5.0) or one such as 5.3.3."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=path,
            help="Write the new file here; an existing file is never replaced [default: stdout].",
        ),
    ] = None,
    form: FormatOption = None,
) -> None:
    """Rewrite a broker's file for another RocketMQ version.

    Comments, order and values stay. Keys that the version calls otherwise are renamed; those that
    it does not read become comments. Without --output the new file goes to stdout and the changes
    to stderr; with it the changes go to stdout in the given format, followed by what "config lint"
    remarks about the new file. The exit status is 1 if a key became a comment.

    \b
    Examples:
      rocketstore config convert broker.conf --to 5.x > new.conf
      rocketstore config convert broker.conf --to 4.9 -o old.conf
      rocketstore config convert broker.conf --to 5.3.3 -o new.conf --format ndjson
    """
    made = convert_config(file, to)
    if output is None:
        for change in made.changes:
            place = f"{file}:{change.line}" if change.line else str(file)
            complain(f"{place}: {change.option}: {change.reason}")
        _write_to_stdout(made.text)
    else:
        _create(output, made.text)
        with answering(f"the new file is {output}"):
            _print(file, output, made, form)
    if any(change.code == "unknown" for change in made.changes):
        raise typer.Exit(int(ExitCode.FINDINGS))


def _write_to_stdout(text: str) -> None:
    """Write the file's own bytes; on a terminal, without control characters."""
    if sys.stdout.isatty():
        print(escape(text, keep="\n\t"), end="")
        return
    sys.stdout.flush()
    try:
        sys.stdout.buffer.write(text.encode(_ENCODING))
        sys.stdout.buffer.flush()
    except OSError as error:
        error.filename = OUTPUT_NAME
        raise


def _create(output: Path, text: str) -> None:
    """Write a file that was not there, whole or not at all."""
    try:
        with open(output, "xb") as file:
            try:
                file.write(text.encode(_ENCODING))
                file.flush()
                durable.sync_descriptor(file.fileno())
            except BaseException:
                output.unlink()
                raise
    except FileExistsError:
        words = f"{output} is there already; give the new file another name"
        raise fail(ExitCode.UNSAFE, words) from None
    durable.sync_directory(output.parent)


def _print(file: Path, output: Path, made: ConvertedConfig, form: FormatOption) -> None:
    rows = remark_rows(made.changes, "change") + remark_rows(made.remarks)
    renamed = sum(change.code == "renamed" for change in made.changes)
    dropped = len(made.changes) - renamed
    summary = {
        "kind": "summary",
        "schema": "rocketstore.config-convert/1",
        "path": str(file),
        "output": str(output),
        "version": made.version,
        "renamed": renamed,
        "dropped": dropped,
        **counts_of(made.remarks),
    }
    if print_report(summary, "rows", rows, ROW_NAMES, chosen(form)):
        return
    if made.changes:
        print_remarks(made.changes)
        print_text()
    print_text(
        f"{output}: for RocketMQ {made.version}; {counted(renamed, 'key')} renamed, "
        f"{dropped} made a comment."
    )
    if made.remarks:
        print_text()
        print_text("Remarks about the new file:")
        print_remarks(made.remarks)
