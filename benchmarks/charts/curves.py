"""The chart of a growth: lines through points, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from charts.canvas import Canvas, LogAxis
from charts.texts import amount, short_amount

WIDTH, HEIGHT = 640, 250
_LEFT, _TOP = 68, 68


def curves(
    title: str, label: str, notes: str, points: Sequence[tuple[float, Mapping[str, float]]]
) -> str:
    """Return a chart of points (x, {series: nanoseconds}); ``label`` names x."""
    canvas = Canvas(WIDTH, title)
    names = list(points[0][1])
    xs = [x for x, _ in points]
    across = LogAxis(xs, _LEFT, WIDTH - 24)
    bottom = _TOP + HEIGHT
    down = LogAxis([value for _, series in points for value in series.values()], bottom, _TOP)
    canvas.text(16, 26, title, "title")
    canvas.legend(16, 50, [(name, number, False) for number, name in enumerate(names)])
    for tick in down.ticks():
        canvas.rule(_LEFT, down(tick), WIDTH - 16, down(tick))
        canvas.text(_LEFT - 8, down(tick) + 4, short_amount(tick), "quiet small", "end")
    canvas.rule(_LEFT, bottom, WIDTH - 16, bottom)
    for x in xs:
        canvas.rule(across(x), bottom, across(x), bottom + 4)
        canvas.text(across(x), bottom + 17, f"{x:,}", "quiet small", "middle")
    canvas.text((_LEFT + WIDTH - 16) / 2, bottom + 36, label, "", "middle")
    for number, name in enumerate(names):
        places = [(across(x), down(series[name])) for x, series in points]
        canvas.path(places, number)
        for (x, series), place in zip(points, places, strict=True):
            canvas.mark(*place, number, f"{name}, {x:,} {label}: {amount(series[name])}")
    canvas.notes(16, bottom + 58, f"Both axes are logarithmic. {notes}")
    return canvas.render()
