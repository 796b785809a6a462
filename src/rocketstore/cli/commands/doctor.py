"""``rocketstore doctor``: what is wrong with a store, what that means, and what to do next."""

from __future__ import annotations

import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import quieten
from rocketstore.cli.common.options import (
    BrokerOptionsOption,
    BrokerVersionsOption,
    CheckJobsOption,
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    option_pairs,
    path,
)
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.cli.common.output import (
    Format,
    chosen,
    print_document,
    print_json,
    print_line,
    print_rows,
    print_text,
)
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.text import command_line
from rocketstore.diagnosis.codes import CODES, explanation
from rocketstore.diagnosis.examination import doctor as examine
from rocketstore.diagnosis.verdict import Finding, Verdict

#: Findings on the page; the other forms list all.
_MOST_SHOWN = 12
_STYLES = {"well": "green", "recovers": "yellow"}
_COLUMNS = ("code", "severity", "what", "more", "where", "data", "broker", "action")


class FailOn(StrEnum):
    """From which severity on the exit status is 1."""

    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


def doctor(
    store: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH", parser=path, help='The store, a bare "commitlog", or one segment.'
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only names, sizes, heads, checkpoint and tables.")
    ] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Compare every checksum, too.")] = False,
    ill: Annotated[
        bool, typer.Option("--ill", "-x", help="Print nothing but what is ill.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, help="Findings that are listed; all count."
        ),
    ] = 1000,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Severity from which on the exit status is 1.")
    ] = FailOn.WARNING,
    broker_version: BrokerVersionsOption = None,
    broker_option: BrokerOptionsOption = None,
    codes: Annotated[bool, typer.Option("--codes", help="List all codes and their meaning.")] = (
        False
    ),
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="CODE", help="Explain one code.")
    ] = None,
    jobs: CheckJobsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what is wrong with a store, what it means for data, and what brokers would do.

    Changes nothing. Each finding has a stable code; --explain CODE explains it. The last lines are
    the commands to type next. The exit status is 1 from --fail-on up.

    \b
    Examples:
      rocketstore doctor /data/store
      rocketstore doctor /data/store --quick -x
      rocketstore doctor /data/store --config broker.conf --broker-version 5.3.3
      rocketstore doctor /data/store --format json | jq -r '.findings[].code'
      rocketstore doctor --explain log.record.zeros
    """
    wanted = chosen(form)
    if codes or explain is not None:
        _print_codes(explain, wanted)
        return
    if store is None:
        raise typer.BadParameter("name a store", param_hint="'PATH'")
    if quick and deep:
        raise typer.BadParameter("choose one", param_hint="'--quick' / '--deep'")
    if quick and jobs is not None:
        raise typer.BadParameter("--quick has one thread", param_hint="'--jobs'")
    options = {"store_path_commit_log": commit_log} if commit_log is not None else {}
    level = "quick" if quick else "deep" if deep else "full"
    quieten()  # the findings contain what the library would log
    try:
        with progress_bar(quiet=quiet) as progress:
            verdict = examine(
                store, level=level, config=config, broker_versions=broker_version,
                broker_options=option_pairs(broker_option), limit=limit, jobs=jobs,
                progress=progress, **options,
            )  # fmt: skip
    except KeyboardInterrupt:
        again = command_line("doctor", Path(store), "--quick")
        raise fail(
            ExitCode.INTERRUPTED, f"interrupted; nothing was changed. {again} takes seconds"
        ) from None
    _print(verdict, wanted, ill=ill)
    if "store.none" in verdict.counts:
        raise typer.Exit(int(ExitCode.CANNOT_READ))
    if verdict.fails_on(fail_on.value):
        raise typer.Exit(int(ExitCode.FINDINGS))


# --- codes --------------------------------------------------------------------------------------


def _print_codes(explained: str | None, form: Format) -> None:
    if explained is not None:
        if explained not in CODES:
            raise typer.BadParameter(
                f"there is no code {explained}; --codes lists them", param_hint="'--explain'"
            )
        code = CODES[explained]
        if not print_document(code.document(), form):
            print_text(f"{code.name} ({code.severity})", style="bold")
            print_text(f"{code.what}.")
            for heading, action in explanation(code.name, "PATH"):
                print_text(f"{heading}: {action.words()}")
        return
    if form is Format.JSON:
        print_json([one.document() for one in CODES.values()])
    elif form is Format.NDJSON:
        for one in CODES.values():
            print_line(one.document())
    else:
        rows = [(one.name, one.severity, one.what) for one in CODES.values()]
        print_rows(("code", "severity", "what"), rows, shrink=("what",))


# --- the verdict --------------------------------------------------------------------------------


def _print(verdict: Verdict, form: Format, *, ill: bool) -> None:
    document = verdict.to_json()
    if form is Format.JSON:
        print_json(document)
    elif form is Format.NDJSON:
        for one in document.pop("findings"):
            print_line({"kind": "finding", **one})
        for one in document.pop("broker"):
            print_line({"kind": "broker", **one})
        print_line({"kind": "summary", **document})
    elif form is Format.CSV:
        rows = [tuple(one[name] for name in _COLUMNS) for one in document["findings"]]
        print_rows(_COLUMNS, rows)
    else:
        _print_page(verdict, ill=ill)


def _print_page(verdict: Verdict, *, ill: bool) -> None:
    if ill and verdict.ok:
        return
    if not ill:
        _print_store(verdict)
    style = _STYLES.get(verdict.state, "bold red")
    print_text(f"State: {verdict.state}: {verdict.sentence}.", style=style)
    shown = [one for one in verdict.findings if not (ill and one.severity == "note")]
    if shown:
        print_text()
        for one in shown[:_MOST_SHOWN]:
            _print_finding(one)
        left = len(shown) - _MOST_SHOWN
        if left > 0:
            print_text(f"{counted(left, 'more finding')}; --format ndjson lists all.")
    if verdict.truncated:
        print_text("Some findings are only counted; --limit lists more.")
    if verdict.broker and not (ill and verdict.ok):
        print_text()
        for forecast in verdict.broker:
            about = {"tested": "", "source": " (by its source)", "guess": " (a guess)"}
            print_text(
                f"RocketMQ {forecast.version} {forecast.sentence()}{about[forecast.confidence]}."
            )
    if not ill:
        for note in verdict.notes[:5]:
            print_text(f"Note: {note}.")
        if len(verdict.notes) > 5:
            print_text(f"{counted(len(verdict.notes) - 5, 'more note')}; --format json lists all.")
    for action in verdict.next:
        print_text(f"Next: {action.words()}.")


def _print_store(verdict: Verdict) -> None:
    store = verdict.store
    if not store:
        return
    stop = "unclean stop" if store["unclean"] else "orderly stop"
    print_text(f"{verdict.path}: RocketMQ {store['rocketmq']} ({store['rocketmqWhy']}), {stop}.")
    parts = [counted(store["segments"], "segment") + f" ({format_size(store['bytes'])})"]
    if "records" in store:
        parts.append(counted(store["records"], "record"))
    parts.append(counted(store["queues"], "queue"))
    parts.append(counted(store["indexFiles"], "index file"))
    print_text(f"{', '.join(parts)}; level {verdict.level}, {verdict.duration_s:.1f} s.")


def _print_finding(finding: Finding) -> None:
    what = finding.what[:300]
    print_text(f"{finding.severity:<8} {finding.code}: {what}.")
    place = finding.where[0] if finding.where else None
    if place is not None:
        where = place.file if not place.position else f"{place.file} at {place.position:,}"
        more = finding.count - 1
        print_text(f"         {where}" + (f" and {more:,} more places" if more > 0 else ""))
    means = _means(finding)
    print_text(f"         {means}")


def _means(finding: Finding) -> str:
    data, text = finding.data, CODES[finding.code].means
    parts = []
    if data.messages:
        about = "at least " if data.estimated else ""
        parts.append(f"{data.effect.capitalize()}: {about}{counted(data.messages, 'message')}")
        names = list(dict.fromkeys(str(one["topic"]) for one in data.topics))
        if names:
            parts[-1] += f" of {', '.join(names[:3])}" + (" …" if len(names) > 3 else "")
        if data.begin and data.end:
            first, last = _time(data.begin), _time(data.end)
            parts[-1] += f", stored {first}" + (f" to {last}" if last != first else "")
    return " ".join([text, *(f"{part}." for part in parts)])


def _time(value: int) -> str:
    try:
        found = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return str(value)
    return found.strftime("%Y-%m-%d %H:%M:%SZ")


__all__: Any = ["doctor"]
