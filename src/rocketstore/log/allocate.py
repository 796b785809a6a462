"""AllocateService: prepares disk blocks, resident pages and the next segment for the appender."""

from __future__ import annotations

from collections.abc import Callable

from rocketstore.log.writable_commit_log import WritableCommitLog
from rocketstore.services.service_thread import ServiceThread

_STEP_NBYTES = 2 * 1024 * 1024
#: Limits of how far ahead pages are made resident.
_LEAST_AHEAD_NBYTES = 4 * 1024 * 1024
_MOST_AHEAD_NBYTES = 64 * 1024 * 1024


class AllocateService(ServiceThread):
    """Allocates ahead, so that the appender does not wait for the file system.

    Notes
    -----
    An error here does not make the store fail: the put that needs the space raises it again.
    Source: RocketMQ ``store/AllocateMappedFileService.java``.
    """

    def __init__(self, log: WritableCommitLog, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__("allocate", 0.002, on_failure, longest_s=0.02)
        self._log = log
        self._begun_at = log.max_offset

    def run_once(self) -> bool:
        """Reserve blocks, make 2 MiB of pages resident, create the next segment or buffer, or warm
        up a part of a new segment."""
        try:
            allocated = self._log.allocate_ahead()
            populated = self._log.populate_ahead(_STEP_NBYTES, self._ahead_nbytes())
            prepared = self._log.prepare_next() or self._log.warm_next()
            return prepared or allocated or populated
        except OSError:
            return False

    def _ahead_nbytes(self) -> int:
        """Return how far ahead pages are made resident: as far as was written so far.

        A store with few messages thus keeps few pages in memory.
        """
        written = self._log.max_offset - self._begun_at
        return min(max(written, _LEAST_AHEAD_NBYTES), _MOST_AHEAD_NBYTES)
