"""What is wrong with a timer's files."""

from __future__ import annotations

import os
from typing import NamedTuple

#: Findings that are listed; the others are counted.
MAX_FINDINGS = 1000


class TimerFinding(NamedTuple):
    """A fault in the files of the timer, or a message that a broker cannot deliver.

    Attributes
    ----------
    kind : str
        ``timer-wheel`` (unreadable, or of a wrong size), ``timer-slot`` (not in its place, or
        refers to no unit of its time), ``timer-chain`` (a link that leads nowhere, or units that
        no link leads to), ``timer-count`` (a slot's number differs from its chain),
        ``timer-log`` (segments, units), ``timer-message`` (its record is outside the log or is not
        that of a timer message), ``timer-check`` (the checkpoint), ``timer-delete`` (a delete
        that hits no message), ``timer-rocksdb`` (timelines in RocksDB, which are not read) or
        ``timer-more`` (the number of findings that are not listed).
    path : str
        File.
    position : int
        From the start of the file, in bytes.
    reason : str
        What was found and what was expected.
    """

    kind: str
    path: str
    position: int
    reason: str


class TimerFindings(list[TimerFinding]):
    """The findings so far; beyond ``MAX_FINDINGS`` they are counted.

    Attributes
    ----------
    unlisted : int
    """

    unlisted: int = 0

    def add(self, kind: str, path: str | os.PathLike[str], position: int, reason: str) -> None:
        """Add a finding."""
        if len(self) < MAX_FINDINGS:
            self.append(TimerFinding(kind, os.fspath(path), position, reason))
        else:
            self.unlisted += 1

    def listed(self) -> list[TimerFinding]:
        """Return the findings, with one for those that are only counted."""
        if not self.unlisted:
            return list(self)
        reason = f"{self.unlisted} more findings"
        return [*self, TimerFinding("timer-more", self[-1].path, 0, reason)]
