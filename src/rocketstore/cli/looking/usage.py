"""``rocketstore du`` and ``rocketstore volume``: what the bytes of a log are for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StartOption,
    StopOption,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.cli.common.output import Format, chosen, print_rows, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size, format_time
from rocketstore.cli.looking.answers import (
    JobsOption,
    LogPath,
    as_given,
    check_log_path,
    damage_rows,
    print_answer,
)
from rocketstore.looking.usage import PERIODS_MS, Usage, UsageInterrupted, UsageRow, check_by
from rocketstore.looking.usage import du as sum_up
from rocketstore.looking.usage import volume as sum_up_by_time

NoCrcOption = Annotated[
    bool,
    typer.Option("--no-crc", help="Do not compare bodies with their CRCs: about twice as fast."),
]
#: Names of the groups in documents.
_NAMES = {"queue": "queueId"}
_MEASURES = ("messages", "bytes", "bodyBytes", "from", "to")


class Period(StrEnum):
    """Width of a row of ``volume``."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


def check_groups(text: str) -> str:
    """Refuse unknown groups, as the callback of an option."""
    check_words(text)
    try:
        check_by(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def _check_further(text: str | None) -> str | None:
    if text is not None:
        check_groups(text)
        if any(name.strip() in PERIODS_MS for name in text.split(",")):
            raise typer.BadParameter("--per already is a period")
    return text


def du(
    path: LogPath,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="NAMES",
            callback=check_groups,
            help="Groups: topic, queue, tag, minute, hour, day (UTC), property:NAME; several with "
            "commas.",
        ),
    ] = "topic",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, help="Only the largest rows; the others in one."
        ),
    ] = None,
    start: StartOption = None,
    stop: StopOption = None,
    no_crc: NoCrcOption = False,
    jobs: JobsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show what the bytes of a log are for: messages and bytes by group.

    Rows (filler), the unused ends of segments, and (damaged) make the bytes add up to the log.
    Nothing is locked or changed; it works beside a running broker. Exit status 1 if something
    cannot be read. If interrupted, the command prints the sums so far and the --start that
    continues.

    \b
    Examples:
      rocketstore du /data/store
      rocketstore du /data/store --by topic,queue --limit 20
      rocketstore du /data/store --by property:region,day --format csv
      rocketstore du /data/store/commitlog/00000000001073741824 --by tag
    """
    settings = store_config(config, commit_log)
    where = check_log_path(path, settings, quiet=quiet)
    with _going_on("du", where, form), progress_bar(quiet=quiet) as progress:
        usage = sum_up(
            where, by, limit=limit, start=start, stop=stop, check_crc=not no_crc, jobs=jobs,
            config=settings, progress=progress,
        )  # fmt: skip
    _print("du", usage, where, chosen(form))


def volume(
    path: LogPath,
    per: Annotated[Period, typer.Option("--per", help="Width of a row, in UTC.")] = Period.HOUR,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAMES",
            callback=_check_further,
            help="Further groups: topic, queue, tag, property:NAME; several with commas.",
        ),
    ] = None,
    start: StartOption = None,
    stop: StopOption = None,
    no_crc: NoCrcOption = False,
    jobs: JobsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Show how much was stored when: messages and bytes by minute, hour or day of the store time.

    The rows add up to the log, as those of `rocketstore du`. Exit status 1 if something cannot be
    read. If interrupted, the command prints the sums so far and the --start that continues.

    \b
    Examples:
      rocketstore volume /data/store
      rocketstore volume /data/store --per day --by topic --format csv
    """
    settings = store_config(config, commit_log)
    where = check_log_path(path, settings, quiet=quiet)
    with _going_on("volume", where, form), progress_bar(quiet=quiet) as progress:
        usage = sum_up_by_time(
            where, per.value, by or (), start=start, stop=stop, check_crc=not no_crc, jobs=jobs,
            config=settings, progress=progress,
        )  # fmt: skip
    _print("volume", usage, where, chosen(form))


@contextlib.contextmanager
def _going_on(word: str, where: Path, form: Format | None) -> Iterator[None]:
    """Print the sums of an interrupted reading, and how to get the others."""
    try:
        yield
    except UsageInterrupted as error:
        with contextlib.suppress(typer.Exit):  # damage is no news here
            _print(word, error.usage, where, chosen(form))
        raise fail(
            ExitCode.INTERRUPTED, f"interrupted; --start {error.usage.stop} continues here"
        ) from None


def _document(usage: Usage, row: UsageRow) -> dict[str, Any]:
    names = [_NAMES.get(name, name) for name in usage.by]
    measures = (row.messages, row.nbytes, row.body_nbytes, row.first_timestamp, row.last_timestamp)
    return {
        "kind": row.kind,
        **dict(zip(names, row.key, strict=True)),
        **dict(zip(_MEASURES, measures, strict=True)),
    }


def _print(word: str, usage: Usage, where: Path, form: Format) -> None:
    summary = {
        "path": usage.path,
        "by": list(usage.by),
        "log": [usage.start, usage.stop],
        "bytes": usage.nbytes,
        "messages": usage.messages,
        "fillerBytes": usage.filler_nbytes,
        "damagedBytes": usage.damaged_nbytes,
        "damaged": damage_rows(usage.damaged),
    }
    names = [_NAMES.get(name, name) for name in usage.by]
    rows = [_document(usage, row) for row in usage.rows]
    columns = ("kind", *names, *_MEASURES)
    if not print_answer(word, summary, rows, columns, form):
        _print_table(usage, where)
    if usage.damaged_nbytes:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print_table(usage: Usage, where: Path) -> None:
    headings = (*usage.by, "messages", "bytes", "%", "bodies", "from", "to")
    rows = []
    for row in usage.rows:
        key = [_shown(name, value, row) for name, value in zip(usage.by, row.key, strict=True)]
        share = f"{100 * row.nbytes / usage.nbytes:.1f}" if usage.nbytes else "0.0"
        times = [
            None if time is None else format_time(time)
            for time in (row.first_timestamp, row.last_timestamp)
        ]
        rows.append((*key, row.messages, row.nbytes, share, row.body_nbytes, *times))
    if rows:
        right = ("messages", "bytes", "%", "bodies", *(n for n in usage.by if n == "queue"))
        print_rows(headings, rows, right=right, shrink=usage.by)
        print_text()
    for one in usage.damaged[:20]:
        place = as_given(one.path, where)
        print_text(f"Damaged: {place} at position {one.position}: {one.reason}", "bold red")
    if len(usage.damaged) > 20:
        print_text(f"… and {len(usage.damaged) - 20:,} further places.", "bold red")
    print_text(
        f"{counted(usage.messages, 'message')} in {format_size(usage.nbytes)}, log offsets "
        f"{usage.start} to {usage.stop}."
    )


def _shown(name: str, value: Any, row: UsageRow) -> Any:
    if name in PERIODS_MS and isinstance(value, int):
        return format_time(value)
    return "" if value is None and row.kind != "messages" else value
