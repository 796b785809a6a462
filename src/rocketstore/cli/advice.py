"""What mends the findings of ``verify``: the next command, or what a person has to do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore.store_recovery import MENDED_KINDS

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


def advice(path: Path, kinds: Iterable[str]) -> Iterator[Advice]:
    """Yield what to do about findings of these kinds, in the order in which to do it."""
    found = frozenset(kinds)
    store = os.fspath(path)
    if "unreadable" in found:
        why = "let this user read the files that are named, or run this as their owner; then verify"
        yield Advice((), why)
    if "odd-file" in found:
        why = (
            "move away what stands in the place of a file or folder, or is another file by a link; "
            "then verify"
        )
        yield Advice((), why)
    if "foreign-file" in found:
        why = (
            "a segment or queue file that was renamed or compressed belongs back under its name; "
            "move anything else out of that folder before a broker starts"
        )
        yield Advice((), why)
    if "lost-queue" in found:
        why = (
            "put the folders of the queues that are gone back from a backup before anything is put "
            "into them; without one, reset their groups' offsets once a broker runs (mqadmin "
            "resetOffsetByTime), as it numbers from 0"
        )
        yield Advice((), why)
    if "another-log" in found:
        why = (
            "mount or put back the log that belongs to this store, and look again; no command "
            "writes to it before"
        )
        yield Advice((), why)
    elif "misnamed-segment" in found:
        why = (
            "give each misnamed segment the name that its finding says (the first one holds the "
            "commands), and look again; no command does it"
        )
        yield Advice((), why)
    elif "foreign-segment" in found:
        why = (
            "put the log's own file in the place of the segment that is likely another store's; "
            "where there is none, move the segment out of the log's folder and call rocketstore "
            "salvage, which fills the hole (rocketstore scan copies its messages out before)"
        )
        yield Advice((), why)
    elif found & _LOG:
        why = "fills what is lost of the log, keeps the old files, and makes queues and index fit"
        yield Advice(("rocketstore", "salvage", store), f"{why} (--what-if: only says what)")
    elif found & MENDED_KINDS:
        why = "makes queues, index and checkpoint fit the log"
        yield Advice(("rocketstore", "recover", store), f"{why} (--what-if: only says what)")
    if found & _ORDER:
        why = (
            "copies the messages out; no command sets right queue offsets that are missing or "
            "claimed twice. A segment of another store belongs out of the log's folder: then "
            "salvage fills the hole"
        )
        yield Advice(("rocketstore", "scan", store), why)
    if "config-table" in found:
        why = (
            "restore the tables below config that are named from a backup before a broker starts; "
            "an empty .bak beside them lets it start with empty tables"
        )
        yield Advice((), why)
    if "config-offset" in found:
        why = (
            "set the offsets right: mqadmin resetOffsetByTime on a running broker, or "
            "rocketstore.config_managers while none runs; a broker moves delay offsets itself"
        )
        yield Advice((), why)
    if "timer-file" in found:
        why = (
            "restore timerwheel, timerlog and config/timercheck together from a backup; a broker "
            "that starts without the three reads its timed messages again, and delivers again "
            "those whose time has come"
        )
        yield Advice((), why)
    if "queue-type" in found:
        why = (
            "set the topic's queue.type in topics.json to that of its queues, or remove the queues "
            "of the wrong type: rocketstore recover makes those of the right one from the log"
        )
        yield Advice((), why)
