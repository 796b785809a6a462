"""``retention``: which log files go when, and who loses unread messages."""

from __future__ import annotations

import bisect
import datetime
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.cleaning.plan import (
    CleanReason,
    Retention,
    SegmentAges,
    describe_segment,
    due_segments,
)
from rocketstore.config import MessageStoreConfig, parse_hours
from rocketstore.directory.paths import StorePaths
from rocketstore.files.disk_space import SpaceWatch
from rocketstore.files.forward_pages import release_pages
from rocketstore.looking.consumer_lag import load_offsets
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.queues.consume_queue import ConsumeQueue
from rocketstore.store.default_message_store import DefaultMessageStore

HOUR_MS = 3_600_000
#: Options of a broker that decide what goes.
WHAT_IF_OPTIONS = (
    *("fileReservedTime", "deleteWhen", "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio"),
    *("diskSpaceWarningLevelRatio", "cleanFileForciblyEnable", "deleteFileBatchMax"),
)


@dataclass(frozen=True, slots=True)
class LostUnread:
    """Messages of one queue that a group has not read when they go.

    Attributes
    ----------
    group, topic : str
    queue_id : int
    messages : int
    """

    group: str
    topic: str
    queue_id: int
    messages: int


@dataclass(slots=True)
class ExpiringFile:
    """A segment, and when it goes.

    Attributes
    ----------
    path : str
    start, nbytes : int
        Physical offset of its first byte, and its length.
    oldest_timestamp, newest_timestamp : int
        Store times of its messages, epoch ms.
    expires : int
        When its newest message becomes too old, epoch ms.
    time : int
        When the broker's next round after that deletes it: at an hour of ``deleteWhen``, or when
        the disk is so full that expired files go at once. In the past: it goes at the next round.
    reason : CleanReason
    explanation : str
    messages : dict of str to int
        Messages by topic.
    lost : list of LostUnread
        Unread messages that go with the file.
    """

    path: str
    start: int
    nbytes: int
    oldest_timestamp: int
    newest_timestamp: int
    expires: int
    time: int
    reason: CleanReason
    explanation: str
    messages: dict[str, int] = field(default_factory=dict)
    lost: list[LostUnread] = field(default_factory=list)


@dataclass(slots=True)
class RetentionReport:
    """The segments in order of going; the newest one always stays.

    Attributes
    ----------
    path : str
    at : int
        Epoch ms.
    options : dict of str to object
        The broker's options that were applied.
    files : list of ExpiringFile
    kept : str
        Why no further file is listed.
    used_ratio : float
        Used share of the log's disk, -1 if unknown.
    notes : list of str
    """

    path: str
    at: int
    options: dict[str, Any]
    files: list[ExpiringFile] = field(default_factory=list)
    kept: str = ""
    used_ratio: float = -1.0
    notes: list[str] = field(default_factory=list)

    @property
    def lost_unread(self) -> int:
        """Unread messages that go with the files, counted for each group."""
        return sum(one.messages for file in self.files for one in file.lost)


def what_if_config(config: MessageStoreConfig, changes: Mapping[str, str]) -> MessageStoreConfig:
    """Return a configuration with some of a broker's options changed.

    Raises ``ConfigError`` for an invalid value, ``ValueError`` for an option that does not decide
    what goes.
    """
    for name in changes:
        if name not in WHAT_IF_OPTIONS:
            raise ValueError(f"{name!r} is no option here; there are {', '.join(WHAT_IF_OPTIONS)}")
    if not changes:
        return config
    made = MessageStoreConfig.from_properties(dict(changes))
    fields = [_snake_case(name) for name in changes]
    return config.replace(**{name: getattr(made, name) for name in fields})


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def retention(
    store: DefaultMessageStore,
    *,
    config: MessageStoreConfig | None = None,
    at: int | None = None,
    upto: int | None = None,
) -> RetentionReport:
    """Forecast which segments go when. Nothing is deleted.

    Parameters
    ----------
    store : DefaultMessageStore
        Open in any mode.
    config : MessageStoreConfig, optional
        The rules; default those of the store.
    at : int, optional
        Epoch ms to count from; default the system's time.
    upto : int, optional
        Epoch ms: only files that go until then.

    Notes
    -----
    Counts come from the queues' units, so the log is not read; records without a unit (half
    messages that a broker keeps in queues have one) do not count. The disk is judged as it is now.
    """
    settings = store.config if config is None else config
    now = time.time_ns() // 1_000_000 if at is None else at
    reader = store.reader
    options = {name: getattr(settings, _snake_case(name)) for name in WHAT_IF_OPTIONS}
    report = RetentionReport(str(store.path), now, options)
    paths = StorePaths.of(Path(store.path), settings)
    watch = SpaceWatch(paths.log_folders, paths.consume_queue, settings, reader.dialect, lambda: 0)
    space = watch.judge()
    report.used_ratio = space.log_ratio
    ages, reserved = SegmentAges(reader.log), settings.file_reserved_time * HOUR_MS
    rule = Retention(
        now=now,
        reserved_ms=reserved,
        at_once=settings.clean_file_forcibly_enable and space.cleans_at_once,
        limit_offset=reader.log.max_offset,
        most_at_once=max(1, settings.delete_file_batch_max),
    )
    due, report.kept = due_segments(reader.log, ages, rule)
    going = {one.file.file_from_offset: one for one in due}
    latest = 0
    for file, following in itertools.pairwise(reader.log.queue.files):
        if file.end_offset > rule.limit_offset:
            report.kept = f"{file.path.name} is written now"
            break
        known = going.get(file.file_from_offset)
        times = ages.of(file, following) if known is None else known.times
        expires = times.newest + reserved
        if known is None:
            latest = max(latest, next_round(expires, settings, soon=space.is_short))
            moment, reason = latest, CleanReason.EXPIRED
            text = f"its newest message is then {settings.file_reserved_time} hours old"
        else:
            described = describe_segment(known, now)
            reason, text = described.reason, described.explanation
            soon = space.is_short or reason == CleanReason.FORCED
            moment = latest = next_round(max(now, latest), settings, soon=soon)
        if upto is not None and moment > upto:
            report.kept = f"{file.path.name} goes later"
            break
        report.files.append(
            ExpiringFile(
                str(file.path),
                file.file_from_offset,
                file.file_size,
                times.oldest,
                times.newest,
                expires,
                moment,
                reason,
                text,
            )
        )
    else:
        report.kept = "the newest segment is always kept"
    _count(store, report)
    return report


