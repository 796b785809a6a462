"""Reads the commit log with separate, plain code: no kernel, no mapping, no recovery.

A checker must not share the errors of the writer. Only the declarations of ``formats`` are shared;
other tests compare these with stores of real brokers.
"""

from __future__ import annotations

import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats

_HEAD = formats.RECORD_HEAD.struct
_BLANK = formats.BLANK.struct
_TIME = struct.Struct(">q")
_LENGTHS = struct.Struct(">iqi")  # reconsume times, prepared offset, body length
_MAGICS = (formats.MAGIC_V1, formats.MAGIC_V2)
_MAGIC_NBYTES = 4
_MAGIC_WORDS = re.compile(
    b"|".join(re.escape(magic.to_bytes(_MAGIC_NBYTES, "big", signed=True)) for magic in _MAGICS)
)
_PIECE_NBYTES = 1 << 20
_FLAG_V6 = (formats.SYS_FLAG_BORN_HOST_V6, formats.SYS_FLAG_STORE_HOST_V6)


class PlainRecord(NamedTuple):
    """One good record of the log; ``properties`` are its pairs as text."""

    physical_offset: int
    total_size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    body: bytes
    properties: dict[str, str]

    @property
    def end(self) -> int:
        """Physical offset after the record."""
        return self.physical_offset + self.total_size

    @property
    def transaction(self) -> int:
        """The two bits for NOT, PREPARED, COMMIT or ROLLBACK."""
        return self.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK

    @property
    def is_queued(self) -> bool:
        """Whether the record has a unit in its queue."""
        return self.transaction in (
            formats.SYS_FLAG_TRANSACTION_NOT,
            formats.SYS_FLAG_TRANSACTION_COMMIT,
        )

    @property
    def keys(self) -> list[str]:
        """What the record can be looked up by: its unique key, then the words of KEYS."""
        words = self.properties.get(formats.PROPERTY_KEYS, "").split(formats.KEY_SEPARATOR)
        unique = self.properties.get(formats.PROPERTY_UNIQUE_KEY)
        return [word for word in (unique, *words) if word]


class Fault(NamedTuple):
    """Something in the log that must not be: file, place and what it is."""

    path: Path
    physical_offset: int
    what: str


@dataclass
class PlainLog:
    """All records of a log, and the faults of its files.

    Attributes
    ----------
    start, end : int
        Physical offset of the first byte, and after the last record (or the last full file).
    records : list of PlainRecord
    faults : list of Fault
    """

    start: int = 0
    end: int = 0
    records: list[PlainRecord] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def log_files(directory: Path) -> list[tuple[int, Path]]:
    """Return (offset of the first byte, path) of the files of a mapped queue, in order."""
    if not directory.is_dir():
        return []
    named = ((formats.file_name_to_offset(path.name), path) for path in directory.iterdir())
    return sorted((offset, path) for offset, path in named if offset is not None)


def read_log(directory: Path) -> PlainLog:
    """Read the log from its first byte to its last record."""
    log = PlainLog()
    files = log_files(directory)
    if not files:
        return log
    log.start = log.end = files[0][0]
    for number, (base, path) in enumerate(files):
        if base != log.end:
            what = f"begins at {base}, but the log before it ends at {log.end}"
            log.faults.append(Fault(path, base, what))
            log.end = base
        nbytes = path.stat().st_size
        if not nbytes:
            log.faults.append(Fault(path, base, "has no bytes"))
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            is_full = _read_file(log, base, path, data)
            if not is_full:
                is_last = all(_is_empty(later) for _, later in files[number + 1 :])
                _check_rest(log, base, path, data, is_last=is_last)
                if is_last:
                    return log
                log.end = base + nbytes
    return log


def _read_file(log: PlainLog, base: int, path: Path, data: mmap.mmap) -> bool:
    """Read the records of one file; return whether it is full."""
    position = 0
    nbytes = len(data)
    while position < nbytes:
        if position + formats.BLANK.nbytes > nbytes:
            return False
        size, magic = _BLANK.unpack_from(data, position)
        if magic == formats.BLANK_MAGIC:
            if size != nbytes - position:
                what = f"a blank has size {size}, but {nbytes - position} bytes are left"
                log.faults.append(Fault(path, base + position, what))
            log.end = base + nbytes
            return True
        record = parse_record(data, position)
        if record is None:
            return False
        if record.physical_offset != base + position:
            what = f"the record has the physical offset {record.physical_offset}"
            log.faults.append(Fault(path, base + position, what))
        else:
            log.records.append(record)
        position += record.total_size
        log.end = base + position
    return True


