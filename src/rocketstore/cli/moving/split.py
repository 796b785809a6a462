"""``rocketstore split``: some messages of a store as a store of their own."""

from __future__ import annotations

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    BeginOption,
    CommitLogOption,
    ConfigOption,
    EndOption,
    FormatOption,
    QuietOption,
    StorePath,
    TopicsOption,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering
from rocketstore.cli.common.output import chosen
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import parse_time
from rocketstore.cli.moving.made_store import DestinationArgument, MapOption, making, print_made
from rocketstore.moving.split import WORK_SUFFIX
from rocketstore.moving.split import split as split_store


def split(
    path: StorePath,
    destination: DestinationArgument,
    topics: TopicsOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    map_path: MapOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Copy some messages of a store into a new store; the source is only read.

    --topic may have * and ?. --begin selects from the first record of that time on. Messages get
    new log offsets, listed in a file of CSV, and keep their queue offsets; queues, index and
    checkpoint are built from the new log, and the new store is verified.

    The store is made in DEST.rocketstore-split and gets its name when it is complete, checked and
    on disk. If it is interrupted or the disk fills, the same command goes on.

    Exit status 1 if the new store has findings; 3 if the log is damaged; 4 if a writer has the
    store open, if it was changed meanwhile, or if DEST or the map exists.

    \b
    Examples:
      rocketstore split /data/store /data/orders --topic Orders --topic %RETRY%orders
      rocketstore split /data/store /data/recent --begin -7d
    """
    settings = store_config(config, commit_log)
    check_is_store(path, config=settings)
    quieten()  # the report contains everything, once
    times = [parse_time(text) if text is not None else None for text in (begin, end)]
    with making(destination, WORK_SUFFIX), progress_bar(quiet=quiet) as progress:
        report = split_store(
            path, destination, topics=topics or (), begin=times[0], end=times[1],
            map_path=map_path, config=settings, progress=progress,
        )  # fmt: skip
    with answering(f"{destination} is made"):
        print_made(report, {"path": report.path, "topics": report.topics}, "split", chosen(form))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))
