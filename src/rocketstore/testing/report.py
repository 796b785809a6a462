"""What ``check_invariants`` checks and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

#: What is checked, by number.
INVARIANTS: Mapping[int, str] = {
    1: "records lie without gaps, each at the offset it names, each full file ends in a blank",
    2: "store times do not go back in log order",
    3: "every queue counts 0, 1, 2, ... and has exactly its records' units",
    4: "no unit points behind the log's end, and a queue's bounds are those of its records",
    5: "every key of every record that is not rolled back is reached through the index",
    6: "what was acknowledged is there, unchanged",
    7: "opening for writing and closing changes no byte of log, queues and index",
    8: "the checkpoint is not ahead of the log",
}
#: At most so many violations of one kind are kept.
_MAX_VIOLATIONS = 100


class Acknowledged(NamedTuple):
    """A message that somebody was told is stored; what is ``None`` is not compared."""

    physical_offset: int
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    body: bytes | None = None
    keys: tuple[str, ...] | None = None


class Violation(NamedTuple):
    """One place where an invariant does not hold.

    Attributes
    ----------
    invariant : int
        Its number in ``INVARIANTS``.
    path : str
        File or folder.
    physical_offset : int or None
        Log offset it is about.
    what : str
    """

    invariant: int
    path: str
    physical_offset: int | None
    what: str

    def __str__(self) -> str:
        where = "" if self.physical_offset is None else f", log offset {self.physical_offset}"
        return f"invariant {self.invariant}: {self.path}{where}: {self.what}"


@dataclass
class Report:
    """What ``check_invariants`` looked at and found.

    Attributes
    ----------
    checked : set of int
        Numbers of the invariants that were looked at.
    violations : list of Violation
        The first hundred of each invariant.
    records, units, entries : int
        Records of the log, units of queues and entries of index files that were read.
    log_start, log_end : int
        Physical offsets.
    notes : list of str
        What could not be checked, and why.
    """

    checked: set[int] = field(default_factory=set)
    violations: list[Violation] = field(default_factory=list)
    records: int = 0
    units: int = 0
    entries: int = 0
    log_start: int = 0
    log_end: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything that was looked at holds."""
        return not self.violations

    def add(self, invariant: int, path: object, offset: int | None, what: str) -> None:
        """Take a violation."""
        if sum(found.invariant == invariant for found in self.violations) < _MAX_VIOLATIONS:
            self.violations.append(Violation(invariant, str(path), offset, what))

    def require(self) -> Report:
        """Return the report; raise ``AssertionError`` naming the violations when there are some."""
        if self.violations:
            raise AssertionError("\n".join(map(str, self.violations[:20])))
        return self
