"""``rocketstore scan``: read the log from its first record to its last."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from rocketstore.arguments import Progress
from rocketstore.cli.commands.walk import LogWalk
from rocketstore.cli.common.opening import reading
from rocketstore.cli.common.options import (
    BeginOption,
    BodyOption,
    CommitLogOption,
    ConfigOption,
    EndOption,
    FormatOption,
    KeyOption,
    LimitOption,
    OnCorruption,
    OnCorruptionOption,
    QuietOption,
    RecordsOption,
    RecordWord,
    StorePath,
    TagsOption,
    TopicsOption,
    UniqueKeyOption,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, complain
from rocketstore.cli.common.output import Format, chosen
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import parse_time
from rocketstore.cli.common.records import print_records
from rocketstore.cli.common.where import WhereOption, compiled
from rocketstore.errors import CorruptMessageError
from rocketstore.query.conditions import Conditions
from rocketstore.store.default_message_store import DefaultMessageStore


def scan(
    path: StorePath,
    topics: TopicsOption = None,
    key: KeyOption = None,
    unique_key: UniqueKeyOption = None,
    tags: TagsOption = None,
    body_contains: BodyOption = None,
    where: WhereOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--start", metavar="OFFSET", min=0, help="Log offset of the first record to read."
        ),
    ] = None,
    stop: Annotated[
        int | None,
        typer.Option("--stop", metavar="OFFSET", min=0, help="Log offset before which to stop."),
    ] = None,
    limit: LimitOption = None,
    records: RecordsOption = RecordWord.LOG,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Read the log in its own order.

    The log also has half messages and rollbacks of transactions, which no consumer sees; --records
    queues omits them. If interrupted or ended by --limit, it prints the --start that continues.

    \b
    Examples:
      rocketstore scan /data/store --topic TopicA --begin -1h
      rocketstore scan /data/store --topic Orders --where "state = 'PAID' AND total > 100"
      rocketstore scan /data/store --body-contains '"order": 17' --format csv > found.csv
      rocketstore scan /data/store --on-corruption skip --quiet | wc -l
      rocketstore scan /data/store --start 1073741824 --limit 1000
    """
    conditions = Conditions.of(
        topics=topics,
        key=key,
        unique_key=unique_key,
        tags=tags,
        body_contains=body_contains,
        begin=None if begin is None else parse_time(begin),
        end=None if end is None else parse_time(end),
    )
    with reading(
        path, quiet=quiet, config=store_config(config, commit_log), message_index_enable=False
    ) as store:
        check_start(store, start)
        with (
            compiled(where, store.filter, quiet=quiet) as made,
            progress_beside_output(quiet=quiet) as progress,
        ):
            walk = LogWalk(
                store,
                conditions,
                start=start,
                stop=stop,
                limit=limit,
                on_corruption=on_corruption.value,
                records=records.value,
                where=made,
                progress=progress,
            )
            count = print_walk(walk, chosen(form), limit=limit, quiet=quiet)
    if not count:
        if not quiet:
            complain("no message meets these conditions")
        raise typer.Exit(int(ExitCode.FINDINGS))


def check_start(store: DefaultMessageStore, start: int | None) -> None:
    """Refuse, before any output, an offset where no record begins."""
    if start is None or start <= max(store.min_physical_offset, 0):
        return
    end = store.max_physical_offset
    if end < start < max((one.stop for one in store.recovery_report.damaged), default=0):
        return  # a corrupt range: reading handles it as --on-corruption says
    if start > end:
        raise typer.BadParameter(
            f"the log ends at offset {end}, before {start}", param_hint="'--start'"
        )
    try:
        store.reader.check_scan_start(start)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; `rocketstore scan` lists record offsets") from None


def progress_beside_output(*, quiet: bool) -> AbstractContextManager[Progress | None]:
    """Show progress on stderr, unless the answer goes to the same terminal."""
    return progress_bar(quiet=quiet or sys.stdout.isatty())


def print_walk(walk: LogWalk, form: Format, *, limit: int | None, quiet: bool) -> int:
    """Write the messages of the walk; return their number.

    If interrupted or failing, print how to continue.
    """
    try:
        count = print_records(walk, form)
    except KeyboardInterrupt:
        complain(f"interrupted; `rocketstore scan` with --start {walk.position} continues here")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    except CorruptMessageError:
        if not quiet:
            complain("`rocketstore scan --on-corruption skip` continues after a corrupt range")
        raise
    if limit is not None and count == limit and not quiet:
        complain(f"{limit} written, as --limit says; --start {walk.position} continues")
    return count
