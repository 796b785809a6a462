"""Numbers and parts of pages as the charts and tables show them; standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def amount(nanoseconds: float | None) -> str:
    """Return a time with three digits: ``812 ns``, ``1.24 µs``, ``35.0 ms``."""
    if nanoseconds is None:
        return "–"
    for size, unit in _UNITS:
        if nanoseconds >= size:
            value = nanoseconds / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def short_amount(nanoseconds: float) -> str:
    """Return a round time without digits that are zero: ``20 ns``, ``0.5 s``."""
    for size, unit in _UNITS:
        if nanoseconds >= size:
            return f"{nanoseconds / size:g} {unit}"
    return f"{nanoseconds:g} ns"


def per_second(nanoseconds: float | None) -> str:
    """Return how many of these there are in a second, with three digits: ``158,000``."""
    return "–" if not nanoseconds else f"{float(f'{1e9 / nanoseconds:.3g}'):,.0f}"


def times(value: float | None) -> str:
    """Return a ratio: ``0.42``, ``4.52``, ``12``."""
    return "–" if value is None else f"{value:.{2 if value < 10 else 0}f}"


def write_between(page: Path, name: str, made: str, images: Mapping[str, str]) -> None:
    """Write ``made`` between the markers ``name`` of a page, and its images into ``images``.

    Images of an earlier run whose names begin alike are removed.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise SystemExit(f"{page} needs the lines {begin.strip()} and {end.strip()}, each once")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    folder = page.parent / "images"
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{name}-*.svg"):
        old.unlink()
    for image, content in images.items():
        (folder / image).write_text(content, encoding="utf-8")
    page.write_text(f"{head}{begin}\n{made}\n{end}{tail}", encoding="utf-8")
