"""What ``verify`` counts that is odd but allowed, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.verify.report import VerifyReport

_NOTES = {
    "ghosts": "records that carry another, lower offset (5.5.0 leaves such), passed over",
    "nul_properties": "records with NULs in their properties",
    "unsafe_topics": "records whose topic names no directory, so that they have no units",
    "backward_times": "store times earlier than the one in front",
    "foreign_property_crcs": "records with a CRC property that is not their own, as copies have",
    "behind_units": "units that are not there yet, as dispatch is behind",
    "behind_keys": "records whose keys are not all there yet, as dispatch is behind",
    "expired_units": (
        "units of records before the log's beginning: they expired, or their segment was taken away"
    ),
    "expired_keys": (
        "index entries of records before the log's beginning: they expired, or their segment was "
        "taken away"
    ),
    "damaged_units": "units that point into damaged stretches of the log and were not judged",
    "damaged_keys": "index entries that point into damaged stretches of the log, not judged",
    "lost_queue_offsets": "queue offsets without a record because of damage in the log",
    "salvaged_queue_offsets": (
        "queue offsets whose messages were lost before a salvage; no command brings them back"
    ),
    "late_starts": "queue offsets in front of queues that do not begin at 0",
    "ext_units": "units with their tags code in consumequeue_ext",
    "shifted_units": "units of light message queues at another number than their record says",
    "odd_names": "light queues that records name and that go without them",
    "filler_units": "fillers in front of a queue's first message",
    "newer_units": "units that are newer than this look at the log",
    "unread_units": "units that were not judged, as their file may not be read",
    "unread_keys": "records whose keys were not judged, as an index file may not be read",
    "newer_keys": "index entries that are newer than this look at the log",
    "doubled_keys": "index entries that are there more than once",
    "odd_index_tails": "index files with bytes outside their entries, or entries of no chain",
}


def write_notes(report: VerifyReport, counts: Counter[str]) -> None:
    """Put into words what was counted and is odd but allowed."""
    for name, text in _NOTES.items():
        if counts[name]:
            report.notes.append(f"{text}: {counts[name]}")
