"""Advise on the findings of ``verify``: the next command, or what to do by hand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore.cli.common.text import join_words
from rocketstore.diagnosis.codes import command_words
from rocketstore.diagnosis.next_steps import COPY_FIRST
from rocketstore.mending.recover import MENDED_KINDS

_LOG = frozenset(("log-file", "record"))
_ORDER = frozenset(("queue-offset", "doubled-offset"))


class Advice(NamedTuple):
    """One step of a repair.

    Attributes
    ----------
    command : tuple of str
        Words of the command to run; empty if the step is done by hand.
    why : str
    """

    command: tuple[str, ...]
    why: str

    def document(self) -> dict[str, Any]:
        """Return the values by their JSON names."""
        return {"command": list(self.command), "why": self.why}

    def text(self) -> str:
        """Return one line for people."""
        return f"{join_words(self.command)}: {self.why}" if self.command else self.why


class _Rule(NamedTuple):
    """Advice for findings of some kinds.

    ``command``: the subcommand of rocketstore. ``stops_plan``: a plan refuses the store until a
    person has done this.
    """

    kinds: frozenset[str]
    why: str
    command: str = ""
    stops_plan: bool = False


_PLANNED = (
    MENDED_KINDS
    | _LOG
    | {"misnamed-segment", "foreign-file", "config-table", "config-offset"}
)  # fmt: skip
_RULES = (
    _Rule(
        frozenset({"unreadable"}),
        "give this user read access to the named files, or run this as their owner; then verify",
        stops_plan=True,
    ),
    _Rule(
        frozenset({"odd-file"}),
        "move away what occupies the place of a file or folder, or is a link to another file; "
        "then verify",
        stops_plan=True,
    ),
    _Rule(
        frozenset({"foreign-file"}),
        "give a segment or queue file that was renamed or compressed its name back; "
        "move anything else out of that folder before a broker starts (a plan sets files aside)",
    ),
    _Rule(
        frozenset({"lost-queue"}),
        "restore the folders of the missing queues from a backup before putting messages into "
        "them; without a backup, reset their groups' offsets once a broker runs (mqadmin "
        "resetOffsetByTime), because it numbers from 0",
    ),
    _Rule(
        frozenset({"another-log"}),
        "mount or restore the log that belongs to this store, then verify; until then no command "
        "writes to it",
        stops_plan=True,
    ),
    _Rule(
        frozenset({"foreign-segment"}),
        "replace the segment that is likely another store's with the log's own file; "
        "without that file, move the segment out of the log's folder and make a plan, "
        "which fills the hole (rocketstore scan copies its messages first)",
        stops_plan=True,
    ),
    _Rule(
        frozenset({"config-table"}),
        "if a backup of the named tables below config exists, restore it before a broker starts; "
        "with an empty .bak beside them it starts with empty tables",
    ),
    _Rule(
        frozenset({"timer-file"}),
        "restore timerwheel, timerlog and config/timercheck together from a backup; a broker "
        "that starts without all three reads its timed messages again and redelivers "
        "those that are due",
        stops_plan=True,
    ),
    _Rule(
        frozenset({"transaction-op"}),
        "restore the log's segments that held the half messages from a backup; without one the "
        "decisions are done, and new half messages would count as decided: begin none until the "
        "half topic is past the named offsets",
    ),
    _Rule(
        frozenset({"queue-type"}),
        "set the topic's queue.type in topics.json to the type of its queues, or remove the queues "
        "of the wrong type: a plan rebuilds the right ones from the log",
        stops_plan=True,
    ),
    _Rule(
        _PLANNED,
        "writes down the steps that mend it, and all that is lost; rocketstore repair follows them",
        command="plan",
    ),
    _Rule(
        _ORDER,
        "copies the messages; no command repairs queue offsets that are missing or "
        "used twice. Move a segment of another store out of the log's folder: then "
        "a plan fills the hole",
        command="scan",
    ),
)

_SALVAGE = _Rule(
    _LOG,
    "shows how the log's holes are filled, and what is lost; without --what-if it does so",
    command="salvage",
)


def advice(
    path: Path,
    kinds: Iterable[str],
    *,
    options: Sequence[str] = (),
    log_is_elsewhere: bool = False,
    has_several_logs: bool = False,
) -> Iterator[Advice]:
    """Yield the steps that repair findings of these kinds, in order of execution.

    ``options``: words that each command needs, such as ``--config FILE``. ``log_is_elsewhere``: the
    log is outside the store's root, where a plan changes nothing. ``has_several_logs``: it is in
    several folders, so a plan is for a copy.
    """
    found = frozenset(kinds)
    rules = [rule for rule in _RULES if found & rule.kinds]
    has_no_plan = any(rule.stops_plan for rule in rules)
    for rule in rules:
        if rule.command == "plan" and has_no_plan:
            continue
        if rule.command == "plan" and has_several_logs:
            yield Advice((), COPY_FIRST)
            continue
        is_for_salvage = rule.command == "plan" and log_is_elsewhere and found & _LOG
        step = _SALVAGE if is_for_salvage else rule
        words = [*command_words(step.command, os.fspath(path)), *options] if step.command else []
        yield Advice(tuple(words), step.why)
