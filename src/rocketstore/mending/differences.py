"""Compares queues and index built from the log with a store's files, file by file."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rocketstore import formats
from rocketstore.files.durable import READ_ONLY, is_zeros, list_folder, open_regular_file
from rocketstore.mending.rebuilding import Rebuild, each
from rocketstore.mending.steps import FileChange, content_of
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue, are_of_another_table

_STEP_NBYTES = 1 << 20
_UNIT = formats.CONSUME_QUEUE_UNIT.struct


def queue_changes(
    rebuild: Rebuild, target: Path, root: Path, wants: Callable[[str], bool], jobs: int = 1
) -> dict[str, list[FileChange]]:
    """Return the queue files that differ, by topic.

    Parameters
    ----------
    rebuild : Rebuild
        It has run.
    target, root : Path
        Where it built its files, and the store's root.
    wants : callable
        Whether a topic's queues are compared.
    jobs : int
        Queues that are compared at a time, each on a thread.
    """
    queues = [queue for queue in rebuild.queues if wants(queue.topic)]
    compare = functools.partial(_changes_of, target=target, root=root, start=rebuild.start)
    changes: dict[str, list[FileChange]] = {}
    for queue, found in zip(queues, each(compare, queues, jobs), strict=True):
        if found:
            changes.setdefault(queue.topic, []).extend(found)
    return changes


def _changes_of(
    queue: ConsumeQueue | BatchConsumeQueue, *, target: Path, root: Path, start: int
) -> list[FileChange]:
    """Return the files of one queue that differ; ``start``: of the log."""
    tables = [queue.queue] + ([queue.ext.queue] if queue.ext is not None else [])
    changes: list[FileChange] = []
    for table in tables:
        made = [file.path for file in table.files]
        expired_nbytes = _expired_nbytes(queue)
        if made and table is queue.queue:
            _keep_expired(made[0], root, target, expired_nbytes, start)
            expired_nbytes = 0
            if queue.topic == formats.TOPIC_SCHEDULE:
                for path in made:
                    _keep_due_times(path, root, target)
        changes += _differences(made, target, root, expired_nbytes)
    return changes


def _differences(
    made: Sequence[Path], target: Path, root: Path, expired_nbytes: int
) -> list[FileChange]:
    """Compare the files of one folder with the store's; ``expired_nbytes``: of the first."""
    if not made:
        return []
    changes = []
    folder = root / made[0].parent.relative_to(target)
    for number, path in enumerate(made):
        name = path.relative_to(target).as_posix()
        old = root / name
        skip = expired_nbytes if number == 0 else 0
        if not _are_same(old, path, root, target, skip):
            found = content_of(old, root)
            changes.append(FileChange(name, found, content_of(path, target)))
    names = {path.name for path in made}
    for old in sorted(folder.iterdir()) if folder.is_dir() else ():
        offset = formats.file_name_to_offset(old.name)
        if offset is None or old.name in names or old.name < made[0].name:
            continue  # foreign, or of expired messages
        if old.is_file() and not is_blank(old, root):
            name = old.relative_to(root).as_posix()
            changes.append(FileChange(name, content_of(old, root), None))
    return changes


def index_changes(rebuild: Rebuild, target: Path, root: Path) -> list[FileChange]:
    """Return the changes of the index: none if the same files are there in the same order."""
    assert rebuild.index is not None
    made = [file.file.path for file in rebuild.index.files]
    folder = root / formats.INDEX_DIR
    names = list_folder(folder) if folder.is_dir() else []
    old = [folder / name for name in sorted(names) if formats.is_index_name(name)]
    if len(old) == len(made) and all(
        _are_same(one, new, root, target, 0) for one, new in zip(old, made, strict=True)
    ):
        return []
    contents = [content_of(path, target) for path in made]
    changes = [
        FileChange(path.relative_to(root).as_posix(), content_of(path, root), None) for path in old
    ]
    changes += [
        FileChange(path.relative_to(target).as_posix(), None, content)
        for path, content in zip(made, contents, strict=True)
    ]
    return changes


def _expired_nbytes(queue: ConsumeQueue) -> int:
    """Return how many bytes of a queue's first file belong to messages that have expired."""
    if isinstance(queue, BatchConsumeQueue):
        return 0
    return max(0, queue.min_index * UNIT_NBYTES - max(queue.queue.min_offset, 0))


