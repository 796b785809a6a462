"""List the files of a log to read, and the damage that recovery detects at its end.

The log alone cannot distinguish a corrupt last record from one that is being written. After an
orderly stop it can only be corrupt. Checkpoint, queues and state file then show what the log held,
as they do when the store is opened.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.sources import policy
from rocketstore.sources.files import local_path
from rocketstore.sources.segments import LogFiles, LostStretch
from rocketstore.store.default_message_store import open as open_store

#: Stores whose log ends are cached: a stream asks repeatedly.
_REMEMBERED = 32
#: Inode, time and size of a file.
_Look = tuple[int, int, int] | None


def list_to_read(
    uri: str | os.PathLike[str],
    on_corruption: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> LogFiles:
    """List a log to read with a policy (see ``policy.plan_reading``).

    For a local store that was stopped in order, damage at the log's end is listed among the
    unreadable ranges.
    """
    log = policy.list_to_read(uri, on_corruption, storage_options=storage_options)
    root = _root_of(log)
    if root is None or (root / formats.ABORT_FILE).exists():
        return log
    known = {one.start for one in log.lost}
    last = root / formats.COMMIT_LOG_DIR / Path(log.segments[-1].uri).name
    files = (last, root / formats.CHECKPOINT_FILE, root / formats.STATE_FILE)
    lost = _lost_at_end(root, tuple(map(_look, files)))
    return replace(
        log, unreadable=(*log.unreadable, *(one for one in lost if one.start not in known))
    )


def _root_of(log: LogFiles) -> Path | None:
    """Return the local store that the log belongs to."""
    last = local_path(log.segments[-1].uri) if log.segments else None
    folder = last.parent if last is not None else None
    return folder.parent if folder is not None and folder.name == formats.COMMIT_LOG_DIR else None


def _look(path: Path) -> _Look:
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


@functools.lru_cache(_REMEMBERED)
def _lost_at_end(root: Path, _: tuple[_Look, ...]) -> tuple[LostStretch, ...]:
    """Return the corrupt ranges after the last good record; cached while no file changes."""
    with open_store(root, derive="none", message_index_enable=False) as store:
        end = store.max_physical_offset
        return tuple(
            LostStretch(
                one.start,
                max(one.stop, one.start + 1),
                one.path,
                one.reason.removeprefix(f"log offset {one.start}: "),
            )
            for one in store.recovery_report.damaged
            if one.start >= end
        )
