"""Tables that are written as rows arrive and that fit the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from rocketstore.cli.common.text import escape

_GAP = "  "
#: Rows that determine the column widths; later rows keep these widths.
_MEASURED = 500
_NARROWEST = 8


class _PipedConsole(Console):
    """A console that passes a broken pipe on to ``reporting``, which exits with 0."""

    def on_broken_pipe(self) -> None:
        """Re-raise the error that is being handled."""
        raise


def console() -> Console:
    """Return a console on stdout that interprets no markup, links or emoji and never wraps.

    It uses no colours if NO_COLOR is set or TERM is ``dumb``.
    """
    return _PipedConsole(
        file=sys.stdout, markup=False, emoji=False, highlight=False, width=100_000, height=25
    )


def cell(value: Any) -> str:
    """Format a value for a table: escaped, ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value))


class Table:
    """Writes rows under headings.

    Parameters
    ----------
    headings : sequence of str
    right : iterable of str
        Right-aligned columns (numbers).
    shrink : sequence of str
        Columns to shorten on a narrow terminal, in this order; a shortened cell ends in ``…``. A
        line that is still too long ends at the terminal's edge. In a pipe nothing is shortened.
    """

    def __init__(
        self, headings: Sequence[str], *, right: Iterable[str] = (), shrink: Sequence[str] = ()
    ) -> None:
        self._headings = tuple(headings)
        self._right = {self._headings.index(name) for name in right}
        self._shrink = [self._headings.index(name) for name in shrink]
        self._rows: list[list[str]] = []
        self._widths: list[int] = []
        self._room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def add(self, values: Sequence[Any]) -> None:
        """Add a row; it is written as soon as the column widths are known."""
        self._rows.append([cell(value) for value in values])
        if len(self._rows) >= (1 if self._widths else _MEASURED):
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows; write the headings before the first row."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        if not self._widths:
            self._widths = self._fit(rows)
            heading = self._line(list(self._headings))
            if self._room is None:
                print(heading)
            else:
                console().print(Text(heading, style="bold"), soft_wrap=True)
        for row in rows:
            sys.stdout.write(self._line(row) + "\n")  # one call: no partial line
        sys.stdout.flush()

    def _fit(self, rows: list[list[str]]) -> list[int]:
        columns = zip(self._headings, *rows, strict=True)
        widths = [max(map(cell_len, column)) for column in columns]
        if self._room is None:
            return widths
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - self._room
        for number in self._shrink:
            least = max(_NARROWEST, cell_len(self._headings[number]))
            less = min(max(excess, 0), max(widths[number] - least, 0))
            widths[number] -= less
            excess -= less
        return widths

    def _line(self, cells: list[str]) -> str:
        parts = []
        for number, (text, width) in enumerate(zip(cells, self._widths, strict=True)):
            if self._room is not None and number in self._shrink:
                text = cut_to(text, width)
            padding = " " * (width - cell_len(text))
            parts.append(padding + text if number in self._right else text + padding)
        line = _GAP.join(parts).rstrip()
        return line if self._room is None else cut_to(line, self._room)


def cut_to(text: str, width: int) -> str:
    """Shorten ``text`` to ``width`` terminal columns; an ellipsis marks the omission."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""