def _keep_expired(made: Path, root: Path, target: Path, nbytes: int, start: int) -> None:
    """Copy units of expired messages into a built file, which has fillers in their places.

    A unit that names a record from ``start`` on, where the log begins, stays away: that message did
    not expire, but is lost, and another record may be in its place. So does one that names nothing,
    and what is before it: log offsets ascend after the fillers.
    """
    old = root / made.relative_to(target)
    if nbytes <= 0 or not os.path.lexists(old):
        return
    with os.fdopen(open_regular_file(old, READ_ONLY, root), "rb") as file:
        found = file.read(nbytes)
    kept = 0  # a broker reads no further than a unit that names nothing
    for at in range(0, len(found) - len(found) % UNIT_NBYTES, UNIT_NBYTES):
        offset, size, _ = _UNIT.unpack_from(found, at)
        is_filler = (offset, size) == (0, formats.FILLER_UNIT_SIZE)
        if not is_filler and not (offset >= 0 and 0 < size <= start - offset):
            kept = at + UNIT_NBYTES
    with open(made, "r+b") as file:
        file.seek(kept)
        file.write(found[kept : len(found) - len(found) % UNIT_NBYTES])


def _keep_due_times(made: Path, root: Path, target: Path) -> None:
    """Copy due times that a broker with another level table gave into a built file."""
    import numpy

    old = root / made.relative_to(target)
    if not os.path.lexists(old):
        return
    contents = []
    for path, top in ((old, root), (made, target)):
        with os.fdopen(open_regular_file(path, READ_ONLY, top), "rb") as file:
            content = file.read(made.stat().st_size)
        contents.append(content[: len(content) - len(content) % UNIT_NBYTES])
    nbytes = min(map(len, contents))
    dtype = formats.CONSUME_QUEUE_UNIT.dtype
    found, new = (numpy.frombuffer(one[:nbytes], dtype) for one in contents)
    same = (found["physical_offset"] == new["physical_offset"]) & (found["size"] == new["size"])
    same &= are_of_another_table(found["tags_code"], new["tags_code"])
    if same.any():
        kept = new.copy()
        kept["tags_code"][same] = found["tags_code"][same]
        with open(made, "r+b") as file:
            file.write(kept.tobytes())


def _are_same(old: Path, new: Path, root: Path, target: Path, skip: int) -> bool:
    """Return whether two files have the same bytes from ``skip`` on; holes are not read."""
    if not os.path.lexists(old):
        return False
    with contextlib.ExitStack() as stack:
        fds = [open_regular_file(old, READ_ONLY, root), open_regular_file(new, READ_ONLY, target)]
        for fd in fds:
            stack.callback(os.close, fd)
        nbytes, other = (os.fstat(fd).st_size for fd in fds)
        if nbytes != other:
            return False
        position = skip
        while (position := min(_next_data(fd, position, nbytes) for fd in fds)) < nbytes:
            first, second = (os.pread(fd, _STEP_NBYTES, position) for fd in fds)
            if first != second:
                return False
            position += len(first) or nbytes
        return True


def _next_data(fd: int, position: int, nbytes: int) -> int:
    """Return the first position from ``position`` on that may not be in a hole."""
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None or position >= nbytes:
        return position
    try:
        return os.lseek(fd, position, seek_data)
    except OSError as error:
        if error.errno != errno.ENXIO:
            return position  # the file system does not report holes
        return nbytes  # only a hole up to the end


def is_blank(path: Path, root: Path) -> bool:
    """Return whether a file has only zeros: a broker creates the next one ahead."""
    fd = open_regular_file(path, READ_ONLY, root)
    with os.fdopen(fd, "rb") as file:
        return all(is_zeros(chunk) for chunk in iter(lambda: file.read(_STEP_NBYTES), b""))


def remove_others(target: Path, kept: set[str]) -> None:
    """Delete the built files that the store has already, and the folders that are empty then."""
    for folder, _, names in os.walk(target, topdown=False):
        for name in names:
            path = Path(folder, name)
            if path.relative_to(target).as_posix() not in kept:
                path.unlink()
        if Path(folder) != target:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
