"""``du`` and ``volume``: what the bytes of a log are for."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rocketstore import kernels
from rocketstore.arguments import Progress, threads_of
from rocketstore.config import MessageStoreConfig
from rocketstore.log.commit_log import describe
from rocketstore.log.damage import DamagedRange
from rocketstore.looking.log_source import open_log, stored_text, whole_segments
from rocketstore.looking.property_sums import PropertySums
from rocketstore.looking.running_ahead import in_order
from rocketstore.sources.segments import LogFiles
from rocketstore.sources.splits import Split
from rocketstore.sources.walk import walk
from rocketstore.status import RecordStatus

FILLER, DAMAGED, OTHER = "(filler)", "(damaged)", "(other)"
#: Words of ``by``, and the group fields of StatsPass.
_FIELDS = {"topic": "topic", "queue": "queueId", "tag": "tags"}
PERIODS_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
PROPERTY = "property:"
#: Limits of the table of groups; what exceeds them is added to one row.
MAX_GROUPS = 150_000
MAX_KEY_NBYTES = 32 << 20
#: Bytes between two looks at the progress.
_STEP_NBYTES = 16 << 20

#: Count, bytes, bytes of bodies, first and last store time.
_Sums = list[int]


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The bytes of one group.

    Attributes
    ----------
    key : tuple
        A value for each name in ``Usage.by``: ``str`` for topic, tag and property, ``int`` for
        queues, epoch ms for periods; ``None`` for an absent tag or property. The first value of
        rows that are no messages is ``"(filler)"``, ``"(damaged)"`` or ``"(other)"``.
    messages : int
        Records; 0 for fillers and damage. A batch in one record counts as one.
    nbytes, body_nbytes : int
        Bytes of whole records, and of their bodies as stored.
    first_timestamp, last_timestamp : int or None
        Least and greatest store time, epoch ms.
    kind : {"messages", "filler", "damaged", "other"}
    """

    key: tuple[Any, ...]
    messages: int
    nbytes: int
    body_nbytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    kind: str = "messages"


