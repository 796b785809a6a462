"""``rocketstore capacity``: when the disk is full."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    check_time,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import chosen, print_fields, print_rows, print_text
from rocketstore.cli.common.quantities import format_size, format_time, parse_time
from rocketstore.cli.looking.answers import LogPath, check_log_path, print_answer
from rocketstore.looking.disk_forecast import Capacity, CapacityLevel
from rocketstore.looking.disk_forecast import capacity as forecast

COLUMNS = ("kind", "level", "ratio", "leftBytes", "days", "time")


def capacity(
    path: LogPath,
    within: Annotated[
        float,
        typer.Option(
            "--within", metavar="DAYS", min=0, help="Exit with 1 if puts are refused before that."
        ),
    ] = 7,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", callback=check_time, help="Count from this time."),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show in how many days the disk is full, from the log's growth and the rules of expiry.

    The growth is the mean of the last 7 days. --config gives fileReservedTime and the levels at
    which a broker deletes files and refuses puts. Exit status 1 if puts will be refused within 7
    days (--within).

    \b
    Examples:
      rocketstore capacity /data/store --config broker.conf
      rocketstore capacity /data/store --within 30 --format json
    """
    settings = store_config(config, commit_log)
    where = check_log_path(path, settings, quiet=quiet)
    answer = forecast(where, config=settings, at=None if at is None else parse_time(at))
    summary = {
        "path": answer.path,
        "at": answer.at,
        "logBytes": answer.log_nbytes,
        "dayBytes": answer.day_nbytes,
        "measuredDays": round(answer.measured_days, 3),
        "factor": round(answer.factor, 3),
        "reservedHours": answer.reserved_hours,
        "steadyBytes": answer.steady_nbytes,
        "disk": {
            "totalBytes": answer.total_nbytes,
            "usedBytes": answer.used_nbytes,
            "usableBytes": answer.usable_nbytes,
        },
        "days": answer.days,
        "notes": answer.notes,
    }
    rows = [_document(one) for one in answer.levels]
    if not print_answer("capacity", summary, rows, COLUMNS, chosen(form)):
        _print_table(answer)
    if answer.days is not None and answer.days <= within:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _document(one: CapacityLevel) -> dict[str, Any]:
    days = None if one.days is None else round(one.days, 3)
    values = ("level", one.name, one.ratio, one.left_nbytes, days, one.time)
    return dict(zip(COLUMNS, values, strict=True))


def _print_table(answer: Capacity) -> None:
    growth = "unknown"
    if answer.day_nbytes is not None:
        growth = f"{format_size(answer.day_nbytes)} a day, over {answer.measured_days:.1f} days"
    steady = "unknown"
    if answer.steady_nbytes is not None:
        steady = f"{format_size(answer.steady_nbytes)} after {answer.reserved_hours} hours"
    print_fields(
        [
            ("log", format_size(answer.log_nbytes)),
            ("growth", growth),
            ("steady size", f"{steady}, with queues and index"),
            (
                "disk",
                f"{format_size(answer.used_nbytes)} used, {format_size(answer.usable_nbytes)} free",
            ),
        ]
    )
    print_text()
    rows = [
        (one.name, f"{one.ratio:.0%}", format_size(max(one.left_nbytes, 0)),
         "never" if one.days is None else f"{one.days:.1f}",
         "" if one.time is None else format_time(one.time))
        for one in answer.levels
    ]  # fmt: skip
    if rows:
        headings = ("level", "disk", "left", "days", "when")
        print_rows(headings, rows, right=headings[1:4])
    for note in answer.notes:
        print_text(f"Note: {note}.")
