"""Write ``docs/compatibility.md`` from the results of the last run of ``make interop``.

Usage: ``python tools/gen_compatibility.py``. The results are files in ``build/interop/results``. A
case or version without results is an error, and so is a store that failed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
RESULTS = ROOT / "build" / "interop" / "results"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

#: Cases with their own test, besides those that run on seeds.
OTHERS = {
    "rebuild": "queues and index of a log of 16 files are deleted; rocketstore rebuilds them, "
    "RocketMQ opens the store",
    "spark": "the Spark sink wrote the store in two transactions, or `bulk_load` created it; "
    "RocketMQ opens it",
    "large": "2,000 queues and 48 MiB of log, written by rocketstore; RocketMQ opens the store",
}
HEAD = """\
# Compatibility with RocketMQ

<!-- Written by tools/gen_compatibility.py from a run of `make interop`; do not edit. -->

These are results of tests that run the released `rocketmq-store` jars of each version. RocketMQ and
rocketstore write, read and recover the same random stores with small files, and are killed. A cell
shows how many stores were created and how many answers were compared: single reads, whole queues,
lookups by key, by time and by log offset, statuses of puts, and files. The only differences are
those that a cell names; they are explained below.

`make interop` runs all tests and writes this page; `make interop-soak MINUTES=30` tests more random
stores.
"""
CONFIG = """
## The broker's tables (`config/*.json`)

How many random tables RocketMQ's managers persisted and `rocketstore.config_managers` read, and how
many in the other direction. All were equal. Truncated and missing files, with and without their
`.bak`, and fields unknown to rocketstore are tested too. RocketMQ 4.9.8's broker is not published
as a library: stand-ins replace its managers, with the real entries and the real JSON.

The tests also run a broker and the stock client of 5.3.3. The broker serves a directory that
rocketstore wrote (by queue, key and unique key) and continues it. rocketstore reads while the
broker rolls, deletes, is killed and recovers, and appends when the broker is stopped. The consumer
continues from its committed offset.
"""
REPAIR = """\
## Repair: a long log that lost its queues

RocketMQ from 5.4.0 on reads only the last ten files of the log (`commitLogRecoverMaxNum`) when it
rebuilds lost queues and index files. Messages in older files are then still in the log, but no
consumer gets them. Versions 5.0.0 to 5.3.1 rebuild nothing after a clean stop. Open such a store
once for writing and close it, while no broker runs:

```python
import rocketstore

rocketstore.open("store", "r+").close()
```

This rebuilds queues and index from the first log file on. The test named `rebuild` deletes both:
5.4.0 and 5.5.0 lose the older messages, 5.1.4 all of them and the other versions none. It then
opens the store as above and asks RocketMQ for every message by queue and by key.
"""


def load() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the rows of every case and version."""
    found = {}
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if "rows" in result:
            found[result["case"], result["version"]] = result["rows"]
    return found


def load_tables() -> dict[str, list[dict[str, Any]]]:
    """Return how many of the broker's tables were read, by version."""
    found = {}
    for path in sorted(RESULTS.glob("config-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found[result["version"]] = result["tables"]
    return found


def config_tables(versions: tuple[str, ...]) -> list[str]:
    """Write the table of how many of the broker's tables each side read from the other."""
    found = load_tables()
    lacking = [version for version in versions if version not in found]
    if lacking:
        raise SystemExit(f"no tables of {', '.join(lacking)}: run `make interop` as a whole")
    names = [row["table"] for row in found[versions[0]]]
    lines = [CONFIG, "| RocketMQ | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for version in versions:
        cells = [f"{row['theirs']} / {row['ours']}" for row in found[version]]
        lines.append(f"| {version} | " + " | ".join(cells) + " |")
    return lines


def cell(row: dict[str, Any] | None, marks: dict[str, int]) -> str:
    """Return the text of a cell of the table."""
    if row is None:
        return "–"
    if row["failed"]:
        raise SystemExit(f"{row['failed']} stores differ; no page is written")
    text = f"{row['stores']} / {row['compared']:,}"
    known = [f"[{marks[name]}]" for name, count in sorted(row["known"].items()) if count]
    return " ".join([text, *known])


def tables(
    results: dict[tuple[str, str], list[dict[str, Any]]],
    cases: list[str],
    versions: tuple[str, ...],
    marks: dict[str, int],
) -> list[str]:
    """Write a table for each version: features by cases."""
    lines = []
    for version in versions:
        by_case = {case: {row["feature"]: row for row in results[case, version]} for case in cases}
        features = sorted({feature for rows in by_case.values() for feature in rows})
        lines += ["", f"## RocketMQ {version}", "", "| feature | " + " | ".join(cases) + " |"]
        lines += ["|---" * (len(cases) + 1) + "|"]
        for feature in features:
            cells = [cell(by_case[case].get(feature), marks) for case in cases]
            lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return lines


def figures(
    results: dict[tuple[str, str], list[dict[str, Any]]], versions: tuple[str, ...]
) -> list[str]:
    """Write the table of time and memory for opening the large store."""
    lines = [
        "",
        "## Opening 2,000 queues and 48 MiB of log",
        "",
        "Time until the store is open, and peak memory of the process until then, including the "
        "JVM or the interpreter, from one run of the test.",
        "",
        '| version | RocketMQ | rocketstore "r" | rocketstore "r+" |',
        "|---|---|---|---|",
    ]
    for version in versions:
        (row,) = results["large", version]
        cells = [
            f"{value['openMs']:,.0f} ms, {value['peakKiB'] / 1024:,.0f} MiB"
            for value in row["figures"].values()
        ]
        lines.append(f"| {version} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Write the page."""
    from interop.catalogue import CASES
    from interop.comparing import KNOWN
    from interop.harness import VERSIONS
    from interop.workload import FEATURES

    results = load()
    cases = [*CASES, *OTHERS]
    missing = [
        f"{case} {version}"
        for case in cases
        for version in VERSIONS
        if (case, version) not in results
    ]
    if missing:
        raise SystemExit(f"no results of {', '.join(missing)}: run `make interop` as a whole")
    total: Counter[str] = Counter()
    for rows in results.values():
        for row in rows:
            total.update(stores=row["stores"], compared=row["compared"])
            total.update({name: count for name, count in row["known"].items() if count})
    marks = {name: number for number, name in enumerate(KNOWN, 1)}
    lines = [HEAD]
    lines.append(f"In all: {total['stores']:,} stores, {total['compared']:,} comparisons.")
    lines += ["", "| column | what is done |", "|---|---|"]
    titles = {**{name: case.title for name, case in CASES.items()}, **OTHERS}
    lines += [f"| {name} | {title} |" for name, title in titles.items()]
    lines += ["", "| feature | what the store uses in addition |", "|---|---|"]
    lines += [f"| {name} | {feature.about} |" for name, feature in FEATURES.items()]
    lines += tables(results, cases, VERSIONS, marks)
    lines += ["", "## Known differences", ""]
    for name, reason in KNOWN.items():
        count = f" Met {total[name]:,} times." if total[name] else " Not met in this run."
        lines.append(f"{marks[name]}. **{name}**: {reason}.{count}")
    lines += config_tables(VERSIONS)
    lines += figures(results, VERSIONS)
    lines += ["", REPAIR]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
