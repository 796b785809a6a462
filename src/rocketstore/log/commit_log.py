"""The commit log: its segments, and reading records by offset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import (
    CorruptMessageError,
    MappedFileError,
)
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.lock_order import LockRank
from rocketstore.message import StoredMessage
from rocketstore.status import RecordFlags, RecordStatus

_CHECKED_PROPERTY_CRC = RecordFlags.CHECK_PROPERTY_CRC | RecordFlags.REQUIRE_PROPERTY_CRC
#: Records of a segment that are examined to detect whole-record CRCs.
_SAMPLE_COUNT = 64
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_REASONS = {
    RecordStatus.END: "nothing is stored here",
    RecordStatus.EMPTY: "zeros where a record should be",
    RecordStatus.INCOMPLETE: "the record is longer than the readable bytes",
    RecordStatus.GHOST: "a record that carries another, lower offset",
    RecordStatus.NUL_PROPERTIES: "NULs in the properties",
    RecordStatus.BAD_SIZE: "the total size is invalid, or larger than the rest of the segment",
    RecordStatus.BAD_MAGIC: "the magic is not a record's",
    RecordStatus.BAD_BLANK: "an end-of-segment marker that does not span the rest of the segment",
    RecordStatus.BAD_PHYSICAL_OFFSET: "the record's own offset is not its position",
    RecordStatus.BAD_QUEUE_ID: "the queue id is negative",
    RecordStatus.BAD_QUEUE_OFFSET: "the queue offset is negative",
    RecordStatus.BAD_BODY_LENGTH: "the body length does not fit the record",
    RecordStatus.BAD_BODY_CRC: "the body's CRC-32 does not match the stored one",
    RecordStatus.BAD_TOPIC_LENGTH: "the topic length does not fit the record",
    RecordStatus.BAD_TOPIC: "the topic begins or ends with NUL",
    RecordStatus.BAD_PROPERTIES_LENGTH: "the properties length does not fit the record",
    RecordStatus.BAD_LENGTH_SUM: "the inner lengths do not add up to the total size",
    RecordStatus.BAD_PROPERTIES: "a part of the properties was overwritten with zeros",
    RecordStatus.BAD_PROPERTY_CRC: "the record does not match its CRC-32 property",
    RecordStatus.FAULT: "the file was truncated or its disk failed while it was read",
}


class RecordGoneError(CorruptMessageError):
    """A record that passed its check was then overwritten by another process."""

    @classmethod
    def at(cls, path: Path, position: int, offset: int) -> RecordGoneError:
        """Build the error for a position of a segment's file, a log offset."""
        return cls(
            path,
            position,
            f"the record at log offset {offset} was overwritten by another process while it was "
            "read; retry",
        )


class LogWindow(kernels.reading.Window):
    """One segment with the arguments that the record kernels need."""

    __slots__ = ("file",)

    def __init__(
        self,
        file: MappedFile,
        buffer: Any,
        base_offset: int,
        segment_end: int,
        stop: int,
        flags: int,
        min_offset: int,
    ) -> None:
        super().__init__(buffer, base_offset, segment_end, stop, flags, min_offset)
        self.file = file

    def gone(self, position: int) -> RecordGoneError:
        """Build the error for a checked record that no longer exists.

        A writer may truncate a torn tail and overwrite it while another process reads.
        """
        return RecordGoneError.at(self.file.path, position, self.base_offset + position)


def modification_time(*directories: Path) -> int:
    """Return the sum of the directories' modification times in epoch ns; -1 for a missing one.

    It changes when a file in one of them is created, renamed or deleted.
    """
    return sum(map(_modification_time, directories))


def _modification_time(directory: Path) -> int:
    try:
        return os.stat(directory).st_mtime_ns
    except FileNotFoundError:
        return -1


