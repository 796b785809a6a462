"""The files of a log that is to be read, and what recovery knows to be lost at its end.

A walk along the log alone takes a broken last record for one that is being written. After an
orderly stop there is none such: checkpoint, queues and state file tell what was there, as they do
when the store is opened.
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

#: Stores whose ends are remembered: a stream asks again and again.
_REMEMBERED = 32
#: Number, time and size of a file.
_Look = tuple[int, int, int] | None


def list_to_read(
    uri: str | os.PathLike[str],
    on_corruption: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> LogFiles:
    """List a log that is to be read with a policy (see ``policy.plan_reading``).

    Of a local store that was stopped in order, what is damaged at the log's end is among the
    stretches that cannot be read.
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
    """The local store whose log it is."""
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
    """What is damaged behind the last good record; remembered while no file changes."""
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
