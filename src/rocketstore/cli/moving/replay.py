"""``rocketstore replay``: put messages of a store into another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import quieten
from rocketstore.cli.common.options import (
    BeginOption,
    CommitLogOption,
    ConfigOption,
    EndOption,
    FormatOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    StartOption,
    StopOption,
    TopicsOption,
    optional_path_word,
    path,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering, check_found, complain, fail
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, parse_time
from rocketstore.cli.common.where import WhereOption, filter_warnings
from rocketstore.errors import (
    ConfigError,
    CorruptMessageError,
    FilterSyntaxError,
    SourceChangedError,
)
from rocketstore.moving.replay import ReplayReport
from rocketstore.moving.replay import replay as replay_messages

_COLUMNS = ("kind", "row", "topic", "offset", "log", "path", "position", "reason", "more", "text")
_LISTED = 20


def replay(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FROM", parser=path, help='A store, its "commitlog" folder, or one segment.'
        ),
    ],
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="TO", parser=path, help="The other store; created if it does not exist."
        ),
    ],
    topics: TopicsOption = None,
    where: WhereOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    start: StartOption = None,
    stop: StopOption = None,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map", metavar="FILE", parser=path, help="Write old and new offsets to this file."
        ),
    ] = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    commit_log: CommitLogOption = None,
    commit_log_to: Annotated[
        str | None,
        typer.Option(
            "--commit-log-to",
            metavar="DIR",
            callback=optional_path_word,
            help="The log's folder of TO if it is not TO/commitlog.",
        ),
    ] = None,
    config: ConfigOption = None,
    config_to: Annotated[
        Path | None,
        typer.Option("--config-to", metavar="FILE", parser=path, help="The configuration of TO."),
    ] = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Put messages of a store again, into another store, in the order of the log.

    A message goes to its topic and queue. It keeps body, properties, flags, born time and host, and
    gets new log and queue offsets and a new store time. It is not delayed again. Half and rolled
    back messages of transactions are not put, nor are messages of RocketMQ's own topics, which are
    counted; those of retry and dead letter topics are. FROM is only read, beside a broker, too.

    If it is interrupted, the same command goes on, and stores no message twice. Its progress is in
    TO.rocketstore-replay; everything is stored when that folder is gone.

    Exit status 1 if no message meets the conditions, or if something is missing in TO: messages
    that it refused, or corrupt and missing ranges of the log that --on-corruption skip or stop left
    out. 4 if TO is open for writing, if
    another program put messages into it since the interruption, if FROM is another store since, or
    if an unfinished replay there has other options.

    \b
    Examples:
      rocketstore replay /backup/store /data/store --topic Orders --begin 2026-11-28
      rocketstore replay /data/store /data/new --map offsets.ndjson
      rocketstore replay /data/store /data/new --where "region = 'eu'"
    """
    settings = store_config(config, commit_log)
    settings_to = store_config(config_to, commit_log_to)
    times = [parse_time(text) if text is not None else None for text in (begin, end)]
    quieten()  # the report contains everything, once
    try:
        with filter_warnings(quiet=quiet), progress_bar(quiet=quiet) as progress:
            report = replay_messages(
                path, destination, topics=topics, filter=where, begin=times[0], end=times[1],
                start=start, stop=stop, map=map_file, on_corruption=on_corruption.value,
                config=settings, config_to=settings_to, progress=progress,
            )  # fmt: skip
    except FilterSyntaxError as error:
        raise fail(ExitCode.USAGE, f"--where: {error}", keep="\n") from None
    except (FileExistsError, SourceChangedError) as error:
        named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise fail(ExitCode.UNSAFE, f"{named}{text}") from None
    except ImportError as error:
        raise fail(
            ExitCode.CANNOT_READ,
            f"replay needs pyarrow: pip install 'rocketstore[arrow]' ({error})",
        ) from None
    except CorruptMessageError:
        if not quiet:
            complain("the same command with --on-corruption skip goes on after a corrupt range")
        raise
    except ConfigError:
        raise
    except ValueError as error:
        raise fail(ExitCode.USAGE, str(error)) from None
    except KeyboardInterrupt:
        words = _fixed_times(("--begin", begin, times[0]), ("--end", end, times[1]))
        raise fail(ExitCode.INTERRUPTED, f"interrupted; the same command{words} goes on") from None
    with answering(f"the messages are in {destination}"):
        _print(report, chosen(form))
    conditions = (topics, where, begin, end, start, stop)
    found = report.messages + report.skipped + report.finding_count
    check_found(found, () if report.resumed else conditions, quiet=quiet)
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _fixed_times(*given: tuple[str, str | None, int | None]) -> str:
    """Return the options to repeat a command with: a relative time is another one later."""
    fixed = [f"{name} {time}" for name, text, time in given if text and text.startswith("-")]
    return f" with {' '.join(fixed)}" if fixed else ""


def _print(report: ReplayReport, form: Format) -> None:
    rows: list[dict[str, Any]] = [{"kind": "note", "text": note} for note in report.notes]
    rows += report.findings
    summary: dict[str, Any] = {
        "kind": "summary",
        "schema": "rocketstore.replay/1",
        "path": report.path,
        "destination": report.destination,
        "state": report.state,
        "messages": report.messages,
        "skipped": report.skipped,
        "read": [report.read_start, report.read_end],
        "log": [report.log_start, report.log_end],
        "resumed": report.resumed,
        "findings": report.finding_count,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, _COLUMNS, form):
        _print_text(report)


def _print_text(report: ReplayReport) -> None:
    how = "Went on: stored" if report.resumed else "Stored"
    print_text(
        f"{how} {counted(report.messages, 'message')} of log offsets {report.read_start} to "
        f"{report.read_end}; the log of {report.destination} has offsets {report.log_start} to "
        f"{report.log_end}."
    )
    if report.skipped:
        print_text(f"Skipped {counted(report.skipped, 'message')} of RocketMQ's own topics.")
    for note in report.notes:
        print_text(f"Note: {note}.")
    if report.ok:
        return
    print_text(f"It lacks {counted(report.finding_count, 'thing')}:", style="bold red")
    for one in report.findings[:_LISTED]:
        if one["kind"] == "lost":
            print_text(f"  log offsets {one['log'][0]} to {one['log'][1]}: {one['reason']}")
        else:
            print_text(f"  the message at log offset {one['offset']}, {one['topic']}: "
                       f"{one['reason']}")  # fmt: skip
