"""Advise on the findings of ``verify``: the next command, or what to do by hand."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore.repair.recover import MENDED_KINDS

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
        return f"{shlex.join(self.command)}: {self.why}" if self.command else self.why


class _Rule(NamedTuple):
    """Advice for findings of some kinds.

    ``is_else``: skip this rule if the previous rule of its group applied.
    ``command``: the subcommand of rocketstore that repairs.
    """

    kinds: frozenset[str]
    why: str
    command: str = ""
    is_else: bool = False


_RULES = (
    _Rule(
        frozenset({"unreadable"}),
        "give this user read access to the named files, or run this as their owner; then verify",
    ),
    _Rule(
        frozenset({"odd-file"}),
        "move away what occupies the place of a file or folder, or is a link to another file; "
        "then verify",
    ),
    _Rule(
        frozenset({"foreign-file"}),
        "give a segment or queue file that was renamed or compressed its name back; "
        "move anything else out of that folder before a broker starts",
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
    ),
    _Rule(
        frozenset({"misnamed-segment"}),
        "rename each misnamed segment as its finding says (the first one lists the "
        "commands), then verify; no command does this",
        is_else=True,
    ),
    _Rule(
        frozenset({"foreign-segment"}),
        "replace the segment that is likely another store's with the log's own file; "
        "without that file, move the segment out of the log's folder and run rocketstore "
        "salvage, which fills the hole (rocketstore scan copies its messages first)",
        is_else=True,
    ),
    _Rule(
        _LOG,
        "fills the holes of the log, keeps the old files, and makes queues and index match "
        "(--what-if: only reports)",
        command="salvage",
        is_else=True,
    ),
    _Rule(
        MENDED_KINDS,
        "makes queues, index and checkpoint match the log (--what-if: only reports)",
        command="recover",
        is_else=True,
    ),
    _Rule(
        _ORDER,
        "copies the messages; no command repairs queue offsets that are missing or "
        "used twice. Move a segment of another store out of the log's folder: then "
        "salvage fills the hole",
        command="scan",
    ),
    _Rule(
        frozenset({"config-table"}),
        "restore the named tables below config from a backup before a broker starts; "
        "with an empty .bak beside them it starts with empty tables",
    ),
    _Rule(
        frozenset({"config-offset"}),
        "correct the offsets: mqadmin resetOffsetByTime on a running broker, or "
        "rocketstore.config_managers while no broker runs; a broker corrects delay offsets itself",
    ),
    _Rule(
        frozenset({"timer-file"}),
        "restore timerwheel, timerlog and config/timercheck together from a backup; a broker "
        "that starts without all three reads its timed messages again and redelivers "
        "those that are due",
    ),
    _Rule(
        frozenset({"queue-type"}),
        "set the topic's queue.type in topics.json to the type of its queues, or remove the queues "
        "of the wrong type: rocketstore recover rebuilds the right ones from the log",
    ),
)


def advice(path: Path, kinds: Iterable[str]) -> Iterator[Advice]:
    """Yield the steps that repair findings of these kinds, in order of execution."""
    found = frozenset(kinds)
    was_given = False
    for rule in _RULES:
        was_given = was_given and rule.is_else
        if not was_given and found & rule.kinds:
            was_given = True
            command = ("rocketstore", rule.command, os.fspath(path)) if rule.command else ()
            yield Advice(command, rule.why)
