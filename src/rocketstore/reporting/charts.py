"""Charts as inline SVG, without text in them: a table beside each has the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from rocketstore.reporting.markup import Cell, Html, join, tag

_WIDTH = 10
_HEIGHT = 100
#: Columns that a chart has room for at least, so that a single one is no wall.
LEAST_COLUMNS = 12

#: States of a stretch of the log, and what each is called; every one has a shape of its own.
MAP_STATES = {
    "healthy": "healthy",
    "next": "expires next",
    "damaged": "damaged",
    "missing": "missing",
    "empty": "no messages yet",
}
_SHAPES = {
    "healthy": (("rect", {"x": 1, "y": 1, "width": 14, "height": 14, "class_": "mark"}),),
    "next": (
        ("rect", {"x": 1.75, "y": 1.75, "width": 12.5, "height": 12.5, "class_": "box"}),
        ("rect", {"x": 1, "y": 8, "width": 14, "height": 7, "class_": "soon"}),
    ),
    "damaged": (
        ("rect", {"x": 1, "y": 1, "width": 14, "height": 14, "class_": "hurt"}),
        ("path", {"d": "M4 4L12 12M12 4L4 12", "class_": "cross"}),
    ),
    "missing": (("rect", {"x": 1.75, "y": 1.75, "width": 12.5, "height": 12.5, "class_": "gone"}),),
    "empty": (("rect", {"x": 1.75, "y": 1.75, "width": 12.5, "height": 12.5, "class_": "box"}),),
}


def columns(
    title: str,
    values: Sequence[float],
    labels: Sequence[str],
    *,
    scale: Sequence[str],
    top: float,
    ticks: Sequence[str],
) -> Html:
    """Return a chart of columns as wide as the page, with a scale at its left and below it.

    Parameters
    ----------
    title : str
    values : sequence of float
        Not negative, at most ``top``; fewer than ``LEAST_COLUMNS`` leave the end empty.
    labels : sequence of str
        What each column stands for, for its tooltip.
    scale : sequence of str
        Names of equally distant lines, that at ``top`` first and that at 0 last.
    top : float
        The value as high as the chart.
    ticks : sequence of str
        Names of equally distant places from the left edge to the right one.
    """
    width = max(len(values), LEAST_COLUMNS) * _WIDTH
    steps = len(scale) - 1
    lines = "".join(f"M0 {round(one * _HEIGHT / steps, 2)}H{width}" for one in range(steps))
    marks = [tag("path", d=lines, class_="line")]
    for place, (value, label) in enumerate(zip(values, labels, strict=True)):
        height = max(value / (top or 1) * _HEIGHT, 1.0 if value else 0.0)
        marks.append(
            tag("rect", tag("title", label), x=place * _WIDTH + 1, y=round(_HEIGHT - height, 2),
                width=_WIDTH - 2, height=round(height, 2), class_="mark")
        )  # fmt: skip
    chart = tag(
        "svg", tag("title", title), *marks,
        class_="chart", role="img", preserveAspectRatio="none", aria_label=title,
        viewBox=f"0 0 {width} {_HEIGHT}",
    )  # fmt: skip
    axis = tag("div", *(tag("span", one) for one in scale), class_="axis", aria_hidden="true")
    below = tag("figcaption", *(tag("span", one) for one in ticks))
    return tag("figure", axis, chart, below, class_="plot")


def round_size(nbytes: float) -> int:
    """Return the least even round size in binary units that is at least ``nbytes``."""
    unit = 1
    while nbytes > 768 * unit:
        unit *= 1024
    steps = (
        1 if unit > 1 else 2,
        2,
        4,
        6,
        8,
        12,
        16,
        24,
        32,
        48,
        64,
        96,
        128,
        192,
        256,
        384,
        512,
        768,
    )
    return next(one for one in steps if one * unit >= nbytes) * unit


def bar(title: str, share: float) -> Html:
    """Return one bar of a table's row: ``share`` from 0 to 1 of its width."""
    part = min(max(share, 0.0), 1.0) * _HEIGHT
    part = max(part, 0.8) if share > 0 else 0
    return tag(
        "svg",
        tag("title", title),
        tag("rect", x=0, y=0, width=_HEIGHT, height=10, class_="rest"),
        tag("rect", x=0, y=0, width=round(part, 2), height=10, class_="mark"),
        class_="bar", role="img", preserveAspectRatio="none", viewBox=f"0 0 {_HEIGHT} 10",
    )  # fmt: skip


def bar_cell(title: str, share: float) -> Cell:
    """Return a cell with a bar, in a column that takes the room which others leave."""
    return Cell(bar(title, share), share, "g")


def symbols() -> Html:
    """Return the shapes that ``map_cell`` refers to; once on a page."""
    shapes = [
        tag("symbol", *(tag(name, **kind) for name, kind in parts), id=f"m-{state}",
            viewBox="0 0 16 16")
        for state, parts in _SHAPES.items()
    ]  # fmt: skip
    return tag("svg", *shapes, class_="none", aria_hidden="true")


def map_cell(state: str, title: str) -> Html:
    """Return one stretch of the log."""
    return tag("svg", tag("title", title), tag("use", href=f"#m-{state}"), role="img")


def map_key(states: Sequence[str]) -> Html:
    """Return what the shapes mean."""
    return tag("ul", *(
        tag("li", map_cell(one, MAP_STATES[one]), tag("span", MAP_STATES[one])) for one in states
    ), class_="key")  # fmt: skip


def log_map(cells: Sequence[tuple[str, str]]) -> Html:
    """Return the map of a log: a square for each stretch, in order; ``(state, title)``."""
    used = [state for state in MAP_STATES if any(one == state for one, _ in cells)]
    squares = [map_cell(state, title) for state, title in cells]
    return join((tag("div", *squares, class_="map"), map_key(used)))
