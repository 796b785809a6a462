"""Write the tables of a race into the documentation: ``python -m race.page race.json [page]``.

The page keeps everything outside its markers. Standard library alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- race: begin -->\n", "<!-- race: end -->\n"
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


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.{2 if value < 10 else 0}f}"


def _row(row: Mapping[str, Any], jars: Sequence[str]) -> str:
    native, limit = row["native"], row["limit"]
    cells = [
        row["meaning"],
        *(amount(row["jars"].get(jar, {}).get("wall")) for jar in jars),
        amount(native["wall"]),
        f"{native['spread']:.0%}",
        amount(None if limit is None else limit["wall"]),
        _times(row["to_jar"]),
        _times(row["to_jar_cpu"]),
    ]
    return f"| {' | '.join(cells)} |"


def table(found: Mapping[str, Any]) -> str:
    """Return the table of one message set."""
    jars = sorted({jar for row in found["rows"] for jar in row["jars"]})
    head = [
        "work", *(jar.replace("jar ", "RocketMQ ") for jar in jars), "rocketstore", "spread",
        "C limit", "times as fast", "by CPU",
    ]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---|" + "---|" * (len(head) - 1)]
    lines += [_row(row, jars) for row in found["rows"] if row["native"] is not None]
    return "\n".join(lines)


def section(race: Mapping[str, Any]) -> str:
    """Return everything between the markers."""
    machine, settings = race["machine"], race["settings"]["options"]
    processors = f"{machine['processors']} processors ({machine['cpu']})"
    parts = [
        f"{processors}, {machine['memory_gib']} GiB, {machine['system'].split('-')[0]}, "
        f"{machine['file_system']}; Python {machine['python']}, Java "
        f"{machine['java'].split(chr(34))[1]}; {settings['mib']} MiB of log in each store, medians "
        f"of {race['rounds']} rounds.",
    ]
    if race["busy"]:
        parts.append("The machine was busy: " + "; ".join(race["busy"]) + ".")
    for found in race["tables"]:
        parts.append(
            f"**{found['messages'].capitalize()} messages, bodies of {found['body']} bytes**"
        )
        parts.append(table(found))
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    page = Path(arguments[1]) if len(arguments) > 1 else PAGE
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    made = section(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    page.write_text(f"{head}{BEGIN}\n{made}\n{END}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
