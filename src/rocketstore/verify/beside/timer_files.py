"""Check the timer's files: whether a broker starts with them, and whether they fit the log."""

from __future__ import annotations

import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.dialect import Dialect
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.files.durable import READ_ONLY, kind_name, naming, open_regular_file
from rocketstore.verify.beside.foreign_entries import judge_entry
from rocketstore.verify.beside.judgement import Judgement

#: Default of ``mappedFileSizeTimerLog``, and likely divisors of other values.
_LOG_FILE_NBYTES = 100 * 1024 * 1024
_LIKELY_MULTIPLES = (52, 1024)
_UNIT_NBYTES = formats.TIMER_UNIT.nbytes
_CHUNK_UNITS = 65_536


def judge_timer_log(root: Path, log_end: int) -> Iterator[Judgement]:
    """Report units of the newest timer log file that point past the end of the message log.

    Source: RocketMQ ``store/timer/TimerLog.java``.
    """
    path = _newest(root / formats.TIMER_LOG_DIR)
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


def judge_timer_files(root: Path, dialect: Dialect, flushed: int | None) -> Iterator[Judgement]:
    """Judge the timer's files that keep a broker from starting.

    Parameters
    ----------
    root : Path
    dialect : Dialect
        The broker's; 4.9 has no timer.
    flushed : int or None
        Up to where the timer's log was flushed, according to ``timercheck``.

    Notes
    -----
    Source: RocketMQ ``store/timer/TimerWheel.java``, ``TimerLog.java``.
    """
    if not dialect.has_timer:
        return
    wheel, log = root / formats.TIMER_WHEEL_FILE, root / formats.TIMER_LOG_DIR
    for judgements in (_judge_wheel(wheel), _judge_log(log, dialect, flushed)):
        try:
            yield from judgements
        except OSError as error:  # a link to itself, or no permission
            path = str(error.filename or root)
            yield Judgement("unreadable", path, 0, error.strerror or str(error))


def _judge_wheel(wheel: Path) -> Iterator[Judgement]:
    about = _stat(wheel)
    if about is not None and not stat.S_ISREG(about.st_mode):
        reason = f"{kind_name(about.st_mode)} in the place of a file: no broker starts with it"
        yield Judgement("odd-file", str(wheel), 0, reason)
    elif about is not None and about.st_size not in (0, formats.TIMER_WHEEL_NBYTES):
        wanted = formats.TIMER_WHEEL_NBYTES
        reason = f"{about.st_size} bytes instead of {wanted}: no broker starts with it"
        yield Judgement("timer-file", str(wheel), min(about.st_size, wanted), reason)


def _judge_log(log: Path, dialect: Dialect, flushed: int | None) -> Iterator[Judgement]:
    about = _stat(log)
    if about is not None and not stat.S_ISDIR(about.st_mode):
        reason = f"{kind_name(about.st_mode)} in the place of a folder: no timed message is kept"
        yield Judgement("odd-file", str(log), 0, reason)
    elif about is not None:
        yield from _judge_log_folder(log, dialect, flushed)


def _judge_log_folder(folder: Path, dialect: Dialect, flushed: int | None) -> Iterator[Judgement]:
    files = []
    for name in sorted(os.listdir(folder)):
        start = formats.file_name_to_offset(name)
        if start is None:
            yield from judge_entry(folder / name, "the timer's log", "timer log file", dialect)
            continue
        about = _stat(folder / name)
        if about is not None and stat.S_ISREG(about.st_mode):
            files.append((start, folder / name, about.st_size))
    if files and not files[-1][2]:
        files.pop()  # created, but never written
    if not files:
        return
    size = _likely_size([(start, nbytes) for start, _, nbytes in files], flushed)
    for _, path, nbytes in files:
        if nbytes != size:
            reason = f"{nbytes} bytes instead of {size}: no broker starts with it"
            yield Judgement("timer-file", str(path), min(nbytes, size), reason)
    if len(files) == 1 and files[0][2] == size != _LOG_FILE_NBYTES:
        reason = (
            f"{size} bytes: a broker starts with it only if its mappedFileSizeTimerLog has this "
            f"value (the default is {_LOG_FILE_NBYTES})"
        )
        yield Judgement("timer-file", str(files[0][1]), 0, reason, is_finding=False)


def _likely_size(files: list[tuple[int, int]], flushed: int | None) -> int:
    """Return the size that most lengths, and distances between names, show."""
    votes = Counter(nbytes for _, nbytes in files)
    votes += Counter(after - before for (before, _), (after, _) in itertools.pairwise(files))
    (size, _), *_ = votes.most_common(1)
    if len(files) > 1:
        return size
    (start, nbytes), *_ = files
    is_cut = flushed is not None and start <= flushed and flushed - start > nbytes
    is_likely = nbytes and any(nbytes % one == 0 for one in _LIKELY_MULTIPLES)
    return size if is_likely and not is_cut and start % nbytes == 0 else _LOG_FILE_NBYTES


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _units_beyond(path: Path, root: Path, log_end: int) -> int:
    """Count the units whose record ends past ``log_end``."""
    import numpy as np

    dtype = formats.TIMER_UNIT.dtype
    beyond = at = 0
    fd = open_regular_file(path, READ_ONLY, root)
    try:
        while True:
            with naming(path):
                content = os.pread(fd, _CHUNK_UNITS * _UNIT_NBYTES, at)
            units = np.frombuffer(content, dtype, len(content) // _UNIT_NBYTES)
            ends = np.flatnonzero(units["size"] != _UNIT_NBYTES)
            written = units[: int(ends[0])] if len(ends) else units
            beyond += int(
                (written["physical_offset"].astype("i8") + written["message_size"] > log_end).sum()
            )
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