def parse_record(data: bytes | mmap.mmap, position: int) -> PlainRecord | None:
    """Return the record at ``position``, or ``None`` if it is incomplete or corrupt."""
    left = len(data) - position
    if left < formats.RECORD_MIN_NBYTES:
        return None
    (size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag, _) = _HEAD.unpack_from(
        data, position
    )
    if magic not in _MAGICS or not formats.RECORD_MIN_NBYTES <= size <= left:
        return None
    hosts = [
        formats.HOST_V6.nbytes if sys_flag & flag else formats.HOST_V4.nbytes for flag in _FLAG_V6
    ]
    record = data[position : position + size]
    at = _HEAD.size + hosts[0]
    try:
        (store_timestamp,) = _TIME.unpack_from(record, at)
        at += _TIME.size + hosts[1]
        body_nbytes = _LENGTHS.unpack_from(record, at)[2]
        at += _LENGTHS.size
        if not 0 <= body_nbytes <= size - at or queue_id < 0 or queue_offset < 0:
            return None
        body = record[at : at + body_nbytes]
        at += body_nbytes
        width = 1 if magic == formats.MAGIC_V1 else formats.TOPIC_LENGTH_NBYTES_V2
        topic_nbytes = int.from_bytes(record[at : at + width], "big")
        at += width
        topic = record[at : at + topic_nbytes]
        at += topic_nbytes
        properties_nbytes = int.from_bytes(record[at : at + 2], "big", signed=True)
        at += formats.PROPERTIES_LENGTH_NBYTES
    except struct.error:
        return None
    if properties_nbytes < 0 or at + properties_nbytes != size or not topic:
        return None
    if body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    return PlainRecord(
        physical_offset,
        size,
        topic.decode("utf-8", "replace"),
        queue_id,
        queue_offset,
        sys_flag,
        store_timestamp,
        body,
        _properties(record[at:]),
    )


def _properties(data: bytes) -> dict[str, str]:
    pairs = {}
    for item in data.decode("utf-8", "replace").split(chr(formats.PROPERTY_SEPARATOR)):
        name, found, value = item.partition(chr(formats.NAME_VALUE_SEPARATOR))
        if found and name and value:
            pairs[name] = value
    return pairs


def _is_empty(path: Path) -> bool:
    """Return whether a file is all zeros, like a preallocated one."""
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            if chunk.count(0) != len(chunk):
                return False
    return True


def _check_rest(log: PlainLog, base: int, path: Path, data: mmap.mmap, *, is_last: bool) -> None:
    """Check the bytes after the last record of a file that does not end in a blank."""
    position = log.end - base
    if not is_last:
        what = "the file ends in neither a blank nor a record, but more files follow"
        log.faults.append(Fault(path, log.end, what))
    if any(data[position : position + formats.BLANK.nbytes]):
        what = "neither a record nor a blank nor zeros"
        log.faults.append(Fault(path, log.end, what))
    for place in _good_places(data, position):
        what = f"a good record is past the end of the log at {log.end}"
        log.faults.append(Fault(path, base + place, what))
        return


def _good_places(data: mmap.mmap, start: int) -> Iterator[int]:
    """Yield the positions of complete records at their own offset, from ``start`` on."""
    for at in _magic_places(data, start + formats.RECORD_HEAD.at("magic")):
        position = at - formats.RECORD_HEAD.at("magic")
        record = parse_record(data, position)
        if record is not None:
            base = record.physical_offset - position
            if base >= 0 and base % len(data) == 0:
                yield position


def _magic_places(data: mmap.mmap, start: int) -> Iterator[int]:
    """Yield the positions of possible record magics.

    Searches copied pieces: ``find`` of a mapping reads one byte past its end in some Python
    releases (such as 3.11.2 in Debian).
    """
    for piece in range(start, len(data), _PIECE_NBYTES):
        content = data[piece : piece + _PIECE_NBYTES + _MAGIC_NBYTES - 1]
        for found in _MAGIC_WORDS.finditer(content):
            yield piece + found.start()