class CommitLog:
    """Reads records by physical offset.

    Parameters
    ----------
    queue : MappedFileQueue
        The segments, loaded.
    end_offset : int
        Physical offset after the last record (a snapshot; see ``move_end``).
    record_flags : int
        ``RecordFlags`` of every strict check.

    Notes
    -----
    Threading: any number of readers. Source: RocketMQ ``store/CommitLog.java``.
    """

    def __init__(self, queue: MappedFileQueue, end_offset: int, record_flags: int) -> None:
        self.queue = queue
        self.record_flags = record_flags
        #: Corrupt places that recovery found, by physical offset.
        self.damage: dict[int, RecordStatus] = {}
        #: Details about some of them, beyond their status.
        self.reasons: dict[int, str] = {}
        #: Why an existing segment cannot be read, by the offset of its first byte.
        self.absent: dict[int, str] = {}
        #: ``modification_time`` of the directories before they were listed; -1 if unknown.
        self.directory_time = -1
        self._end_offset = end_offset
        self._end_lock = kernels.locks.OrderedLock(LockRank.LEAF)
        #: Windows that were returned, readable up to what was then the log's end.
        self.windows = kernels.reading.Windows(queue.file_size)
        self._segment_flags: dict[int, int] = {}

    @property
    def segment_size(self) -> int:
        """Bytes of a segment."""
        return self.queue.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first segment, -1 for an empty log."""
        first = self.queue.min_offset
        return min(first, *self.absent) if self.absent and first >= 0 else first

    @property
    def holes(self) -> list[tuple[int, int]]:
        """(start, stop) offsets of segments that are missing before later ones, or unreadable."""
        size, found = self.segment_size, []
        expected = max(self.min_offset, 0)
        for file in self.queue.files:
            if file.file_from_offset > expected:
                found.append((expected, file.file_from_offset))
            expected = file.file_from_offset + size
        last = max(self.absent, default=0) + size
        if self.absent and last > expected:
            found.append((expected, last))
        return found

    @property
    def max_offset(self) -> int:
        """Offset after the last record."""
        return self._end_offset

    def move_end(self, offset: int) -> None:
        """Set the end of the log for readers."""
        self._end_offset = offset
        self.windows.clear()

    def grow_end(self, offset: int) -> None:
        """Set the end for readers to ``offset``, unless another thread found a later one."""
        with self._end_lock:
            if offset > self._end_offset:
                self.move_end(offset)

    def window(self, offset: int, stop_offset: int | None = None) -> LogWindow | None:
        """Return the segment that holds ``offset``, readable up to ``stop_offset``.

        The default is the log's current end, or an earlier end if that lies after ``offset``.
        """
        if stop_offset is None:
            known: LogWindow | None = self.windows.get(offset)
            if known is not None:
                return known
        file = self.queue.find_mapped_file_by_offset(offset)
        if file is None:
            return None
        stop = self.max_offset if stop_offset is None else stop_offset
        base = file.file_from_offset
        segment_end = base + self.queue.file_size
        stop = max(0, min(stop - base, file.file_size))
        view = file.view
        flags = self._segment_flags.get(base)
        if flags is None:
            flags = self._judge_flags(view, base, segment_end, stop)
        window = LogWindow(file, view, base, segment_end, stop, flags, self.min_offset)
        if stop_offset is None:
            self.windows.add(window)
            if base < self.queue.min_offset:
                self.windows.discard(base)  # deleted meanwhile: do not keep its disk space in use
        return window

    def _judge_flags(self, view: Any, base_offset: int, segment_end: int, stop: int) -> int:
        """Return the flags of the strict check in one segment.

        If the first records carry correct whole-record CRCs, every CRC in the segment must be
        correct. Otherwise CRC properties may be copies from other records, and are ignored.
        """
        flags = self.record_flags
        if stop > 0:
            if not flags & _CHECKED_PROPERTY_CRC and _carries_property_crc(
                view, base_offset, segment_end, stop
            ):
                flags |= RecordFlags.CHECK_PROPERTY_CRC
            self._segment_flags[base_offset] = flags
        return flags

    def demand_property_crc(self, base_offset: int) -> None:
        """Check whole-record CRCs in the segment that starts at ``base_offset``."""
        self._segment_flags[base_offset] = self.record_flags | RecordFlags.CHECK_PROPERTY_CRC
        self.windows.discard(base_offset)

    def roll_next_file(self, offset: int) -> int:
        """Return the offset of the segment after the one that holds ``offset``."""
        return offset + self.segment_size - offset % self.segment_size

    def check(self, offset: int, *, extra_flags: int = 0) -> tuple[RecordStatus, int]:
        """Check the record at ``offset`` strictly; return its status and the bytes to skip."""
        return self._check_in(self.window(offset) if offset >= 0 else None, offset, extra_flags)

    def _check_in(
        self, window: LogWindow | None, offset: int, extra_flags: int
    ) -> tuple[RecordStatus, int]:
        if window is None or offset - window.base_offset > window.stop:
            return RecordStatus.END, 0
        damaged = self.damage.get(offset) if self.damage else None
        if damaged is not None:
            return damaged, 0
        status, size = kernels.message.check_record(
            window.buffer,
            offset - window.base_offset,
            window.stop,
            window.base_offset,
            window.segment_end,
            window.flags | extra_flags,
        )
        return RecordStatus(status), size

    def record_at(self, offset: int) -> tuple[RecordStatus, StoredMessage | None]:
        """Check ``offset`` strictly; return the status and the record, ``None`` if incomplete.

        Both come from the same window, because the segment may be deleted at any moment.
        """
        window = self.window(offset) if offset >= 0 else None
        status, _ = self._check_in(window, offset, 0)
        if window is None or not (status in _COMPLETE or status == RecordStatus.GHOST):
            return status, None
        try:
            return status, window.message(offset - window.base_offset)
        except RecordGoneError:
            return self._check_in(window, offset, 0)[0], None

    def look_message_by_offset(self, offset: int) -> StoredMessage | None:
        """Return the record at ``offset``; ``None`` if no record starts there.

        Raises
        ------
        CorruptMessageError
            If the record there is corrupt, if a known corrupt range starts there, or if the
            segment is missing or not readable.
        """
        status, message = self.record_at(offset)
        if status in _COMPLETE:
            return message
        claimed = status >= RecordStatus.FIRST_DAMAGE and self.claims(offset)
        if claimed or self.is_lost(offset):
            raise self.corruption(offset, status)
        return None

    def is_lost(self, offset: int) -> bool:
        """Return whether the log once held ``offset`` but lost it.

        A corrupt range begins there, or the segment or the end of the log is missing.
        """
        if not self.damage or offset < self.min_offset:
            return False
        if offset in self.damage:
            return True
        if offset >= self.max_offset:
            return any(at >= self.max_offset for at in self.damage)
        return self.place(offset)[2] is not None

    def view(self, offset: int) -> StoredMessage:
        """Return the record at ``offset``, which the caller has checked."""
        window = self.window(offset)
        if window is None:
            raise MappedFileError(f"{self.queue.directory} has no segment for offset {offset}")
        return window.message(offset - window.base_offset)

    def claims(self, offset: int) -> bool:
        """Return whether the bytes at ``offset`` have a record's magic and this offset."""
        window = self.window(offset)
        head = formats.RECORD_HEAD
        if window is None or offset - window.base_offset + head.nbytes > window.stop:
            return False
        try:
            values = window.file.read(offset - window.base_offset, head.nbytes)
        except FileNotFoundError:
            return False  # the store's writer deleted the segment, so its damage is not reported
        if len(values) < head.nbytes:
            return False
        fields = dict(zip((f.name for f in head.fields), head.struct.unpack(values), strict=True))
        return (
            fields["magic"] in (formats.MAGIC_V1, formats.MAGIC_V2)
            and fields["physical_offset"] == offset
        )

    def corruption(self, offset: int, status: int) -> CorruptMessageError:
        """Build the error for the corrupt record at ``offset``."""
        path, position, reason = self.place(offset)
        reason = f"log offset {offset}: {reason}" if reason else describe(status, offset)
        reason = self.reasons.get(offset, reason)
        return CorruptMessageError(path, position, reason)

    def place(self, offset: int) -> tuple[Path, int, str | None]:
        """Return the file for ``offset``, the position in it, and why it cannot be read.

        The reason is ``None`` if the position can be read.
        """
        file = self.queue.find_mapped_file_by_offset(offset)
        position = offset % self.segment_size
        if file is None:
            start = offset - position
            path = self.queue.directory / formats.offset_to_file_name(start)
            return path, position, self.absent.get(start, "the segment is missing")
        if position >= file.file_size:
            reason = f"the file has {file.file_size} bytes instead of {self.segment_size}"
            return file.path, position, reason
        return file.path, position, None

    def delete_first(self, files: Sequence[MappedFile]) -> None:
        """Delete the log's first segments; messages in use stay valid.

        See ``MappedFileQueue.delete_first``.
        """
        try:
            self.queue.delete_first(files)
        finally:
            self.windows.clear()  # they would keep the disk space of deleted segments in use
            start = self.queue.min_offset
            known: dict[int, Any]
            for known in (self._segment_flags, self.damage):
                for offset in list(known):
                    if offset < start:
                        del known[offset]

    def close(self) -> None:
        """Close all segments; messages in use stay valid."""
        self.windows.clear()
        self.queue.close()


