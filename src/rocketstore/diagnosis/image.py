"""A store's files as they are on disk, whatever their state: names, sizes, records, units."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats, kernels
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.files.durable import READ_ONLY, open_regular_file
from rocketstore.files.forward_pages import STEP_NBYTES, ForwardPages, release_pages
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.raw import data_ranges
from rocketstore.queues.directories import is_queue_id
from rocketstore.status import RecordFlags, RecordStatus

_ROW = formats.PARSED_RECORD
_ROWS = 1024
#: A record may reach into a hole (its zeros need no room on disk), or past what is searched at
#: once. More than a broker with default limits stores in one record.
_MARGIN_NBYTES = 16 << 20
_PIECE_NBYTES = 65_520  # whole units
_FLAGS = int(RecordFlags.PARSE_PROPERTIES | RecordFlags.CHECK_BODY_CRC)
_HEAD_NBYTES = formats.RECORD_HEAD.nbytes
_INNER_DISPATCH = formats.PROPERTY_INNER_MULTI_DISPATCH
_INNER_OFFSETS = formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET


class Entry(NamedTuple):
    """An entry of a folder.

    ``kind``: ``file``, ``folder``, ``link`` (it leaves the root or names nothing), ``odd`` (no
    regular file) or ``closed`` (no permission). ``nbytes``: 0 unless it is a file.
    """

    name: str
    path: Path
    kind: str
    nbytes: int
    mtime_ns: int
    disk_nbytes: int

    @property
    def start(self) -> int | None:
        """The offset that the name stands for."""
        return formats.file_name_to_offset(self.name)


def entries(folder: Path, root: Path) -> list[Entry]:
    """Return the entries of a folder, ordered by name; empty if it cannot be listed."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [_entry(folder / name, root) for name in names]


def _entry(path: Path, root: Path) -> Entry:
    try:
        about = os.lstat(path)
        if stat.S_ISLNK(about.st_mode):
            target = Path(os.path.realpath(path))
            inside = target.is_relative_to(os.path.realpath(root))
            if not inside or not target.exists():
                return Entry(path.name, path, "link", 0, about.st_mtime_ns, 0)
            about = os.stat(path)
    except OSError:
        return Entry(path.name, path, "closed", 0, 0, 0)
    kind = "odd"
    if stat.S_ISDIR(about.st_mode):
        kind = "folder"
    elif stat.S_ISREG(about.st_mode):
        kind = "file" if os.access(path, os.R_OK) else "closed"
    disk = getattr(about, "st_blocks", 0) * 512
    nbytes = about.st_size if stat.S_ISREG(about.st_mode) else 0
    return Entry(path.name, path, kind, nbytes, about.st_mtime_ns, disk)