def next_round(moment: int, config: MessageStoreConfig, *, soon: bool) -> int:
    """Return when a broker deletes what expired at ``moment`` (epoch ms): at once if ``soon``,
    else at the next hour of ``deleteWhen``."""
    if soon:
        return moment
    hours = parse_hours(config.delete_when)
    try:
        start = datetime.datetime.fromtimestamp(moment / 1000, config.zone)
    except (OverflowError, OSError, ValueError):
        return moment
    if start.hour in hours:
        return moment
    start = start.replace(minute=0, second=0, microsecond=0)
    for ahead in range(1, 49):
        following = start + datetime.timedelta(hours=ahead)
        if following.hour in hours:
            return round(following.timestamp() * 1000)
    return moment


def _count(store: DefaultMessageStore, report: RetentionReport) -> None:
    """Count messages by topic and unread ones by group in each file."""
    if not report.files:
        return
    offsets = load_offsets(Path(store.path), report.notes)
    groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for (group, topic), committed in sorted(offsets.items()):
        for queue_id, offset in committed.items():
            groups.setdefault((topic, queue_id), []).append((group, offset))
    bounds = [report.files[0].start]
    bounds += [file.start + file.nbytes for file in report.files]
    for queue in store.reader.queues:
        first, *ends = places = _places(queue, bounds)
        for held in queue.queue.files:
            release_pages(held)  # of each comparison a page stays, of thousands of queues
        if first == ends[-1]:
            continue
        readers = groups.get((queue.topic, queue.queue_id), ())
        for file, low, high in zip(report.files, places, ends, strict=False):
            if low == high:
                continue
            if not queue.is_light:  # their messages are those of other topics
                file.messages[queue.topic] = file.messages.get(queue.topic, 0) + high - low
            for group, committed_offset in readers:
                unread = high - max(low, committed_offset)
                if unread > 0:
                    file.lost.append(LostUnread(group, queue.topic, queue.queue_id, unread))


def _places(queue: ConsumeQueue, bounds: list[int]) -> list[int]:
    """Return the queue offset of the first unit at or after each physical offset, ascending."""
    import numpy

    if isinstance(queue, BatchConsumeQueue):
        units: Any = queue.array()
        places = numpy.searchsorted(units["physical_offset"].astype(numpy.int64), bounds)
        firsts = [*units["base_offset"].tolist(), queue.max_index]
        return [max(queue.min_index, min(firsts[at], queue.max_index)) for at in places.tolist()]
    found = [queue.max_index] * len(bounds)
    waiting = 0
    for start, buffer, count in queue.view():
        if waiting == len(bounds):
            break
        offsets = numpy.frombuffer(buffer, formats.CONSUME_QUEUE_UNIT.dtype, count)[
            "physical_offset"
        ]
        for number in range(waiting, len(bounds)):
            # Only the units that are compared are read.
            place = bisect.bisect_left(offsets, bounds[number])
            if place == count:
                break
            found[number] = start + place
            waiting = number + 1
    return [max(queue.min_index, min(one, queue.max_index)) for one in found]
