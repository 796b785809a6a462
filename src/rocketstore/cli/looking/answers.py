"""What the commands of this folder share: options, and answers as tables or documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, has_segments, quieten
from rocketstore.cli.common.options import check_path_word, path
from rocketstore.cli.common.output import Format, Rows, print_json, print_line, print_report
from rocketstore.cli.common.table import Table
from rocketstore.cli.common.text import to_json
from rocketstore.config import MessageStoreConfig
from rocketstore.display.quantities import format_span as format_span
from rocketstore.log.damage import DamagedRange

LogPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        parser=path,
        help='The store, its "commitlog" folder, or one segment.',
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        max=256,
        help="Threads [default: the processors, at most 4].",
    ),
]


def check_log_path(where: Path, config: MessageStoreConfig, *, quiet: bool) -> Path:
    """Return a path that may be a log; end the command if there is nothing like it."""
    check_path_word(str(where))
    if quiet:
        quieten()
    if not where.is_file() and not has_segments(where, config):
        check_is_store(where, config=config)
    return where


def as_given(name: str, where: Path) -> str:
    """Return the path of a file below ``where``, beginning as the user wrote it."""
    for root in (os.path.abspath(where), os.path.realpath(where)):
        if name == root or name.startswith(root + os.sep):
            return f"{where}{name[len(root) :]}"
    return name


def damage_rows(damaged: Sequence[DamagedRange]) -> list[dict[str, Any]]:
    """Return corrupt ranges for a document."""
    return [
        {"file": one.path, "position": one.position, "start": one.start, "stop": one.stop,
         "reason": one.reason}
        for one in damaged
    ]  # fmt: skip


def print_answer(
    word: str,
    summary: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    form: Format,
) -> bool:
    """Print an answer with its schema; return False for a table, which each command prints.

    ``word`` is the command. Each row has ``kind``; the summary is the last line of NDJSON.
    """
    head = {"kind": "summary", "schema": f"rocketstore.{word}/1", **summary}
    return print_report(head, "rows", rows, columns, form)


class Answer:
    """Writes rows as they arrive, then a summary, in any format; a context manager.

    Parameters
    ----------
    word : str
        The command.
    columns : sequence of str
        Of CSV, which has no summary.
    form : Format
    table : Table
        Layout of the table; the caller prints what follows it.
    """

    def __init__(self, word: str, columns: Sequence[str], form: Format, table: Table) -> None:
        self.count = 0
        self._word = word
        self._form = form
        self._table = table
        self._csv = Rows(form, columns) if form is Format.CSV else None

    def write(self, row: dict[str, Any], cells: Sequence[Any]) -> None:
        """Write one row: names and values, and the cells of the table."""
        if self._form is Format.TABLE:
            self._table.add(cells)
        elif self._csv is not None:
            self._csv.write(row)
        elif self._form is Format.NDJSON:
            print_line(row)
        else:
            text = to_json(row, indent=2).replace("\n", "\n    ")
            head = "," if self.count else f'{{\n  "schema": "{self._schema}",\n  "rows": ['
            print(head, f"\n    {text}", sep="", end="")
        self.count += 1

    @property
    def _schema(self) -> str:
        return f"rocketstore.{self._word}/1"

    def finish(self, summary: dict[str, Any]) -> None:
        """Write what follows the rows."""
        if self._form is Format.TABLE:
            self._table.flush()
        elif self._csv is not None:
            self._csv.close()
        elif self._form is Format.NDJSON:
            print_line({"kind": "summary", "schema": self._schema, **summary})
        elif not self.count:
            print_json({"schema": self._schema, "rows": [], **summary})
        else:
            rest = to_json(summary, indent=2)[2:]
            print(f"\n  ],\n{rest}")