@dataclass(slots=True)
class Usage:
    """What the bytes of a log are for; the rows add up to ``stop - start``.

    Attributes
    ----------
    path : str
    by : tuple of str
    rows : list of UsageRow
        ``du``: the largest first. ``volume``: by time. Fillers, damage and the rest last.
    start, stop : int
        Physical offsets of the log that was read.
    damaged : list of DamagedRange
        At most 1,000; ``damaged_nbytes`` counts all.
    filler_nbytes, damaged_nbytes : int
        Ends of segments without messages; bytes that cannot be read, missing segments included.
    """

    path: str
    by: tuple[str, ...]
    rows: list[UsageRow] = field(default_factory=list)
    start: int = 0
    stop: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    filler_nbytes: int = 0
    damaged_nbytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the log."""
        return self.stop - self.start

    @property
    def messages(self) -> int:
        """Records of the log."""
        return sum(row.messages for row in self.rows)


_MAX_RANGES = 1000


class UsageInterrupted(KeyboardInterrupt):
    """A sum was interrupted.

    Attributes
    ----------
    usage : Usage
        The sums up to ``usage.stop``; those from that ``start`` on make the whole.
    """

    def __init__(self, usage: Usage) -> None:
        super().__init__(f"start={usage.stop} goes on")
        self.usage = usage


def du(
    path: str | os.PathLike[str],
    by: str | Sequence[str] = ("topic",),
    *,
    limit: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    check_crc: bool = True,
    jobs: int | None = None,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> Usage:
    """Sum up the bytes of a log by group. Read-only, without locks, also beside a writer.

    Parameters
    ----------
    path : str or path-like
        A store, its ``commitlog`` folder, or one segment.
    by : str or sequence of str
        Any of ``topic``, ``queue``, ``tag``, ``minute``, ``hour``, ``day`` (UTC, of the store
        time; one of the three) and ``property:NAME``; a str may name several, with commas.
    limit : int, optional
        Rows of messages to return; the others are added up in a row ``(other)``.
    start, stop : int, optional
        Physical offsets: only records that begin in this range.
    check_crc : bool
        Compare bodies with their CRCs; False is about twice as fast and finds less damage.
    jobs : int, optional
        Threads, each with one segment; by default one for each processor, at most 4. Properties are
        summed up by one.
    config : MessageStoreConfig, optional
        Names a log outside the root.
    progress : callable, optional

    Returns
    -------
    Usage
        Memory: at most about 150,000 groups; further ones are added to ``(other)``.

    Raises
    ------
    UsageInterrupted
        A ``KeyboardInterrupt``; it has the sums up to where another call goes on.
    ValueError
        For unknown names in ``by``, and a ``limit`` or ``jobs`` below 1.
    FileNotFoundError, MappedFileError, UnsafePathError, PermissionError
        There is no readable log.
    """
    names = check_by(by)
    for word, value in (("limit", limit), ("jobs", jobs)):
        if value is not None and value < 1:
            raise ValueError(f"{word} is {value}; it must be 1 or more")
    log = open_log(path, config)
    sums = _LogSums(log, names, check_crc=check_crc, progress=progress)

    def answer(stop: int | None) -> Usage:
        usage = sums.usage(start, stop)
        usage.path = os.fspath(path)
        rows = sorted(usage.rows, key=lambda row: (row.nbytes, row.messages), reverse=True)
        usage.rows = _limited(rows, limit, len(names)) if limit is not None else rows
        usage.rows += sums.further_rows(usage)
        usage.rows = _others_joined(usage.rows)
        return usage

    threads = threads_of(jobs, 4)
    if any(name.startswith(PROPERTY) for name in names):
        threads = 1  # values are gathered in Python: more threads need memory, and no less time
    try:
        sums.read(list(whole_segments(log, start, stop)), threads)
    except KeyboardInterrupt:
        if sums.position is None:
            raise
        raise UsageInterrupted(answer(sums.position)) from None
    return answer(stop)


def volume(
    path: str | os.PathLike[str],
    per: str = "hour",
    by: str | Sequence[str] = (),
    **options: Any,
) -> Usage:
    """Sum up the bytes of a log by time, and by further groups; the rows are in order of time.

    Parameters
    ----------
    path : str or path-like
    per : {"minute", "hour", "day"}
    by : str or sequence of str
        Further groups, as for ``du``.
    **options
        As for ``du``, without ``limit``.

    Returns
    -------
    Usage
    """
    if per not in PERIODS_MS:
        raise ValueError(f"per is {per!r}; it must be one of {', '.join(PERIODS_MS)}")
    try:
        usage = du(path, (per, *check_by(by, least=0)), **options)
    except UsageInterrupted as error:
        error.usage.rows.sort(key=_by_time)
        raise
    usage.rows.sort(key=_by_time)
    return usage


def _by_time(row: UsageRow) -> tuple[Any, ...]:
    return row.kind != "messages", _order(row.key)


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        (value is None, isinstance(value, str), value or 0) for value in key if value != ""
    )


def check_by(by: str | Sequence[str], *, least: int = 1) -> tuple[str, ...]:
    """Return the names of groups; raise ``ValueError`` for invalid ones."""
    names = by.split(",") if isinstance(by, str) else list(by)
    names = [name.strip() for name in names if name.strip() or least]
    for name in names:
        is_property = name.startswith(PROPERTY) and len(name) > len(PROPERTY)
        if name not in _FIELDS and name not in PERIODS_MS and not is_property:
            raise ValueError(
                f"{name!r} is no group: give {', '.join([*_FIELDS, *PERIODS_MS])} or property:NAME"
            )
    if len(set(names)) < len(names):
        raise ValueError("a group is named twice")
    if sum(name in PERIODS_MS for name in names) > 1:
        raise ValueError("only one of minute, hour and day can be a group")
    if len(names) < least:
        raise ValueError("name at least one group")
    return tuple(names)


def _limited(rows: list[UsageRow], limit: int, width: int) -> list[UsageRow]:
    """Return the first rows, and one row for all others."""
    if len(rows) <= limit:
        return rows
    return [*rows[:limit], _joined(rows[limit:], width)]


def _joined(rows: Iterable[UsageRow], width: int) -> UsageRow:
    total: _Sums = []
    for row in rows:
        if row.messages:
            assert row.first_timestamp is not None
            assert row.last_timestamp is not None
            _add(total, [row.messages, row.nbytes, row.body_nbytes, row.first_timestamp,
                         row.last_timestamp])  # fmt: skip
    return _row((OTHER, *(None,) * (width - 1)), total, "other")


def _others_joined(rows: list[UsageRow]) -> list[UsageRow]:
    """Join the rows that hold the rest: those past ``limit``, and those past the table's size."""
    others = [row for row in rows if row.kind == "other"]
    if len(others) < 2:
        return rows
    joined = _joined(others, len(others[0].key))
    messages = [row for row in rows if row.kind == "messages"]
    return [*messages, joined, *(row for row in rows if row.kind in ("filler", "damaged"))]


