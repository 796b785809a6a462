"""Write the figures of growth into the documentation: ``python -m growth.page growth.json [page]``.

The tables come between the markers of the page, which keeps everything else, and the charts into
the folder ``images`` beside it. Standard library alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from charts.curves import curves
from charts.texts import amount, times, write_between
from race.machine import ROOT, described

PAGE = ROOT / "docs" / "performance.md"


def title(curve: Mapping[str, Any]) -> str:
    """Return what a curve shows."""
    return f"Time of each {curve['of']}, by {curve['label']}"


def table(curve: Mapping[str, Any]) -> str:
    """Return a curve's figures, and the ratios of the last point to the first."""
    points = curve["points"]
    names = list(points[0][1])
    lines = [f"| {curve['label']} | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for x, figures in points:
        lines.append(f"| {x:,} | {' | '.join(amount(figures[name]) for name in names)} |")
    ratios = [points[-1][1][name] / points[0][1][name] for name in names]
    lines.append(f"| last / first | {' | '.join(map(times, ratios))} |")
    return "\n".join(lines)


def conditions(found: Mapping[str, Any]) -> str:
    """Return in sentences where and how the figures were measured."""
    text = f"{described(found['machine'])}; points of at most {found['count']:,} puts."
    if found["quick"]:
        text += " A trial with few messages."
    if found["busy"]:
        text += f" The machine was busy: {'; '.join(found['busy'])}."
    return text


def charts(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the charts by their names of files."""
    notes = conditions(found)
    return {
        f"growth-{curve['name']}.svg": curves(title(curve), curve["label"], notes, curve["points"])
        for curve in found["curves"]
    }


def section(found: Mapping[str, Any]) -> str:
    """Return everything between the markers."""
    parts = [conditions(found)]
    for curve in found["curves"]:
        parts.append(f"**{title(curve)}**")
        parts.append(f"![{title(curve)}](images/growth-{curve['name']}.svg)")
        parts.append(table(curve))
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    page = Path(arguments[1]) if len(arguments) > 1 else PAGE
    found = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    write_between(page, "growth", section(found), charts(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
