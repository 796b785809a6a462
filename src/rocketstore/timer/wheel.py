"""The timer wheel: a slot for each point in time, and where its newest message is."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketstore import formats
from rocketstore.errors import MappedFileError, UnsafePathError, error_text
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file
from rocketstore.timer.findings import TimerFindings

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]

_SNAPSHOT = re.compile(rf"{formats.TIMER_WHEEL_FILE}\.([0-9]{{1,19}})")
_CHUNK_NBYTES = 512 * 1024
_WORDS = formats.TIMER_SLOT.nbytes // 8
#: Ascending runs of slots that are put together without sorting.
_MOST_RUNS = 100


class Wheel(NamedTuple):
    """The slots in use, ascending by time.

    Attributes
    ----------
    path : Path
    snapshot_position : int
        Of the timer log, when a snapshot was written; -1 for the wheel itself.
    places : array of int64
        Numbers of the slots in the file.
    times : array of int64
        The slots' times divided by the precision.
    first, last : array of int64
        Positions of their oldest and newest unit.
    counts : array of int64
    """

    path: Path
    snapshot_position: int
    places: Numbers
    times: Numbers
    first: Numbers
    last: Numbers
    counts: Numbers

    def position_of(self, number: int) -> int:
        """Return where the slot ``number`` of the arrays begins in the file."""
        return int(self.places[number]) * formats.TIMER_SLOT.nbytes


def read_wheel(
    root: Path, log_end: int, findings: TimerFindings, *, since: int = 1
) -> Wheel | None:
    """Read the newest valid wheel; ``None`` without one.

    Parameters
    ----------
    root : Path
    log_end : int
        Of the timer log; positions past it are invalid.
    findings : TimerFindings
    since : int
        Slots of a lower time (divided by the precision) are left out; above 0.

    Notes
    -----
    Of the snapshots (``timerwheel.<flushed position>``) the one with the highest position is the
    newest. It replaces the wheel itself unless that refers to a unit after it: a broker that
    writes snapshots leaves the wheel as it was. Source: RocketMQ ``store/timer/TimerWheel.java``.
    """
    plain = _read(root / formats.TIMER_WHEEL_FILE, -1, root, since, findings)
    for position in sorted(_snapshots(root), reverse=True):
        if plain is not None and _newest_unit(plain, log_end) >= position:
            break
        path = root / f"{formats.TIMER_WHEEL_FILE}.{position}"
        snapshot = _read(path, position, root, since, findings)
        if snapshot is not None:
            return snapshot
    return plain


def _snapshots(root: Path) -> list[int]:
    try:
        names = os.listdir(root)
    except OSError:
        return []  # what follows reports it
    return [int(found[1]) for found in map(_SNAPSHOT.fullmatch, names) if found]


def _newest_unit(wheel: Wheel, log_end: int) -> int:
    inside = wheel.last[wheel.last < log_end]
    return int(inside.max()) if len(inside) else -1


def _read(
    path: Path, position: int, root: Path, since: int, findings: TimerFindings
) -> Wheel | None:
    import numpy as np

    try:
        fd = open_regular_file(path, READ_ONLY, root)
    except FileNotFoundError:
        return None
    except (OSError, MappedFileError, UnsafePathError) as error:
        findings.add("timer-wheel", path, 0, error_text(error))
        return None
    try:
        with naming(path):
            nbytes = os.fstat(fd).st_size
            if nbytes not in (0, formats.TIMER_WHEEL_NBYTES):
                reason = f"{nbytes} bytes instead of {formats.TIMER_WHEEL_NBYTES}: it is not read"
                at = min(nbytes, formats.TIMER_WHEEL_NBYTES)
                findings.add("timer-wheel", path, at, reason)
                return None
            parts = list(_used_slots(fd, nbytes, since))
    except OSError as error:
        findings.add("timer-wheel", path, 0, error_text(error))
        return None
    finally:
        os.close(fd)
    columns = [np.concatenate(column) for column in zip(_no_slots(), *parts, strict=True)]
    return _judged(path, position, columns, findings)


def _no_slots() -> list[Numbers]:
    import numpy as np

    return [np.zeros(0, np.int64)] * (1 + _WORDS)


def _used_slots(fd: int, nbytes: int, since: int) -> Iterator[list[Numbers]]:
    """Yield places, times, first and last positions, and counts with magics of the slots from a
    time on. Holes are not read; chunks are small, to stay in the processor's cache.

    Negative times are yielded too: they are invalid.
    """
    import numpy as np

    width = formats.TIMER_SLOT.nbytes
    buffer = np.empty((_CHUNK_NBYTES // width, _WORDS), ">i8")
    room = memoryview(buffer).cast("B")
    for start, stop in _data_ranges(fd, nbytes):
        at = start // width * width
        while at < stop:
            wanted = min(_CHUNK_NBYTES, -(-stop // width) * width - at)
            count = os.preadv(fd, [room[:wanted]], at) // width
            if not count:
                return  # truncated meanwhile
            words = buffer[:count]
            times = words[:, 0].astype(np.int64)
            used = np.flatnonzero((times >= since) | (times < 0))
            if len(used) < count:
                words = words[used]
            if len(used):
                yield [used + at // width, *(words[:, n].astype(np.int64) for n in range(_WORDS))]
            at += count * width


def _data_ranges(fd: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that may hold other bytes than zeros."""
    seek_data = getattr(os, "SEEK_DATA", None)
    at = 0
    while seek_data is not None and at < nbytes:
        try:
            start = os.lseek(fd, at, seek_data)
            at = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError:
            break  # only a hole is left, or the file system does not report holes
        yield start, min(at, nbytes)
    else:
        if seek_data is not None:
            return
    if at < nbytes:
        yield at, nbytes  # zeros, if it is a hole


def _judged(path: Path, position: int, columns: list[Numbers], findings: TimerFindings) -> Wheel:
    """Return the slots that are in their places, ascending by time; report the others."""
    import numpy as np

    places, times, *_ = columns
    rounds = times - places
    begins = np.flatnonzero(np.diff(rounds, prepend=rounds[:1] - 1))
    is_right = times > 0
    if (rounds[begins] % formats.TIMER_SLOT_COUNT).any():  # there are few different rounds
        is_right &= rounds % formats.TIMER_SLOT_COUNT == 0
    for number in np.flatnonzero(~is_right).tolist():
        reason = f"its time is {times[number]}, which belongs to another slot"
        findings.add("timer-slot", path, int(places[number]) * formats.TIMER_SLOT.nbytes, reason)
    if not is_right.all():
        columns = [column[is_right] for column in columns]
    places, times, first, last, counts = _ascending(columns)
    return Wheel(path, position, places, times, first, last, counts >> 32)


def _ascending(columns: list[Numbers]) -> list[Numbers]:
    """Sort the slots by time. As a rule they are, but for where the wheel's round ends."""
    import numpy as np

    times = columns[1]
    falls = np.flatnonzero(times[1:] < times[:-1])
    if not len(falls):
        return columns
    starts = [0, *(falls[:_MOST_RUNS] + 1).tolist()]
    runs = [slice(*pair) for pair in itertools.pairwise([*starts, len(times)])]
    runs.sort(key=lambda run: int(times[run.start]))
    is_sorted = len(falls) <= _MOST_RUNS
    if is_sorted and all(
        times[one.stop - 1] < times[two.start] for one, two in itertools.pairwise(runs)
    ):
        return [np.concatenate([column[run] for run in runs]) for column in columns]
    order = np.argsort(times, kind="stable")
    return [column[order] for column in columns]