def _row(key: tuple[Any, ...], sums: _Sums, kind: str = "messages") -> UsageRow:
    messages, nbytes, body_nbytes, first, last = sums
    return UsageRow(key, messages, nbytes, body_nbytes, first, last, kind)


def _add(total: _Sums, more: Sequence[int]) -> None:
    if not total:
        total.extend(more)
        return
    for place in range(3):
        total[place] += more[place]
    total[3] = min(total[3], more[3])
    total[4] = max(total[4], more[4])


# --- reading ------------------------------------------------------------------------------------


class _CountingPass:
    """Feeds another pass, and notes how far the log was read and where a segment's filler is."""

    def __init__(self, inner: Any, seen: Callable[[int], None]) -> None:
        self._inner = inner
        self._seen = seen
        self._reported = 0
        #: Bytes of records, ghosts included.
        self.fed_nbytes = 0
        self.filler_nbytes = 0
        #: Physical offset at which reading stopped.
        self.end: int | None = None

    def consume(
        self,
        window: Any,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``rocketstore.sources.walk.Pass``."""
        status, reached = self._inner.consume(
            window, position, stop, base_offset, segment_end, limit, flags
        )
        self.fed_nbytes += reached - position
        self.end = base_offset + reached
        if status == RecordStatus.BLANK:
            self.filler_nbytes = segment_end - self.end
            self.end = segment_end
        if self.fed_nbytes - self._reported >= _STEP_NBYTES:
            self._seen(self.fed_nbytes - self._reported)
            self._reported = self.fed_nbytes
        return status, reached


class _Step(NamedTuple):
    """What was read of a split since its last step.

    Attributes
    ----------
    groups : list of tuple
        Group fields and sums of a pass.
    fed_nbytes, filler_nbytes : int
    damage : list
        First and last log offset, status and split of damaged ranges.
    end : int or None
        Log offset up to which was read; ``None`` if nothing was written there.
    """

    groups: list[tuple[Any, ...]]
    fed_nbytes: int
    filler_nbytes: int
    damage: list[tuple[int, int, RecordStatus, Split]]
    end: int | None


class _LogSums:
    """The sums of all segments."""

    def __init__(
        self,
        log: LogFiles,
        by: tuple[str, ...],
        *,
        check_crc: bool,
        progress: Progress | None,
    ) -> None:
        self._log = log
        self._by = by
        self._check_crc = check_crc
        self._progress = progress
        self._lock = threading.Lock()
        self._groups: dict[tuple[Any, ...], _Sums] = {}
        self._key_nbytes = 0
        self._rest: _Sums = []
        self._done = self._total = 0
        #: Log offset up to which the sums go; ``None`` while they are added to.
        self.position: int | None = None
        self._filler_nbytes = 0
        self._damage: list[tuple[int, int, RecordStatus, Split]] = []
        self._ghost_nbytes = 0
        self._end = 0
        self._names = [_FIELDS[name] for name in by if name in _FIELDS]
        self._period = next((PERIODS_MS[name] for name in by if name in PERIODS_MS), None)
        self._properties = [name[len(PROPERTY) :] for name in by if name.startswith(PROPERTY)]

    def read(self, splits: list[Split], jobs: int) -> None:
        """Read the segments with ``jobs`` threads."""
        self._total = sum(split.nbytes for split in splits)
        sources = [functools.partial(self._read_split, split) for split in splits]
        with contextlib.closing(in_order(sources, jobs)) as steps:
            for step in steps:
                self.position = None
                self._add(step)
                self.position = self._end

    def _seen(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            if self._progress is not None:
                self._progress("reading the log", min(self._done, self._total), self._total)

    def _read_split(self, split: Split) -> Iterator[_Step]:
        """Sum up a split; runs on any thread."""
        if self._properties:
            inner: Any = PropertySums(self._names, self._properties, self._period)
        else:
            names = [*self._names, *(["bucket"] if self._period else [])]
            inner = kernels.passes_stats.StatsPass(names, bucket_ms=self._period or 1)
        counting = _CountingPass(inner, self._seen)
        damage: list[tuple[int, int, RecordStatus, Split]] = []
        end = split.base_offset + split.range_stop

        def on_damage(first: int, following: int | None, status: RecordStatus) -> None:
            last = end if following is None else following
            if following is None and split.tail:
                last = max(first, min(end, split.base_offset + split.durable_stop))
            damage.append((first, last, status, split))

        fed = filler = 0

        def step(groups: list[tuple[Any, ...]]) -> _Step:
            nonlocal fed, filler
            was_written = counting.fed_nbytes or counting.filler_nbytes
            made = _Step(
                groups, counting.fed_nbytes - fed, counting.filler_nbytes - filler, list(damage),
                counting.end if was_written else None,
            )  # fmt: skip
            fed, filler = counting.fed_nbytes, counting.filler_nbytes
            damage.clear()
            return made

        for _ in walk(
            split, counting, on_corruption="skip", check_crc=self._check_crc, on_damage=on_damage
        ):
            yield step(inner.take())
        yield step([])

    def _add(self, step: _Step) -> None:
        good = 0
        for group in step.groups:
            topic, queue_id, tags, bucket, properties = group[:5]
            good += group[6]
            key = (topic, queue_id, tags, bucket, properties)
            known = self._groups.get(key)
            if known is None:
                known = self._new_group(key)
            _add(known, [group[5], group[6], group[7], group[8], group[9]])
        self._ghost_nbytes += step.fed_nbytes - good
        self._filler_nbytes += step.filler_nbytes
        self._damage += step.damage
        self._end = max([self._end, step.end or 0, *(one[1] for one in step.damage)])

    def _new_group(self, key: tuple[Any, ...]) -> _Sums:
        texts = [value for value in (key[0], key[2]) if value is not None]
        texts += [value for value in key[4] or () if value is not None]
        size = sum(map(len, texts)) if self._properties or texts else 0
        if len(self._groups) >= MAX_GROUPS or self._key_nbytes + size > MAX_KEY_NBYTES:
            return self._rest
        self._key_nbytes += size
        return self._groups.setdefault(key, [])

    # --- the answer ---------------------------------------------------------------------------

    def _key(self, group: tuple[Any, ...]) -> tuple[Any, ...]:
        topic, queue_id, tags, bucket, properties = group
        values: list[Any] = []
        number = 0
        for name in self._by:
            if name == "topic":
                values.append(stored_text(topic))
            elif name == "queue":
                values.append(queue_id)
            elif name == "tag":
                values.append(None if tags is None else stored_text(tags))
            elif name in PERIODS_MS:
                values.append(bucket)
            else:
                values.append(properties[number])
                number += 1
        return tuple(values)

    def usage(self, start: int | None, stop: int | None) -> Usage:
        """Return the groups, and the range that they cover."""
        first = max(self._log.min_offset, start or 0)
        usage = Usage("", self._by, start=first)
        usage.stop = max(self._end, first)
        lost = list(self._lost(first, usage.stop, stop))
        usage.stop = max([usage.stop, *(one[1] for one in lost)])
        merged: dict[tuple[Any, ...], _Sums] = {}
        for group, sums in self._groups.items():
            # Names that differ only in invalid bytes look alike.
            _add(merged.setdefault(self._key(group), []), sums)
        usage.rows = [_row(key, sums) for key, sums in merged.items()]
        usage.filler_nbytes = self._filler_nbytes
        usage.damaged_nbytes = self._ghost_nbytes + sum(one[1] - one[0] for one in lost)
        usage.damaged = [
            DamagedRange(path, position, begin, end, reason)
            for begin, end, path, position, reason in sorted(lost)[:_MAX_RANGES]
        ]
        return usage

    def _lost(
        self, first: int, end: int, stop: int | None
    ) -> Iterator[tuple[int, int, str, int, str]]:
        """Yield start, stop, path, position and reason of each range that cannot be read."""
        for begin, last, status, split in self._damage:
            position = begin - split.base_offset
            yield begin, last, split.uri, position, describe(status, begin)
        for stretch in self._log.lost:
            begin, last = max(first, stretch.start), stretch.stop
            if stop is not None:
                last = min(last, stop)
            if begin < last:
                yield begin, last, stretch.uri, 0, stretch.reason

    def further_rows(self, usage: Usage) -> Iterator[UsageRow]:
        """Yield the rows of what is no group of messages."""
        nothing = (None,) * (len(self._by) - 1)
        if self._rest:
            yield _row((OTHER, *nothing), self._rest, "other")
        for name, nbytes in ((FILLER, usage.filler_nbytes), (DAMAGED, usage.damaged_nbytes)):
            if nbytes:
                yield UsageRow((name, *nothing), 0, nbytes, 0, None, None, name.strip("()"))