class Record(NamedTuple):
    """A record that a broker parses, or a complete one after a damaged place.

    ``file``: start of its segment by name. ``offset``: the log offset that it carries.
    ``light``: names and queue offsets of further queues. ``keys``, ``tag_keys``: hashes.
    ``names``: the keys as lookups name them, ``topic#key``. ``records``: a run of so many good
    records, of which only the first one's numbers are kept (``size`` is that of the run).
    """

    file: int
    position: int
    size: int
    offset: int
    topic: bytes
    queue_id: int
    queue_offset: int
    transaction: int
    time: int
    tags_code: int
    light: tuple[tuple[bytes, int], ...]
    keys: tuple[int, ...]
    tag_keys: tuple[int, ...]
    names: tuple[bytes, ...]
    is_crc_good: bool
    records: int = 1

    @property
    def place(self) -> int:
        """The log offset at which it lies, by the name of its file."""
        return self.file + self.position

    def queues(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield topic, queue id and queue offset of each queue that gets it."""
        if self.transaction in (0, formats.SYS_FLAG_TRANSACTION_COMMIT):
            yield self.topic, self.queue_id, self.queue_offset
            for name, offset in self.light:
                yield name, 0, offset


class Segment(NamedTuple):
    """What is in one file of the log.

    ``records``: those that a walk from its beginning meets. ``stop``: where that walk ends;
    ``reason``: ``blank``, ``zeros``, ``end`` or ``damage``. ``later``: complete records after it.
    """

    entry: Entry
    start: int
    records: list[Record]
    stop: int
    reason: str
    later: list[Record]


def read_segment(
    entry: Entry,
    root: Path,
    delay_ms: tuple[int, ...],
    *,
    limit: int = 2**62,
    are_runs: bool = False,
) -> Segment:
    """Parse a segment as a broker does: offsets that records carry are not checked.

    ``are_runs``: keep runs of good records instead of each one. ``OverflowError``: there are more
    than ``limit`` records.
    """
    start = entry.start or 0
    if not entry.nbytes:
        return Segment(entry, start, [], 0, "end", [])
    file = MappedFile(entry.path, start, entry.nbytes, root)
    try:
        reader = _Reader(file, start, entry.nbytes, delay_ms, limit, are_runs=are_runs)
        records, stop, reason = reader.walk(0)
        later: list[Record] = []
        at = stop
        while reason in ("zeros", "damage") and at + 1 < entry.nbytes:
            at = _find(reader, file, at + 1)
            if at < 0:
                break
            more, at, again = reader.walk(at)
            later += more
            if again in ("blank", "end"):
                break
        return Segment(entry, start, records, stop, reason, later)
    finally:
        file.close()


def first_records(entry: Entry, root: Path) -> list[Record]:
    """Return the good records at the beginning of a segment, at most 1,024."""
    found: list[Record] = []
    file = MappedFile(entry.path, entry.start or 0, entry.nbytes, root)
    try:
        _Reader(file, entry.start or 0, entry.nbytes, (), 2**62, are_runs=False).scan(0, found)
    finally:
        file.close()
    return found


def _find(reader: _Reader, file: MappedFile, position: int) -> int:
    """Return the position of the next complete record outside of holes, -1 if there is none."""
    for start, stop in data_ranges(file, position):
        for at in range(start, stop, STEP_NBYTES):
            end = min(at + STEP_NBYTES, stop)
            found = reader.find(at, min(file.file_size, end + _MARGIN_NBYTES))
            if found >= 0:
                return found
            release_pages(file, end, at)  # mostly the zeros of a segment's unused end
    return -1


class _Reader:
    """Reads the records of one mapped segment."""

    def __init__(
        self,
        file: MappedFile,
        start: int,
        nbytes: int,
        delay_ms: tuple[int, ...],
        limit: int,
        *,
        are_runs: bool,
    ) -> None:
        self._file = file
        self._buffer = file.mapping
        self._view = memoryview(self._buffer)
        self._start = start
        self._nbytes = nbytes
        self._delay_ms = delay_ms
        self._left = limit
        self._are_runs = are_runs
        self._flags = int(RecordFlags.CHECK_BODY_CRC) if are_runs else _FLAGS
        self._base = start
        self._rows = bytearray(_ROWS * _ROW.nbytes)
        self._pages = ForwardPages()
        #: Holes are not made present: that could fill them.
        self._data_end = max((stop for _, stop in data_ranges(file, 0)), default=0)

    def find(self, position: int, stop: int) -> int:
        """Return the position of the next complete record before ``stop``, -1 if there is none."""
        return kernels.message.find_record(
            self._buffer, position, stop, self._base, self._base + self._nbytes
        )

    def walk(self, position: int) -> tuple[list[Record], int, str]:
        """Parse from ``position``; return the records, where it stopped, and why."""
        found: list[Record] = []
        while True:
            self._base = self._claimed_base(position)
            first = position
            self._pages.move(self._file, position, self._data_end)
            position, status = self.scan(position, found)
            if status == RecordStatus.OK:
                continue
            if self._magic(position) == formats.BLANK_MAGIC & 0xFFFFFFFF:
                return found, position, "blank"
            if status == RecordStatus.BAD_PHYSICAL_OFFSET and position > first:
                continue
            record = self._lenient(position)
            if record is None:
                return found, position, self._reason(position, status)
            found.append(record)
            position += record.size

    def scan(self, position: int, found: list[Record]) -> tuple[int, int]:
        """Add at most 1,024 records; return the position after them, and the status there."""
        count, after, status = kernels.message.scan_records(
            self._buffer, position, self._nbytes, self._base, self._base + self._nbytes,
            self._flags, self._rows, self._delay_ms,
        )  # fmt: skip
        self._left -= count
        if self._left < 0:
            raise OverflowError("too many records")
        if count and self._are_runs:
            names = [item.name for item in _ROW.fields]
            row = dict(zip(names, _ROW.struct.unpack_from(self._rows), strict=True))
            run = self._record(row, ((), ()))
            found.append(run._replace(size=after - position, records=count))
        elif count:
            rows = memoryview(self._rows)[: count * _ROW.nbytes]
            keys = self._keys(position, after)
            names = [item.name for item in _ROW.fields]
            for values in _ROW.struct.iter_unpack(rows):
                row = dict(zip(names, values, strict=True))
                found.append(self._record(row, keys.get(self._base + row["position"], ((), ()))))
        return after, status

    def _keys(self, first: int, stop: int) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
        keys: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        gathered = kernels.passes_index_keys.IndexKeysPass(mark_tags=True)
        position, status = first, int(RecordStatus.FULL)
        while status == RecordStatus.FULL:
            status, position = gathered.consume(
                self._buffer, position, stop, self._base, self._base + self._nbytes,
                2**62, int(RecordFlags.PARSE_PROPERTIES),
            )  # fmt: skip
            hashes, offsets, _ = gathered.take()
            for key, offset in zip(hashes.tolist(), offsets.tolist(), strict=True):
                plain, tags = keys.get(offset, ((), ()))
                if key < 0:
                    tags += (key & 0x7FFFFFFF,)
                else:
                    plain += (key,)
                keys[offset] = plain, tags
        return keys

    def _record(self, row: dict[str, int], keys: tuple[tuple[int, ...], tuple[int, ...]]) -> Record:
        at = row["position"]
        topic_at = at + row["topic_at"]
        carried = self._number(at + formats.RECORD_HEAD.at("physical_offset"), 8)
        topic = bytes(self._view[topic_at : topic_at + row["topic_nbytes"]])
        return Record(
            self._start, at, row["total_size"], carried,
            topic, row["queue_id"], row["queue_offset"],
            row["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK,
            row["store_timestamp"], row["tags_code"],
            self._light(row) if row["multi_dispatch_at"] else (), *keys,
            self._names(topic, row) if keys[0] else (), True,
        )  # fmt: skip

    def _names(self, topic: bytes, row: dict[str, int]) -> tuple[bytes, ...]:
        at, found = row["position"], []
        for name, is_list in (("unique_key", False), ("keys", True)):
            if row[f"{name}_at"] >= 0:
                first = at + row[f"{name}_at"]
                text = bytes(self._view[first : first + row[f"{name}_nbytes"]])
                found += text.split(b" ") if is_list else [text]
        return tuple(topic + b"#" + one for one in found if one)

    def _light(self, row: dict[str, int]) -> tuple[tuple[bytes, int], ...]:
        at = row["position"] + row["properties_at"]
        content = bytes(self._view[at : at + row["properties_nbytes"]])
        properties = kernels.message.parse_properties(content)
        names = properties.get(_INNER_DISPATCH, "").split(",")
        offsets = properties.get(_INNER_OFFSETS, "").split(",")
        if len(names) != len(offsets) or not all(one.isdecimal() for one in offsets):
            return ()
        return tuple(zip((one.encode() for one in names), map(int, offsets), strict=True))

    def _number(self, position: int, nbytes: int) -> int:
        return int.from_bytes(self._view[position : position + nbytes], "big", signed=nbytes == 8)

    def _magic(self, position: int) -> int:
        return self._number(position + 4, 4) if position + 8 <= self._nbytes else 0

    def _claimed_base(self, position: int) -> int:
        at = position + formats.RECORD_HEAD.at("physical_offset")
        is_record = self._magic(position) in (
            formats.MAGIC_V1 & 0xFFFFFFFF,
            formats.MAGIC_V2 & 0xFFFFFFFF,
        )
        if not is_record or at + 8 > self._nbytes:
            return self._start
        base = self._number(at, 8) - position
        return base if 0 <= base < 2**62 else self._start

    def _reason(self, position: int, status: int) -> str:
        if status == RecordStatus.END or position >= self._nbytes:
            return "end"
        return "zeros" if status == RecordStatus.EMPTY else "damage"

    def _lenient(self, position: int) -> Record | None:
        """Parse a record that strict checks refuse, as a broker does; ``None``: it refuses too."""
        left = self._nbytes - position
        if left < _HEAD_NBYTES + 40:
            return None
        total = self._number(position, 4)
        if self._magic(position) not in (formats.MAGIC_V1 & 0xFFFFFFFF,
                                         formats.MAGIC_V2 & 0xFFFFFFFF):  # fmt: skip
            return None
        if not 0 < total <= left:
            return None
        view = self._view[position : position + total]
        parsed = _parse(view, total, self._magic(position) == formats.MAGIC_V2 & 0xFFFFFFFF)
        if parsed is None:
            return None
        topic, sys_flag, time, is_crc_good = parsed
        head = position
        return Record(
            self._start, position, total, self._number(head + 28, 8), topic,
            self._number(head + 12, 4), self._number(head + 20, 8),
            sys_flag & formats.SYS_FLAG_TRANSACTION_MASK, time, 0, (), (), (), (), is_crc_good,
        )  # fmt: skip


def _parse(view: memoryview, total: int, is_v2: bool) -> tuple[bytes, int, int, bool] | None:
    """Return topic, flags, store time and whether the body's CRC is right; ``None``: no record."""

    def number(at: int, nbytes: int) -> int:
        return int.from_bytes(view[at : at + nbytes], "big")

    sys_flag = number(36, 4)
    at = 48 + (20 if sys_flag & formats.SYS_FLAG_BORN_HOST_V6 else 8)
    time = number(at, 8)
    at += 8 + (20 if sys_flag & formats.SYS_FLAG_STORE_HOST_V6 else 8) + 12
    body_nbytes = number(at, 4)
    body = at + 4
    at = body + body_nbytes
    width = 2 if is_v2 else 1
    if body_nbytes >= 2**31 or at + width > total:
        return None
    topic_at, topic_nbytes = at + width, number(at, width)
    end = topic_at + topic_nbytes
    if end + 2 > total or end + 2 + number(end, 2) != total:
        return None
    crc = kernels.message.crc32(view[body:at]) if body_nbytes else number(8, 4)
    topic = bytes(view[topic_at:end])
    return topic, sys_flag, time, crc & 0x7FFFFFFF == number(8, 4)


class SparseFile:
    """The bytes of a file that are not zero; reading past them gives zeros."""

    def __init__(self, entry: Entry, root: Path, room: list[int]) -> None:
        self._pieces: dict[int, bytes] = {}
        if not entry.nbytes:
            return
        fd = open_regular_file(entry.path, READ_ONLY, root)
        try:
            file = MappedFile(entry.path, 0, entry.nbytes, root)
            for start, stop in data_ranges(file, 0):
                first = start // _PIECE_NBYTES
                for number in range(first, (stop - 1) // _PIECE_NBYTES + 1):
                    piece = os.pread(fd, _PIECE_NBYTES, number * _PIECE_NBYTES)
                    if piece.count(0) != len(piece):
                        room[0] -= len(piece)
                        self._pieces[number] = piece
                    if room[0] < 0:
                        raise OverflowError("too many units")
        finally:
            os.close(fd)

    def read(self, position: int, nbytes: int) -> bytes:
        """Return bytes; missing ones are zeros."""
        parts, stop = [], position + nbytes
        while position < stop:
            number, at = divmod(position, _PIECE_NBYTES)
            count = min(stop - position, _PIECE_NBYTES - at)
            parts.append(self._pieces.get(number, b"")[at : at + count].ljust(count, b"\0"))
            position += count
        return b"".join(parts)

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of each piece that is not zero; pieces hold whole units."""
        for number in sorted(self._pieces):
            yield number * _PIECE_NBYTES, self._pieces[number]

    @property
    def end(self) -> int:
        """Bytes up to the end of the last piece that is not zero."""
        last = max(self._pieces, default=-1)
        return 0 if last < 0 else last * _PIECE_NBYTES + len(self._pieces[last])

    def is_empty(self) -> bool:
        """Return whether there are only zeros."""
        return not self._pieces


class StoreImage:
    """The listed files of a store.

    Attributes
    ----------
    log : list of Entry
        Entries of the log's folders.
    queues, batch_queues, ext_queues : dict
        Entries of each queue's folder, by topic and queue id.
    index : list of Entry
    """

    def __init__(self, paths: StorePaths) -> None:
        self.paths = paths
        self.root = paths.root
        self.log_root = paths.log_root
        self.log = sorted(
            (one for folder in paths.log_folders for one in entries(folder, paths.log_root)),
            key=lambda one: one.name,
        )
        self.queues = _queues(paths.consume_queue, paths.root)
        self.batch_queues = _queues(paths.batch_consume_queue, paths.root)
        self.ext_queues = _queues(paths.consume_queue_ext, paths.root)
        self.index = entries(paths.index, paths.root)

    def relative(self, path: Path | str) -> str:
        """Return a path relative to the root, with ``/``."""
        found = os.path.relpath(path, self.root)
        return Path(found if not found.startswith("..") else path).as_posix()


def _queues(folder: Path, root: Path) -> dict[tuple[str, int], list[Entry]]:
    found: dict[tuple[str, int], list[Entry]] = {}
    for topic in entries(folder, root):
        if topic.kind != "folder":
            continue
        for queue in entries(topic.path, root):
            if queue.kind == "folder" and is_queue_id(queue.name):
                found[topic.name, int(queue.name)] = entries(queue.path, root)
    return found


#: Errors of reading one file that another process may change, or replace by something else.
READ_ERRORS = (OSError, MappedFileError, UnsafePathError)
