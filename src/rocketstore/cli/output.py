"""Where answers go: tables for people, JSON and NDJSON for programs, always on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocketstore.cli.text import escape, to_json

#: Without a terminal nothing is folded or cut.
_WIDE = 100_000


class Format(StrEnum):
    """Forms of an answer."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


def chosen(given: Format | None) -> Format:
    """The form asked for; else a table on a terminal and NDJSON in a pipe."""
    if given is not None:
        return given
    return Format.TABLE if sys.stdout.isatty() else Format.NDJSON


def console() -> Console:
    """A console on stdout that never reads markup, links or emoji out of data."""
    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        markup=False,
        emoji=False,
        highlight=False,
        width=None if terminal else _WIDE,
        soft_wrap=not terminal,
    )


def print_json(value: Any) -> None:
    """Write one JSON document."""
    print(to_json(value, indent=2))


def print_line(value: Any) -> None:
    """Write one line of NDJSON."""
    print(to_json(value))


def print_rows(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[str] = ()
) -> None:
    """Write a table; the columns named in ``right`` are numbers. Cells are escaped."""
    out = console()
    box = SIMPLE_HEAD if out.is_terminal else None
    table = Table(box=box, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    numeric = set(right)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in numeric else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    out.print(table)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Write names and values under each other; lines of a list value follow each other."""
    pairs = list(fields)
    width = max((len(name) for name, _ in pairs), default=0)
    out = console()
    for name, value in pairs:
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines or ["-"]):
            head = name if number == 0 else ""
            out.print(Text(f"{head:<{width}}  {_cell(line)}"), soft_wrap=True)


def print_text(text: str = "", style: str | None = None) -> None:
    """Write a line of our own words (data in it is escaped)."""
    console().print(Text(escape(text), style=style or ""), soft_wrap=True)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value))
