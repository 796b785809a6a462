"""Rows of CSV that every reader reads back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from typing import Any

_END = "\r\n"


class CsvLines:
    """Writes rows of CSV; lines end with a line feed.

    Values with a carriage return are quoted, too: readers take one for the end of a line. Python's
    writer quotes only the characters of its own line end, so it writes both.

    Parameters
    ----------
    write : callable
        Gets the text of each row.
    """

    def __init__(self, write: Callable[[str], Any]) -> None:
        self._write = write
        self._writer = csv.writer(self, lineterminator=_END)

    def row(self, values: Iterable[Any]) -> None:
        """Write one row."""
        self._writer.writerow(values)

    def write(self, text: str) -> None:
        """Take a row from the writer."""
        self._write(text.removesuffix(_END) + "\n")


def csv_cell(value: Any) -> Any:
    """Return a value as a cell has it: maps and lists as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value
