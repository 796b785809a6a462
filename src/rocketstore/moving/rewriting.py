"""Writing records of one log into another: at new offsets, otherwise unchanged."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.errors import StoreFullError
from rocketstore.files.durable import reporting_full_disk, sync_descriptor, sync_directory

_BUFFER_NBYTES = 4 << 20
_CRC_MASK = 0x7FFFFFFF
_OFFSET_AT = formats.RECORD_HEAD.at("physical_offset")
_QUEUE_OFFSET_AT = formats.RECORD_HEAD.at("queue_offset")
_PREPARED_AT = formats.RECORD_TAIL.at("prepared_transaction_offset")
_LONG = 8

__all__ = ["LogWriter", "RecordPlace", "StoreFullError", "rewrite_record"]


class RecordPlace(NamedTuple):
    """Where a record goes; ``prepared`` is where its half message went."""

    offset: int
    queue_offset: int
    prepared: int


def rewrite_record(record: bytearray, row: dict[str, int], place: RecordPlace) -> None:
    """Give a record its new offsets, and a new CRC if it has a valid one of the whole record.

    Parameters
    ----------
    record : bytearray
        The record's bytes, changed in place.
    row : dict
        Its row of ``formats.PARSED_RECORD``, with ``property_crc``.
    place : RecordPlace
    """

    def put(position: int, value: int) -> None:
        record[position : position + _LONG] = value.to_bytes(_LONG, "big", signed=True)

    put(_OFFSET_AT, place.offset)
    put(_QUEUE_OFFSET_AT, place.queue_offset)
    put(row["body_at"] - formats.RECORD_TAIL.nbytes + _PREPARED_AT, place.prepared)
    if row["property_crc"] == 1:
        covered = len(record) - formats.PROPERTY_CRC32_NBYTES
        digits = f"{zlib.crc32(memoryview(record)[:covered]) & _CRC_MASK:010d}"[::-1]
        at = covered + len(formats.PROPERTY_CRC32) + 1
        record[at : at + len(digits)] = digits.encode()


class LogWriter:
    """Writes the segments of a new log; not for several threads.

    Parameters
    ----------
    folder : Path
        The new ``commitlog``; it exists.
    size : int
        Bytes of a segment.
    start : int
        Log offset at which writing begins, a multiple of ``size``; later segments are deleted.

    Attributes
    ----------
    end : int
        Offset after the last record.
    """

    def __init__(self, folder: Path, size: int, start: int) -> None:
        self.end = start
        self._folder = folder
        self._size = size
        self._fd = -1
        self._base = start
        self._held = bytearray()
        self._held_at = start
        for name in os.listdir(folder):
            offset = formats.file_name_to_offset(name)
            if offset is not None and offset >= start:
                (folder / name).unlink()

    def place_for(self, nbytes: int) -> tuple[int, bool]:
        """Return the offset for a record, and whether a new segment begins there.

        The segment before it is complete and on disk then.
        """
        rest = self._base + self._size - self.end
        begins = self._fd < 0
        if not begins and nbytes + formats.BLANK.nbytes > rest:
            self._hold(formats.BLANK.struct.pack(rest, formats.BLANK_MAGIC))
            self._close_segment()
            self.end = self._base = self._held_at = self._base + self._size
            begins = True
        if nbytes + formats.BLANK.nbytes > self._size:
            raise ValueError(
                f"a record of {nbytes} bytes does not fit a segment of {self._size} bytes"
            )
        return self.end, begins

    def append(self, record: bytes | bytearray | memoryview) -> None:
        """Write a record at the offset that ``place_for`` returned for it."""
        if self._fd < 0:
            self._open_segment()
        self._hold(record)
        self.end += len(record)

    def _open_segment(self) -> None:
        path = self._folder / formats.offset_to_file_name(self._base)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        with reporting_full_disk(path):
            self._fd = os.open(path, flags, 0o644)
            os.ftruncate(self._fd, self._size)

    def _hold(self, content: Any) -> None:
        self._held += content
        if len(self._held) >= _BUFFER_NBYTES:
            self._write()

    def _write(self) -> None:
        path = self._folder / formats.offset_to_file_name(self._base)
        position = self._held_at - self._base
        with reporting_full_disk(path):
            view = memoryview(self._held)
            while view:
                written = os.pwrite(self._fd, view, position)
                view, position = view[written:], position + written
            view.release()
        self._held_at = self._base + position
        self._held = bytearray()

    def _close_segment(self) -> None:
        if self._fd < 0:
            return
        try:
            self._write()
            sync_descriptor(self._fd)
        finally:
            os.close(self._fd)
            self._fd = -1

    def finish(self) -> None:
        """Bring everything to disk; a log without records gets an empty segment."""
        if self._fd < 0 and self.end == self._base:
            self._open_segment()
        self._close_segment()
        sync_directory(self._folder)

    def close(self) -> None:
        """Close the file of an interrupted call."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
