"""The timer's log beside the message log: whether it points past the log's end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.durable_file import READ_ONLY, naming, open_regular_file
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.verify_tables import Judgement

TIMER_LOG_DIR = "timerlog"
#: Fields that matter here: size, the record's log offset and size (all big-endian).
_UNIT_NBYTES = 52
_UNIT = {
    "names": ["size", "offset", "nbytes"],
    "formats": [">i4", ">i8", ">i4"],
    "offsets": [0, 28, 36],
    "itemsize": _UNIT_NBYTES,
}
_CHUNK_UNITS = 65_536


def judge_timer_log(root: Path, log_end: int) -> Iterator[Judgement]:
    """Say so when units of the newest timer log file point past the end of the message log.

    Source: RocketMQ ``store/timer/TimerLog.java``.
    """
    path = _newest(root / TIMER_LOG_DIR)
    if path is None:
        return
    try:
        beyond = _units_beyond(path, root, log_end)
    except (OSError, MappedFileError, UnsafePathError) as error:
        yield Judgement("unreadable", str(path), 0, str(error))
        return
    if beyond:
        reason = (
            f"{beyond} units point past the log's end {log_end}: the log was truncated since, "
            "and a broker cannot deliver those timed messages"
        )
        yield Judgement("timer-log", str(path), 0, reason, is_finding=False)


def _units_beyond(path: Path, root: Path, log_end: int) -> int:
    """Count the units whose record ends past ``log_end``."""
    import numpy as np

    dtype = np.dtype(_UNIT)  # type: ignore[call-overload]
    beyond = at = 0
    fd = open_regular_file(path, READ_ONLY, root)
    try:
        while True:
            with naming(path):
                content = os.pread(fd, _CHUNK_UNITS * _UNIT_NBYTES, at)
            units = np.frombuffer(content, dtype, len(content) // _UNIT_NBYTES)
            ends = np.flatnonzero(units["size"] != _UNIT_NBYTES)
            written = units[: int(ends[0])] if len(ends) else units
            beyond += int((written["offset"].astype("i8") + written["nbytes"] > log_end).sum())
            if len(ends) or not len(units):
                return beyond
            at += len(units) * _UNIT_NBYTES
    finally:
        os.close(fd)


def _newest(folder: Path) -> Path | None:
    try:
        names = [
            name for name in os.listdir(folder) if formats.file_name_to_offset(name) is not None
        ]
    except OSError:
        return None
    return folder / max(names) if names else None
