"""What the commands that make a new store from others have in common: errors and answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from rocketstore.cli.common.options import path
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.cli.common.output import Format, print_report, print_text
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.text import command_line
from rocketstore.errors import ConfigError, CorruptionError, SourceChangedError
from rocketstore.verify.report import VerifyReport

DestinationArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DEST",
        parser=path,
        help="The new store: a path that does not exist, or an empty folder.",
    ),
]
MapOption = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        parser=path,
        help="The file that says where each record was, CSV [default: DEST.map.csv].",
    ),
]
_COLUMNS = ("kind", "code", "path", "position", "offset", "text")
_LISTED = 20


class MadeStore(Protocol):
    """What the reports of ``split`` and ``merge`` share."""

    destination: str
    state: str
    map: str
    messages: int
    nbytes: int
    log_start: int
    log_end: int
    resumed: bool
    verify: VerifyReport | None
    notes: list[str]
    duration_s: float


@contextlib.contextmanager
def making(destination: Path, suffix: str) -> Iterator[None]:
    """Translate the errors of making a store into exit codes."""
    try:
        yield
    except (FileExistsError, SourceChangedError) as error:
        named = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise fail(ExitCode.UNSAFE, f"{named}{text}") from None
    except (ConfigError, CorruptionError):
        raise
    except ValueError as error:
        raise fail(ExitCode.USAGE, str(error)) from None
    except KeyboardInterrupt:
        raise fail(
            ExitCode.INTERRUPTED,
            f"interrupted; the same command goes on with what is in {destination}{suffix}",
        ) from None


def print_made(report: MadeStore, members: dict[str, Any], word: str, form: Format) -> None:
    """Print the report; ``members`` are those of this command alone."""
    found = report.verify
    rows: list[dict[str, Any]] = [{"kind": "note", "text": note} for note in report.notes]
    for one in found.findings if found is not None else ():
        rows.append(
            {"kind": "finding", "code": one.kind, "path": one.path, "position": one.position,
             "offset": one.offset, "text": one.reason}
        )  # fmt: skip
    summary = {
        "kind": "summary",
        "schema": f"rocketstore.{word}/1",
        **members,
        "destination": report.destination,
        "state": report.state,
        "map": report.map,
        "messages": report.messages,
        "bytes": report.nbytes,
        "log": [report.log_start, report.log_end],
        "resumed": report.resumed,
        "findings": found.finding_count if found is not None else 0,
        "durationSeconds": round(report.duration_s, 3),
    }
    if not print_report(summary, "rows", rows, _COLUMNS, form):
        _print_text(report)


def _print_text(report: MadeStore) -> None:
    if report.state == "already":
        print_text(f"{report.destination} was complete already; nothing was left to do.")
        return
    how = "Went on and copied" if report.resumed else "Copied"
    print_text(
        f"{how} {counted(report.messages, 'message')} ({format_size(report.nbytes)}), log offsets "
        f"{report.log_start} to {report.log_end}."
    )
    print_text(f"Where each was: {report.map}")
    for note in report.notes:
        print_text(f"Note: {note}.")
    found = report.verify
    if found is None or found.ok:
        print_text("The new store was verified: no findings.", style="green")
        return
    print_text(f"The new store has {counted(found.finding_count, 'finding')}:", style="bold red")
    for one in found.findings[:_LISTED]:
        print_text(f"  {one.path} at {one.position}: {one.reason}")
    print_text(f"What to do: {command_line('doctor', Path(report.destination))}")
