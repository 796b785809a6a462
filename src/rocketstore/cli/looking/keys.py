"""``rocketstore keys``: the state of the index files."""

from __future__ import annotations

from typing import Any

import typer

from rocketstore.cli.common.opening import check_has, reading
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import chosen, print_rows, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_time
from rocketstore.cli.looking.answers import print_answer
from rocketstore.looking.index_health import IndexFileHealth, IndexHealth
from rocketstore.looking.index_health import keys as examine

COLUMNS = (
    *("kind", "file", "bytes", "entries", "capacity", "fullness", "slots", "usedSlots"),
    *("longestChain", "meanChain", "chains", "distinctHashes", "collisions", "broken"),
    *("from", "to", "firstOffset", "lastOffset", "inMemory"),
)


def keys(
    path: StorePath,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show the index: how full its files are, how long the chains of their slots, collisions.

    A lookup of a key reads the chain of one slot in each file, so long chains make lookups slow.
    Exit status 1 if a file is unreadable, a chain is broken, a part of the log has no index, or
    no index file is on disk.

    \b
    Examples:
      rocketstore keys /data/store
      rocketstore keys /data/store --format ndjson | jq 'select(.longestChain > 100)'
    """
    settings = store_config(config, commit_log)
    check_has(path, settings, "its folder index")
    with (
        reading(path, quiet=quiet, config=settings, message_index_enable=True) as store,
        progress_bar(quiet=quiet) as progress,
    ):
        health = examine(store, progress=progress)
    summary = {
        "path": health.path,
        "files": len(health.files),
        "entries": health.entries,
        "inMemory": sum(one.in_memory for one in health.files),
        "unreadable": [{"file": name, "reason": why} for name, why in health.unreadable],
        "gaps": [list(gap) for gap in health.gaps],
    }
    rows = [_document(one) for one in health.files]
    if not print_answer("keys", summary, rows, COLUMNS, chosen(form)):
        _print_table(health)
    is_absent = bool(health.files) and all(one.in_memory for one in health.files)
    if is_absent or not health.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _document(one: IndexFileHealth) -> dict[str, Any]:
    values = (
        *("file", one.name, one.nbytes, one.entries, one.capacity, round(one.fullness, 4)),
        *(one.slots, one.used_slots, one.longest_chain, round(one.mean_chain, 2)),
        {str(length): amount for length, amount in one.chains.items()},
        *(one.distinct_hashes, one.collisions, one.broken, one.begin_timestamp),
        *(one.end_timestamp, one.begin_offset, one.end_offset, one.in_memory),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _name(one: IndexFileHealth) -> str:
    return f"{one.name} (in memory)" if one.in_memory else one.name


def _print_table(health: IndexHealth) -> None:
    if health.files:
        headings = (
            *("file", "entries", "full", "slots used", "longest", "mean", "collisions", "broken"),
            *("from", "to"),
        )
        rows = [
            (_name(one), one.entries, f"{one.fullness:.1%}", one.used_slots, one.longest_chain,
             f"{one.mean_chain:.2f}", one.collisions, one.broken,
             format_time(one.begin_timestamp), format_time(one.end_timestamp))
            for one in health.files
        ]  # fmt: skip
        print_rows(headings, rows, right=headings[1:8])
        print_text()
    for name, why in health.unreadable:
        print_text(f"Not readable: {name}: {why}.", "bold red")
    for first, stop in health.gaps:
        print_text(f"No file has the keys of log offsets {first} to {stop}.", "bold red")
    print_text(f"{counted(health.entries, 'key')} in {counted(len(health.files), 'file')}.")
    derived = [one for one in health.files if one.in_memory]
    if derived:
        print_text(
            f"{counted(len(derived), 'file')} in memory only: keys derived from the log, which the "
            "index on disk lacks."
        )
