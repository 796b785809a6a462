"""``rocketstore repair``: do what a plan says, or take a repair back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    optional_path_word,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.text import command_line
from rocketstore.cli.mending.plan import lost_count
from rocketstore.errors import StoreFullError
from rocketstore.planning.repair_plan import RepairPlan
from rocketstore.planning.repair_report import RepairReport
from rocketstore.planning.repairing import repair as do_repair
from rocketstore.planning.undoing import undo_repair

#: CSV columns of a row.
ROW_NAMES = ("kind", "id", "step", "state", "files")


def repair(
    path: StorePath,
    plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Do what this plan says.", callback=optional_path_word),
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="With --plan: keep the old files there [default: a folder in PATH/quarantine]. "
            "Without: take back the repair that made DIR.",
            callback=optional_path_word,
        ),
    ] = None,
    ignore_mtime: Annotated[
        bool,
        typer.Option("--ignore-mtime", help="The store is a copy: its files may have other times."),
    ] = False,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Do what a plan says, or take a repair back. Stop the broker first.

    With --plan, nothing is changed unless the store is as the plan expects. New files are built
    aside, then they take their places; every old file is kept. If it is interrupted, the same
    command goes on; if all is done, it says so.

    With --undo alone, DIR is the folder that repair or reindex printed. All files are as before,
    byte for byte. A store that was written since is refused, and nothing is changed.

    \b
    Examples:
      rocketstore repair /data/store --plan plan.json
      rocketstore repair /data/store --plan plan.json --undo /backup/before
      rocketstore repair /data/store --undo /data/store/quarantine/1795889478446-repair
    """
    if plan is None and undo is None:
        raise typer.BadParameter("--plan or --undo is needed")
    check_is_store(path, config=store_config(config, commit_log))
    quieten()
    if plan is None:
        assert undo is not None
        undo_repair(path, Path(undo))
        summary = {"kind": "summary", "state": "undone", "undo": undo}
        if not print_report(summary, "rows", [], ("kind",), chosen(form)):
            print_text("Every file is as it was before the repair.", style="green")
        return
    try:
        with progress_bar(quiet=quiet) as progress:
            report = do_repair(
                path,
                RepairPlan.from_json(plan),
                undo=undo,
                ignore_mtime=ignore_mtime,
                progress=progress,
            )
    except StoreFullError as error:
        raise fail(ExitCode.UNSAFE, str(error)) from None
    _print(report, chosen(form))
    if report.verdict is not None and not report.verdict.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(report: RepairReport, form: Format) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "step", "id": one["id"], "step": one["kind"], "state": one["state"],
         "files": len(one["files"])}
        for one in report.steps
    ]  # fmt: skip
    summary = {
        "kind": "summary",
        "plan": report.plan_id,
        "state": report.state,
        "keptBytes": report.kept_nbytes,
        "undo": report.undo,
        "lostMessages": lost_count(report.lost),
        "placeholders": len(report.placeholders),
        "verdict": None if report.verdict is None else report.verdict.state,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, ROW_NAMES, form):
        _print_text(report)


def _print_text(report: RepairReport) -> None:
    if report.state == "already":
        print_text("All steps of the plan are done already.", style="green")
        return
    if report.state == "resumed":
        print_text("Finished what an earlier call had begun.")
    files = sum(len(one["files"]) for one in report.steps)
    print_text(f"Did {counted(len(report.steps), 'step')} with {counted(files, 'file')}.")
    if report.undo is not None:
        kept = format_size(report.kept_nbytes)
        print_text(f"The old files ({kept}) are in {report.undo}. To take it back:")
        undo = command_line("repair", Path(report.path), "--undo", Path(report.undo))
        print_text(f"  {undo}")
    verdict = report.verdict
    if verdict is None:
        return
    if report.lost:
        lost = counted(lost_count(report.lost), "message")
        print_text(f"Lost for good, as the plan says: at least {lost}.")
    style = "green" if verdict.ok else "red"
    print_text(f"The store is {verdict.state}: {verdict.sentence}.", style=style)
