"""``rocketstore merge``: one store of two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    path,
    store_config,
)
from rocketstore.cli.common.outcome import ExitCode, answering
from rocketstore.cli.common.output import chosen
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.moving.diff import CommitLogBOption, ConfigBOption
from rocketstore.cli.moving.made_store import DestinationArgument, MapOption, making, print_made
from rocketstore.moving.merge import WORK_SUFFIX
from rocketstore.moving.merge import merge as merge_stores


def merge(
    a: Annotated[Path, typer.Argument(metavar="A", parser=path, help="A store.")],
    b: Annotated[Path, typer.Argument(metavar="B", parser=path, help="Another store.")],
    destination: DestinationArgument,
    map_path: MapOption = None,
    commit_log: CommitLogOption = None,
    commit_log_b: CommitLogBOption = None,
    config: ConfigOption = None,
    config_b: ConfigBOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make one store of two, in the order of their times; both are only read.

    Messages get new log offsets, listed in a file of CSV. A queue that one store has keeps its
    queue offsets; messages of a queue of both are numbered from 0. Consumers go on where they have
    consumed everything before: they may get messages again, and miss none.

    The store is made in DEST.rocketstore-merge and gets its name when it is complete, checked and
    on disk. If it is interrupted or the disk fills, the same command goes on.

    Exit status 1 if the new store has findings; 3 if a log is damaged; 4 if a writer has a store
    open, if one was changed meanwhile, if DEST or the map exists, or if both have records that name
    queue offsets (transactions, batches of the same queue).

    \b
    Examples:
      rocketstore merge /data/broker-a /data/broker-b /data/both
    """
    settings = store_config(config, commit_log)
    others = None
    if config_b is not None or commit_log_b is not None:
        others = store_config(config_b if config_b is not None else config, commit_log_b)
    for one, its in ((a, settings), (b, others or settings)):
        check_is_store(one, config=its)
    quieten()  # the report contains everything, once
    with making(destination, WORK_SUFFIX), progress_bar(quiet=quiet) as progress:
        report = merge_stores(
            a, b, destination, map_path=map_path, config=settings, config_b=others,
            progress=progress,
        )  # fmt: skip
    members = {
        "a": report.a,
        "b": report.b,
        "messagesA": report.messages_a,
        "messagesB": report.messages_b,
        "sharedQueues": report.shared_queues,
    }
    with answering(f"{destination} is made"):
        print_made(report, members, "merge", chosen(form))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))
