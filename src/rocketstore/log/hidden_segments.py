"""Foreign files in the log's folder that hold a missing segment: renamed or packed ones."""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.errors import RocketStoreError
from rocketstore.files.durable import READ_ONLY, open_regular_file
from rocketstore.files.mapped_file_queue import DirectoryListing
from rocketstore.status import RecordStatus

_HEAD = formats.RECORD_HEAD
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_FIELDS = [field.name for field in _HEAD.fields]
#: How packed files begin, and the program that unpacks them.
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
#: Of files packed by these only the name is known.
_NOT_READ_HERE = ("zstd", "lz4")
_MOST_UNPACKING_NBYTES = 128 << 20
#: Number of foreign entries of the log's folder that are read, and bytes read of each.
_MOST_LOOKED_INTO = 32
_FIRST_RECORD_NBYTES = 8 << 20


def hidden_segments(listing: DirectoryListing, size: int, root: Path) -> Iterator[str]:
    """Yield a note for each foreign file that holds the records of a missing segment.

    Without the note, a renamed segment looks expired or lost.
    """
    starts = {start for start, _, _ in listing.files}
    for path in listing.foreign[:_MOST_LOOKED_INTO]:
        content = _head(path, size, root)
        tool = next((tool for magic, tool in _PACKED.items() if content.startswith(magic)), None)
        start = _start_by_first_record(content if tool is None else _unpacked(tool, content), size)
        if start is None and tool in _NOT_READ_HERE:
            start = _start_by_name(path, size)
        if start is None or start in starts:
            continue
        name = formats.offset_to_file_name(start)
        action = f"rename the file to {name}"
        if tool is not None:
            action = f"unpack the file with {tool} -d, and name it {name}"
        yield (
            f"{path} holds records of the log from offset {start} on, but they are not read: "
            f"the segment {name} is missing. To restore the records, {action}"
        )


def _head(path: Path, size: int, root: Path) -> bytes:
    """Return the beginning of a file; nothing if it is not a regular file, or not readable."""
    try:
        fd = open_regular_file(path, READ_ONLY, root)
    except (OSError, RocketStoreError):
        return b""
    try:
        return os.pread(fd, min(_FIRST_RECORD_NBYTES, size), 0)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _unpacked(tool: str, content: bytes) -> bytes:
    """Return the beginning of what a packed file holds; nothing if it cannot be unpacked here."""
    try:
        if tool == "gzip":
            return zlib.decompressobj(31).decompress(content, _FIRST_RECORD_NBYTES)
        if tool == "bzip2":
            return bz2.BZ2Decompressor().decompress(content, _FIRST_RECORD_NBYTES)
        if tool == "xz":
            unpacking = lzma.LZMADecompressor(memlimit=_MOST_UNPACKING_NBYTES)
            return unpacking.decompress(content, _FIRST_RECORD_NBYTES)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        return b""
    return b""


def _start_by_name(path: Path, size: int) -> int | None:
    """Return the offset that a file has before its suffix, if a segment may start there."""
    start = formats.file_name_to_offset(path.name.partition(".")[0])
    return start if start is not None and start % size == 0 else None


def _start_by_first_record(content: bytes, size: int) -> int | None:
    """Return the offset in a file's first record, if it is complete and a segment may start
    there."""
    if len(content) < _HEAD.nbytes:
        return None
    start = int(_HEAD.struct.unpack_from(content)[_FIELDS.index("physical_offset")])
    if start < 0 or start % size or start > 2**63 - 1 - size:
        return None
    status, _ = kernels.message.check_record(content, 0, len(content), start, start + size, 0)
    return start if RecordStatus(status) in _COMPLETE else None
