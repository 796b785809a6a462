"""What a log holds, stretch by stretch: one pass gives topics, times and damage."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore.arguments import Progress, threads_of
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.paths import StorePaths
from rocketstore.errors import RocketStoreError
from rocketstore.looking.log_source import open_log
from rocketstore.looking.usage import PERIODS_MS, UsageRow, du
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import first_store_timestamp, tail_offset

#: Squares of the map; a longer log has several segments in each.
MAX_STRETCHES = 240
#: A log of up to this time is counted by minutes, a longer one by hours.
_MINUTES_UP_TO_MS = 3 * PERIODS_MS["hour"]
#: Topics that one stretch remembers.
_STRETCH_TOPICS = 4


@dataclass(slots=True)
class Sums:
    """Messages and bytes of a group, and its first and last store time (epoch ms)."""

    messages: int = 0
    nbytes: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, row: UsageRow) -> None:
        """Add one row."""
        self.messages += row.messages
        self.nbytes += row.nbytes
        if row.first_timestamp is not None:
            self.first = min(self.first or row.first_timestamp, row.first_timestamp)
        if row.last_timestamp is not None:
            self.last = max(self.last or row.last_timestamp, row.last_timestamp)


@dataclass(slots=True)
class Stretch:
    """Some segments in a row.

    Attributes
    ----------
    start, stop : int
        Physical offsets.
    file : str
        Name of the first segment.
    segments : int
    nbytes : int
        Of messages, fillers and damage.
    damaged_nbytes : int
    is_missing : bool
        Whether there is no file.
    topics : list of (str, int)
        The largest topics, and their bytes.
    first, last : int or None
        Store times, epoch ms.
    """

    start: int
    stop: int
    file: str
    segments: int = 1
    nbytes: int = 0
    messages: int = 0
    damaged_nbytes: int = 0
    is_missing: bool = False
    topics: list[tuple[str, int]] = field(default_factory=list)
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class LogUse:
    """What a log holds.

    Attributes
    ----------
    start, stop : int
        Physical offsets of what was read.
    stretches : list of Stretch
    topics : dict of str to Sums
    times : dict of int to Sums
        By the beginning of each period, epoch ms.
    period_ms : int
    filler_nbytes, damaged_nbytes : int
    """

    start: int = 0
    stop: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    topics: dict[str, Sums] = field(default_factory=dict)
    times: dict[int, Sums] = field(default_factory=dict)
    period_ms: int = PERIODS_MS["hour"]
    filler_nbytes: int = 0
    damaged_nbytes: int = 0

    @property
    def messages(self) -> int:
        """Messages of all topics."""
        return sum(one.messages for one in self.topics.values())

    @property
    def first(self) -> int | None:
        """Store time of the first message, epoch ms."""
        return min((one.first for one in self.topics.values() if one.first), default=None)

    @property
    def last(self) -> int | None:
        """Store time of the last message, epoch ms."""
        return max((one.last for one in self.topics.values() if one.last), default=None)


def read_log(
    path: str | os.PathLike[str],
    config: MessageStoreConfig,
    *,
    check_crc: bool,
    jobs: int | None,
    progress: Progress | None,
) -> LogUse:
    """Read a log once and sum it up; raises as ``du`` does."""
    log = open_log(path, config)
    use = LogUse()
    per = _period(path, log, config)
    use.period_ms = PERIODS_MS[per]
    use.stretches = list(_stretches(log))
    lock, done = threading.Lock(), [0]
    total = sum(one.stop - one.start for one in use.stretches)

    def read(stretch: Stretch) -> None:
        if not stretch.is_missing:
            found = du(
                path, ("topic", per), start=stretch.start, stop=stretch.stop,
                check_crc=check_crc, jobs=1, config=config,
            )  # fmt: skip
            with lock:
                _add(use, stretch, found.rows)
                use.filler_nbytes += found.filler_nbytes
                use.damaged_nbytes += found.damaged_nbytes
                stretch.damaged_nbytes = found.damaged_nbytes
                use.stop = max(use.stop, found.stop)
        with lock:
            done[0] += stretch.stop - stretch.start
            if progress is not None:
                progress("read the log", done[0], total)

    workers = threads_of(jobs, 4)
    with concurrent.futures.ThreadPoolExecutor(workers, "rocketstore-report") as pool:
        for future in [pool.submit(read, one) for one in use.stretches]:
            future.result()
    if use.stretches:
        use.start = use.stretches[0].start
        use.damaged_nbytes += sum(one.stop - one.start for one in use.stretches if one.is_missing)
    return use


def _add(use: LogUse, stretch: Stretch, rows: list[UsageRow]) -> None:
    topics: dict[str, int] = {}
    for row in rows:
        stretch.nbytes += row.nbytes
        if row.kind in ("filler", "damaged"):
            continue
        topic, begin = row.key
        use.topics.setdefault(str(topic), Sums()).add(row)
        if isinstance(begin, int):
            use.times.setdefault(begin, Sums()).add(row)
        topics[str(topic)] = topics.get(str(topic), 0) + row.nbytes
        stretch.messages += row.messages
        for name, choose in (("first", min), ("last", max)):
            value = row.first_timestamp if name == "first" else row.last_timestamp
            if value is not None:
                known = getattr(stretch, name)
                setattr(stretch, name, value if known is None else choose(known, value))
    largest = sorted(topics.items(), key=lambda pair: -pair[1])
    stretch.topics = largest[:_STRETCH_TOPICS]


def _stretches(log: LogFiles) -> Iterator[Stretch]:
    """Yield the log in pieces of whole segments, with those that are missing."""
    size = log.segment_size or 1
    each = max(1, -(-len(log.segments) // MAX_STRETCHES))
    expected: int | None = None
    waiting: Stretch | None = None
    for segment in log.segments:
        name = Path(segment.uri).name
        if expected is not None and segment.base_offset > expected:
            if waiting is not None:
                yield waiting
                waiting = None
            count = -(-(segment.base_offset - expected) // size)
            yield Stretch(expected, segment.base_offset, f"{expected:020d}", count, is_missing=True)
        if waiting is None:
            waiting = Stretch(segment.base_offset, segment.end_offset, name)
        else:
            waiting.stop, waiting.segments = segment.end_offset, waiting.segments + 1
        if waiting.segments == each:
            yield waiting
            waiting = None
        expected = segment.end_offset
    if waiting is not None:
        yield waiting


def _period(path: str | os.PathLike[str], log: LogFiles, config: MessageStoreConfig) -> str:
    """Return ``"minute"`` for a log of a few hours, else ``"hour"``."""
    if not log.segments:
        return "hour"
    first = first_store_timestamp(log, log.segments[0])
    tail = tail_offset(log)
    ends = [first_store_timestamp(log, one) for one in log.segments if one.base_offset == tail]
    with contextlib.suppress(RocketStoreError, OSError):  # only a choice of columns hangs on it
        paths = StorePaths.of(Path(path), config).absolute()
        ends.append(StoreCheckpoint.read(paths.checkpoint, paths.root).physic_timestamp)
    last = max((one for one in ends if one), default=None)
    if first is None or last is None or not 0 <= last - first < _MINUTES_UP_TO_MS:
        return "hour"
    return "minute"
