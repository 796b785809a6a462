"""The state that all checks of ``verify`` share: the log, its bounds, its damage, the report."""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore import formats, kernels
from rocketstore.log.commit_log import CommitLog, RecordGoneError
from rocketstore.message import StoredMessage
from rocketstore.status import RecordStatus
from rocketstore.survey.salvage_traces import find_traces
from rocketstore.verify.before_log import BeforeLog
from rocketstore.verify.report import VerifyReport
from rocketstore.verify.segments import SegmentFit

if TYPE_CHECKING:
    import numpy

    from rocketstore.verify.beside.surroundings import Surroundings


class VerifyScope:
    """The log and its bounds, its corrupt ranges, and the report.

    Attributes
    ----------
    hidden : dict of int to int
        Start and end of segments that the walk skips, as unreadable ones.
    newest : int
        Latest store time of the records read so far.
    around : Surroundings or None
        The other files of the store.
    reported : set of int
        Log offsets of damage that was already reported as a finding.
    """

    def __init__(self, log: CommitLog, report: VerifyReport, root: Path) -> None:
        self.log = log
        self.report = report
        self.root = root
        self.start = max(log.min_offset, 0)
        self.stop = max(log.max_offset, self.start)
        self.counts: Counter[str] = Counter()
        self.hidden: dict[int, int] = {}
        self.newest = 0
        self.around: Surroundings | None = None
        self.reported: set[int] = set()
        #: Units and keys of records before the log's beginning.
        self.before = BeforeLog()
        #: How well the records of each segment fit the units that name them.
        self.fit = SegmentFit()
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._traces: dict[int, array[int]] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether the log has no readable file."""
        return self.log.queue.last() is None

    @property
    def lost_end(self) -> bool:
        """Return whether the log's last records are unreadable."""
        return bool(self._stops) and max(self._stops) >= self.stop > 0

    def note_damage(self, start: int, stop: int) -> None:
        """Remember a range without records."""
        number = bisect.bisect_left(self._starts, start)
        self._starts.insert(number, start)
        self._stops.insert(number, stop)

    def damaged(self) -> list[tuple[int, int]]:
        """Return start and end of every known range without records."""
        return list(zip(self._starts, self._stops, strict=True))

    def is_absent(self, folder: str) -> bool:
        """Return whether a folder of files derived from the log is missing."""
        return self.around is not None and folder in self.around.absent

    def may_be_record(self, offset: int) -> bool:
        """Return whether a record starts at ``offset``, or may have before it was damaged."""
        import numpy as np

        return bool(self.is_damaged(np.array([offset]))[0]) or self.is_record(offset)

    def is_damaged(self, offsets: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
        """Return which of the offsets are in a corrupt range."""
        import numpy as np

        if not self._starts:
            return np.zeros(len(offsets), bool)
        number = np.searchsorted(np.array(self._starts), offsets, side="right") - 1
        stops = np.array(self._stops)[np.maximum(number, 0)]
        return (number >= 0) & (offsets < stops)

    def has_damage_between(self, start: int, stop: int) -> bool:
        """Return whether a corrupt range begins in ``start`` .. ``stop``."""
        number = bisect.bisect_left(self._starts, start)
        return number < len(self._starts) and self._starts[number] < stop

    def loss_between(self, start: int, stop: int) -> str | None:
        """Return the name of the count for queue offsets lost between two log offsets.

        ``None`` without evidence that records were lost there.
        """
        if self.has_damage_between(start, stop):
            return "lost_queue_offsets"
        return "salvaged_queue_offsets" if self.was_salvaged_between(start, stop) else None

    def was_salvaged_between(self, start: int, stop: int) -> bool:
        """Return whether a salvage replaced lost records in ``start`` .. ``stop``."""
        size = self.log.segment_size
        for base in range(start - start % size, stop, size):
            if base not in self._traces:
                self._traces[base] = find_traces(self.log, base, base + size).offsets
            traces = self._traces[base]
            number = bisect.bisect_left(traces, start)
            if number < len(traces) and traces[number] < stop:
                return True
        return False

    def place(self, offset: int) -> tuple[str, int]:
        """Return file and position of a log offset."""
        file = self.log.queue.find_mapped_file_by_offset(offset)
        if file is None:
            return str(self.log.queue.directory), 0
        return str(file.path), offset - file.file_from_offset

    def record_at(self, offset: int, size: int) -> StoredMessage | None:
        """Return the good record of ``size`` bytes at ``offset``, even past the verified end."""
        if offset < 0 or not 0 < size < 2**31:
            return None
        window = self.log.window(offset, offset + size)
        if window is None or offset - window.base_offset >= window.stop:
            return None  # its segment is missing or truncated
        position = offset - window.base_offset
        status, nbytes = kernels.message.check_record(
            window.buffer,
            position,
            window.stop,
            window.base_offset,
            window.segment_end,
            self.log.record_flags,
        )
        if status not in (RecordStatus.OK, RecordStatus.NUL_PROPERTIES) or nbytes != size:
            return None
        try:
            return window.message(position)
        except RecordGoneError:
            return None

    def is_record(self, offset: int) -> bool:
        """Return whether a good record starts at ``offset``, even past the verified end."""
        window = self.log.window(offset, offset + 1)
        if window is None or offset - window.base_offset >= window.stop:
            return False
        head = formats.RECORD_HEAD
        try:
            content = window.file.read(offset - window.base_offset, head.nbytes)
        except FileNotFoundError:
            return False  # deleted meanwhile
        if len(content) < head.nbytes:
            return False
        return self.record_at(offset, head.struct.unpack(content)[0]) is not None

    def is_newer(self, offset: int) -> bool:
        """Return whether ``offset`` is in a segment created after this log was opened."""
        last = self.log.queue.last()
        # A truncated last segment is not replaced by a writer.
        if last is None or offset < last.file_from_offset + self.log.segment_size:
            return False
        name = formats.offset_to_file_name(offset - offset % self.log.segment_size)
        return (self.log.queue.directory / name).exists()
