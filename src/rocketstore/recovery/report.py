"""What opening a store found: damaged and cut ranges, and everything odd that was let through."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rocketstore.log.damage import CutRange, DamagedRange

_log = logging.getLogger(__name__)
#: Damaged places that the log is told of one by one.
_MOST_TOLD = 20
_RECORD = ("a record", "records")


@dataclass
class RecoveryReport:
    """What opening the store found and did.

    Attributes
    ----------
    clean : bool
        The last writer stopped in good order.
    scanned_from, log_end : int
        Physical offsets: where the check began, and behind the last record.
    scanned_count : int
        Records checked.
    newest_store_timestamp : int
        Latest store time among them, 0 for none.
    durable_mark : int
        Offset below which everything is known to have been on disk.
    damaged : list of DamagedRange
    cut : list of CutRange
    ghosts, nul_properties, unsafe_topics : list of int
        Physical offsets of records that are passed over, or kept though odd.
    gaps, refused : list
        Queue offsets that no record carries; records whose queue offset cannot be.
    repeated : list of (topic, queue id, queue offset, physical offset)
        Among the newest records: those whose queue offset another one had before; they are read by
        log offset only.
    skipped : list of str
        Entries of the directory that are no part of a store, and were left alone; what had to make
        way for a queue is in ``notes``.
    rebuilt_units, rebuilt_keys : int
        Units and index entries made from the log.
    notes : list of str
        Everything else worth knowing, in words.
    duration_s : float
    """

    clean: bool = True
    scanned_from: int = 0
    log_end: int = 0
    scanned_count: int = 0
    newest_store_timestamp: int = 0
    durable_mark: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    cut: list[CutRange] = field(default_factory=list)
    ghosts: list[int] = field(default_factory=list)
    nul_properties: list[int] = field(default_factory=list)
    unsafe_topics: list[int] = field(default_factory=list)
    gaps: list[tuple[str, int, int, int]] = field(default_factory=list)
    refused: list[tuple[str, int, int, int]] = field(default_factory=list)
    repeated: list[tuple[str, int, int, int]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    rebuilt_units: int = 0
    rebuilt_keys: int = 0
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    def take_dispatch(
        self, gaps: list[tuple[str, int, int, int]], refused: list[tuple[str, int, int, int]]
    ) -> None:
        """Add what dispatch came across."""
        self.gaps += [gap for gap in gaps if gap not in self.gaps]
        self.refused += refused

    def warn(self, root: object) -> None:
        """Tell the log once of everything that is out of the ordinary: each damaged place, and one
        line for each other kind."""
        for damage in self.damaged[:_MOST_TOLD]:
            _log.warning("%s", damage)
        if len(self.damaged) > _MOST_TOLD:
            _log.warning("%s: %d more damaged places", root, len(self.damaged) - _MOST_TOLD)
        for (one, many), what, found in self._oddities():
            if found:
                count = one if len(found) == 1 else f"{len(found)} {many}"
                first = "" if len(found) == 1 else "the first: "
                _log.warning("%s: %s %s: %s%s", root, count, what, first, found[0])
        for note in self.notes:
            _log.info("%s: %s", root, note)

    def _oddities(self) -> list[tuple[tuple[str, str], str, list[str]]]:
        """One and many of a kind, what is odd about them, and each in words."""
        return [
            (_RECORD, "at another's place, passed over", _at_offsets(self.ghosts)),
            (_RECORD, "with NULs in properties", _at_offsets(self.nul_properties)),
            (
                _RECORD,
                "with a topic that names no directory, not dispatched",
                _at_offsets(self.unsafe_topics),
            ),
            (("a gap", "gaps"), "in queue offsets", [gap_in_words(*gap) for gap in self.gaps]),
            (_RECORD, "with an impossible queue offset", _in_words(self.refused)),
            (_RECORD, "with a queue offset used before", _in_words(self.repeated)),
            (("an entry", "entries"), "of no store, left alone", self.skipped),
        ]


def gap_in_words(topic: str, queue_id: int, first: int, stop: int) -> str:
    """Say which messages of a queue no record carries."""
    one = stop - first == 1
    numbers = f"offset {first}" if one else f"offsets {first} to {stop - 1}"
    return f"topic {topic} queue {queue_id} has no message at queue {numbers}"


def _in_words(records: list[tuple[str, int, int, int]]) -> list[str]:
    return [
        f"topic {topic} queue {queue_id} queue offset {queue_offset}, at log offset {offset}"
        for topic, queue_id, queue_offset, offset in records
    ]


def _at_offsets(offsets: list[int]) -> list[str]:
    return [f"at log offset {offset}" for offset in offsets]
