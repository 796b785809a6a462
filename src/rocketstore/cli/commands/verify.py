"""``rocketstore verify``: check a store and list every finding."""

from __future__ import annotations

import dataclasses
import os
from enum import StrEnum
from typing import Annotated, Any

import typer

from rocketstore.cli.commands.advice import Advice, advice
from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CheckJobsOption,
    CommitLogOption,
    ConfigOption,
    FormatOption,
    IndexOption,
    QuietOption,
    StorePath,
    check_words,
    configures,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import Format, chosen, print_report, print_rows, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.directory.paths import StorePaths
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import Finding, VerifyReport


class Level(StrEnum):
    """How closely to check."""

    STRUCTURE = "structure"
    CRC = "crc"


def verify(
    path: StorePath,
    level: Annotated[
        Level,
        typer.Option("--level", help="structure: lengths, offsets, references; crc: bodies too."),
    ] = Level.CRC,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=1,
            help="Maximum number of findings to list; all count.",
        ),
    ] = 1000,
    index: IndexOption = None,
    delay_levels: Annotated[
        str | None,
        typer.Option(
            "--delay-levels",
            metavar="TEXT",
            callback=configures("message_delay_level", check_words),
            help="The broker's messageDelayLevel.",
        ),
    ] = None,
    jobs: CheckJobsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Check every record, every queue unit and every index entry. Changes nothing.

    Each finding names its file and position; the last lines say how to repair. The exit status is 1
    if there is any finding, including unreadable files and the broker's tables. In NDJSON the last
    line, of kind "summary", has the counts.

    \b
    Examples:
      rocketstore verify /data/store
      rocketstore verify /data/store --level structure --quiet
      rocketstore verify /data/store --json | jq .findingCounts
      rocketstore verify /data/store --format ndjson | jq -r 'select(.kind == "record") | .path'
    """
    options: dict[str, Any] = {} if index is None else {"message_index_enable": index}
    if delay_levels is not None:
        options["message_delay_level"] = delay_levels
    settings = store_config(config, commit_log).replace(**options)
    check_is_store(path, config=settings)
    quieten()  # the findings contain what the library would log
    with progress_bar(quiet=quiet) as progress:
        report = verify_files(
            path, settings, level=level.value, jobs=jobs, progress=progress, max_findings=limit
        )
    words = ["--config", os.fspath(config)] if config is not None else []
    words += ["--commit-log", str(commit_log)] if commit_log is not None else []
    paths = StorePaths.of(path, settings)
    steps = list(
        advice(
            path,
            report.finding_counts,
            options=words,
            log_is_elsewhere=paths.is_log_elsewhere,
            has_several_logs=bool(paths.more_logs),
        )
    )
    _print(report, steps, Format.JSON if as_json else chosen(form))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


#: Fields of a finding; more may be added, these stay.
FINDING_NAMES = ("kind", "path", "position", "physicalOffset", "reason")
#: Increased when a value of the JSON forms changes its name or meaning.
SCHEMA_VERSION = 1


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "path": finding.path,
        "position": finding.position,
        "physicalOffset": finding.offset,
        "reason": finding.reason,
    }


def _summary(report: VerifyReport, steps: list[Advice]) -> dict[str, Any]:
    values = dataclasses.asdict(report)
    for name in ("findings", "max_findings", "finding_counts", "damaged"):
        del values[name]
    names = {
        "log_start": "logStart",
        "log_end": "logEnd",
        "nbytes": "bytes",
        "index_files": "indexFiles",
        "duration_s": "durationSeconds",
    }
    summary = {names.get(name, name): value for name, value in values.items()}
    summary["durationSeconds"] = round(report.duration_s, 3)
    return {
        "kind": "summary",
        "schemaVersion": SCHEMA_VERSION,
        "ok": report.ok,
        "findingCounts": dict(report.finding_counts),
        "next": [one.document() for one in steps],
        **summary,
    }


def _print(report: VerifyReport, steps: list[Advice], form: Format) -> None:
    findings = [_finding(one) for one in report.findings]
    if not print_report(_summary(report, steps), "findings", findings, FINDING_NAMES, form):
        _print_table(report, steps)


def _print_table(report: VerifyReport, steps: list[Advice]) -> None:
    if report.findings:
        rows = [(one.kind, one.path, one.position, one.reason) for one in report.findings]
        headings = ("kind", "file", "position", "what")
        print_rows(headings, rows, right=("position",), shrink=("what", "file"))
        print_text()
    rate = report.records / report.duration_s if report.duration_s else 0
    print_text(
        f"Checked {counted(report.records, 'record')} ({format_size(report.nbytes)}), "
        f"{counted(report.units, 'unit')} of {counted(report.queues, 'queue')} and "
        f"{counted(report.keys, 'key')} in {counted(report.index_files, 'index file')}, "
        f"log offsets {report.log_start} to {report.log_end}, in {report.duration_s:.1f} s "
        f"({rate:,.0f} records/s), level {report.level}."
    )
    for note in report.notes:
        print_text(f"Note: {note}.")
    if report.ok:
        print_text("No findings.", style="green")
        return
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.finding_counts.items()))
    print_text(f"{counted(report.finding_count, 'finding')}: {kinds}.", style="bold red")
    hidden = report.finding_count - len(report.findings)
    if hidden > 0:
        print_text(f"{counted(hidden, 'more finding')} not listed; --limit lists more.")
    for step in steps:
        print_text(f"Next: {step.text()}.")
