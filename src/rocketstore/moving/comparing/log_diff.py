"""Comparing two logs: each record's bytes at the same log offset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.errors import SourceChangedError
from rocketstore.files.mapped_file import MappedFile
from rocketstore.log.commit_log import CommitLog, describe
from rocketstore.log.scan import LogScan, RecordBatch, find_next_record
from rocketstore.moving.comparing.difference import Findings
from rocketstore.moving.selected_log import forget_pages
from rocketstore.status import RecordStatus

#: Records of one step, and bytes that are compared at once.
_BATCH_COUNT = 1024
_STEP_NBYTES = 1 << 20
#: Length and magic: all of an end-of-segment marker that is written.
_MARKER_NBYTES = 8
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


class LogBytes:
    """Reads a log's bytes by offset with ``pread``; a context manager."""

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        self._file: MappedFile | None = None
        self._read: Callable[[int, int], bytes] | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> LogBytes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def read(self, offset: int, nbytes: int) -> bytes:
        """Return bytes up to the segment's end; fewer where the file ends, none without a file."""
        file = self.log.queue.find_mapped_file_by_offset(offset)
        if file is None:
            return b""
        if file is not self._file:
            self._open.close()
            self._file, self._read = file, self._open.enter_context(file.reading())
        assert self._read is not None
        position = offset - file.file_from_offset
        return self._read(position, max(0, min(nbytes, file.file_size - position)))


class LogSide(NamedTuple):
    """One of the two logs, and how the words name its store."""

    name: str
    log: CommitLog
    start: int
    end: int


