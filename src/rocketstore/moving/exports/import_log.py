"""Writing the log of an export again, byte for byte, with the offsets that it had."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, BinaryIO

from rocketstore import formats
from rocketstore.errors import MappedFileError, RepairRefusedError
from rocketstore.files.durable import (
    create_sized_file,
    reporting_full_disk,
    sync_descriptor,
    sync_directory,
)
from rocketstore.moving.exports.import_rows import Row

_HEAD = formats.RECORD_HEAD
_FIELDS = tuple(field.name for field in _HEAD.fields)


def offset_in(row: Row) -> int:
    """Return the log offset in a record's bytes, by which the files of a piece are merged.

    Raises ``RepairRefusedError`` without such bytes.
    """
    raw = row.get("raw")
    if not isinstance(raw, bytes):
        raise RepairRefusedError("the messages have no column raw; export them with it")
    if len(raw) < formats.RECORD_MIN_NBYTES:
        raise RepairRefusedError(f"a record has only {len(raw)} bytes")
    return int(dict(zip(_FIELDS, _HEAD.struct.unpack_from(raw), strict=True))["physical_offset"])


class LogBuilder:
    """Writes segments in a new folder; refuses what does not follow.

    Parameters
    ----------
    root : Path
        The new store, which exists.
    segment_size : int
        Bytes of a segment.

    Attributes
    ----------
    start, end : int or None, int
        Physical offsets of the log, ``None`` before the first record.
    """

    def __init__(self, root: Path, segment_size: int) -> None:
        self.start: int | None = None
        self.end = 0
        self._root = root
        self._folder = root / formats.COMMIT_LOG_DIR
        self._size = segment_size
        self._file: BinaryIO | None = None
        self._base = -1
        self._folder.mkdir(exist_ok=True)

    def go_on(self, start: int | None, end: int) -> None:
        """Go on at the offset ``end``; drop what an earlier call wrote after it."""
        self.start, self.end = start, end
        for path in self._folder.iterdir():
            base = formats.file_name_to_offset(path.name)
            if base is None or base >= end:
                path.unlink()
            elif end < base + self._size:
                with path.open("r+b") as file:
                    file.truncate(end - base)
                    file.truncate(self._size)
        sync_directory(self._folder)

    def add(self, row: Row) -> None:
        """Write a record.

        Raises
        ------
        RepairRefusedError
            The record does not follow the one before, or is not the record that it says.
        """
        offset, raw = offset_in(row), row["raw"]
        self._check(raw)
        if self.start is None:
            if offset % self._size:
                raise RepairRefusedError(
                    f"the first record is at log offset {offset}, which is not the begin of a "
                    f"segment of {self._size} bytes"
                )
            self.start = self.end = offset
        if offset != self.end:
            self._fill(offset)
        if offset % self._size + len(raw) > self._size:
            raise RepairRefusedError(
                f"the record at log offset {offset} does not fit into a segment of {self._size} "
                "bytes; give the segment's size"
            )
        self._write(offset, raw)
        self.end = offset + len(raw)

    def _check(self, raw: bytes) -> None:
        values = dict(zip(_FIELDS, _HEAD.struct.unpack_from(raw), strict=True))
        known = values["magic"] in (formats.MAGIC_V1, formats.MAGIC_V2)
        if values["total_size"] != len(raw) or not known:
            raise RepairRefusedError(f"what follows log offset {self.end} is not a record")

    def _fill(self, offset: int) -> None:
        """Write the end of a segment, if the record begins the next one."""
        room = -self.end % self._size
        if offset != self.end + room or room < formats.BLANK.nbytes:
            raise RepairRefusedError(
                f"after log offset {self.end} the next record is at {offset}: the export lacks "
                "what is between, so that the log cannot be the same"
            )
        self._write(self.end, formats.BLANK.struct.pack(room, formats.BLANK_MAGIC))

    def _write(self, offset: int, content: bytes) -> None:
        base = offset - offset % self._size
        if self._file is None or base != self._base:
            self.close()
            path = self._folder / formats.offset_to_file_name(base)
            if not path.exists():
                create_sized_file(path, self._size, 0, self._root)
            self._file, self._base = path.open("r+b"), base
        assert self._file is not None
        with reporting_full_disk(self._folder):
            self._file.seek(offset - base)
            self._file.write(content)

    def close(self) -> None:
        """Sync and close the segment."""
        if self._file is not None:
            with reporting_full_disk(self._folder):
                self._file.flush()
                sync_descriptor(self._file.fileno())
            self._file.close()
            self._file = None
            sync_directory(self._folder)

    def check(self, anchor: dict[str, Any]) -> None:
        """Compare the log's bytes with a hash of the manifest; raise ``MappedFileError``."""
        self.close()
        self._base = -1
        start = anchor["start"]
        path = self._folder / formats.offset_to_file_name(start - start % self._size)
        with path.open("rb") as file:
            file.seek(start % self._size)
            content = file.read(anchor["stop"] - start)
        if hashlib.sha256(content).hexdigest() != anchor["sha256"]:
            raise MappedFileError(
                f"the bytes of the log before offset {anchor['stop']} are not those that were "
                "exported"
            )
