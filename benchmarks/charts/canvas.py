"""A small writer of SVG pictures, which are readable on light and on dark pages.

A picture has its own paper, so that it needs no particular page, and colours for a dark one. Series
differ by colour and by mark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

#: Colours of the series, on light and on dark paper.
_COLORS = (
    ("#c2304a", "#ff7b8d"),
    ("#1f7a63", "#56d4b0"),
    ("#2f6db5", "#79b8ff"),
    ("#b26a00", "#f2b04c"),
    ("#6b4fa0", "#b79cf2"),
)
_LIGHT = {"paper": "#ffffff", "ink": "#1f2328", "quiet": "#59636e", "grid": "#dde2e8"}
_DARK = {"paper": "#0f141a", "ink": "#e6edf3", "quiet": "#9aa5b1", "grid": "#2b323b"}
_SHAPES = ("circle", "square", "diamond", "triangle", "bar")
#: Mean width of a letter of the smaller text, in pixels.
LETTER = 6.3


def _colors(dark: bool) -> str:
    """Rules for the paper, the words and each series."""
    paper = _DARK if dark else _LIGHT
    rules = [
        f".paper{{fill:{paper['paper']}}}",
        f"text{{fill:{paper['ink']}}}",
        f".quiet{{fill:{paper['quiet']}}}",
        f".grid{{stroke:{paper['grid']}}}",
    ]
    for number, pair in enumerate(_COLORS):
        color = pair[dark]
        rules.append(f".s{number}{{fill:{color};stroke:{color}}}")
        rules.append(f".h{number}{{fill:{paper['paper']};stroke:{color}}}")
        rules.append(f".l{number}{{fill:none;stroke:{color}}}")
    return "".join(rules)


_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}"
    ".title{font-size:15px;font-weight:600}.strong{font-weight:600}.small{font-size:11px}"
    ".grid{stroke-width:1}.mark{stroke-width:1.6}.line{stroke-width:1.8}"
    f"{_colors(dark=False)}@media (prefers-color-scheme:dark){{{_colors(dark=True)}}}"
)


class Canvas:
    """A picture of a fixed width, to which texts, lines and marks are added; it grows downwards."""

    def __init__(self, width: int, title: str) -> None:
        self.width = width
        self._title = title
        self._parts: list[str] = []
        self._bottom = 0.0

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Add a text whose base line is at ``y``; ``kind`` names classes of the style."""
        self._reach(y)
        attributes = f' class="{kind}"' if kind else ""
        if anchor != "start":
            attributes += f' text-anchor="{anchor}"'
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}</text>')

    def rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Add a line of the grid."""
        self._reach(max(y1, y2))
        self._parts.append(
            f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], series: int) -> None:
        """Add a line through these points."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline class="line l{series}" points="{places}"/>')

    def mark(self, x: float, y: float, series: int, name: str = "", hollow: bool = False) -> None:
        """Add the mark of a series; ``name`` is shown by a pointer that rests on it."""
        kind = f'class="mark {"h" if hollow else "s"}{series}"'
        inside = f"<title>{escape(name)}</title>" if name else ""
        match _SHAPES[series]:
            case "circle":
                found = f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="4.2">{inside}</circle>'
            case "square":
                found = (
                    f'<rect {kind} x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2">'
                    f"{inside}</rect>"
                )
            case "diamond":
                found = _polygon(kind, [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)], inside)
            case "triangle":
                corners = [(x, y - 4.8), (x + 4.8, y + 3.8), (x - 4.8, y + 3.8)]
                found = _polygon(kind, corners, inside)
            case _:
                found = (
                    f'<rect {kind} x="{x - 0.8:.1f}" y="{y - 6:.1f}" width="1.6" height="12">'
                    f"{inside}</rect>"
                )
        self._parts.append(found)

    def legend(self, x: float, y: float, names: Sequence[tuple[str, int, bool]]) -> None:
        """Add a row of marks with their names; each has a series, and whether it is hollow."""
        for name, series, hollow in names:
            self.mark(x + 5, y - 4, series, hollow=hollow)
            self.text(x + 15, y, name)
            x += 15 + LETTER * len(name) + 18

    def notes(self, x: float, y: float, text: str) -> float:
        """Add small text in lines that fit; return where the next line would be."""
        most = int((self.width - 2 * x) / (LETTER * 0.92))
        line = ""
        for word in text.split():
            if line and len(line) + 1 + len(word) > most:
                self.text(x, y, line, "quiet small")
                y, line = y + 15, word
            else:
                line = f"{line} {word}".strip()
        self.text(x, y, line, "quiet small")
        return y + 15

    def render(self) -> str:
        """Return the file."""
        height = math.ceil(self._bottom + 12)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" '
            f'viewBox="0 0 {self.width} {height}" role="img">'
        )
        paper = f'<rect class="paper" width="{self.width}" height="{height}" rx="6"/>'
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join(
            [head, title, f"<style>{_STYLE}</style>", paper, *self._parts, "</svg>", ""]
        )

    def _reach(self, y: float) -> None:
        self._bottom = max(self._bottom, y)


def _polygon(kind: str, corners: Sequence[tuple[float, float]], inside: str) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon {kind} points="{places}">{inside}</polygon>'


class LogAxis:
    """Places of positive values between two pixels, by their logarithms.

    Parameters
    ----------
    values : sequence of float
        All of them lie on the axis.
    first, last : float
        Pixels of the axis's ends.
    """

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        least, most = math.log10(min(values)), math.log10(max(values))
        # At least a decade, so that what hardly grows is drawn as flat.
        missing = max(0.0, 1.0 - (most - least)) / 2
        self._low, self._high = least - missing - 0.06, most + missing + 0.06
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Return round values on the axis: powers of ten, on a short axis twos and fives too."""
        steps = (1, 2, 5) if self._high - self._low < 3.2 else (1,)
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        found = [step * 10.0**power for power in powers for step in steps]
        return [value for value in found if self._low <= math.log10(value) <= self._high]
