"""``rocketstore diff``: where two stores differ."""

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
    optional_path_word,
    path,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.errors import SourceChangedError
from rocketstore.moving.comparing.difference import Difference, DiffReport
from rocketstore.moving.diff import PARTS
from rocketstore.moving.diff import diff as diff_stores

_COLUMNS = ("kind", "where", "offset", "queueOffset", "a", "b", "text")
_LISTED = 20

CommitLogBOption = Annotated[
    str | None,
    typer.Option(
        "--commit-log-b",
        metavar="DIR",
        callback=optional_path_word,
        help="The log's folder of B if it is not B/commitlog.",
    ),
]
ConfigBOption = Annotated[
    Path | None,
    typer.Option(
        "--config-b", metavar="FILE", parser=path, help="The configuration of B, if another."
    ),
]


def _store(help_text: str, name: str) -> Any:
    return typer.Argument(metavar=name, parser=path, help=help_text)


def diff(
    a: Annotated[Path, _store("A store, or a folder with only the segments of a log.", "A")],
    b: Annotated[Path, _store("The store to compare it with.", "B")],
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            metavar="OFFSET",
            min=0,
            help="Only records that end after this log offset, their units and keys.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PART", help="Compare only log, queues, keys or config; repeatable."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Differences to list.")
    ] = 1000,
    commit_log: CommitLogOption = None,
    commit_log_b: CommitLogBOption = None,
    config: ConfigOption = None,
    config_b: ConfigBOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare two stores: logs, queues, keys and tables; both are only read.

    Reports the first log offset at which the logs differ, and for each queue its first and next
    queue offset and the first unit that differs, the keys that one index lacks, and the values of
    the tables below config. Without --config-b, --config is for both stores.

    Exit status 0 if they are equal, 1 if they differ, and 3 if no difference was found but not
    everything could be read: such stores are never called equal.

    \b
    Examples:
      rocketstore diff /data/store /backup/store
      rocketstore diff /data/store /backup/store --since 1073741824
      rocketstore diff /data/store /backup/store --only log -f json
    """
    parts = list(dict.fromkeys(only)) if only else list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} must be one of {', '.join(PARTS)}")
    settings = store_config(config, commit_log)
    others = None
    if config_b is not None or commit_log_b is not None:
        others = store_config(config_b if config_b is not None else config, commit_log_b)
    quieten()  # the report contains everything, once
    try:
        with progress_bar(quiet=quiet) as progress:
            report = diff_stores(
                a, b, since=since, parts=parts, config=settings, config_b=others, limit=limit,
                progress=progress,
            )  # fmt: skip
    except SourceChangedError as error:
        raise fail(ExitCode.UNSAFE, str(error)) from None
    except FileNotFoundError as error:
        for one, its in ((a, settings), (b, others or settings)):
            check_is_store(one, config=its)  # says where a store is
        raise error from None
    except ValueError as error:
        raise fail(ExitCode.USAGE, str(error)) from None
    except KeyboardInterrupt as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        raise fail(
            ExitCode.INTERRUPTED, f"interrupted: {notes or 'nothing was compared'}"
        ) from None
    _print(report, chosen(form))
    if report.state == "unreadable":
        raise typer.Exit(int(ExitCode.CANNOT_READ))
    if not report.equal:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _row(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "where": one.where,
        "offset": one.offset,
        "queueOffset": one.queue_offset,
        "a": one.a,
        "b": one.b,
        "text": one.text,
    }


def _print(report: DiffReport, form: Format) -> None:
    rows = [_row(one) for one in report.differences]
    rows += [{"kind": "unread", "text": text} for text in report.unread]
    rows += [{"kind": "note", "text": text} for text in report.notes]
    summary = {
        "kind": "summary",
        "schema": "rocketstore.diff/1",
        "a": report.a,
        "b": report.b,
        "state": report.state,
        "since": report.since,
        "parts": list(report.parts),
        "logA": list(report.log_a),
        "logB": list(report.log_b),
        "firstOffset": report.first_offset,
        "counts": report.counts,
        "truncated": report.truncated,
        "unread": len(report.unread),
        "compared": report.compared,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, _COLUMNS, form):
        _print_text(report)


def _print_text(report: DiffReport) -> None:
    done = report.compared
    print_text(
        f"Compared {format_size(done['bytes'])} of log ({counted(done['records'], 'record')}), "
        f"{counted(done['queues'], 'queue')} ({counted(done['units'], 'unit')}), "
        f"{counted(done['keys'], 'key')}, {counted(done['files'], 'table')}."
    )
    if report.first_offset is not None:
        print_text(f"The logs differ from offset {report.first_offset} on.", style="bold red")
    for one in report.differences[:_LISTED]:
        offset = f" at log offset {one.offset}" if one.offset is not None else ""
        number = f", queue offset {one.queue_offset}" if one.queue_offset is not None else ""
        print_text(f"  {one.where}{offset}{number}: {one.text} ({one.kind})")
        print_text(f"    A: {_value(one.a)}")
        print_text(f"    B: {_value(one.b)}")
    more = sum(report.counts.values()) - min(len(report.differences), _LISTED)
    if more:
        print_text(f"  and {counted(more, 'difference')} more")
    for text in report.unread[:_LISTED]:
        print_text(f"Not read: {text}.")
    for text in report.notes:
        print_text(f"Note: {text}.")
    sentence = {
        "equal": "The stores are equal.",
        "different": "The stores differ.",
        "unreadable": "No difference was found, but not everything could be read.",
    }[report.state]
    print_text(sentence, style="green" if report.equal else "bold red")


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(list(value)) if isinstance(value, tuple) else str(value)
