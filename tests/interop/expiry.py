"""What RocketMQ's cleaners delete, deleted from a store that is closed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rocketstore import formats

#: Folders of queues, and the units in their files.
QUEUES = (
    ("consumequeue", formats.CONSUME_QUEUE_UNIT),
    ("batchconsumequeue", formats.BATCH_QUEUE_UNIT),
)


def first_kept(end: int, log_file_nbytes: int, keep: int) -> int:
    """Where the oldest of the ``keep`` newest files begins in a log that ends at ``end``."""
    newest = max(0, end - 1) // log_file_nbytes * log_file_nbytes
    return max(0, newest - (keep - 1) * log_file_nbytes)


def expire(root: Path, first: int, *, queues: bool) -> None:
    """Delete the log files before log offset ``first``, and what only they needed.

    Parameters
    ----------
    root : Path
    first : int
        Where a log file begins.
    queues : bool
        Delete files of queues and index, too; RocketMQ does it later than the log's.
    """
    for path in sorted((root / "commitlog").glob("*")):
        if int(path.name) < first:
            path.unlink()
        else:
            # More may have gone before, when the other files were left.
            first = int(path.name)
            break
    if not queues:
        return
    for folder, unit in QUEUES:
        for queue in (root / folder).glob("*/*"):
            files = sorted(queue.iterdir())
            _delete_until(files, partial(_last_offset_of_queue, unit), first)
    _delete_until(sorted((root / "index").glob("*")), _last_offset_of_index, first)


def _last_offset_of_queue(unit: formats.Layout, path: Path) -> int:
    return int(unit.struct.unpack(path.read_bytes()[-unit.nbytes :])[0])


def _last_offset_of_index(path: Path) -> int:
    header = formats.INDEX_HEADER
    names = [field.name for field in header.fields]
    facts = dict(zip(names, header.struct.unpack_from(path.read_bytes()), strict=True))
    return int(facts["end_physical_offset"])


def _delete_until(files: list[Path], last_offset: Callable[[Path], int], first: int) -> None:
    """The last file always stays, and the first that still holds something keeps the later ones."""
    for path in files[:-1]:
        if last_offset(path) >= first:
            break
        path.unlink()
