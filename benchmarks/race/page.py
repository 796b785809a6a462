"""Write the figures of a race into the documentation: ``python -m race.page race.json [page]``.

The tables come between the markers of the page, which keeps everything else, and the charts into
the folder ``images`` beside it. Standard library alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from charts.dots import DotRow, dots
from charts.texts import amount, per_second, times, write_between

from race.machine import ROOT, described
from race.rows import FAMILIES

PAGE = ROOT / "docs" / "performance.md"
#: What the first column of a family's table says, and whether figures are messages a second.
_HEADS = {
    "puts": ("put", False),
    "group_commit": ("durable puts a second", True),
    "threads": ("several threads, messages a second", True),
    "reads": ("read", False),
    "opens": ("open", False),
}
#: Headings of the rows in the chart, and the families of each chart.
_TITLES = {
    "puts": "puts", "group_commit": "durable puts", "threads": "several threads", "reads": "reads",
    "opens": "opening",
}  # fmt: skip
_CHARTS = {"": ("puts", "threads", "reads", "opens"), "-durable": ("group_commit",)}
#: An opening is no message: its time would be far from the others.
_NOT_DRAWN = "open_clean"


def _row(row: Mapping[str, Any], jars: Sequence[str], *, rate: bool) -> str:
    native, limit = row["native"], row["limit"]
    shown = per_second if rate else amount
    meaning = row["meaning"]
    # What the chart calls the row.
    if row["name"] not in meaning and not rate:
        meaning = f"{row['name']}: {meaning}"
    cells = [
        meaning,
        *(shown(row["jars"].get(jar, {}).get("wall")) for jar in jars),
        shown(native["wall"]),
        f"{native['spread']:.0%}",
        shown(None if limit is None else limit["wall"]),
        times(row["to_jar"]),
        times(row["to_jar_cpu"]),
    ]
    return f"| {' | '.join(cells)} |"


def _jars(found: Mapping[str, Any]) -> list[str]:
    return sorted({jar for row in found["rows"] for jar in row["jars"]})


def _version(jar: str) -> str:
    return jar.replace("jar ", "RocketMQ ")


def tables(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of each family of one message set."""
    jars = _jars(found)
    for family in FAMILIES:
        rows = [row for row in found["rows"] if row["family"] == family and row["native"]]
        if rows:
            title, rate = _HEADS[family]
            head = [
                title, *map(_version, jars), "rocketstore", "spread", "C limit", "times as fast",
                "by CPU",
            ]  # fmt: skip
            lines = [f"| {' | '.join(head)} |", "|---|" + "---|" * (len(head) - 1)]
            yield "\n".join([*lines, *(_row(row, jars, rate=rate) for row in rows)])


def _chart(found: Mapping[str, Any], title: str, notes: str, families: Sequence[str]) -> str:
    """Return the chart of these families; empty without a row."""
    jars = _jars(found)
    rows = []
    for row in found["rows"]:
        if row["family"] in families and row["native"] and row["name"] != _NOT_DRAWN:
            values = {_version(jar): figure["wall"] for jar, figure in row["jars"].items()}
            values["rocketstore"] = row["native"]["wall"]
            if row["limit"]:
                values["C limit"] = row["limit"]["wall"]
            rows.append(DotRow(_TITLES[row["family"]], row["name"], values, row["to_jar"]))
    contestants = {"rocketstore": 0, **{_version(jar): at for at, jar in enumerate(jars[:3], 1)}}
    return dots(_capital(title), notes, {**contestants, "C limit": 4}, rows) if rows else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _title(found: Mapping[str, Any]) -> str:
    return f"{found['messages']} messages, bodies of {found['body']} bytes"


def charts(race: Mapping[str, Any]) -> dict[str, str]:
    """Return the charts by their names of files."""
    made = {}
    for found in race["tables"]:
        for suffix, families in _CHARTS.items():
            about = "durable puts of " if suffix else ""
            chart = _chart(found, f"{about}{_title(found)}", conditions(race), families)
            if chart:
                made[f"race-{found['messages']}-{found['body']}{suffix}.svg"] = chart
    return made


def conditions(race: Mapping[str, Any]) -> str:
    """Return in sentences where and how the figures were measured."""
    machine, settings = race["machine"], race["settings"]["options"]
    java = machine["java"].split('"')[1:2]
    found = (
        f"{described(machine)}{''.join(f', Java {version}' for version in java)}; "
        f"{settings['mib']} MiB of log in each store, medians of {race['rounds']} rounds."
    )
    if race["busy"]:
        found += f" The machine was busy: {'; '.join(race['busy'])}."
    return found


def peer_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of embedded stores: time of a put by durability."""
    names = list(dict.fromkeys(name for line in lines for name in line["figures"]))
    rows = [f"| durability | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for line in lines:
        found = (line["figures"].get(name) for name in names)
        cells = (amount(None if figure is None else figure["wall"]) for figure in found)
        rows.append(f"| {line['name']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def section(race: Mapping[str, Any]) -> str:
    """Return everything between the markers."""
    images = charts(race)
    parts = [conditions(race)]
    for found in race["tables"]:
        if not found["rows"]:
            continue
        parts.append(f"**{_capital(_title(found))}**")
        for suffix in _CHARTS:
            name = f"race-{found['messages']}-{found['body']}{suffix}.svg"
            if name in images:
                about = "durable put" if suffix else "message or call"
                parts.append(f"![Time of a {about} by contestant](images/{name})")
        parts += tables(found)
    if race["peers"]:
        parts += ["**Embedded stores: time of a put**", peer_table(race["peers"])]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    page = Path(arguments[1]) if len(arguments) > 1 else PAGE
    race = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    write_between(page, "race", section(race), charts(race))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
