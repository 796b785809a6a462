"""Notes of ``verify`` on irregularities that are allowed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.verify.report import VerifyReport

_NOTES = {
    "ghosts": "records that carry another, lower offset (5.5.0 leaves such), skipped",
    "nul_properties": "records with NULs in their properties",
    "unsafe_topics": "records whose topic names no directory, so that they have no units",
    "backward_times": "store times earlier than the previous one",
    "foreign_property_crcs": "records with a CRC property that is not their own, as copies have",
    "other_due_times": (
        "delayed messages whose due times follow another messageDelayLevel than the settings (a "
        "broker's file has it; see --config)"
    ),
    "behind_units": "units that are not written yet, as dispatch lags",
    "behind_keys": "records whose keys are not all written yet, as dispatch lags",
    "expired_units": (
        "units of records before the log's beginning: they expired, or their segment was removed"
    ),
    "expired_keys": (
        "index entries of records before the log's beginning: they expired, or their segment was "
        "removed"
    ),
    "damaged_units": "units that point into corrupt ranges of the log and were not checked",
    "damaged_keys": "index entries that point into corrupt ranges of the log, not checked",
    "lost_queue_offsets": "queue offsets without a record because of damage in the log",
    "salvaged_queue_offsets": (
        "queue offsets whose messages were lost before a salvage; no command brings them back"
    ),
    "late_starts": "queue offsets missing at the beginning of queues that do not begin at 0",
    "ext_units": "units with their tags code in consumequeue_ext",
    "shifted_units": "units of light message queues at another number than their record says",
    "odd_names": "light queues that do not get the records that name them",
    "filler_units": "fillers before a queue's first message",
    "newer_units": "units that are newer than this check of the log",
    "unread_units": "units that were not checked, as their file could not be read",
    "unread_keys": "records whose keys were not checked, as an index file could not be read",
    "newer_keys": "index entries that are newer than this check of the log",
    "doubled_keys": "index entries that exist more than once",
    "odd_index_tails": "index files with bytes outside their entries, or entries of no chain",
}
#: The codes of ``doctor`` for those that have one.
_CODES = {
    "ghosts": "log.ghost",
    "backward_times": "log.clock",
    "behind_units": "queue.behind",
    "behind_keys": "index.behind",
    "doubled_keys": "index.entry.double",
    "odd_index_tails": "index.file.header",
}


def write_notes(report: VerifyReport, counts: Counter[str]) -> None:
    """Add a note to the report for each irregularity that was counted."""
    for name, text in _NOTES.items():
        if counts[name]:
            text = f"{text}: {counts[name]}"
            report.remark(text, _CODES.get(name, ""), count=counts[name])
