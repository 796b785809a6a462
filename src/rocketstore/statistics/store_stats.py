"""The figures of a store, typed, and as the texts that RocketMQ's ``getRuntimeInfo`` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

_INT_MAX = 2**31 - 1
#: Events per second over 10, 60 and 600 s; ``None`` for a window that is longer than the time
#: since the store was opened.
Tps = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The figures of an open store at one moment.

    Attributes
    ----------
    broker_version : str
    boot_timestamp : int
        When the store was opened, epoch ms.
    runtime_ms : int
        Milliseconds since then.
    is_writer : bool
        Whether the store is open for writing; otherwise all figures of puts are 0.
    put_times, put_nbytes, put_failed_times : int
        Messages appended, bytes of their records, and puts that failed.
    get_found_times, get_missed_times, get_transferred_times : int
        ``get_message`` calls with and without messages, and the messages that they returned.
    put_tps, get_found_tps, get_missed_tps, get_transferred_tps : tuple of float or None
        Per second, over 10, 60 and 600 s.
    put_longest_ms : int
        The longest put since the store was opened, among all that waited for the disk or for room,
        and a sample of the others, one of 256.
    get_longest_ms : int
        The longest ``get_message`` call of a sample, one of 256.
    put_latency_p99_ms, put_latency_p999_ms : float
        Of the last complete minute; 0.0 before there is one.
    put_distribution : mapping or None
        Puts of the last complete minute by RocketMQ's classes of time. The sample stands for all
        puts that never waited.
    min_physical_offset, max_physical_offset, flushed_offset : int
        Bounds of the log (the lower is -1 for an empty log), and how much of it is on disk; mode
        ``"r"`` takes all of it to be.
    earliest_timestamp : int
        Store time of the log's first message, epoch ms; -1 without one.
    dispatch_behind_nbytes, flush_behind_nbytes : int
        Bytes of the log that queues and index lack, and that are not on disk.
    commit_behind_nbytes : int
        Bytes that are only in the buffers of the transient store pool.
    transient_buffers : int or None
        Free buffers of the pool; ``None`` without one.
    topics, queues, index_files : int
        How many there are.
    commit_log_path, root_path : str
    log_disk_ratio, queue_disk_ratio : float
        Used share of their file systems, -1.0 if unknown.
    disk_total_nbytes, disk_usable_nbytes, disk_free_nbytes : int
        Of the file system of the root, -1 if unknown.
    delay_offsets : mapping of int to tuple
        Delivered and newest queue offset by delay level.
    timer_read_behind_ms : int
        How long ago the next slot of the timer's wheel was due; 0 if ``timer_wheel_enable`` is
        off or no broker ran a timer here. Also for the next two.
    timer_not_enqueued, timer_pending : int
        Timer messages that are not in the wheel yet, and in it.
    half_messages : mapping of str to int
        Undecided transactions by topic.
    consumer_lag : mapping of str to int, or None
        Messages that were not consumed, by consumer group, over all its queues; ``None`` if the
        table of committed offsets is damaged.
    """

    broker_version: str
    boot_timestamp: int
    runtime_ms: int
    is_writer: bool
    put_times: int
    put_nbytes: int
    put_failed_times: int
    get_found_times: int
    get_missed_times: int
    get_transferred_times: int
    put_tps: Tps
    get_found_tps: Tps
    get_missed_tps: Tps
    get_transferred_tps: Tps
    put_longest_ms: int
    get_longest_ms: int
    put_latency_p99_ms: float
    put_latency_p999_ms: float
    put_distribution: Mapping[str, int] | None
    min_physical_offset: int
    max_physical_offset: int
    flushed_offset: int
    earliest_timestamp: int
    dispatch_behind_nbytes: int
    flush_behind_nbytes: int
    commit_behind_nbytes: int
    transient_buffers: int | None
    topics: int
    queues: int
    index_files: int
    commit_log_path: str
    root_path: str
    log_disk_ratio: float
    queue_disk_ratio: float
    disk_total_nbytes: int
    disk_usable_nbytes: int
    disk_free_nbytes: int
    delay_offsets: Mapping[int, tuple[int, int]]
    timer_read_behind_ms: int
    timer_not_enqueued: int
    timer_pending: int
    half_messages: Mapping[str, int]
    consumer_lag: Mapping[str, int] | None


def java_double(value: float) -> str:
    """Return a float as Java's ``Double.toString`` writes it: ``0.25``, ``1.5E7``."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{power}"


def size_text(nbytes: int) -> str:
    """Return bytes as a broker writes them: ``320 B``, ``1.5 KiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    value, units = float(nbytes), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = ""
    while value >= 1024:
        value, unit = value / 1024, next(units)
    return f"{value:.1f} {unit}"


