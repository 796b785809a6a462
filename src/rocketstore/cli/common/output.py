"""Write answers to stdout, as tables for people or as JSON, NDJSON and CSV for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

from rich.text import Text

from rocketstore.cli.common.table import Table, cell, console
from rocketstore.cli.common.text import escape, to_json
from rocketstore.display.csv_lines import CsvLines


class Format(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


def chosen(given: Format | None) -> Format:
    """Return the requested format; by default a table on a terminal and NDJSON in a pipe."""
    if given is not None:
        return given
    return Format.TABLE if sys.stdout.isatty() else Format.NDJSON


def print_json(value: Any) -> None:
    """Write one JSON document."""
    print(to_json(value, indent=2))


def print_line(value: Any) -> None:
    """Write one line of NDJSON in one call, so that an interrupt leaves no partial line."""
    sys.stdout.write(to_json(value) + "\n")


def print_document(document: dict[str, Any], form: Format) -> bool:
    """Write a single answer as JSON, NDJSON or CSV (one name and value per line).

    Return False for a table, which the caller writes.
    """
    if form is Format.JSON:
        print_json(document)
    elif form is Format.NDJSON:
        print_line(document)
    elif form is Format.CSV:
        with Rows(form, ("name", "value")) as out:
            for name, value in document.items():
                out.write({"name": name, "value": value})
    return form is not Format.TABLE


class Rows:
    """Writes items of one kind as they arrive, in the requested format; a context manager.

    Parameters
    ----------
    form : Format
    names : sequence of str
        Column names in CSV; a value that a row lacks is empty.
    table : Table, optional
        Layout of the table format.
    row : callable
        ``row(item)`` returns the cells of the table.
    document : callable
        ``document(item)`` returns names and values for the other formats; by default the item.

    Attributes
    ----------
    count : int
        Items written.
    """

    def __init__(
        self,
        form: Format,
        names: Sequence[str],
        *,
        table: Table | None = None,
        row: Callable[[Any], Sequence[Any]] = tuple,
        document: Callable[[Any], dict[str, Any]] = dict,
    ) -> None:
        self.count = 0
        self._form = form
        self._names = list(names)
        self._table = table
        self._row = row
        self._document = document
        self._csv: Any = None
        self._closed = False

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, item: Any) -> None:
        """Write one item."""
        if self._form is Format.TABLE:
            assert self._table is not None
            self._table.add(self._row(item))
        elif self._form is Format.NDJSON:
            print_line(self._document(item))
        elif self._form is Format.JSON:
            text = to_json(self._document(item), indent=2).replace("\n", "\n  ")
            print("[" if not self.count else ",", f"\n  {text}", sep="", end="")
        else:
            self._write_csv(self._document(item))
        self.count += 1

    def _write_csv(self, document: dict[str, Any]) -> None:
        if self._csv is None:
            self._csv = CsvLines(sys.stdout.write)
            self._csv.row(self._names)
        self._csv.row([_csv_cell(document.get(name)) for name in self._names])

    @property
    def is_table(self) -> bool:
        """Whether items become rows of a table, whose widths need several."""
        return self._form is Format.TABLE

    def flush(self) -> None:
        """Make all written items visible."""
        if self._table is not None and self._form is Format.TABLE:
            self._table.flush()
        sys.stdout.flush()

    def close(self) -> None:
        """Write buffered rows and the end of a JSON document. Idempotent."""
        if self._form is Format.JSON and not self._closed:
            print("\n]" if self.count else "[]")
        self._closed = True
        self.flush()


def _csv_cell(value: Any) -> Any:
    """Format a value for CSV; lists and mappings become JSON, control characters are escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return escape(value) if isinstance(value, str) and sys.stdout.isatty() else value


def print_report(
    summary: dict[str, Any],
    name: str,
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    form: Format,
) -> bool:
    """Print ``rows``, called ``name``, and their summary; CSV has only the rows, with ``columns``.

    Return False for a table: each command prints its own.
    """
    if form is Format.JSON:
        print_json({**summary, name: rows})
    elif form is Format.NDJSON:
        for row in rows:
            print_line(row)
        print_line(summary)
    elif form is Format.CSV:
        with Rows(form, columns) as out:
            for row in rows:
                out.write({column: row.get(column) for column in columns})
    return form is not Format.TABLE


def print_rows(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Iterable[str] = (),
    shrink: Sequence[str] = (),
) -> None:
    """Write a table; the columns named in ``right`` are numbers. Cells are escaped."""
    table = Table(headings, right=right, shrink=shrink)
    for row in rows:
        table.add(row)
    table.flush()


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Write one name and value per line; a list value takes several lines."""
    pairs = list(fields)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines or ["-"]):
            head = name if number == 0 else ""
            print(f"{head:<{width}}  {cell(line)}".rstrip())


def print_text(text: str = "", style: str | None = None) -> None:
    """Write a line of the program's own words (data in it is escaped)."""
    console().print(Text(escape(text), style=style or ""), soft_wrap=True)
