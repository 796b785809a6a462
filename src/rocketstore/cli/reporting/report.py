"""``rocketstore report``: a store's state as one HTML page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    BrokerOptionsOption,
    BrokerVersionsOption,
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    check_path_word,
    check_words,
    option_pairs,
    store_config,
)
from rocketstore.cli.common.options import path as path_of
from rocketstore.cli.common.outcome import ExitCode, answering
from rocketstore.cli.common.output import chosen, print_document, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import format_size
from rocketstore.reporting.report import StoreReport
from rocketstore.reporting.report import report as write


def report(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", parser=path_of, help='The store, a bare "commitlog", or one segment.'
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=path_of,
            help="The page, outside the store; an existing file is replaced.",
        ),
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Compare every checksum, too.")] = False,
    title: Annotated[
        str | None,
        typer.Option(
            "--title", metavar="TEXT", callback=check_words, help="Heading [default: PATH]."
        ),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Show keys and hosts as salted hashes.")
    ] = False,
    broker_version: BrokerVersionsOption = None,
    broker_option: BrokerOptionsOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            max=256,
            help="Threads [default: the processors, at most 4].",
        ),
    ] = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write a store's state as one HTML page that loads nothing.

    In order: verdict and next commands, forecast by RocketMQ version, findings, lost messages, map
    of the log, volume over time, bytes per topic, age, lag, delays, undecided transactions, index,
    and with --config what is odd in the broker's file. The page has at most 2 MiB. The exit status
    is 1 if a finding is a warning or graver.

    \b
    Examples:
      rocketstore report /data/store -o report.html
      rocketstore report /data/store -o report.html --config broker.conf --redact
    """  # fmt: skip
    check_path_word(str(path))
    settings = store_config(config, commit_log)
    if not path.exists():
        check_is_store(path, config=settings)
    quieten()  # the page contains what the library would log
    with progress_bar(quiet=quiet) as progress:
        made = write(
            path, output, deep=deep, title=title, redact=redact, jobs=jobs, progress=progress,
            broker_versions=broker_version, broker_options=option_pairs(broker_option),
            config=settings if config is None or commit_log is not None else config,
        )  # fmt: skip
    with answering(f"the report is in {made.path}"):
        _print(made, form)
    if "store.none" in made.verdict.counts:
        raise typer.Exit(int(ExitCode.CANNOT_READ))
    if made.verdict.fails_on("warning"):
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(made: StoreReport, form: FormatOption) -> None:
    verdict = made.verdict
    document = {
        "schema": "rocketstore.report/1",
        "path": made.path,
        "bytes": made.nbytes,
        "store": os.fspath(verdict.path),
        "state": verdict.state,
        "sentence": verdict.sentence,
        "counts": verdict.counts,
        "problems": made.problems,
    }
    if print_document(document, chosen(form)):
        return
    print_text(f"State: {verdict.state}: {verdict.sentence}.")
    for part, why in made.problems.items():
        print_text(f"Not in the page: {part}: {why}.")
    print_text(f"{made.path}: {format_size(made.nbytes)}.")


__all__ = ["report"]
