"""Segments under wrong names: their records say where they belong."""

from __future__ import annotations

import struct

from rocketstore import formats, kernels
from rocketstore.commit_log import CommitLog
from rocketstore.log_scan import find_next_record
from rocketstore.mapped_file import MappedFile
from rocketstore.status import RecordStatus

#: So far into a segment a record is looked for.
_LOOKED_AT_NBYTES = 1 << 20
_MAX_CANDIDATES = 1000
_HEAD = formats.RECORD_HEAD
_MAGICS = tuple(struct.pack(">i", magic) for magic in (formats.MAGIC_V1, formats.MAGIC_V2))
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


def claimed_start(log: CommitLog, file: MappedFile) -> int | None:
    """The log offset at which a segment begins by the word of its records.

    ``None`` when that is its own, when one of its records stands where it says, or when it holds
    no complete record.
    """
    base, size = file.file_from_offset, log.segment_size
    content = file.read(0, min(_LOOKED_AT_NBYTES, file.file_size))
    position, looks = -1, 0
    while looks < _MAX_CANDIDATES:
        position = _next_magic(content, position + 1)
        start = position - _HEAD.at("magic")
        if position < 0 or start + _HEAD.nbytes > len(content):
            return None
        looks += 1
        if start < 0:
            continue
        values = _HEAD.struct.unpack_from(content, start)
        claimed = int(values[_FIELDS.index("physical_offset")]) - start
        if claimed < 0 or claimed % size:
            continue
        if not _is_record(log, file, start, claimed):
            continue
        if claimed == base:
            return None
        own = find_next_record(log, base)
        return claimed if own is None or own >= base + file.file_size else None
    return None


_FIELDS = [field.name for field in _HEAD.fields]


def _next_magic(content: bytes, start: int) -> int:
    found = [at for at in (content.find(magic, start) for magic in _MAGICS) if at >= 0]
    return min(found, default=-1)


def _is_record(log: CommitLog, file: MappedFile, position: int, claimed: int) -> bool:
    """Whether a complete record stands at ``position`` of a segment that began at ``claimed``."""
    status, _ = kernels.message.check_record(
        file.view, position, file.file_size, claimed, claimed + log.segment_size, log.record_flags
    )
    return RecordStatus(status) in _COMPLETE
