"""``rocketstore salvage``: make a store with a damaged log writable again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.commands.advice import advice
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
from rocketstore.cli.common.quantities import counted, format_size, format_time
from rocketstore.config import MessageStoreConfig
from rocketstore.mending.recover import MENDED_KINDS
from rocketstore.mending.salvage import SalvageReport
from rocketstore.mending.salvage import salvage as salvage_store
from rocketstore.store.verifying import verify_files


def salvage(
    path: StorePath,
    what_if: WhatIfOption = False,
    placeholders: Annotated[
        bool,
        typer.Option(
            "--placeholders/--no-placeholders",
            help="Let empty messages keep the queue offsets of lost ones.",
        ),
    ] = True,
    index: IndexOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make a store writable again that cannot be opened for writing. Stop the broker first.

    Segments with damage are rewritten without it; the old files are kept in the folder
    "quarantine". Nothing is deleted. With --what-if the exit status is 1 if there is anything to
    do.

    \b
    Examples:
      rocketstore salvage /data/store --what-if
      rocketstore salvage /data/store
      rocketstore salvage /data/store --what-if --format ndjson | jq 'select(.kind == "damaged")'
    """
    settings = store_config(config, commit_log)
    if index is not None:
        settings = settings.replace(message_index_enable=index)
    check_is_store(path, config=settings)
    quieten()  # the report contains everything, once
    with progress_bar(quiet=quiet) as progress:
        report = salvage_store(
            path,
            what_if=what_if,
            placeholders=placeholders,
            progress=progress,
            config=settings,
        )
    wrong = {} if report.was_needed else _left_wrong(path, settings)
    _print(report, chosen(form), wrong)
    if what_if and report.was_needed:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _left_wrong(path: Path, config: MessageStoreConfig) -> dict[str, int]:
    """Return the findings outside the log, which a salvage does not check completely."""
    found = verify_files(path, config, level="structure").finding_counts
    return {kind: count for kind, count in found.items() if kind in MENDED_KINDS}


#: CSV columns of a row; an NDJSON row holds only those that apply to its kind.
ROW_NAMES = (
    *("kind", "path", "physicalOffset", "bytes", "topic", "queueId", "queueOffset", "reason"),
    *("messages", "storedAfter", "storedBefore"),
)
#: Number of corrupt ranges and gaps that the table lists.
_LISTED = 20


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
    rows += [
        {
            "kind": "lost",
            "topic": one.topic,
            "messages": one.count,
            "storedAfter": one.oldest,
            "storedBefore": one.newest or None,
        }
        for one in report.lost
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
        "lostMessages": report.lost_count,
        "segments": len(report.segments),
        "placeholders": len(report.placeholders),
        "gaps": len(report.gaps),
        "logEnd": report.recovery.log_end,
        "durationSeconds": round(report.duration_s, 3),
    }


def _print(report: SalvageReport, form: Format, wrong: dict[str, int]) -> None:
    rows = _rows(report)
    summary = _summary(report)
    if not report.was_needed:
        summary["findingCounts"] = wrong
        summary["next"] = [one.document() for one in advice(Path(report.path), wrong)]
    if not print_report(summary, "rows", rows, ROW_NAMES, form):
        _print_text(report, wrong)


def _print_text(report: SalvageReport, wrong: dict[str, int]) -> None:
    if not report.was_needed:
        _print_nothing_done(report, wrong)
        return
    _print_sum(report)
    would = "would be rewritten" if report.what_if else "rewritten"
    for segment in report.segments[:_LISTED]:
        kept = "" if segment.quarantined is None else f"; the old file is {segment.quarantined}"
        count = sum(segment.start <= one.start < segment.stop for one in report.damaged)
        more = f" (and {counted(count - 1, 'more place')})" if count > 1 else ""
        print_text(f"{segment.path}: {segment.reason}{more}; {would}{kept}.")
    _print_more(len(report.segments), "more file")
    for path in report.moved:
        print_text(f"Moved the index to {path} and rebuilt it.")
    for topic, queue_id, first, stop in report.gaps[:_LISTED]:
        what = (
            f"queue offset {first}" if stop == first + 1 else f"queue offsets {first} to {stop - 1}"
        )
        print_text(f"Without a placeholder: {topic} queue {queue_id}, {what}.")
    _print_more(len(report.gaps), "more gap")
    if not report.what_if:
        print_text(
            f"The store is writable; its log ends at {report.recovery.log_end}.",
            style="green",
        )


def _print_sum(report: SalvageReport) -> None:
    """Print what is lost: messages by topic, and when they were stored."""
    named = sum(one.count for one in report.lost)
    unnamed = report.lost_count - named
    size = format_size(report.lost_nbytes)
    if not report.lost_count:
        print_text(f"Lost: {size} of the log; no queue and no key refers to a message in it.")
    else:
        known = "at least " if unnamed else ""
        print_text(f"Lost: {known}{counted(report.lost_count, 'message')}, {size} of the log.",
                   style="bold red")  # fmt: skip
    for one in report.lost:
        until = f"and {format_time(one.newest)}" if one.newest else "and the end of the log"
        print_text(f"  {one.topic}: {counted(one.count, 'message')}, "
                   f"stored between {format_time(one.oldest)} {until}")  # fmt: skip
    if report.placeholders:
        verb = "would keep" if report.what_if else "keep"
        print_text(f"{counted(len(report.placeholders), 'empty placeholder')} {verb} the queue "
                   "offsets of lost messages; consumers see them.")  # fmt: skip


def _print_nothing_done(report: SalvageReport, wrong: dict[str, int]) -> None:
    print_text("Nothing needed salvage.", style="green")
    if report.behind:
        print_text(f"The end of the log was lost in a crash: {report.behind}.")
    if wrong:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(wrong.items()))
        print_text(f"Queues, index or checkpoint do not match the log: {kinds}.", style="bold red")
        for step in advice(Path(report.path), wrong):
            print_text(f"Next: {step.text()}.")


def _print_more(count: int, what: str) -> None:
    if count > _LISTED:
        print_text(f"{counted(count - _LISTED, what)}; --format ndjson lists them.")
