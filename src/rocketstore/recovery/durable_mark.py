"""Where the check of a log begins, and up to where the log is known to be on disk."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.log.commit_log import CommitLog

#: At least so much of the log's end is checked at every open, whatever the state file says; and so
#: much when the last writer stopped in good order, where opening shall take no more than a moment.
CHECKED_NBYTES = 256 * 1024 * 1024
CLEAN_CHECKED_NBYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DurableMark:
    """Up to where the log is known to be on disk.

    ``offset`` comes from a valid state file; without one, ``physic_timestamp`` of the checkpoint
    tells it by the records' times. ``inclusive``: the last writer stopped in order.
    """

    offset: int | None
    physic_timestamp: int = 0
    inclusive: bool = False


def check_start(log: CommitLog, position: int, *, clean: bool = False) -> int:
    """Start of the segment from which the log is checked when ``position`` is known to be good.

    Damage that came later, to records that were good once, is looked for in the newest
    ``CHECKED_NBYTES`` at least (``clean``: ``CLEAN_CHECKED_NBYTES``); what is older shows when it
    is read.
    """
    minimum = max(log.min_offset, 0)
    position -= CLEAN_CHECKED_NBYTES if clean else CHECKED_NBYTES
    starts = [
        file.file_from_offset for file in log.queue.files if file.file_from_offset <= position
    ]
    return max(starts, default=minimum)
