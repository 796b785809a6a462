"""Counts against their baselines: which path moved, and the table that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

#: A count may move by so many instructions, whatever the tolerance: it is rounded.
LEAST_MOVE = 2


class Verdict(StrEnum):
    """What became of a path."""

    SAME = "within the tolerance"
    DEARER = "costs more"
    CHEAPER = "costs less: renew the baseline"
    NEW = "has no baseline"
    GONE = "is no longer counted"


@dataclass(frozen=True)
class Change:
    """One path: instructions of the baseline and now, ``None`` where there are none."""

    path: str
    before: int | None
    now: int | None
    verdict: Verdict

    @property
    def percent(self) -> float | None:
        """The change relative to the baseline."""
        if self.before is None or self.now is None:
            return None
        return (self.now - self.before) / max(self.before, 1) * 100


def judge(
    before: int | None, now: int | None, tolerance: float, least_move: float = LEAST_MOVE
) -> Verdict:
    """Return the verdict on one path; ``tolerance`` is in percent, ``least_move`` a number."""
    if before is None:
        return Verdict.NEW
    if now is None:
        return Verdict.GONE
    move = now - before
    if abs(move) <= max(before * tolerance / 100, least_move):
        return Verdict.SAME
    return Verdict.DEARER if move > 0 else Verdict.CHEAPER


def compare(
    baseline: Mapping[str, int],
    counts: Mapping[str, int],
    tolerance: float,
    least_moves: Mapping[str, float],
) -> list[Change]:
    """Return every path of either side, the one that became dearest first."""
    changes = [
        Change(
            path,
            baseline.get(path),
            counts.get(path),
            judge(
                baseline.get(path), counts.get(path), tolerance, least_moves.get(path, LEAST_MOVE)
            ),
        )
        for path in dict.fromkeys([*baseline, *counts])
    ]
    # Paths without a percentage come first: they need an answer, too.
    return sorted(
        changes, key=lambda change: -float("inf") if change.percent is None else -change.percent
    )


def has_moved(changes: list[Change]) -> bool:
    """Return whether any path is not as its baseline says."""
    return any(change.verdict != Verdict.SAME for change in changes)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def table(changes: list[Change]) -> str:
    """Return the table of all paths."""
    width = max([4, *(len(change.path) for change in changes)])
    lines = [f"{'path':{width}}  {'baseline':>12}  {'now':>12}  {'change':>8}"]
    for change in changes:
        percent = "" if change.percent is None else f"{change.percent:+.1f} %"
        remark = "" if change.verdict == Verdict.SAME else f"  {change.verdict}"
        lines.append(
            f"{change.path:{width}}  {_number(change.before):>12}  {_number(change.now):>12}  "
            f"{percent:>8}{remark}"
        )
    return "\n".join(lines)


def summary(changes: list[Change], tolerance: float) -> str:
    """Return one line: how many paths moved, and in which direction."""
    moved = [change for change in changes if change.verdict != Verdict.SAME]
    if not moved:
        return f"All {len(changes)} paths are within {tolerance:g} % of their baselines."
    kinds = [verdict for verdict in Verdict if verdict != Verdict.SAME]
    numbers = {kind: sum(change.verdict == kind for change in moved) for kind in kinds}
    words = ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number)
    return f"{len(moved)} of {len(changes)} paths moved: {words}."