def _carries_property_crc(view: Any, base_offset: int, segment_end: int, stop: int) -> bool:
    """Return whether one of a segment's first records has a correct whole-record CRC."""
    row = formats.PARSED_RECORD
    rows = bytearray(_SAMPLE_COUNT * row.nbytes)
    count, _, _ = kernels.message.scan_records(
        view,
        0,
        stop,
        base_offset,
        segment_end,
        RecordFlags.CHECK_BODY_CRC | RecordFlags.REPORT_PROPERTY_CRC,
        rows,
    )
    judged = memoryview(rows).cast("i")[row.at("property_crc") // 4 :: row.nbytes // 4]
    return 1 in judged[:count].tolist()


def describe(status: int, offset: int) -> str:
    """Describe in words what a strict check found at ``offset``."""
    reason = _REASONS.get(RecordStatus(status), RecordStatus(status).name)
    return f"log offset {offset}: {reason} ({RecordStatus(status).name})"


def record_flags(config: MessageStoreConfig) -> int:
    """Return the flags of the strict check under ``config``."""
    flags = int(RecordFlags.CHECK_BODY_CRC)
    if config.force_verify_prop_crc:
        flags |= RecordFlags.REQUIRE_PROPERTY_CRC
    elif config.enabled_append_prop_crc:
        flags |= RecordFlags.CHECK_PROPERTY_CRC
    return flags
