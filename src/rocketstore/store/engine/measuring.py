"""Gathers the figures of an open store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rocketstore import formats
from rocketstore.errors import CorruptionError, CorruptMessageError
from rocketstore.files.disk_space import UNKNOWN, DiskSpace, disk_space
from rocketstore.services.sampler import Sampler
from rocketstore.statistics.put_times import Times, distribution, percentile, times_between
from rocketstore.statistics.store_stats import StoreStats
from rocketstore.store.engine.backlog import BackloggedStore, group_reports, half_messages

if TYPE_CHECKING:
    from rocketstore.delay.report import DelayReport
    from rocketstore.directory.paths import StorePaths
    from rocketstore.query.store_reader import StoreReader
    from rocketstore.store.writer import StoreWriter


class MeasuredStore(BackloggedStore, Protocol):
    """What the figures are read from: an open store."""

    _paths: StorePaths
    _writer: StoreWriter | None
    _boot_timestamp: int
    _opened_at: float
    _sampler: Sampler | None

    @property
    def broker_version(self) -> str:
        """Return the RocketMQ version."""
        ...

    @property
    def dispatch_behind_nbytes(self) -> int:
        """Return the bytes that queues and index lack."""
        ...

    def delays(self) -> DelayReport:
        """Return what waits in the delay levels."""
        ...


def _space(path: Path) -> DiskSpace | None:
    """Return the usage of the file system of a folder or its parent, ``None`` if unknown."""
    for folder in (path, path.parent):
        try:
            return disk_space(folder)
        except (OSError, AttributeError):  # no folder, or a system without statvfs
            continue
    return None


def _earliest_timestamp(reader: StoreReader) -> int:
    if reader.log.min_offset < 0:
        return -1
    try:
        message = reader.look_message_by_offset(reader.log.min_offset)
    except CorruptMessageError:
        return -1
    return -1 if message is None else message.store_timestamp


def _sampler(store: MeasuredStore) -> Sampler:
    """Return what samples the totals, also of a store that is only read."""
    if store._sampler is None:
        no_puts: Times = (0, 0, {}, {})
        store._sampler = Sampler(
            lambda: (0, *store.reader.pull_totals), lambda: no_puts, began_at=store._opened_at
        )
    store._sampler.step()
    return store._sampler


def gather(store: MeasuredStore) -> StoreStats:
    """Return the figures of the store at this moment."""
    reader, writer = store.reader, store._writer
    puts = (0, 0, 0)
    end = flushed = reader.log.max_offset
    longest_ms, left_nbytes, buffers = 0, 0, None
    if writer is not None:
        appender, pool = writer.log.appender, writer.log.pool
        puts = (appender.put_times, appender.put_nbytes, appender.failed_times)
        flushed = writer.flushed.offset
        longest_ms = appender.times[1]
        if pool is not None:
            left_nbytes, buffers = max(0, writer.log.wrote_offset - end), pool.available_buffer_nums
    sampler = _sampler(store)
    put_tps, found_tps, missed_tps, sent_tps = sampler.rates()
    minute = sampler.last_minute() if writer is not None else None
    times = None if minute is None else times_between(*minute)
    log_space, queue_space = _space(store._paths.commit_log), _space(store._paths.consume_queue)
    root_space = _space(store.path) or DiskSpace(-1, 0, -1)
    return StoreStats(
        store.broker_version, store._boot_timestamp,
        int((time.monotonic() - store._opened_at) * 1000), writer is not None,
        *puts, *reader.pull_totals, put_tps, found_tps, missed_tps, sent_tps,
        longest_ms, reader.longest_ms,
        percentile(times or {}, 0.99), percentile(times or {}, 0.999),
        None if times is None else distribution(times),
        reader.log.min_offset, end, flushed, _earliest_timestamp(reader),
        store.dispatch_behind_nbytes, max(0, end - flushed), left_nbytes, buffers,
        len(reader.queues.topics()), sum(1 for _ in reader.queues), len(reader.index.files),
        str(store._paths.commit_log), str(store.path),
        UNKNOWN if log_space is None else log_space.used_ratio,
        UNKNOWN if queue_space is None else queue_space.used_ratio,
        root_space.total_nbytes, root_space.usable_nbytes,
        root_space.total_nbytes - root_space.used_nbytes,
        _delay_offsets(store), *_timer_figures(store), half_messages(store),
        _consumer_lag(store),
    )  # fmt: skip


def _delay_offsets(store: MeasuredStore) -> dict[int, tuple[int, int]]:
    if formats.TOPIC_SCHEDULE not in store.reader.queues.topics():
        return {}
    levels = store.delays().levels
    return {one.level: (one.offset, one.max_offset) for one in levels if one.max_offset}


def _timer_figures(store: MeasuredStore) -> tuple[int, int, int]:
    """Return how long the wheel was not read in ms, and the messages before it and in it."""
    if not store.config.timer_wheel_enable:
        return 0, 0, 0
    from rocketstore.timer.reader import read_timers

    reader, precision_ms, now = store.reader, store.config.timer_precision_ms, store.clock()
    report = read_timers(
        store.path, reader.dialect, reader.log, reader.queues, precision_ms=precision_ms, now=now
    )
    behind_ms = 0 if report.read_time is None else max(0, report.now - report.read_time)
    return behind_ms, report.not_enqueued, len(report)


def _consumer_lag(store: MeasuredStore) -> dict[str, int] | None:
    try:
        return {group: report.total_lag for group, report in group_reports(store).items()}
    except CorruptionError:
        return None
