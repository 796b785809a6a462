"""Samples and what is made of them: nanoseconds per message, medians, spreads and ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from race.busy import spread
from race.rows import ASKS, FAMILIES, OPENS, PUTS, RESIDENT, SHARED, AskRow, PutRow, SharedRow

NATIVE, REFERENCE, LIMIT = "rocketstore", "reference", "limit"


@dataclass(frozen=True)
class Sample:
    """One timed part of one contestant in one round.

    Attributes
    ----------
    shape, body : str
        The message set.
    line : str
        The line as ``rows.py`` has it; the row's name where rows share a store.
    contestant : str
    round : int
    wall, cpu, process : int
        Nanoseconds; ``cpu`` of the calling thread, ``process`` of all its threads.
    count : int
        Messages, hits or opens.
    """

    shape: str
    body: str
    line: str
    contestant: str
    round: int
    wall: int
    cpu: int
    process: int
    count: int


@dataclass(frozen=True)
class Figure:
    """Medians over the rounds, in nanoseconds per message."""

    wall: float
    cpu: float
    process: float
    spread: float


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    family: str
    name: str
    meaning: str
    jars: dict[str, Figure]
    native: Figure | None
    reference: Figure | None
    limit: Figure | None
    #: The bare loop's put on pages that are mapped already.
    resident: Figure | None = None

    @property
    def to_jar(self) -> float | None:
        """How many times as fast as the better jar, by wall time."""
        return _ratio(min((jar.wall for jar in self.jars.values()), default=None), self.native)

    @property
    def to_jar_cpu(self) -> float | None:
        """The same by CPU time of the calling thread."""
        least = min((jar.cpu for jar in self.jars.values()), default=None)
        if not least or self.native is None or not self.native.cpu:
            return None
        return least / self.native.cpu

    @property
    def to_limit(self) -> float | None:
        """How many times the bare loop's time we take."""
        if self.native is None or self.limit is None or not self.limit.wall:
            return None
        return self.native.wall / self.limit.wall

    def as_json(self) -> dict[str, Any]:
        """Everything, with the ratios."""
        ratios = {name: getattr(self, name) for name in ("to_jar", "to_jar_cpu", "to_limit")}
        return {**asdict(self), **ratios}


def _ratio(theirs: float | None, mine: Figure | None) -> float | None:
    return theirs / mine.wall if theirs and mine is not None and mine.wall else None


def figure(samples: Sequence[Sample]) -> Figure | None:
    """Return the medians of a contestant's samples of one line; ``None`` without samples."""
    if not samples:
        return None
    walls = [sample.wall / sample.count for sample in samples]
    return Figure(
        median(walls),
        median(sample.cpu / sample.count for sample in samples),
        median(sample.process / sample.count for sample in samples),
        spread(walls),
    )


def _sum(figures: Sequence[Figure | None]) -> Figure | None:
    found = [one for one in figures if one is not None]
    if not found or len(found) < len(figures):
        return None
    return Figure(
        sum(one.wall for one in found),
        sum(one.cpu for one in found),
        sum(one.process for one in found),
        max(one.spread for one in found),
    )


def lines(samples: Sequence[Sample]) -> list[Line]:
    """Return the table of one message set, rows without figures of ours left out."""
    by_key: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        by_key.setdefault((sample.contestant, sample.line), []).append(sample)
    jars = sorted({sample.contestant for sample in samples if sample.contestant[:3] == "jar"})

    def of(contestant: str, line: str) -> Figure | None:
        return figure(by_key.get((contestant, line), []))

    found = []
    for row in _rows():
        ours, theirs, least = _keys(row)
        against = {jar: of(jar, theirs) for jar in jars if theirs}
        limit = _sum([of(LIMIT, part) for part in least.split(" + ")]) if least else None
        line = Line(
            _FAMILY_OF[row.name], row.name, row.meaning,
            {jar: one for jar, one in against.items() if one is not None},
            of(NATIVE, ours), of(REFERENCE, ours), limit,
            of(LIMIT, RESIDENT) if isinstance(row, PutRow) else None,
        )  # fmt: skip
        if line.native is not None or line.reference is not None:
            found.append(line)
    return found


def _rows() -> list[PutRow | SharedRow | AskRow]:
    """All rows in the order of the table."""
    opens = [AskRow(name, OPENS[name], name, name, _OPEN_LIMITS[name]) for name in OPENS]
    return [*PUTS, *(row for family in SHARED for row in family.rows), *ASKS, *opens]


def _keys(row: PutRow | SharedRow | AskRow) -> tuple[str, str, str]:
    """By what samples of ours, of the jars and of the bare loop are noted."""
    if isinstance(row, SharedRow):
        return row.name, row.name, row.name if row.limit else ""
    return row.line, row.jar, row.limit


_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}
_OPEN_LIMITS = {"open_clean": "", "rebuild": "rebuild", "recover": "reopen {folder}"}