def _tps_text(tps: Tps) -> str:
    return " ".join("" if one is None else java_double(one) for one in tps)


def _runtime_text(runtime_ms: int) -> str:
    seconds = runtime_ms // 1000
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def _version_number(version: str) -> int:
    """Return the place of a version in RocketMQ's list, which has a snapshot before each, and ten
    versions for each line: 409 for 4.9.8, 479 for 5.3.3."""
    line, minor, patch = (int(part) for part in version.split("."))
    return 2 * (100 * line + 10 * minor + patch) - 587


def _has_version_number(version: str) -> bool:
    """Return whether brokers of a version answer with its number: 5.4 and later do not."""
    return tuple(map(int, version.split(".")))[:2] < (5, 4)


def runtime_texts(stats: StoreStats) -> dict[str, str]:
    """Return the figures under RocketMQ's keys; a key without a figure is absent."""
    is_new = not stats.broker_version.startswith("4.")
    total = [
        sum(one for one in ones if one is not None) if None not in ones else None
        for ones in zip(stats.get_found_tps, stats.get_missed_tps, strict=True)
    ]
    info = {
        "bootTimestamp": str(stats.boot_timestamp),
        "runtime": _runtime_text(stats.runtime_ms),
        "brokerVersionDesc": "V" + stats.broker_version.replace(".", "_"),
        "commitLogMinOffset": str(stats.min_physical_offset),
        "commitLogMaxOffset": str(stats.max_physical_offset),
        "commitLogDiskRatio": java_double(stats.log_disk_ratio),
        f"commitLogDiskRatio_{stats.commit_log_path}": java_double(stats.log_disk_ratio),
        "consumeQueueDiskRatio": java_double(stats.queue_disk_ratio),
        "dispatchBehindBytes": str(stats.dispatch_behind_nbytes),
        "earliestMessageTimeStamp": str(stats.earliest_timestamp),
        "getMessageEntireTimeMax": str(stats.get_longest_ms),
        "getFoundTps": _tps_text(stats.get_found_tps),
        "getMissTps": _tps_text(stats.get_missed_tps),
        "getTotalTps": " ".join("0.0" if one is None else java_double(one) for one in total),
        "getTransferredTps" if is_new else "getTransferedTps": _tps_text(stats.get_transferred_tps),
    }
    if stats.disk_total_nbytes >= 0:
        free = stats.disk_free_nbytes if is_new else stats.disk_usable_nbytes
        info["commitLogDirCapacity"] = (
            f"Total : {size_text(stats.disk_total_nbytes)}, Free : {size_text(free)}."
        )
    if _has_version_number(stats.broker_version):
        info["brokerVersion"] = str(_version_number(stats.broker_version))
    if is_new:  # rates are 0: the store itself moves no timer messages
        info |= {
            "timerReadBehind": str(stats.timer_read_behind_ms // 1000),
            "timerOffsetBehind": str(stats.timer_not_enqueued),
            "timerCongestNum": str(stats.timer_pending),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
    for level, (offset, newest) in stats.delay_offsets.items():
        info[f"scheduleMessageOffset_{level}"] = f"{offset},{newest}"
    return info | (_put_texts(stats) if stats.is_writer else {})


def _put_texts(stats: StoreStats) -> dict[str, str]:
    average = stats.put_nbytes / max(stats.put_times, 1)
    info = {
        "putMessageTimesTotal": str(stats.put_times),
        "putMessageSizeTotal": str(stats.put_nbytes),
        "putMessageFailedTimes": str(stats.put_failed_times),
        "putMessageAverageSize": java_double(average),
        "putMessageEntireTimeMax": str(stats.put_longest_ms),
        "putTps": _tps_text(stats.put_tps),
        "putLatency99": f"{stats.put_latency_p99_ms:.2f}",
        "putLatency999": f"{stats.put_latency_p999_ms:.2f}",
        "dispatchMaxBuffer": "0",
        "remainHowManyDataToFlush": size_text(stats.flush_behind_nbytes),
        "remainTransientStoreBufferNumbs": str(_INT_MAX),
    }
    if stats.transient_buffers is not None:
        info["remainTransientStoreBufferNumbs"] = str(stats.transient_buffers)
        info["remainHowManyDataToCommit"] = size_text(stats.commit_behind_nbytes)
    if stats.put_distribution is not None:
        parts = (f"{label}:{count} " for label, count in stats.put_distribution.items())
        info["putMessageDistributeTime"] = "".join(parts)
    return info
