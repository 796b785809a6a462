"""What ``diff`` reports: differences, what could not be read, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: What ``diff`` compares, in order.
PARTS = ("log", "queues", "keys", "config")


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two stores differ.

    Attributes
    ----------
    kind : str
        ``log.start``, ``log.end`` (the logs begin or end at different offsets), ``log.record``,
        ``queue.missing`` (one store lacks the queue), ``queue.range`` (first and next queue
        offset), ``queue.unit``, ``key.missing`` (one index lacks an entry), ``config.missing``,
        ``config.value`` or ``config.bytes``.
    where : str
        What differs: ``commitlog``, ``Orders/2``, ``index``, ``config/topics.json``, and in a table
        the path of the value.
    offset : int or None
        The log offset concerned.
    queue_offset : int or None
        The queue offset concerned.
    a, b : Any
        What each store has there: a number, a text, a list, a mapping; ``None`` for nothing.
    text : str
        The difference in words.
    """

    kind: str
    where: str
    offset: int | None
    queue_offset: int | None
    a: Any
    b: Any
    text: str


@dataclass
class DiffReport:
    """What ``diff`` found.

    Attributes
    ----------
    a, b : str
        The stores.
    state : str
        ``equal``; ``different``; or ``unreadable``: no difference was found, but not everything
        could be read.
    since : int or None
        The log offset from which on the stores were compared.
    parts : tuple of str
        What was compared, of ``log``, ``queues``, ``keys`` and ``config``.
    log_a, log_b : tuple of int
        Where each log begins and ends.
    first_offset : int or None
        The first log offset at which the logs differ.
    differences : list of Difference
        The first ``limit`` of them, logs first.
    counts : dict
        The number of differences, by kind. In a queue only the first differing unit counts, and a
        log is not compared after the first offset at which both have different good records.
    truncated : bool
        There are more differences than are listed.
    unread : list of str
        What could not be read, and where.
    compared : dict
        ``bytes`` and ``records`` of the log, ``queues``, ``units``, ``keys`` and ``files`` (tables)
        that were compared.
    notes : list of str
    duration_s : float
    """

    a: str
    b: str
    state: str = "equal"
    since: int | None = None
    parts: tuple[str, ...] = PARTS
    log_a: tuple[int, int] = (0, 0)
    log_b: tuple[int, int] = (0, 0)
    first_offset: int | None = None
    differences: list[Difference] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    truncated: bool = False
    unread: list[str] = field(default_factory=list)
    compared: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.counts.items()))
        first = "" if self.first_offset is None else f" from log offset {self.first_offset}"
        found = f"; {counts}" if counts else ""
        return f"<DiffReport {self.a!r}, {self.b!r}: {self.state}{first}{found}>"

    @property
    def equal(self) -> bool:
        """Whether everything could be read and nothing differs."""
        return self.state == "equal"


class Findings:
    """Collects what the comparisons find, within a limit; not for several threads.

    Parameters
    ----------
    limit : int
        Differences, and texts of what is unreadable, that are kept.
    """

    def __init__(self, limit: int) -> None:
        self.differences: list[Difference] = []
        self.counts: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()
        self.unread: list[str] = []
        self.notes: list[str] = []
        self.unread_count = 0
        self._limit = limit

    def add(
        self,
        kind: str,
        where: str,
        pair: Sequence[Any],
        text: str,
        *,
        offset: int | None = None,
        queue_offset: int | None = None,
    ) -> None:
        """Count a difference, and keep it if there is room; ``pair`` is what each store has."""
        a, b = pair
        self.counts[kind] += 1
        if len(self.differences) < self._limit:
            self.differences.append(Difference(kind, where, offset, queue_offset, a, b, text))

    def cannot_read(self, text: str) -> None:
        """Note what could not be read; then the stores are not equal."""
        self.unread_count += 1
        if text not in self.unread and len(self.unread) < self._limit:
            self.unread.append(text)

    @property
    def state(self) -> str:
        """The report's ``state``."""
        if self.counts:
            return "different"
        return "unreadable" if self.unread_count else "equal"
