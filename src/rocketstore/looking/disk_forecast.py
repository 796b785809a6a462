"""``capacity``: when the disk is full, from the log's growth and the rules of expiry."""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.files.disk_space import UNKNOWN, DiskSpace, SpaceLevels, disk_space
from rocketstore.looking.log_source import open_log
from rocketstore.looking.usage import du
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import first_store_timestamp, tail_offset

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
#: Windows over which the growth is measured, in days; the first one that the log covers counts.
_WINDOWS = (7, 3, 1)
#: Longest forecast.
_HORIZON_DAYS = 3650
#: What grows with the log.
_FOLLOWERS = (
    formats.CONSUME_QUEUE_DIR,
    formats.BATCH_QUEUE_DIR,
    formats.CONSUME_QUEUE_EXT_DIR,
    formats.INDEX_DIR,
)


@dataclass(frozen=True, slots=True)
class CapacityLevel:
    """A level of disk usage, and when it is reached.

    Attributes
    ----------
    name : str
        ``expired files go at once``, ``files of any age go``, ``puts are refused``, ``full``.
    ratio : float
        Used share of the disk, 0 to 1.
    left_nbytes : int
        Bytes until then, negative if exceeded.
    days : float or None
        0 if reached; ``None``: never with these rules, or not within ten years.
    time : int or None
        Epoch ms.
    """

    name: str
    ratio: float
    left_nbytes: int
    days: float | None
    time: int | None


