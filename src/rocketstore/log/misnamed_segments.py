"""Segments under wrong names: their records say where they belong."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats, kernels
from rocketstore.errors import RocketStoreError
from rocketstore.files.durable import READ_ONLY, open_regular_file
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import DirectoryListing
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import find_next_record
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


#: So many commands are spelled out.
_MOST_MOVES = 12
_ASIDE = "aside"


def renaming_in_words(directory: Path, claims: dict[int, int], present: set[int]) -> str:
    """Return, as the end of a sentence, the commands that give misnamed segments their names.

    Parameters
    ----------
    directory : Path
        Of the log.
    claims : dict of int to int
        By the offset in its name, where each misnamed segment begins by its records.
    present : set of int
        The offsets in the names of all segments.
    """
    moves = _moves(claims, present)
    if not moves:
        return ""
    shown = "; ".join(f"mv -n {old} {new}" for old, new in moves[:_MOST_MOVES])
    more = len(moves) - _MOST_MOVES
    shown += f"; and {more} more, each to the name that its records say" if more > 0 else ""
    return f". All together, in {directory}: {shown}"


def _moves(claims: dict[int, int], present: set[int]) -> list[tuple[str, str]]:
    """Old and new name of each file, in an order in which no name is taken twice; nothing where two
    files claim one name, or one that is another file's own."""
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
            # What is left are circles: one file makes way.
            first = min(left)
            moves.append((first, _ASIDE))
            left[_ASIDE] = left.pop(first)
    return moves


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


# --- files whose names are no offsets -----------------------------------------------------------

#: So many entries of the log's folder that are no segments are looked into, so far.
_MOST_LOOKED_INTO = 32
_FIRST_RECORD_NBYTES = 8 << 20


def hidden_segments(listing: DirectoryListing, size: int, root: Path) -> Iterator[str]:
    """Yield, in words, which files beside the log's segments hold records that no segment has: a
    segment that was renamed looks like one that has expired, and a missing one like damage."""
    starts = {start for start, _, _ in listing.files}
    for path in listing.foreign[:_MOST_LOOKED_INTO]:
        start = _start_by_first_record(path, size, root)
        if start is not None and start not in starts:
            name = formats.offset_to_file_name(start)
            yield (
                f"{path} holds records of the log from offset {start} on, and {name} is not there: "
                f"they are not read. To have them back, name the file {name}"
            )


def _start_by_first_record(path: Path, size: int, root: Path) -> int | None:
    """The log offset that a complete record at a file's beginning carries, when a segment can begin
    there."""
    try:
        fd = open_regular_file(path, READ_ONLY, root)
    except (OSError, RocketStoreError):
        return None  # it is no regular file, or none that is ours to read
    try:
        content = os.pread(fd, min(_FIRST_RECORD_NBYTES, size), 0)
    finally:
        os.close(fd)
    if len(content) < _HEAD.nbytes:
        return None
    start = int(_HEAD.struct.unpack_from(content)[_FIELDS.index("physical_offset")])
    if start < 0 or start % size or start > 2**63 - 1 - size:
        return None
    status, _ = kernels.message.check_record(content, 0, len(content), start, start + size, 0)
    return start if RecordStatus(status) in _COMPLETE else None
