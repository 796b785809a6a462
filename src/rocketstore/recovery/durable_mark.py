"""The durable offset of a log, and where to start checking the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketstore.log.commit_log import CommitLog
from rocketstore.recovery.written_units import record_start

if TYPE_CHECKING:
    from rocketstore.queues.consume_queue import ConsumeQueue

#: Bytes at the log's end that are checked at every open, whatever the state file says. The second
#: applies after an orderly stop, when opening should be fast.
CHECKED_NBYTES = 256 * 1024 * 1024
CLEAN_CHECKED_NBYTES = 64 * 1024 * 1024
#: So many bytes of a segment are checked faster than a record is searched to begin at.
_WORTH_NBYTES = 8 * 1024 * 1024


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


def check_start(
    log: CommitLog, queues: Iterable[ConsumeQueue], position: int, *, clean: bool = False
) -> int:
    """Return the record from which to check a log that is good up to ``position``.

    Later damage to good records is searched in the newest ``CHECKED_NBYTES`` (``clean``:
    ``CLEAN_CHECKED_NBYTES``). Damage to older records is detected when they are read. The check
    begins at a record that ``queues`` name in the segment there, or at the segment's start.
    """
    minimum = max(log.min_offset, 0)
    position -= CLEAN_CHECKED_NBYTES if clean else CHECKED_NBYTES
    starts = [
        file.file_from_offset for file in log.queue.files if file.file_from_offset <= position
    ]
    start = max(starts, default=minimum)
    if position - start < _WORTH_NBYTES:
        return start
    return record_start(log, queues, start, position)