@dataclass(slots=True)
class Capacity:
    """How a store and its disk grow.

    Attributes
    ----------
    path : str
    at : int
        Epoch ms.
    log_nbytes : int
        Bytes of the log in use.
    day_nbytes : int or None
        Bytes of log a day, now; ``None`` if the log is too short to measure.
    measured_days : float
        Over which time that was measured.
    factor : float
        Bytes of log, queues and index for each byte of log.
    reserved_hours : int
        ``fileReservedTime``.
    steady_nbytes : int or None
        Bytes of log, queues and index when as much expires as comes.
    total_nbytes, used_nbytes, usable_nbytes : int
        Of the log's disk.
    levels : list of CapacityLevel
    notes : list of str
    """

    path: str
    at: int
    log_nbytes: int = 0
    day_nbytes: int | None = None
    measured_days: float = 0.0
    factor: float = 1.0
    reserved_hours: int = 72
    steady_nbytes: int | None = None
    total_nbytes: int = 0
    used_nbytes: int = 0
    usable_nbytes: int = 0
    levels: list[CapacityLevel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def days(self) -> float | None:
        """Days until puts are refused, ``None`` for never."""
        refusing = [level.days for level in self.levels if level.name == "puts are refused"]
        return refusing[0] if refusing else None


def capacity(
    path: str | os.PathLike[str],
    *,
    config: MessageStoreConfig | None = None,
    at: int | None = None,
) -> Capacity:
    """Forecast when the disk of a log is full. Read-only, also beside a writer.

    Parameters
    ----------
    path : str or path-like
        A store, its ``commitlog`` folder, or one segment.
    config : MessageStoreConfig, optional
        ``file_reserved_time`` and the levels of the disk.
    at : int, optional
        Epoch ms to count from; default the system's time.

    Returns
    -------
    Capacity

    Notes
    -----
    The first record of each segment, and all of the last one, show the growth. The forecast goes on
    with the mean of the last 7 days (3, 1, or all that there is); what exists expires as it was
    stored. Other programs on the disk are taken as constant. Time: at most that of reading two
    segments.

    Raises
    ------
    FileNotFoundError, MappedFileError, UnsafePathError, PermissionError
        There is no readable log.
    """
    settings = MessageStoreConfig() if config is None else config
    now = time.time_ns() // 1_000_000 if at is None else at
    log = open_log(path, settings)
    answer = Capacity(os.fspath(path), now, reserved_hours=settings.file_reserved_time)
    points = _points(path, settings, log, answer)
    _measure(answer, points)
    places = {Path(segment.uri).parent for segment in log.segments} or {Path(path)}
    answer.factor = _factor(Path(path), answer.log_nbytes)
    try:
        space = _space(places)
    except OSError as error:
        answer.notes.append(f"the disk cannot be asked: {error.strerror}")
        return answer
    answer.total_nbytes, answer.used_nbytes, answer.usable_nbytes = space
    if space.used_ratio == UNKNOWN:
        answer.notes.append("the size of the disk is unknown")
        return answer
    _forecast(answer, points, SpaceLevels.of(settings, Dialect.for_version("5.3.3")), settings)
    return answer


def _space(folders: Iterable[Path]) -> DiskSpace:
    """Return the usage of the file systems of the log's folders, added up."""
    disks = {os.stat(folder).st_dev: disk_space(folder) for folder in folders}
    return DiskSpace(*(sum(column) for column in zip(*disks.values(), strict=True)))


def _points(
    path: str | os.PathLike[str], config: MessageStoreConfig, log: LogFiles, answer: Capacity
) -> list[tuple[int, int]]:
    """Return times (epoch ms, ascending) and how many bytes of log there were then."""
    found: list[tuple[int, int]] = []
    if not log.segments:
        return found
    tail = tail_offset(log)
    for segment in log.segments:
        if segment.base_offset <= tail:
            stored = first_store_timestamp(log, segment)
            if stored is not None:
                found.append((stored, segment.base_offset))
    last = du(path, "minute", start=tail, check_crc=False, jobs=1, config=config)
    offset = tail
    rows = [row for row in last.rows if row.first_timestamp is not None]
    for row in sorted(rows, key=lambda row: row.first_timestamp or 0):
        offset += row.nbytes
        found.append((row.last_timestamp or 0, offset))
    answer.log_nbytes = last.stop - log.min_offset
    if last.damaged_nbytes:
        answer.notes.append(f"{last.damaged_nbytes} bytes of the last segment are unreadable")
    future = sum(stored > answer.at for stored, _ in found)
    if future:
        answer.notes.append(f"{future} store times lie in the future and do not count")
    kept: list[tuple[int, int]] = []
    for stored, offset in sorted(found, key=lambda point: point[1]):
        if stored <= answer.at and (not kept or stored >= kept[-1][0]):
            kept.append((stored, offset))
    return kept


def _measure(answer: Capacity, points: list[tuple[int, int]]) -> None:
    """Find the growth a day."""
    if len(points) < 2 or points[-1][0] == points[0][0]:
        answer.notes.append("the log is too short to measure its growth")
        return
    first, last = points[0], points[-1]
    for days in _WINDOWS:
        since = answer.at - days * DAY_MS
        if first[0] <= since:
            nbytes = last[1] - _bytes_at(points, since)
            answer.day_nbytes, answer.measured_days = round(nbytes / days), float(days)
            return
    span = answer.at - first[0]
    answer.measured_days = span / DAY_MS
    answer.day_nbytes = round((last[1] - first[1]) * DAY_MS / max(span, 1))
    answer.notes.append("the log is younger than a day: the growth is a guess")


def _bytes_at(points: list[tuple[int, int]], moment: float) -> float:
    """Return the offset at which the log ended at a time, between two points by proportion."""
    at = bisect.bisect_right(points, moment, key=lambda point: point[0])
    if at == 0:
        return points[0][1]
    if at == len(points):
        return points[-1][1]
    (early, low), (late, high) = points[at - 1], points[at]
    return low + (high - low) * (moment - early) / max(late - early, 1)


def _factor(root: Path, log_nbytes: int) -> float:
    """Return the bytes of the store's files that grow with the log, for each byte of log."""
    return 1.0 + sum(_follower_sizes(root)) / log_nbytes if log_nbytes > 0 else 1.0


def _follower_sizes(root: Path) -> Iterator[int]:
    """Yield the space on disk of queue and index files."""
    for name in _FOLLOWERS:
        for folder, _, files in os.walk(root / name):
            for file in files:
                try:
                    about = os.lstat(os.path.join(folder, file))
                except FileNotFoundError:
                    continue  # the writer deleted it meanwhile
                yield getattr(about, "st_blocks", -(-about.st_size // 512)) * 512


def _forecast(
    answer: Capacity,
    points: list[tuple[int, int]],
    levels: SpaceLevels,
    config: MessageStoreConfig,
) -> None:
    """Simulate hour by hour until every level is reached, or nothing changes."""
    whole = answer.used_nbytes + answer.usable_nbytes
    named = [("expired files go at once", levels.reclaim), ("puts are refused", levels.warning)]
    if config.clean_file_forcibly_enable:
        named.insert(1, ("files of any age go", levels.forcibly))
    named.append(("full", 1.0))
    reserved = config.file_reserved_time * HOUR_MS
    growth = answer.day_nbytes
    reached: dict[str, float | None] = {}
    for name, ratio in named:
        left = ratio * whole - answer.used_nbytes
        if left <= 0:
            reached[name] = 0.0
        elif growth is None or growth <= 0:
            reached[name] = None
        else:
            reached[name] = _days(answer, points, left, growth, reserved)
    if growth is not None:
        kept = growth / DAY_MS * reserved + growth / 24
        answer.steady_nbytes = round(kept * answer.factor)
    for name, ratio in named:
        days = reached[name]
        moment = None if days is None else answer.at + round(days * DAY_MS)
        left = round(ratio * whole) - answer.used_nbytes
        answer.levels.append(CapacityLevel(name, ratio, left, days, moment))


def _days(
    answer: Capacity, points: list[tuple[int, int]], left: float, growth: float, reserved: int
) -> float | None:
    """Return the days until ``left`` further bytes are in use, ``None`` for never."""
    start = _bytes_at(points, answer.at - reserved)
    hours = min(_HORIZON_DAYS * 24, reserved // HOUR_MS + 24)
    previous = 0.0
    for hour in range(1, hours + 1):
        ahead = hour * HOUR_MS
        come = growth * ahead / DAY_MS
        # What exists expires as it was stored; what comes, a reserved time later.
        gone = _bytes_at(points, answer.at + ahead - reserved) - start
        gone += growth * max(0, ahead - reserved) / DAY_MS
        used = (come - gone) * answer.factor
        if used >= left:
            share = (left - previous) / (used - previous) if used > previous else 1.0
            return (hour - 1 + share) / 24
        previous = used
    return None
