"""Detect a missing end of the log after an orderly stop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats
from rocketstore.directory.checkpoint import read_small_file, signed_crc
from rocketstore.index.geometry import index_paths
from rocketstore.log.commit_log import CommitLog, RecordGoneError
from rocketstore.log.continuity import LAST_TIME, good_batches, queue_places
from rocketstore.log.damage import DamagedRange
from rocketstore.queues.queue_table import QueueTable
from rocketstore.recovery.report import RecoveryReport
from rocketstore.status import RecordStatus
from rocketstore.survey.pointers import is_of_log, pointers_past_end

if TYPE_CHECKING:
    from rocketstore.survey.facts import StoreFacts

#: Limit for ``recover``: accept units of records anywhere in the log.
_ANYWHERE = 2**62
#: Missing segments that are reported file by file; the rest is reported as one range.
_MOST_NAMED = 100
_HEAD_FIELDS = [field.name for field in formats.RECORD_HEAD.fields]
#: Bytes of a record up to the end of its store time.
_HEAD_NBYTES = formats.RECORD_HEAD.nbytes + formats.HOST_V6.nbytes + formats.RECORD_STORED.nbytes


class EndClaim(NamedTuple):
    """Evidence on disk that the log reached past its end.

    Attributes
    ----------
    stop : int
        Offset that the log reached at least.
    words : str
        The evidence, in words.
    """

    stop: int
    words: str


class OrderlyStop:
    """What queues, index and checkpoint say about a log whose last writer stopped in order.

    Everything that they name was on disk then, so there is no torn write. Files are read lazily.
    """

    def __init__(self, facts: StoreFacts, log: CommitLog) -> None:
        self._facts = facts
        self._log = log
        #: What recovery found before the log's end: units of these records are not wrong.
        self._damaged: Sequence[DamagedRange] = ()
        #: Capacity of each queue's files in units.
        self._unit_counts: dict[tuple[str, int], int] = {}

    # --- evidence -----------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return each queue's next queue offset and its end in the log, by its newest units."""
        queues = self._load_queues()
        try:
            for queue in queues:
                queue.recover(_ANYWHERE, whole=False)
                nbytes = sum(file.file_size for file in queue.queue.files)
                unit_nbytes = formats.CONSUME_QUEUE_UNIT.nbytes  # those of batch queues are larger
                self._unit_counts[queue.topic, queue.queue_id] = nbytes // unit_nbytes
            return {
                (queue.topic, queue.queue_id): (queue.recovered_index, queue.recovered_end)
                for queue in queues
                if queue.recovered_end >= 0
            }
        finally:
            queues.close()

    def _load_queues(self) -> QueueTable:
        facts, paths = self._facts, self._facts.paths
        queues = QueueTable(
            paths.consume_queue,
            facts.consume_queue_file_size,
            paths.root,
            writable=False,
            in_memory=True,  # unreadable and non-regular files prove nothing
            batch_directory=paths.batch_consume_queue,
            batch_file_size=facts.batch_queue_file_size,
            batch_topics=facts.queue_types.batch,
        )
        queues.load()
        return queues

    @property
    def _furthest(self) -> int:
        return max((place for _, place in self._ends.values()), default=-1)

    @cached_property
    def _last_key(self) -> int:
        """Return the log offset that the newest index entry names, -1 without one."""
        header, last = formats.INDEX_HEADER, -1
        paths = self._facts.paths
        for path, nbytes in index_paths(paths.index, paths.root, [], tolerant=True)[-1:]:
            if nbytes >= header.nbytes:
                with path.open("rb", buffering=0) as file:
                    values = header.struct.unpack(file.read(header.nbytes))
                last = values[3] if values[5] > 1 else -1
        return last

    def is_newer(self, newest: int) -> bool:
        """Return whether both times of the checkpoint are later than ``newest``.

        One alone may be wrong. RocketMQ 5.5 may store no time of queues.
        """
        checkpoint = self._facts.checkpoint
        times = checkpoint.physic_timestamp, checkpoint.logics_timestamp or LAST_TIME - 1
        return newest < min(times) and max(times) < LAST_TIME

    # --- what follows -------------------------------------------------------------------------

    def names(self, end: int, newest: int) -> bool:
        """Return whether anything on disk names a place past ``end``.

        Records with store times up to ``newest`` are good up to ``end``. The broken record there
        counts as well if it has the checkpoint's time of the last synced record.
        """
        is_named = max(self._furthest, self._last_key + 1) > end or self.is_newer(newest)
        return is_named or self._is_last_synced(end)

    def _is_last_synced(self, offset: int) -> bool:
        """Return whether the broken record at ``offset`` has the checkpoint's time of the log.

        Half messages and rollbacks belong to no queue, so neither a unit nor the checkpoint's time
        of the queues shows them.
        """
        file = self._log.queue.find_mapped_file_by_offset(offset)
        if file is None:
            return False
        position = offset - file.file_from_offset
        content = file.read(position, min(_HEAD_NBYTES, file.file_size - position))
        head, stored = formats.RECORD_HEAD.struct, formats.RECORD_STORED.struct
        if len(content) < _HEAD_NBYTES:
            return False
        values: dict[str, int] = dict(zip(_HEAD_FIELDS, head.unpack_from(content), strict=True))
        is_v6 = values["sys_flag"] & formats.SYS_FLAG_BORN_HOST_V6
        host = formats.HOST_V6 if is_v6 else formats.HOST_V4
        (timestamp,) = stored.unpack_from(content, head.size + host.nbytes)
        if values["physical_offset"] != offset or timestamp <= 0:
            return False
        return bool(timestamp == self._facts.checkpoint.physic_timestamp)

    def is_whole(self, end: int, newest: int) -> bool:
        """Return whether nothing names a place past ``end``, so that the log is complete.

        Requires units in the queues, or a checkpoint without a time. Bytes past ``end`` are then
        older content of the file.
        """
        is_known = self._furthest >= 0 or self._facts.checkpoint.physic_timestamp <= 0
        return is_known and not self.names(end, newest)

    def claim(self, end: int, newest: int) -> EndClaim | None:
        """Return what names a place past ``end``, the end of the last good record."""
        claim = self._claim_of_units(end) or self._claim_of_keys(end)
        if claim is not None or not self.is_newer(newest):
            return claim
        if any(place == end for _, place in self._ends.values()) or self._has_expired(end):
            return None  # the queues name no later record: all of the log may have expired
        path = self._facts.paths.checkpoint
        files_end = end_of_files(self._log)
        stop = files_end if end < files_end else files_end + self._log.segment_size
        return EndClaim(stop, f"{path} holds the time of later messages")

    def _has_expired(self, end: int) -> bool:
        """Return whether the log begins at ``end`` because all earlier messages have expired.

        Then units or entries name the previous segment, and the checkpoint has the times of its
        messages.
        """
        known = max(self._furthest, self._last_key + 1)
        return max(self._log.min_offset, 0) == end and end - self._log.segment_size < known <= end

    def _claim_of_units(self, end: int) -> EndClaim | None:
        past = {key: ends for key, ends in self._ends.items() if ends[1] > end}
        if not past:
            return None
        known = self._next_in_log(end)
        # A unit with the queue offset of a message in the log is wrong; its message is not lost.
        real = {key: ends for key, ends in past.items() if ends[0] > known.get(key, 0)}
        if len(past) < len(self._ends):
            real = self._of_this_log(real, end)
        # The offsets in a batch queue's unit may be garbage, so bound them by the unit count.
        count = sum(
            min(index - known.get(key, 0), self._unit_counts[key])
            for key, (index, _) in real.items()
        )
        furthest = max((place for _, place in real.values()), default=0)
        if not real or not self._is_near(furthest, count):
            return None
        return EndClaim(furthest, "units of queues name later messages")

    def _of_this_log(
        self, claims: dict[tuple[str, int], tuple[int, int]], end: int
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the claims of queues whose other units name records of this log."""
        queues = self._load_queues()
        try:
            own = {}
            for key, ends in claims.items():
                queue = queues.get(*key)
                if queue is not None:
                    queue.recover(_ANYWHERE, whole=False)
                    if is_of_log(self._log, queue, end, self._damaged):
                        own[key] = ends
            return own
        finally:
            queues.close()

    def _gone(self, end: int) -> str:
        """Describe how many messages past ``end`` the units name."""
        queues = self._load_queues()
        try:
            pointers = pointers_past_end(end, queues)
        finally:
            queues.close()
        return f"; {pointers}" if pointers else ""

    def _is_near(self, place: int, count: int) -> bool:
        """Return whether ``count`` messages can have filled the log up to ``place``."""
        return place <= end_of_files(self._log) + self._log.segment_size * (count + 1)

    def _next_in_log(self, end: int) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        for batch in good_batches(self._log, max(self._log.min_offset, 0), end):
            for place in queue_places(batch):
                ends[place.topic, place.queue_id] = place.next_queue_offset
        return ends

    def _claim_of_keys(self, end: int) -> EndClaim | None:
        if self._last_key < end or self._ends or not self._is_near(self._last_key, 1):
            return None
        path = self._facts.paths.index
        stop = self._log.roll_next_file(self._last_key)
        return EndClaim(stop, f"{path} holds keys of later messages")

    # --- reporting --------------------------------------------------------------------------------

    def note_missing_end(self, report: RecoveryReport, claim: EndClaim | None = None) -> None:
        """Report the range between the log's end and the end it once reached.

        Each missing file is a range of its own, and so is the end of the last existing file.
        Without ``claim``, queues, index and checkpoint are consulted. Raises ``RecordGoneError`` if
        a writer has opened the store meanwhile: the difference is its work.
        """
        log, end = self._log, report.log_end
        self._damaged = list(report.damaged)
        start = max(end, max((damage.stop for damage in report.damaged), default=end))
        if claim is None:
            # If the log's last records are damaged, they explain a later time.
            newest = report.newest_store_timestamp if start == end else LAST_TIME
            claim = self.claim(start, newest)
        if (claim is not None or report.damaged) and not self.still_holds():
            why = "the store was opened for writing while it was read; retry"
            raise RecordGoneError(log.queue.directory, 0, why)
        if claim is None:
            return
        files_end, last = end_of_files(log), report.damaged[-1] if report.damaged else None
        if last is not None and last.stop == start < claim.stop and start % log.segment_size:
            # The last file is short: its missing end extends the corrupt range before it.
            start = min(log.roll_next_file(start), claim.stop)
            report.damaged[-1] = dataclasses.replace(last, stop=start)
        gone = self._gone(start) if start < claim.stop else ""
        most = start + _MOST_NAMED * log.segment_size
        while start < claim.stop:
            stop = min(log.roll_next_file(start), claim.stop) if start < most else claim.stop
            position = start % log.segment_size
            path = log.queue.directory / formats.offset_to_file_name(start - position)
            what = "its end is lost" if start < files_end else "the segment is missing"
            if start >= files_end and os.path.lexists(path):
                what = f"the file has {os.stat(path).st_size} bytes instead of {log.segment_size}"
            reason = (
                f"{what}: the log reached offset {claim.stop} ({claim.words}), but ends at {end}"
            )
            reason += gone
            log.damage.setdefault(start, RecordStatus.EMPTY)
            report.damaged.append(DamagedRange(str(path), position, start, stop, reason))
            start = stop

    def still_holds(self) -> bool:
        """Return whether no writer has opened the store since it was examined."""
        paths = self._facts.paths
        if os.path.lexists(paths.abort) != self._facts.aborted:
            return False
        return (
            signed_crc(read_small_file(paths.checkpoint, paths.root)) == self._facts.checkpoint_crc
        )


def end_of_files(log: CommitLog) -> int:
    """Return the log offset where the last file ends."""
    last = log.queue.last()
    return last.file_from_offset + last.file_size if last is not None else 0
