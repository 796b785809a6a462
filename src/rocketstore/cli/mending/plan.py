"""``rocketstore plan``: write down what would mend a store, and what is lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstore.cli.common.opening import check_is_store, quieten
from rocketstore.cli.common.options import (
    BuiltOptionsOption,
    BuiltVersionOption,
    CommitLogOption,
    ConfigOption,
    FormatOption,
    QuietOption,
    StorePath,
    check_path_word,
    check_words,
    store_config,
    with_broker,
)
from rocketstore.cli.common.outcome import ExitCode
from rocketstore.cli.common.output import Format, chosen, print_report, print_text
from rocketstore.cli.common.progress import progress_bar
from rocketstore.cli.common.quantities import counted, format_size
from rocketstore.cli.common.text import command_line
from rocketstore.files.durable import refuse_odd_output
from rocketstore.planning.planning import plan as make_plan
from rocketstore.planning.repair_plan import RepairPlan

#: CSV columns of a row.
ROW_NAMES = ("kind", "id", "step", "reason", "files", "roomBytes", "sentence")
_LISTED = 20


def plan(
    path: StorePath,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the plan there, as JSON; not inside the store.",
            callback=check_path_word,
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Plan these steps only: kinds (queue.*) or codes of doctor.",
            callback=check_words,
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Leave out these steps.", callback=check_words),
    ] = None,
    no_placeholders: Annotated[
        bool,
        typer.Option(
            "--no-placeholders", help="Do not keep the places of lost messages in their queues."
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Allow steps that give up a readable message."),
    ] = False,
    broker_version: BuiltVersionOption = None,
    broker_option: BuiltOptionsOption = None,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    form: FormatOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write down what would mend a store: each step, its files, its reason, and all that is lost.

    Nothing of the store is changed. "rocketstore repair PATH --plan FILE" does what the file says,
    and only if the store is still the same. Exit status: 0 if there is nothing to do, 1 if there
    are steps, 4 if there is no safe plan; the message then says what a person must do first.

    \b
    Examples:
      rocketstore plan /data/store -o plan.json
      rocketstore plan /data/store -o plan.json --only 'config.*'
    """
    settings = with_broker(store_config(config, commit_log), broker_version, broker_option)
    check_is_store(path, config=settings)
    inside = Path(os.path.realpath(output)).is_relative_to(os.path.realpath(path))
    if inside:
        raise typer.BadParameter("the plan must not be inside the store", param_hint="--output")
    refuse_odd_output(Path(output))
    quieten()
    with progress_bar(quiet=quiet) as progress:
        found = make_plan(
            path,
            only=only or (),
            skip=skip or (),
            placeholders=not no_placeholders,
            accept_loss=accept_loss,
            progress=progress,
            config=settings,
        )
    found.save(output)
    _print(found, path, output, chosen(form))
    if not found.empty:
        raise typer.Exit(int(ExitCode.FINDINGS))


def _print(found: RepairPlan, path: Path, output: str, form: Format) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "step", "id": one.id, "step": one.kind, "reason": one.reason,
         "files": len(one.files), "roomBytes": one.room_nbytes, "sentence": one.sentence}
        for one in found.steps
    ]  # fmt: skip
    losses = [*found.already, *found.by_repair]
    rows += [{**one, "kind": "loss"} for one in losses]
    rows += [{**one, "kind": "placeholder"} for one in found.placeholders]
    rows += [{**one, "kind": "left"} for one in found.left]
    summary = {
        "kind": "summary",
        "id": found.id,
        "output": output,
        "steps": len(found.steps),
        "lostMessages": lost_count([*found.already, *found.by_repair]),
        "placeholders": len(found.placeholders),
        "left": len(found.left),
    }
    if not print_report(summary, "rows", rows, ROW_NAMES, form):
        _print_text(found, path, output)


def lost_count(losses: Sequence[dict[str, Any]]) -> int:
    """Return how many messages are known to be lost, of a plan's losses."""
    return sum(one["messages"] or 0 for one in losses)


def _print_text(found: RepairPlan, path: Path, output: str) -> None:
    if found.empty and found.left:
        print_text("No step of a plan is possible.")
    elif found.empty:
        print_text("Nothing is to be done.", style="green")
    for step in found.steps:
        room = f", {format_size(step.room_nbytes)}" if step.room_nbytes else ""
        print_text(f"{step.id:>4}  {step.kind:<16} {counted(len(step.files), 'file')}{room}")
        print_text(f"      {step.sentence}")
    _print_losses(found)
    for one in found.left:
        print_text(f"No step mends: {one['sentence']} ({one['code']}).")
    if not found.empty:
        print_text("To do it, with the broker stopped:")
        print_text(f"  {command_line('repair', path, '--plan', Path(output))}")


def _print_losses(found: RepairPlan) -> None:
    _print_losses_of("Lost before", found.already)
    _print_losses_of("Lost by the repair", found.by_repair)
    if found.placeholders:
        print_text(f"{counted(len(found.placeholders), 'empty message')} take their places.")


def _print_losses_of(heading: str, losses: Sequence[dict[str, Any]]) -> None:
    known = [one for one in losses if one["topic"] is not None]
    ranges = [one for one in losses if one["topic"] is None]
    if not losses:
        return
    size = format_size(sum(one["log"][1] - one["log"][0] for one in ranges))
    print_text(
        f"{heading}: {size} of the log in {counted(len(ranges), 'range')}, with at least "
        f"{counted(lost_count(losses), 'message')}:"
    )
    for one in known[:_LISTED]:
        numbers = one["queueOffsets"]
        place = f" from {numbers[0]} to {numbers[1]}" if numbers else ""
        print_text(f"  {one['topic']} queue {one['queueId']}{place}: {one['messages']}")
    hidden = len(known) - _LISTED
    if hidden > 0:
        print_text(f"  and {hidden} more; the plan names all of them.")
