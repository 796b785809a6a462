"""The race's output: tables as text, everything as JSON, and charts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from race.figures import Figure, Line
from race.page import charts
from race.peers import PeerLine

_NONE = "-"


def nanoseconds(value: float | None) -> str:
    """Return a figure with three digits or all digits before the point."""
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ratio(value: float | None) -> str:
    """Return a ratio with its sign."""
    return _NONE if value is None else f"{value:.2f}x"


def _wall(figure: Figure | None) -> str:
    return nanoseconds(figure.wall if figure is not None else None)


def _cells(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, its first column to the left and the others to the right."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    found = []
    for row in (head, *rows):
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        found.append("  ".join([first, *rest]).rstrip())
    return found


def wall_table(lines: Sequence[Line], jars: Sequence[str]) -> list[str]:
    """Nanoseconds per message by wall time, with the ratios."""
    head = (
        "ns, wall", *jars, "rocketstore", "spread", "reference", "limit", "resident",
        "to better jar", "by CPU", "to limit",
    )  # fmt: skip
    rows = [
        (
            line.name,
            *(_wall(line.jars.get(jar)) for jar in jars),
            _wall(line.native),
            _NONE if line.native is None else f"{line.native.spread:.0%}",
            _wall(line.reference), _wall(line.limit), _wall(line.resident),
            ratio(line.to_jar), ratio(line.to_jar_cpu), ratio(line.to_limit),
        )
        for line in lines
    ]  # fmt: skip
    return _cells(head, rows)


def cpu_table(lines: Sequence[Line], jars: Sequence[str]) -> list[str]:
    """Nanoseconds of CPU time per message: of the calling thread / of the whole process."""

    def both(figure: Figure | None) -> str:
        if figure is None:
            return _NONE
        return f"{nanoseconds(figure.cpu)} / {nanoseconds(figure.process)}"

    head = ("ns, CPU of thread / process", *jars, "rocketstore", "limit")
    rows = [
        (line.name, *(both(line.jars.get(jar)) for jar in jars), both(line.native),
         both(line.limit))
        for line in lines
    ]  # fmt: skip
    return _cells(head, rows)


def meanings(lines: Sequence[Line]) -> list[str]:
    """What each row measures."""
    return [f"{line.name}: {line.meaning}" for line in lines]


def show(
    machine: Mapping[str, Any],
    rounds: int,
    tables: Sequence[tuple[str, str, Sequence[Line]]],
    jars: Sequence[str],
    peers: Sequence[PeerLine],
    remarks: Sequence[str],
    busy: Sequence[str],
) -> None:
    """Print everything."""
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"medians of {rounds} rounds; spread is (max - min) / median of rocketstore's rounds")
    for shape, body, lines in tables:
        if lines:
            print(f"\n{shape} messages, bodies of {body} bytes")
            print("\n".join([*wall_table(lines, jars), "", *cpu_table(lines, jars)]))
    if peers:
        print("\nembedded puts, ns per message by wall time")
        print("\n".join(peer_table(peers)))
    print("\n".join(["", *remarks]))
    listed = {line.name: line for _, _, lines in tables for line in lines}
    print("\n".join(meanings(list(listed.values()))))
    if busy:
        print("\nTHE MACHINE WAS BUSY: these figures are not to be cited.")
        print("\n".join(f"- {sentence}" for sentence in busy))
    else:
        print("\nthe machine was quiet")


def peer_table(lines: Sequence[PeerLine]) -> list[str]:
    """A row for each durability, a column for each store."""
    names = list(dict.fromkeys(name for line in lines for name in line.figures))
    return _cells(
        ("durability", *names),
        [(line.name, *(_wall(line.figures.get(name)) for name in names)) for line in lines],
    )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_charts(folder: Path, content: Mapping[str, Any]) -> None:
    """Draw the charts of the documentation's page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in charts(content).items():
        (folder / name).write_text(chart, encoding="utf-8")
