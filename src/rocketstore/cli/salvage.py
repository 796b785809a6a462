"""``rocketstore salvage``: make a store fit for writing again whose log is damaged."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketstore.cli.opening import check_is_store
from rocketstore.cli.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    store_config,
)
from rocketstore.cli.outcome import ExitCode
from rocketstore.cli.output import (
    Format,
    chosen,
    print_report,
    print_text,
)
from rocketstore.cli.progress import progress_bar
from rocketstore.cli.quantities import counted, format_size
from rocketstore.log_salvage import SalvageReport
from rocketstore.log_salvage import salvage as salvage_store


def salvage(
    path: StorePath,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Only say what would be done; change nothing.")
    ] = False,
    placeholders: Annotated[
        bool,
        typer.Option(
            "--placeholders/--no-placeholders",
            help="Whether empty messages keep the queue offsets of lost ones.",
        ),
    ] = True,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Whether the broker keeps an index.")
    ] = True,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make a store that refuses to be opened for writing fit for it again. Stop the broker first.

    Segments with damage are written anew around it; the old files are kept in the folder
    "quarantine". Nothing is deleted. With --what-if the exit status is 1 when there is anything to
    do.

    \b
    Examples:
      rocketstore salvage /data/store --what-if
      rocketstore salvage /data/store
      rocketstore salvage /data/store --what-if --format ndjson | jq 'select(.kind == "damaged")'
    """
    settings = store_config(config, commit_log)
    check_is_store(path, config=settings)
    with progress_bar(quiet=quiet) as progress:
        report = salvage_store(
            path,
            what_if=what_if,
            placeholders=placeholders,
            progress=progress,
            config=settings,
            message_index_enable=index,
        )
    _print(report, chosen(form))
    if what_if and report.was_needed:
        raise typer.Exit(int(ExitCode.FINDINGS))


#: Names of a row's values in CSV; NDJSON rows hold those that mean something for their kind.
ROW_NAMES = ("kind", "path", "physicalOffset", "bytes", "topic", "queueId", "queueOffset", "reason")


def _rows(report: SalvageReport) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "kind": "damaged",
            "path": one.path,
            "physicalOffset": one.start,
            "bytes": one.stop - one.start,
            "reason": one.reason,
        }
        for one in report.damaged
    ]
    for segment in report.segments:
        what = {"physicalOffset": segment.start, "reason": segment.reason}
        rows.append({"kind": "segment", "path": segment.path, **what})
        if segment.quarantined is not None:
            rows.append({"kind": "kept", "path": segment.quarantined, **what})
    rows += [{"kind": "kept", "path": path} for path in report.moved]
    for topic, queue_id, queue_offset, offset in report.placeholders:
        place = {"topic": topic, "queueId": queue_id, "queueOffset": queue_offset}
        rows.append({"kind": "placeholder", "physicalOffset": offset, **place})
    for topic, queue_id, first, stop in report.gaps:
        place = {"topic": topic, "queueId": queue_id, "queueOffset": first}
        rows.append({"kind": "gap", **place, "reason": f"up to queue offset {stop - 1}"})
    return rows


def _summary(report: SalvageReport) -> dict[str, Any]:
    return {
        "kind": "summary",
        "whatIf": report.what_if,
        "wasNeeded": report.was_needed,
        "lostBytes": report.lost_nbytes,
        "segments": len(report.segments),
        "placeholders": len(report.placeholders),
        "gaps": len(report.gaps),
        "logEnd": report.recovery.log_end,
        "durationSeconds": round(report.duration_s, 3),
    }


def _print(report: SalvageReport, form: Format) -> None:
    rows = _rows(report)
    if not print_report(_summary(report), "rows", rows, ROW_NAMES, form):
        _print_text(report)


def _print_text(report: SalvageReport) -> None:
    if not report.was_needed:
        print_text("Nothing had to be salvaged.", style="green")
        return
    for damage in report.damaged:
        print_text(f"Lost: {format_size(damage.stop - damage.start)} of {damage.path}: "
                   f"{damage.reason}.")  # fmt: skip
    would = "Would write" if report.what_if else "Wrote"
    for segment in report.segments:
        kept = "" if segment.quarantined is None else f"; the old file is {segment.quarantined}"
        print_text(f"{would} {segment.path} anew: {segment.reason}{kept}.")
    for path in report.moved:
        print_text(f"Moved the index to {path}; it was made again.")
    print_text(
        f"{counted(len(report.placeholders), 'placeholder')} for lost messages, "
        f"{counted(len(report.gaps), 'gap')} without."
    )
    for topic, queue_id, first, stop in report.gaps:
        print_text(f"Gap: {topic} queue {queue_id}, queue offsets {first} to {stop - 1}.")
    if not report.what_if:
        print_text(f"The store is fit for writing; its log ends at {report.recovery.log_end}.")
