"""What mends the findings of ``verify``: the next command, or what a person has to do."""

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
    """One step.

    Attributes
    ----------
    command : tuple of str
        Words to type; none where a person has to act otherwise.
    why : str
    """

    command: tuple[str, ...]
    why: str

    def document(self) -> dict[str, Any]:
        """Names and values of the JSON form."""
        return {"command": list(self.command), "why": self.why}

    def text(self) -> str:
        """One line for people."""
        return f"{shlex.join(self.command)}: {self.why}" if self.command else self.why


class _Rule(NamedTuple):
    """Advice for findings of some kinds.

    ``is_else``: only where the rule before does not hold, nor those that it is ``is_else`` of.
    ``command``: the command of rocketstore that helps.
    """

    kinds: frozenset[str]
    why: str
    command: str = ""
    is_else: bool = False


_RULES = (
    _Rule(
        frozenset({"unreadable"}),
        "let this user read the files that are named, or run this as their owner; then verify",
    ),
    _Rule(
        frozenset({"odd-file"}),
        "move away what stands in the place of a file or folder, or is another file by a link; "
        "then verify",
    ),
    _Rule(
        frozenset({"foreign-file"}),
        "a segment or queue file that was renamed or compressed belongs back under its name; "
        "move anything else out of that folder before a broker starts",
    ),
    _Rule(
        frozenset({"lost-queue"}),
        "put the folders of the queues that are gone back from a backup before anything is put "
        "into them; without one, reset their groups' offsets once a broker runs (mqadmin "
        "resetOffsetByTime), as it numbers from 0",
    ),
    _Rule(
        frozenset({"another-log"}),
        "mount or put back the log that belongs to this store, and look again; no command "
        "writes to it before",
    ),
    _Rule(
        frozenset({"misnamed-segment"}),
        "give each misnamed segment the name that its finding says (the first one holds the "
        "commands), and look again; no command does it",
        is_else=True,
    ),
    _Rule(
        frozenset({"foreign-segment"}),
        "put the log's own file in the place of the segment that is likely another store's; "
        "where there is none, move the segment out of the log's folder and call rocketstore "
        "salvage, which fills the hole (rocketstore scan copies its messages out before)",
        is_else=True,
    ),
    _Rule(
        _LOG,
        "fills what is lost of the log, keeps the old files, and makes queues and index fit "
        "(--what-if: only says what)",
        command="salvage",
        is_else=True,
    ),
    _Rule(
        MENDED_KINDS,
        "makes queues, index and checkpoint fit the log (--what-if: only says what)",
        command="recover",
        is_else=True,
    ),
    _Rule(
        _ORDER,
        "copies the messages out; no command sets right queue offsets that are missing or "
        "claimed twice. A segment of another store belongs out of the log's folder: then "
        "salvage fills the hole",
        command="scan",
    ),
    _Rule(
        frozenset({"config-table"}),
        "restore the tables below config that are named from a backup before a broker starts; "
        "an empty .bak beside them lets it start with empty tables",
    ),
    _Rule(
        frozenset({"config-offset"}),
        "set the offsets right: mqadmin resetOffsetByTime on a running broker, or "
        "rocketstore.config_managers while none runs; a broker moves delay offsets itself",
    ),
    _Rule(
        frozenset({"timer-file"}),
        "restore timerwheel, timerlog and config/timercheck together from a backup; a broker "
        "that starts without the three reads its timed messages again, and delivers again "
        "those whose time has come",
    ),
    _Rule(
        frozenset({"queue-type"}),
        "set the topic's queue.type in topics.json to that of its queues, or remove the queues "
        "of the wrong type: rocketstore recover makes those of the right one from the log",
    ),
)


def advice(path: Path, kinds: Iterable[str]) -> Iterator[Advice]:
    """Yield what to do about findings of these kinds, in the order in which to do it."""
    found = frozenset(kinds)
    was_given = False
    for rule in _RULES:
        was_given = was_given and rule.is_else
        if not was_given and found & rule.kinds:
            was_given = True
            command = ("rocketstore", rule.command, os.fspath(path)) if rule.command else ()
            yield Advice(command, rule.why)
