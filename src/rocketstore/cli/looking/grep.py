"""``rocketstore grep``: messages by expressions over properties and bodies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.options import (
    BeginOption,
    CommitLogOption,
    ConfigOption,
    EndOption,
    FormatOption,
    LimitOption,
    QuietOption,
    RecordsOption,
    RecordWord,
    StartOption,
    StopOption,
    TopicsOption,
    check_words,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain, fail
from rocketstore.cli.common.output import Format, chosen, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, parse_time
from rocketstore.cli.common.records import NAMES, record_fields, record_row, record_table
from rocketstore.cli.common.where import compiled
from rocketstore.cli.looking.answers import (
    Answer,
    JobsOption,
    LogPath,
    as_given,
    check_log_path,
    damage_rows,
)
from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92.sql92_filter import Sql92Filter
from rocketstore.looking.body_tests import json_test, regex_test
from rocketstore.looking.search import Grep
from rocketstore.looking.search import grep as search


def grep(
    path: LogPath,
    expression: Annotated[
        str | None,
        typer.Argument(
            metavar="[EXPR]",
            callback=check_words,
            help="SQL92 over the properties: \"total > 50 AND region IN ('eu', 'us')\".",
        ),
    ] = None,
    body_regex: Annotated[
        list[str] | None,
        typer.Option(
            "--body-regex",
            metavar="RE",
            callback=check_words,
            help="The body contains a match of this regular expression; repeatable, all must.",
        ),
    ] = None,
    body_json: Annotated[
        list[str] | None,
        typer.Option(
            "--body-json",
            metavar="PATH=VALUE",
            callback=check_words,
            help="The body is JSON with this value at this place: order.items[0].sku=A-17; "
            "repeatable, all must.",
        ),
    ] = None,
    topics: TopicsOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    start: StartOption = None,
    stop: StopOption = None,
    limit: LimitOption = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Compare and show bodies as stored, not decompressed.")
    ] = False,
    count: Annotated[
        bool, typer.Option("--count", help="Only count the messages that match.")
    ] = False,
    records: RecordsOption = RecordWord.LOG,
    jobs: JobsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Search a log by properties and bodies. All given conditions must hold.

    Compressed bodies are decompressed (zlib, LZ4, Zstandard, up to 64 MiB). Corrupt ranges are
    skipped and reported. Exit status 1 if nothing matches or something could not be read. If
    interrupted, the command prints the --start that continues.

    \b
    Examples:
      rocketstore grep /data/store "total > 50 AND region = 'eu'" --topic Orders
      rocketstore grep /data/store --body-regex 'timeout after \\d+ ms' --begin -1h
      rocketstore grep /data/store --body-json 'order.items[*].sku=A-17' --count
    """
    settings = store_config(config, commit_log)
    if expression is None and not body_regex and not body_json and not topics:
        raise typer.BadParameter("give EXPR, --body-regex, --body-json or --topic")
    where = check_log_path(path, settings, quiet=quiet)
    _check_tests(body_regex or [], body_json or [])
    shown = chosen(form)
    with (
        compiled(expression, Sql92Filter, quiet=quiet, name="EXPR") as made,
        progress_bar(quiet=quiet or (sys.stdout.isatty() and not count)) as progress,
    ):
        found = search(
            where, made, body_regex=body_regex or (), body_json=body_json or (), topics=topics,
            begin=None if begin is None else parse_time(begin),
            end=None if end is None else parse_time(end),
            start=start, stop=stop, limit=limit, raw=raw, records=records.value,
            jobs=jobs, config=settings, progress=progress,
        )  # fmt: skip
        try:
            _print(found, shown, count=count)
        except KeyboardInterrupt:
            raise fail(
                ExitCode.INTERRUPTED, f"interrupted; --start {found.position} continues here"
            ) from None
    _end(found, where, limit, quiet=quiet)


def _check_tests(body_regex: list[str], body_json: list[str]) -> None:
    """End the command for an invalid condition, after showing where the fault is."""
    for name, texts, compile_ in (
        ("--body-regex", body_regex, regex_test),
        ("--body-json", body_json, json_test),
    ):
        for text in texts:
            try:
                compile_(text)
            except FilterSyntaxError as error:
                raise fail(ExitCode.USAGE, f"{name}: {error}", keep="\n") from None


def _summary(found: Grep) -> dict[str, Any]:
    return {
        "matches": found.matches,
        "undecompressed": found.undecompressed,
        "damaged": damage_rows(found.damaged),
    }


def _print(found: Grep, form: Format, *, count: bool) -> None:
    answer = Answer("grep", ("kind", *NAMES), form, record_table())
    if count and form is Format.CSV:
        answer = Answer("grep", ("matches",), form, record_table())
    for message, body in found:
        if not count:
            row = {} if form is Format.TABLE else record_fields(message, body)
            cells = record_row(message, body) if form is Format.TABLE else ()
            answer.write({"kind": "message", **row}, cells)
    if count and form is Format.CSV:
        answer.write({"matches": found.matches}, ())
    answer.finish(_summary(found))
    if count and form is Format.TABLE:
        print_text(str(found.matches))


def _end(found: Grep, where: Path, limit: int | None, *, quiet: bool) -> None:
    if not quiet:
        for one in found.damaged[:20]:
            place = as_given(one.path, where)
            complain(f"skipped: {place} at position {one.position}: {one.reason}")
        if len(found.damaged) > 20:
            complain(f"skipped: {counted(len(found.damaged) - 20, 'further place')}")
        if found.undecompressed:
            complain(
                f"{counted(found.undecompressed, 'body', 'bodies')} compared as stored; the first: "
                f"{found.first_undecompressed}"
            )
        if not found.matches:
            complain("no message meets these conditions")
        elif found.matches == limit:
            complain(
                f"{found.matches} written, as --limit says; --start {found.position} continues"
            )
    if not found.matches or found.damaged:
        raise typer.Exit(int(ExitCode.FINDINGS))
