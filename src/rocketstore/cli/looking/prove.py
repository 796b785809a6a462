"""``rocketstore prove``: what a store says about one record, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketstore.cli.common.options import (
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    store_config,
)
from rocketstore.cli.common.options import path as path_of
from rocketstore.cli.common.outcome import ExitCode, answering, fail
from rocketstore.cli.common.output import chosen, print_fields, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted
from rocketstore.cli.looking.answers import LogPath, as_given, check_log_path, print_answer
from rocketstore.looking.evidence import Evidence
from rocketstore.looking.evidence import prove as collect

COLUMNS = ("kind", "name", "sha256")


def prove(
    path: LogPath,
    offset: Annotated[int, typer.Argument(min=0, help="Log offset of the record.")],
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            parser=path_of,
            help="A new or empty folder, outside the store.",
        ),
    ],
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write a record, its neighbours, unit, index entries and hashes into a folder.

    evidence.json has the fields, the CRCs as stored and as computed, and the SHA-256 of every file
    and of the whole segment. Exit status 1 if there is no good record, or if queue or index do not
    name it.

    \b
    Examples:
      rocketstore prove /data/store 73728 -o /tmp/evidence
      rocketstore prove /backup/commitlog/00000000000000065536 73728 -o /tmp/evidence
    """
    settings = store_config(config, commit_log)
    where = check_log_path(path, settings, quiet=quiet)
    with progress_bar(quiet=quiet) as progress:
        try:
            evidence = collect(where, offset, out, config=settings, progress=progress)
        except ValueError as error:
            raise fail(ExitCode.USAGE, str(error)) from None
    with answering(f"the evidence is in {out}"):
        _print(evidence, where, form)
    if not evidence.ok:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(evidence: Evidence, where: Path, form: FormatOption) -> None:
    document = evidence.document
    rows = [{"kind": "file", **one} for one in document["files"]]
    summary = {
        "path": evidence.path,
        "offset": evidence.offset,
        "segment": document["segment"],
        "findings": evidence.findings,
    }
    if print_answer("prove", summary, rows, COLUMNS, chosen(form)):
        return
    record = document["record"]
    fields = record.get("fields", {})
    print_fields(
        [
            ("record", record["status"]),
            ("topic", fields.get("topic")),
            ("queue", fields.get("queueId")),
            ("offset", fields.get("queueOffset")),
            ("sha256", record.get("sha256")),
            ("segment", as_given(document["segment"]["file"], where)),
            ("segment sha256", document["segment"]["sha256"]),
            ("folder", evidence.path),
        ]
    )
    print_text()
    for finding in evidence.findings:
        print_text(f"Finding: {finding}.", "bold red")
    print_text(f"{counted(len(evidence.files), 'file')} written.")
