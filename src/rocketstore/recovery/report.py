"""The report on opening a store: corrupt and truncated ranges, and accepted irregularities."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rocketstore.log.damage import CutRange, DamagedRange

_log = logging.getLogger(__name__)
#: Corrupt ranges that are logged one by one.
_MOST_LOGGED = 20
_RECORD = ("a record", "records")


@dataclass
class RecoveryReport:
    """What opening the store found and did.

    Attributes
    ----------
    clean : bool
        The last writer stopped in order.
    scanned_from, log_end : int
        Physical offsets: where the check began, and the end of the last record.
    scanned_count : int
        Records checked.
    newest_store_timestamp : int
        Latest store time among them, 0 for none.
    durable_mark : int
        Offset below which every byte is known to have been on disk.
    damaged : list of DamagedRange
    cut : list of CutRange
    ghosts, nul_properties, unsafe_topics : list of int
        Physical offsets of records that are skipped (ghosts) or kept although irregular.
    gaps, refused : list
        Queue offsets that no record carries; records with an impossible queue offset.
    repeated : list of (topic, queue id, queue offset, physical offset)
        Of the newest records, those with the queue offset of an earlier one. They are readable by
        log offset only.
    skipped : list of str
        Directory entries that are not part of a store and were ignored. Entries that were moved
        because a queue needed their place are in ``notes``.
    rebuilt_units, rebuilt_keys : int
        Number of units and index entries rebuilt from the log.
    notes : list of str
        Other findings, in words.
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
        """Add the gaps and refused records that dispatch found."""
        self.gaps += [gap for gap in gaps if gap not in self.gaps]
        self.refused += refused

    def warn(self, root: object) -> None:
        """Log all findings once: a line per corrupt range, and a line per other kind."""
        for damage in self.damaged[:_MOST_LOGGED]:
            _log.warning("%s", damage)
        if len(self.damaged) > _MOST_LOGGED:
            _log.warning("%s: %d more corrupt ranges", root, len(self.damaged) - _MOST_LOGGED)
        for (one, many), what, found in self._oddities():
            if found:
                count = one if len(found) == 1 else f"{len(found)} {many}"
                first = "" if len(found) == 1 else "the first: "
                _log.warning("%s: %s %s: %s%s", root, count, what, first, found[0])
        for note in self.notes:
            _log.info("%s: %s", root, note)

    def _oddities(self) -> list[tuple[tuple[str, str], str, list[str]]]:
        """Return singular and plural of each kind, its description, and its findings in words."""
        return [
            (_RECORD, "at another record's place, skipped", _at_offsets(self.ghosts)),
            (_RECORD, "with NULs in properties", _at_offsets(self.nul_properties)),
            (
                _RECORD,
                "with a topic that names no directory, not dispatched",
                _at_offsets(self.unsafe_topics),
            ),
            (("a gap", "gaps"), "in queue offsets", [gap_in_words(*gap) for gap in self.gaps]),
            (_RECORD, "with an impossible queue offset", _in_words(self.refused)),
            (_RECORD, "with a queue offset used before", _in_words(self.repeated)),
            (("an entry", "entries"), "not part of a store, ignored", self.skipped),
        ]


def gap_in_words(topic: str, queue_id: int, first: int, stop: int) -> str:
    """Describe the queue offsets of a queue that no record carries."""
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
