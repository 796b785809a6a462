"""The durable offset of a log, and where to start checking the log."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.log.commit_log import CommitLog

#: Bytes at the log's end that are checked at every open, whatever the state file says. The second
#: applies after an orderly stop, when opening should be fast.
CHECKED_NBYTES = 256 * 1024 * 1024
CLEAN_CHECKED_NBYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DurableMark:
    """Up to where the log is known to be on disk.

    ``offset`` comes from a valid state file. Without one, records up to the checkpoint's
    ``physic_timestamp`` count as durable. ``inclusive``: the last writer stopped in order.
    """

    offset: int | None
    physic_timestamp: int = 0
    inclusive: bool = False

    @property
    def covered_before(self) -> int:
        """Store time from which on records do not count as durable; no record has one below it if
        the mark is an offset, or the checkpoint has no time."""
        if self.offset is not None or self.physic_timestamp <= 0:
            return -(2**63)
        return min(self.physic_timestamp + self.inclusive, 2**63 - 1)


def check_start(log: CommitLog, position: int, *, clean: bool = False) -> int:
    """Return the start of the segment from which to check a log that is good up to ``position``.

    Later damage to good records is searched in the newest ``CHECKED_NBYTES`` (``clean``:
    ``CLEAN_CHECKED_NBYTES``). Damage to older records is detected when they are read.
    """
    minimum = max(log.min_offset, 0)
    position -= CLEAN_CHECKED_NBYTES if clean else CHECKED_NBYTES
    starts = [
        file.file_from_offset for file in log.queue.files if file.file_from_offset <= position
    ]
    return max(starts, default=minimum)
