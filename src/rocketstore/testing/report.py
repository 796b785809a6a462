"""What ``check_invariants`` checks and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

#: What is checked, by number.
INVARIANTS: Mapping[int, str] = {
    1: "records have no gaps between them, each is at its own offset, full files end in a blank",
    2: "store times do not go back in log order",
    3: "every queue counts 0, 1, 2, ... and has exactly its records' units",
    4: "no unit points past the log's end, and a queue's bounds are those of its records",
    5: "every key of every record that is not rolled back is found through the index",
    6: "acknowledged messages are stored, unchanged",
    7: "opening for writing and closing changes no byte of log, queues and index",
    8: "the checkpoint is not ahead of the log",
}
#: Most violations that are kept of one invariant.
_MAX_VIOLATIONS = 100


class Acknowledged(NamedTuple):
    """A message that was acknowledged as stored; fields that are ``None`` are not compared."""

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
        Log offset of the violation.
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
    """What ``check_invariants`` checked and found.

    Attributes
    ----------
    checked : set of int
        Numbers of the invariants that were checked.
    violations : list of Violation
        The first hundred of each invariant.
    records, units, entries : int
        Number of records, units and index entries that were read.
    log_start, log_end : int
        Physical offsets.
    notes : list of str
        What was not checked, and why.
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
        """Whether all checked invariants hold."""
        return not self.violations

    def add(self, invariant: int, path: object, offset: int | None, what: str) -> None:
        """Add a violation."""
        if sum(found.invariant == invariant for found in self.violations) < _MAX_VIOLATIONS:
            self.violations.append(Violation(invariant, str(path), offset, what))

    def require(self) -> Report:
        """Return the report; raise ``AssertionError`` with the violations if there are any."""
        if self.violations:
            raise AssertionError("\n".join(map(str, self.violations[:20])))
        return self
