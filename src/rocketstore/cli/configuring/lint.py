"""``rocketstore config lint``: what in a broker's file does not do what it seems to."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.broker_file.lint import ConfigRemark
from rocketstore.cli.common.options import FormatOption, path
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import chosen, print_report, print_rows, print_text
from rocketstore.cli.common.quantities import counted
from rocketstore.config import lint_config

#: Names of a row.
ROW_NAMES = ("kind", "line", "option", "severity", "code", "reason")
_COLUMNS = ROW_NAMES[1:]
_SEVERITIES = ("error", "warning", "note")


def lint(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", parser=path, help="A broker's configuration file."),
    ],
    version: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="VERSION",
            help="The RocketMQ version that will read it: 4.9, 5.x or one such as 5.3.3 "
            "[default: any].",
        ),
    ] = None,
    form: FormatOption = None,
) -> None:
    """List what in a broker's file does not do what it seems to.

    Codes: "unknown" (no RocketMQ, or not this version, reads the key), "ignored" (the key or value
    has no effect), "dangerous" (data or a start is at risk), "contradicts" (another key says
    otherwise), "renamed" (the version has another name for it). With an "error" the broker does not
    start, loses data, or takes another value than the file's. The exit status is 1 if there is an
    error or a warning; notes leave it 0.

    \b
    Examples:
      rocketstore config lint broker.conf
      rocketstore config lint broker.conf --for 5.3.3
      rocketstore config lint broker.conf --format ndjson | jq 'select(.severity == "error")'
    """
    remarks = lint_config(file, version)
    rows = remark_rows(remarks)
    summary = {
        "kind": "summary",
        "schema": "rocketstore.config-lint/1",
        "path": str(file),
        "version": version,
        **counts_of(remarks),
    }
    if not print_report(summary, "rows", rows, ROW_NAMES, chosen(form)):
        if remarks:
            print_remarks(remarks)
            print_text()
        print_text(sentence_of(remarks))
    if any(one.severity != "note" for one in remarks):
        raise typer.Exit(int(ExitCode.FINDINGS))


def remark_rows(remarks: Sequence[ConfigRemark], kind: str = "remark") -> list[dict[str, Any]]:
    """Return remarks as rows of a document."""
    return [
        {"kind": kind, **{name: getattr(remark, name) for name in _COLUMNS}} for remark in remarks
    ]


def print_remarks(remarks: Sequence[ConfigRemark]) -> None:
    """Write remarks as a table."""
    cells = [tuple(getattr(remark, name) for name in _COLUMNS) for remark in remarks]
    print_rows(_COLUMNS, cells, right=("line",), shrink=("option",))


def counts_of(remarks: Sequence[ConfigRemark]) -> dict[str, int]:
    """Return how many remarks are errors, warnings and notes."""
    counts: collections.Counter[str] = collections.Counter(one.severity for one in remarks)
    return {f"{severity}s": counts[severity] for severity in _SEVERITIES}


def sentence_of(remarks: Sequence[ConfigRemark]) -> str:
    """Return the counts for people."""
    if not remarks:
        return "Nothing to remark."
    counts: collections.Counter[str] = collections.Counter(one.severity for one in remarks)
    return ", ".join(counted(counts[one], one) for one in _SEVERITIES if counts[one]) + "."
