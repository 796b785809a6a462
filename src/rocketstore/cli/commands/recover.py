"""``rocketstore recover``: make queues, index and checkpoint match the log."""

from __future__ import annotations

from typing import Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    IndexOption,
    QuietOption,
    StorePath,
    WhatIfOption,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.mending.recover import RecoverReport
from rocketstore.mending.recover import recover as recover_store

#: CSV columns of a row.
ROW_NAMES = ("kind", "path", "position", "physicalOffset", "reason")
_LISTED = 20


def recover(
    path: StorePath,
    what_if: WhatIfOption = False,
    index: IndexOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make queues, index and checkpoint match the log without appending. Stop the broker first.

    Missing queue units and index entries are derived from the log; those that differ from it are
    rebuilt. The old index files are kept in the folder "quarantine". A damaged log is refused: run
    salvage. With --what-if the exit status is 1 if there is anything to do.

    \b
    Examples:
      rocketstore recover /data/store --what-if
      rocketstore recover /data/store
      rocketstore recover /data/store --format ndjson | jq 'select(.kind == "summary")'
    """
    settings = store_config(config, commit_log)
    if index is not None:
        settings = settings.replace(message_index_enable=index)
    check_is_store(path, config=settings)
    quieten()  # the report contains everything, once
    with progress_bar(quiet=quiet) as progress:
        report = recover_store(path, what_if=what_if, progress=progress, config=settings)
    _print(report, chosen(form))
    if report.left or (what_if and report.was_needed):
        raise typer.Exit(int(ExitCode.FINDINGS))


def _rows(report: RecoverReport) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "kind": one.kind,
            "path": one.path,
            "position": one.position,
            "physicalOffset": one.offset,
            "reason": one.reason,
        }
        for one in report.findings
    ]
    for one in report.recovery.cut:
        place = {"position": one.position, "physicalOffset": one.start}
        rows.append({"kind": "cut", "path": one.path, **place, "reason": one.reason})
    rows += [{"kind": "kept", "path": path} for path in report.moved]
    rows += [{"kind": "note", "reason": note} for note in report.recovery.notes]
    return rows


def _summary(report: RecoverReport) -> dict[str, Any]:
    return {
        "kind": "summary",
        "whatIf": report.what_if,
        "wasNeeded": report.was_needed,
        "findingCounts": report.finding_counts,
        "left": report.left,
        "behindBytes": report.behind_nbytes,
        "logEnd": report.recovery.log_end,
        "durationSeconds": round(report.duration_s, 3),
    }


def _print(report: RecoverReport, form: Format) -> None:
    if not print_report(_summary(report), "rows", _rows(report), ROW_NAMES, form):
        _print_text(report)


def _print_text(report: RecoverReport) -> None:
    if not report.was_needed:
        print_text("Nothing needed repair.", style="green")
    if report.was_needed and not report.recovery.clean:
        print_text("The last writer did not shut down cleanly.")
    for one in report.recovery.cut:
        kept = f"; a copy is {one.quarantined}" if one.quarantined else ""
        print_text(f"Truncated {format_size(one.nbytes)} of {one.path}: {one.reason}{kept}.")
    if report.behind_nbytes:
        print_text(
            f"{format_size(report.behind_nbytes)} of the log were not yet in queues and index."
        )
    would = "Would repair" if report.what_if else "Repaired"
    for kind, count in sorted(report.finding_counts.items()):
        first = next((one for one in report.findings if one.kind == kind), None)
        where = "" if first is None else f", first: {first.path}: {first.reason}"
        print_text(f"{would} {counted(count, 'finding')} of kind {kind}{where}.")
    for note in report.recovery.notes[:_LISTED]:
        print_text(f"Note: {note}.")
    hidden = len(report.recovery.notes) - _LISTED
    if hidden > 0:
        print_text(f"{counted(hidden, 'more note')}; --format ndjson lists them.")
    for path in report.moved:
        print_text(f"Moved the index to {path} and rebuilt it.")
    if report.left:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.left.items()))
        print_text(f"Still wrong: {kinds}; see rocketstore verify.", style="bold red")
    elif not report.what_if:
        print_text(
            f"Queues and index match the log, which ends at {report.recovery.log_end}.",
            style="green",
        )