class LogDiff:
    """Compares the logs of ``a`` and ``b`` from ``since`` on.

    Attributes
    ----------
    position : int
        Everything before it was compared.
    first : int or None
        The first log offset that differs.
    """

    def __init__(
        self,
        a: LogSide,
        b: LogSide,
        since: int | None,
        found: Findings,
        advance: Callable[[int, int], None],
    ) -> None:
        self._a, self._b = a, b
        self._found = found
        self._advance = advance
        self._floor = max(since or 0, 0)
        self.start = max(a.start, b.start, self._floor)
        self.stop = max(self.start, min(a.end, b.end))
        self.position = self.start
        self.first: int | None = None

    def run(self) -> None:
        """Compare the logs."""
        self._compare_starts()
        if self.start < self.stop:
            with LogBytes(self._a.log) as a, LogBytes(self._b.log) as b:
                self._walk(a, b)
        self._compare_ends()

    def _add(self, kind: str, offset: int, a: Any, b: Any, text: str) -> None:
        self.first = offset if self.first is None else min(self.first, offset)
        self._found.add(kind, formats.COMMIT_LOG_DIR, (a, b), text, offset=offset)

    def _compare_starts(self) -> None:
        a, b = (max(side.start, min(self._floor, side.end)) for side in (self._a, self._b))
        if self._a.start == self._b.start or a == b or max(a, b) <= self._floor:
            return
        # Without a record a log has no beginning; its end says so.
        if self._a.start < self._a.end and self._b.start < self._b.end:
            less = self._a if a > b else self._b
            self._add("log.start", min(a, b), self._a.start, self._b.start,
                      f"the log of {less.name} begins {abs(a - b)} bytes later")  # fmt: skip

    def _compare_ends(self) -> None:
        a, b = max(self._a.end, self._floor), max(self._b.end, self._floor)
        if a != b:
            less = self._a if a < b else self._b
            self._add("log.end", min(a, b), self._a.end, self._b.end,
                      f"the log of {less.name} ends {abs(a - b)} bytes earlier")  # fmt: skip

    # --- records --------------------------------------------------------------------------------

    def _walk(self, a: LogBytes, b: LogBytes) -> None:
        at = self._first_record()
        while at is not None and at < self.stop:
            differing = self._compare_from(at, a, b)
            at = None if differing is None else self._report_at(differing)

    def _compare_from(self, at: int, a: LogBytes, b: LogBytes) -> int | None:
        """Compare from the record at ``at`` on; return where the logs differ or cannot be read."""
        scan = LogScan(self._a.log, at, self.stop, int(self._a.log.record_flags),
                       capacity=_BATCH_COUNT)  # fmt: skip
        expected = at
        for batch in scan:
            first = batch.window.base_offset + batch.row(0)["position"]
            if first > expected and not self._is_same_marker(a, b, expected):
                return expected
            row = batch.last()
            expected = batch.window.base_offset + row["position"] + row["total_size"]
            differing = self._differing_record(a, b, first, expected, batch)
            if differing is not None:
                return differing
            forget_pages(batch)
            self._found.compared["records"] += batch.count
            self.position = expected
            self._advance(self.position - self.start, self.stop - self.start)
        if scan.offset > expected and not self._is_same_marker(a, b, expected):
            return expected
        self.position = max(self.position, min(scan.offset, self.stop))
        return scan.offset if scan.offset < self.stop else None

    def _first_record(self) -> int | None:
        """Return the offset of the first record that ends after ``start``."""
        log, start = self._a.log, self.start
        base = start - start % log.segment_size
        if start == base or log.check(start)[0] in _GOOD:
            return start
        for batch in LogScan(log, max(base, self._a.start), start, 0):
            row = batch.last()
            end = batch.window.base_offset + row["position"] + row["total_size"]
            if end > start:
                return batch.window.base_offset + row["position"]
            base = end
        return base if log.check(base)[0] in _GOOD else find_next_record(log, start)

    def _differing_record(
        self, a: LogBytes, b: LogBytes, start: int, stop: int, batch: RecordBatch
    ) -> int | None:
        """Return the offset of the batch's first record whose bytes differ."""
        for at in range(start, stop, _STEP_NBYTES):
            nbytes = min(_STEP_NBYTES, stop - at)
            ours, others = self._read(a, at, nbytes), self._read(b, at, nbytes)
            if len(ours) < nbytes:
                raise SourceChangedError(_changed(self._a.name, at + len(ours)))
            if ours != others:
                return _record_around(batch, self._differing(at, ours, others))
            self._found.compared["bytes"] += nbytes
        return None

    @staticmethod
    def _read(side: LogBytes, offset: int, nbytes: int) -> bytes:
        """Read across segments."""
        parts = []
        while nbytes and (part := side.read(offset, nbytes)):
            parts.append(part)
            offset, nbytes = offset + len(part), nbytes - len(part)
        return b"".join(parts)

    @staticmethod
    def _differing(at: int, ours: bytes, others: bytes) -> int:
        low, high = 0, min(len(ours), len(others))
        if ours[:high] == others[:high]:
            return at + high
        while high - low > 1:
            middle = (low + high) // 2
            if ours[low:middle] == others[low:middle]:
                low = middle
            else:
                high = middle
        return at + low

    def _is_same_marker(self, a: LogBytes, b: LogBytes, offset: int) -> bool:
        """Compare the end of a segment, whose rest is not used."""
        nbytes = min(_MARKER_NBYTES, self.stop - offset)
        return a.read(offset, nbytes) == b.read(offset, nbytes)

    def _report_at(self, offset: int) -> int | None:
        """Report that the logs differ, or cannot be read; return where both go on, if anywhere.

        Until there they are equal, so both have the beginning of a record, or damage.
        """
        a, b = self._a.log.check(offset)[0], self._b.log.check(offset)[0]
        whole = (*_GOOD, RecordStatus.BLANK)
        ours, others = _summary(self._a.log, offset), _summary(self._b.log, offset)
        if a in whole and b in whole:
            text = "the records differ"
            for side, status in ((self._a, a), (self._b, b)):
                if status == RecordStatus.BLANK:
                    text = f"a segment of {side.name} ends there"
            self._add("log.record", offset, ours, others, text)
            return None
        if a in whole or b in whole:
            side, status = (self._b, b) if a in whole else (self._a, a)
            text = f"the record is damaged in {side.name}: {describe(status, offset)}"
            self._add("log.record", offset, ours, others, text)
        else:
            path, position, _ = self._a.log.place(offset)
            self._found.cannot_read(f"{path} at position {position}: {describe(a, offset)}")
        return self._resume_after(offset)

    def _resume_after(self, offset: int) -> int | None:
        """Return the next offset after damage at which both logs have a good record."""
        for log, other in ((self._a.log, self._b.log), (self._b.log, self._a.log)):
            found = find_next_record(log, offset + 1)
            if found is not None and other.check(found)[0] in _GOOD:
                return found
        return None


def _record_around(batch: RecordBatch, offset: int) -> int:
    """Return where the batch's record that contains ``offset`` begins."""
    base = batch.window.base_offset
    low, high = 0, batch.count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if base + batch.row(middle)["position"] <= offset:
            low = middle
        else:
            high = middle - 1
    return base + batch.row(low)["position"]


def _summary(log: CommitLog, offset: int) -> dict[str, Any] | None:
    """Return what names a good record to a person, ``None`` without one."""
    status, message = log.record_at(offset)
    if status not in _GOOD or message is None:
        return None
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "bytes": message.store_size,
        "storeTimestamp": message.store_timestamp,
        "msgId": message.msg_id,
    }


def _changed(name: str, offset: int) -> str:
    return f"the log of {name} was truncated at offset {offset} while it was compared"
