"""Segments with wrong names: their records contain the offset at which they belong."""

from __future__ import annotations

import struct
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.files.mapped_file import MappedFile
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import find_next_record
from rocketstore.status import RecordStatus

#: Bytes of a segment that are searched for a record.
_LOOKED_AT_NBYTES = 1 << 20
_MAX_CANDIDATES = 1000
_HEAD = formats.RECORD_HEAD
_MAGICS = tuple(struct.pack(">i", magic) for magic in (formats.MAGIC_V1, formats.MAGIC_V2))
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


def claimed_start(log: CommitLog, file: MappedFile) -> int | None:
    """Return the log offset at which a segment belongs according to its records.

    ``None`` if the name is right, if any record matches its position, or if the segment has no
    complete record.
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


#: Number of commands that are spelled out.
_MOST_MOVES = 12
_ASIDE = "aside"


def renaming_in_words(directory: Path, claims: dict[int, int], present: set[int]) -> str:
    """Return the commands that rename misnamed segments, as the end of a sentence.

    Parameters
    ----------
    directory : Path
        The log's directory.
    claims : dict of int to int
        By the offset in its name, the offset at which each misnamed segment belongs.
    present : set of int
        The offsets in the names of all segments.
    """
    moves = _moves(claims, present)
    if not moves:
        return ""
    shown = "; ".join(f"mv -n {old} {new}" for old, new in moves[:_MOST_MOVES])
    more = len(moves) - _MOST_MOVES
    shown += f"; and {more} more, each to the name in its records" if more > 0 else ""
    return f". All together, in {directory}: {shown}"


def _moves(claims: dict[int, int], present: set[int]) -> list[tuple[str, str]]:
    """Return old and new name of each file, in an order in which no name is taken twice.

    The list is empty if two files claim the same name, or a correctly named file has it.
    """
    starts = list(claims.values())
    if len(set(starts)) < len(starts) or any(s in present and s not in claims for s in starts):
        return []
    name = formats.offset_to_file_name
    left = {name(base): name(start) for base, start in claims.items()}
    moves = []
    while left:
        free = [old for old, new in left.items() if new not in left]
        moves += [(old, left.pop(old)) for old in free]
        if not free:
            # Only cycles remain: move one file aside.
            first = min(left)
            moves.append((first, _ASIDE))
            left[_ASIDE] = left.pop(first)
    return moves


_FIELDS = [field.name for field in _HEAD.fields]


def _next_magic(content: bytes, start: int) -> int:
    found = [at for at in (content.find(magic, start) for magic in _MAGICS) if at >= 0]
    return min(found, default=-1)


def _is_record(log: CommitLog, file: MappedFile, position: int, claimed: int) -> bool:
    """Return whether ``position`` holds a complete record if the segment starts at ``claimed``."""
    status, _ = kernels.message.check_record(
        file.view, position, file.file_size, claimed, claimed + log.segment_size, log.record_flags
    )
    return RecordStatus(status) in _COMPLETE
