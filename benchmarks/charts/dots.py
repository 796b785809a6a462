"""The chart of a race: a row for each measurement, a mark for each contestant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from charts.canvas import LETTER, Canvas, LogAxis
from charts.texts import amount, short_amount, times

WIDTH = 760
_TOP, _ROW, _GAP, _RIGHT = 78, 19, 12, 64


@dataclass(frozen=True)
class DotRow:
    """One measurement.

    Attributes
    ----------
    group, name : str
        Rows of one group stand below its heading.
    values : mapping of str to float
        Nanoseconds by contestant.
    ratio : float or None
        Shown at the end of the row.
    """

    group: str
    name: str
    values: Mapping[str, float]
    ratio: float | None


def dots(title: str, notes: str, contestants: Mapping[str, int], rows: Sequence[DotRow]) -> str:
    """Return a chart; ``contestants`` are numbers of series, and series 0 has filled marks."""
    canvas = Canvas(WIDTH, title)
    present = {name for row in rows for name in row.values}
    contestants = {name: series for name, series in contestants.items() if name in present}
    left = 44 + LETTER * max(len(row.name) for row in rows)
    right = WIDTH - _RIGHT
    axis = LogAxis([value for row in rows for value in row.values.values()], left, right - 12)
    groups = list(dict.fromkeys(row.group for row in rows))
    bottom = _TOP + len(rows) * _ROW + len(groups) * (_ROW + _GAP)
    canvas.text(16, 26, title, "title")
    canvas.legend(16, 48, [(name, series, series > 0) for name, series in contestants.items()])
    canvas.text(WIDTH - 16, 48, "times as fast", "quiet small", "end")
    canvas.text(WIDTH - 16, 61, "as the better jar", "quiet small", "end")
    for tick in axis.ticks():
        canvas.rule(axis(tick), _TOP, axis(tick), bottom)
        canvas.text(axis(tick), bottom + 16, short_amount(tick), "quiet small", "middle")
    y = float(_TOP)
    for group in groups:
        y += _GAP + _ROW
        canvas.text(16, y - 5, group, "strong")
        for row in rows:
            if row.group == group:
                y += _ROW
                _draw(canvas, axis, row, contestants, y - 5)
    canvas.notes(16, bottom + 38, f"Time of a message or call, logarithmic. {notes}")
    return canvas.render()


def _draw(
    canvas: Canvas, axis: LogAxis, row: DotRow, contestants: Mapping[str, int], y: float
) -> None:
    canvas.text(24, y, row.name)
    places = [axis(value) for value in row.values.values()]
    canvas.rule(min(places), y - 4, max(places), y - 4)
    for name, series in sorted(contestants.items(), key=lambda pair: -pair[1]):
        value = row.values.get(name)
        if value is not None:
            canvas.mark(axis(value), y - 4, series, f"{name}: {amount(value)}", series > 0)
    canvas.text(WIDTH - 16, y, times(row.ratio), "strong" if row.ratio else "quiet", "end")
