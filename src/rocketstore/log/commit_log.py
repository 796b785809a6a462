"""The commit log: its segments, reading a record by offset, and appending through the native
appender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.errors import (
    CorruptMessageError,
    MappedFileError,
)
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import MappedFileQueue
from rocketstore.message import StoredMessage
from rocketstore.status import RecordFlags, RecordStatus

_CHECKED_PROPERTY_CRC = RecordFlags.CHECK_PROPERTY_CRC | RecordFlags.REQUIRE_PROPERTY_CRC
#: Records of a segment looked at to see whether they carry whole-record CRCs.
_SAMPLE_COUNT = 64
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_REASONS = {
    RecordStatus.END: "nothing is stored here",
    RecordStatus.EMPTY: "zeros where a record should be",
    RecordStatus.INCOMPLETE: "the record is longer than what is there to be read",
    RecordStatus.GHOST: "a record that carries another, lower offset",
    RecordStatus.NUL_PROPERTIES: "NULs in the properties",
    RecordStatus.BAD_SIZE: "the total size is no record's, or larger than the segment's rest",
    RecordStatus.BAD_MAGIC: "the magic is none of a record",
    RecordStatus.BAD_BLANK: "an end-of-segment marker that does not span the segment's rest",
    RecordStatus.BAD_PHYSICAL_OFFSET: "the record's own offset is not its place",
    RecordStatus.BAD_QUEUE_ID: "the queue id is negative",
    RecordStatus.BAD_QUEUE_OFFSET: "the queue offset is negative",
    RecordStatus.BAD_BODY_LENGTH: "the body length does not fit the record",
    RecordStatus.BAD_BODY_CRC: "the body's CRC-32 is not the stored one",
    RecordStatus.BAD_TOPIC_LENGTH: "the topic length does not fit the record",
    RecordStatus.BAD_TOPIC: "the topic begins or ends with NUL",
    RecordStatus.BAD_PROPERTIES_LENGTH: "the properties length does not fit the record",
    RecordStatus.BAD_LENGTH_SUM: "the inner lengths do not add up to the total size",
    RecordStatus.BAD_PROPERTIES: "a stretch of the properties was overwritten with zeros",
    RecordStatus.BAD_PROPERTY_CRC: "the record's CRC-32 property does not match its bytes",
    RecordStatus.FAULT: "the file was shortened or its disk failed while it was read",
}


class RecordGoneError(CorruptMessageError):
    """What was a good record when it was checked is none now: another process wrote there."""


class LogWindow(NamedTuple):
    """One segment as the record kernels take it."""

    file: MappedFile
    buffer: Any
    base_offset: int
    segment_end: int
    stop: int
    flags: int

    def message(self, position: int) -> StoredMessage:
        """Return the record at ``position``, which was checked; see ``gone``."""
        try:
            return StoredMessage(self.buffer, position, self.base_offset, self.segment_end)
        except ValueError as error:
            raise self.gone(position) from error

    def gone(self, position: int) -> RecordGoneError:
        """Build the error for a record that was checked and is not there any more: beside a reader
        a writer cuts a torn end and writes over it."""
        return RecordGoneError(
            self.file.path,
            position,
            f"the record at log offset {self.base_offset + position} was overwritten by another "
            "process while it was read; look again",
        )


class CommitLog:
    """Reads records by physical offset.

    Parameters
    ----------
    queue : MappedFileQueue
        The segments, loaded.
    end_offset : int
        Physical offset behind the last record (a snapshot; see ``move_end``).
    record_flags : int
        ``RecordFlags`` of every strict check.

    Notes
    -----
    Threading: any number of readers. Source: RocketMQ ``store/CommitLog.java``.
    """

    def __init__(self, queue: MappedFileQueue, end_offset: int, record_flags: int) -> None:
        self.queue = queue
        self.record_flags = record_flags
        #: Damaged places that recovery found, by physical offset.
        self.damage: dict[int, RecordStatus] = {}
        #: What is known of some of them beyond their status.
        self.reasons: dict[int, str] = {}
        #: Why a segment that is there gives nothing, by the offset of its first byte.
        self.absent: dict[int, str] = {}
        self._end_offset = end_offset
        #: The window last asked for: readers mostly stay in one segment.
        self.recent: LogWindow | None = None
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
        """(start, stop) offsets of segments that are missing before others, or give nothing."""
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
        """Offset behind the last record."""
        return self._end_offset

    def move_end(self, offset: int) -> None:
        """Set the end of what is shown."""
        self._end_offset = offset
        self.recent = None

    def window(self, offset: int, stop_offset: int | None = None) -> LogWindow | None:
        """Return the segment that holds ``offset``, readable up to ``stop_offset``.

        The default is the log's end now, or any earlier end that lies behind ``offset``.
        """
        recent = self.recent
        if stop_offset is None and recent is not None:
            position = offset - recent.base_offset
            if 0 <= position < recent.stop:
                return recent
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
        window = LogWindow(file, view, base, segment_end, stop, flags)
        if stop_offset is None:
            self.recent = window
            if base < self.queue.min_offset:
                self.recent = None  # deleted meanwhile: its space is not to be held
        return window

    def _judge_flags(self, view: Any, base_offset: int, segment_end: int, stop: int) -> int:
        """Flags of the strict check in one segment.

        Where its first records carry right whole-record CRCs, all CRCs that are there must be
        right; a segment without any may hold copied properties that say nothing.
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
        self.recent = None

    def roll_next_file(self, offset: int) -> int:
        """Offset of the segment behind the one that holds ``offset``."""
        return offset + self.segment_size - offset % self.segment_size

    def check(self, offset: int, *, extra_flags: int = 0) -> tuple[RecordStatus, int]:
        """Strict check of the place ``offset``: status and bytes to skip."""
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
        """Strict check of the place ``offset``, and its record, ``None`` without a complete one.
        Both are of one look: the segment may be deleted at any moment."""
        window = self.window(offset) if offset >= 0 else None
        status, _ = self._check_in(window, offset, 0)
        if window is None or not (status in _COMPLETE or status == RecordStatus.GHOST):
            return status, None
        try:
            return status, window.message(offset - window.base_offset)
        except RecordGoneError:
            return self._check_in(window, offset, 0)[0], None

    def look_message_by_offset(self, offset: int) -> StoredMessage | None:
        """Return the record at ``offset``; ``None`` when no record starts there.

        Raises
        ------
        CorruptMessageError
            When a record starts there by its own word but is damaged, damage is known to start
            there, or the segment is missing or may not be read.
        """
        status, message = self.record_at(offset)
        if status in _COMPLETE:
            return message
        claimed = status >= RecordStatus.FIRST_DAMAGE and self.claims(offset)
        if claimed or self.is_lost(offset):
            raise self.corruption(offset, status)
        return None

    def is_lost(self, offset: int) -> bool:
        """Whether the log is known to have had ``offset``, and nothing can be read there: damage
        begins there, its segment is missing, or so is the log's end."""
        if not self.damage or offset < self.min_offset:
            return False
        if offset in self.damage:
            return True
        if offset >= self.max_offset:
            return any(at >= self.max_offset for at in self.damage)
        return self.place(offset)[2] is not None

    def view(self, offset: int) -> StoredMessage:
        """Return the record at ``offset``, which was checked before."""
        window = self.window(offset)
        if window is None:
            raise MappedFileError(f"{self.queue.directory} has no file for offset {offset}")
        return window.message(offset - window.base_offset)

    def claims(self, offset: int) -> bool:
        """Whether the bytes at ``offset`` carry a record's magic and this very offset."""
        window = self.window(offset)
        head = formats.RECORD_HEAD
        if window is None or offset - window.base_offset + head.nbytes > window.stop:
            return False
        try:
            values = window.file.read(offset - window.base_offset, head.nbytes)
        except FileNotFoundError:
            return False  # the store's writer deleted it: nobody is told of what was damaged in it
        if len(values) < head.nbytes:
            return False
        fields = dict(zip((f.name for f in head.fields), head.struct.unpack(values), strict=True))
        return (
            fields["magic"] in (formats.MAGIC_V1, formats.MAGIC_V2)
            and fields["physical_offset"] == offset
        )

    def corruption(self, offset: int, status: int) -> CorruptMessageError:
        """Build the error for the damaged place ``offset``."""
        path, position, reason = self.place(offset)
        reason = f"log offset {offset}: {reason}" if reason else describe(status, offset)
        reason = self.reasons.get(offset, reason)
        return CorruptMessageError(path, position, reason)

    def place(self, offset: int) -> tuple[Path, int, str | None]:
        """Return the file that holds ``offset``, or would hold it, the position in it, and why
        nothing can be read there: ``None`` when there are bytes."""
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
        """Delete the log's first segments, see ``MappedFileQueue.delete_first``; messages in use
        stay valid."""
        try:
            self.queue.delete_first(files)
        finally:
            self.recent = None  # it would hold the space of a deleted segment
            start = self.queue.min_offset
            known: dict[int, Any]
            for known in (self._segment_flags, self.damage):
                for offset in list(known):
                    if offset < start:
                        del known[offset]

    def close(self) -> None:
        """Close all segments; messages in use stay valid."""
        self.recent = None
        self.queue.close()


def _carries_property_crc(view: Any, base_offset: int, segment_end: int, stop: int) -> bool:
    """Whether one of a segment's first records carries a right whole-record CRC."""
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
    """Say in words what a strict check found at ``offset``."""
    reason = _REASONS.get(RecordStatus(status), RecordStatus(status).name)
    return f"log offset {offset}: {reason} ({RecordStatus(status).name})"


def record_flags(config: MessageStoreConfig) -> int:
    """Flags of the strict check under ``config``."""
    flags = int(RecordFlags.CHECK_BODY_CRC)
    if config.force_verify_prop_crc:
        flags |= RecordFlags.REQUIRE_PROPERTY_CRC
    elif config.enabled_append_prop_crc:
        flags |= RecordFlags.CHECK_PROPERTY_CRC
    return flags
