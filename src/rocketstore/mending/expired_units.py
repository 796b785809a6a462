"""Makes queue files of expired messages fit for a broker: the log cannot rebuild their units.

Only these files hold the end of a queue that has no record in the log. A broker truncates a queue
at a unit that it cannot read, refuses a file of another size, and takes the first unit of the last
file for a message even if it is zero.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rocketstore import formats
from rocketstore.files.durable import (
    READ_ONLY,
    make_directories,
    open_regular_file,
    write_file,
)
from rocketstore.mending.rebuilding import Rebuild
from rocketstore.mending.steps import FileChange, content_of
from rocketstore.queues.consume_queue import UNIT_NBYTES
from rocketstore.queues.directories import queue_directories
from rocketstore.status import RecordStatus
from rocketstore.survey.lost_queues import StatedEnd

Array = np.ndarray[Any, Any]
Key = tuple[str, int]
_UNIT = formats.CONSUME_QUEUE_UNIT
_BATCH_UNIT = formats.BATCH_QUEUE_UNIT
_FILLER = (0, formats.FILLER_UNIT_SIZE, 0)
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)


class ExpiredUnits:
    """The queue files that the log cannot rebuild.

    Parameters
    ----------
    rebuild : Rebuild
        It has run.
    target, root : Path
        Where new files are built, and the store's root.
    stated : mapping
        By topic and queue id, a queue offset that the queue has reached (``read_stated_ends``).
    lost : collection of (str, int)
        Queues that get a file for that offset, although they have none.

    Attributes
    ----------
    ends : dict
        The next queue offset of each queue without a record, by topic and queue id.
    """

    def __init__(
        self,
        rebuild: Rebuild,
        target: Path,
        root: Path,
        stated: Mapping[Key, StatedEnd],
        lost: Collection[Key] = (),
    ) -> None:
        self._log = rebuild.old.log
        self._start = rebuild.start
        self._size = rebuild.old.facts.consume_queue_file_size
        self._target = target
        self._root = root
        self._stated = stated
        self._lost = frozenset(lost)
        self._batch_size = rebuild.old.facts.batch_queue_file_size
        self._ext_size = rebuild.old.facts.ext_file_size
        self._ext = rebuild.old.paths.consume_queue_ext
        self._batch = rebuild.old.paths.batch_consume_queue
        self._made = {
            (queue.topic, queue.queue_id): queue.queue.min_offset for queue in rebuild.queues
        }
        self.ends: dict[Key, int] = {}

    def changes(self, wants: Callable[[str], bool]) -> dict[str, list[FileChange]]:
        """Return the files that change, by topic.

        Parameters
        ----------
        wants : callable
            Whether a topic's queues are mended.
        """
        found: dict[str, list[FileChange]] = {}
        top = self._root / formats.CONSUME_QUEUE_DIR
        queues = self._folders(top)
        queues |= {key: top / key[0] / str(key[1]) for key in self._lost - queues.keys()}
        for folders, changes_of in (
            (queues, self._of_queue),
            (self._folders(self._batch), self._of_batch_queue),
            (self._folders(self._ext), self._of_ext_files),
        ):
            for key, folder in sorted(folders.items()):
                if wants(key[0]) and (changes := list(changes_of(key, folder))):
                    found.setdefault(key[0], []).extend(changes)
        return found

    def _folders(self, top: Path) -> dict[Key, Path]:
        return {
            (topic.name, int(queue.name)): queue
            for topic, queue in queue_directories(top, self._root, [], tolerant=True)
        }

    def _of_ext_files(self, key: Key, folder: Path) -> Iterator[FileChange]:
        """Yield the ext files of an expired queue, as set aside, if one has a wrong length."""
        files = self._files(folder)
        size = self._ext_size
        is_unfit = size and any(os.lstat(path).st_size != size for path in files.values())
        if key not in self._made and is_unfit:
            yield from map(self._gone, files.values())

    def _of_batch_queue(self, key: Key, folder: Path) -> Iterator[FileChange]:
        """Yield the changes of a batch queue: its units stand one after the other."""
        if key in self._made:
            return
        files = self._files(folder)
        units = b"".join(self._batch_units(path) for path in files.values())
        start, size = min(files, default=0), self._batch_size
        room = size - size % _BATCH_UNIT.nbytes
        for number, path in enumerate(files.values()):
            is_blank = os.lstat(path).st_size == size and not self._read_bytes(path).strip(b"\0")
            if not units and is_blank:
                continue  # nothing was ever put
            made, units = units[:room], units[room:]
            if not made:
                yield self._gone(path)
                continue
            place = folder / formats.offset_to_file_name(start + number * size)
            if self._read_bytes(place) != made.ljust(size, b"\0"):
                yield self._replaced(place, made.ljust(size, b"\0"))

    def _batch_units(self, path: Path) -> bytes:
        """Return the units of a batch queue's file that name records before the log."""
        content, found = self._read_bytes(path), []
        for at in range(0, len(content) - _BATCH_UNIT.nbytes + 1, _BATCH_UNIT.nbytes):
            offset, nbytes, _, _, base, count, *_ = _BATCH_UNIT.struct.unpack_from(content, at)
            if offset >= 0 and 0 < nbytes <= self._start - offset and base >= 0 and count > 0:
                found.append(content[at : at + _BATCH_UNIT.nbytes])
        return b"".join(found)

    def _of_queue(self, key: Key, folder: Path) -> Iterator[FileChange]:
        files = self._files(folder)
        if key in self._made:
            start = self._made[key]
            if start >= 0:
                earlier = {one: path for one, path in files.items() if one < start}
                yield from self._unfit(earlier, start)
            return
        contents = {start: self._read(path) for start, path in files.items()}
        if any(self._names_a_record(units, key[0]) for units in contents.values()):
            return  # of another table of names: not expired
        end = self._end(contents, key)
        self.ends[key] = end
        last = max(0, end - 1) * UNIT_NBYTES // self._size * self._size
        if end:
            yield from self._last(folder, last, end, contents.get(last))
        for start in sorted(files):
            if start > last or not end:
                yield self._gone(files[start])
        yield from self._unfit({one: path for one, path in files.items() if one < last}, last)

    # --- one queue ----------------------------------------------------------------------------

    def _files(self, folder: Path) -> dict[int, Path]:
        found = {}
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            start = formats.file_name_to_offset(name)
            if start is not None:
                found[start] = folder / name
        return found

    def _read_bytes(self, path: Path) -> bytes:
        """Return what a file holds; nothing if it is missing."""
        try:
            fd = open_regular_file(path, READ_ONLY, self._root)
        except FileNotFoundError:
            return b""
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def _read(self, path: Path) -> Array:
        content = self._read_bytes(path)[: self._size]
        return np.frombuffer(content[: len(content) - len(content) % UNIT_NBYTES], _UNIT.dtype)

    def _are_expired(self, units: Array) -> Array:
        """Return which units name a record before the log."""
        offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
        return (offsets >= 0) & (sizes > 0) & (sizes <= self._start - offsets)

    def _names_a_record(self, units: Array, topic: str) -> bool:
        """Return whether a unit names a record that belongs to the queue by multi dispatch."""
        log = self._log
        offsets = units["physical_offset"].astype("i8")
        inside = (offsets >= self._start) & (offsets < log.max_offset)
        for offset, size in zip(
            offsets[inside].tolist(), units["size"][inside].tolist(), strict=True
        ):
            status, nbytes = log.check(offset)
            if status not in _COMPLETE or nbytes != size:
                continue
            named = log.view(offset).properties.get(formats.PROPERTY_INNER_MULTI_DISPATCH, "")
            if topic in named.split(","):
                return True
        return False

    def _end(self, contents: Mapping[int, Array], key: Key) -> int:
        """Return the queue offset after the last message; 0 if no file can hold it."""
        stated = self._stated[key].offset if key in self._stated else 0
        if stated > self._log.max_offset // formats.RECORD_MIN_NBYTES:
            stated = 0
        if not self._start:
            return 0
        for start in sorted(contents, reverse=True):
            good = np.flatnonzero(self._are_expired(contents[start]))
            first = start // UNIT_NBYTES
            if len(good):
                end = first + int(good[-1]) + 1
                break
            if start == max(contents) and start - self._size not in contents:
                end = first + 1  # the file was created for a message
                break
        else:
            return stated if key in self._lost else 0
        last = (end - 1) * UNIT_NBYTES // self._size
        stop = (last + 1) * self._size // UNIT_NBYTES
        return max(end, min(stated, stop))

    def _last(
        self, folder: Path, start: int, end: int, units: Array | None
    ) -> Iterator[FileChange]:
        """Yield the change of the file with the queue's end, unless it is as a broker needs it."""
        path = folder / formats.offset_to_file_name(start)
        count = end - start // UNIT_NBYTES
        made = np.zeros(self._size // UNIT_NBYTES, _UNIT.dtype)
        made[:count] = _FILLER
        if units is not None:
            kept = units[:count]
            is_filler = (kept["size"] == formats.FILLER_UNIT_SIZE) & (kept["physical_offset"] == 0)
            is_fit = np.zeros(count, bool)
            is_fit[: len(kept)] = self._are_expired(kept) | is_filler
            unfit = np.flatnonzero(~is_fit)
            first = int(unfit[-1]) + 1 if len(unfit) else 0  # log offsets ascend after fillers
            made[first : len(kept)] = kept[first:]
        if made[count - 1]["size"] == formats.FILLER_UNIT_SIZE:
            # After a filler a broker takes every later record for one that it has.
            size = formats.RECORD_MIN_NBYTES
            made[count - 1] = (self._start - size, size, 0)
        if (
            units is not None
            and os.lstat(path).st_size == self._size
            and np.array_equal(units, made)
        ):
            return
        yield self._replaced(path, made.tobytes().ljust(self._size, b"\0"))

    def _unfit(self, files: Mapping[int, Path], stop: int) -> Iterator[FileChange]:
        """Yield, as set aside, the files up to the last one that a broker cannot read.

        ``files`` are those before position ``stop``, where the next file begins.
        """
        for start in sorted(files, reverse=True):
            if start != stop - self._size or not self._is_full(files[start]):
                for path in (files[one] for one in sorted(files) if one <= start):
                    yield self._gone(path)
                return
            stop = start

    def _is_full(self, path: Path) -> bool:
        units = self._read(path)
        is_filler = (units["size"] == formats.FILLER_UNIT_SIZE) & (units["physical_offset"] == 0)
        is_whole = os.lstat(path).st_size == self._size
        return is_whole and bool((self._are_expired(units) | is_filler).all())

    def _replaced(self, path: Path, content: bytes) -> FileChange:
        name = path.relative_to(self._root).as_posix()
        new = self._target / name
        make_directories(new.parent, self._target)
        write_file(new, content)
        return FileChange(name, content_of(path, self._root), content_of(new, self._target))

    def _gone(self, path: Path) -> FileChange:
        name = path.relative_to(self._root).as_posix()
        return FileChange(name, content_of(path, self._root), None)
