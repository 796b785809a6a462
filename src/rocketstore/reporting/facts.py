"""Gathers what a report shows; a part that cannot be read says why, and the others go on."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.broker_file.lint import ConfigRemark
from rocketstore.config import MessageStoreConfig, lint_config
from rocketstore.delay.report import DelayLevel
from rocketstore.diagnosis.examination import doctor
from rocketstore.diagnosis.verdict import Verdict
from rocketstore.errors import RocketStoreError
from rocketstore.files.forward_pages import release_pages
from rocketstore.looking.consumer_lag import LagReport, lag
from rocketstore.looking.disk_forecast import Capacity, capacity
from rocketstore.looking.expiry import RetentionReport, retention
from rocketstore.looking.index_health import IndexHealth, keys
from rocketstore.reporting.log_use import LogUse, read_log
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

_T = TypeVar("_T")
_READ_ERRORS = (RocketStoreError, OSError, ValueError)
#: Undecided transactions that are read.
_MOST_HALVES = 10_000
#: Bounds of the histogram of due times, ms from now, and its names.
DUE_BOUNDS = (
    (0, "overdue"),
    (60_000, "within a minute"),
    (600_000, "within 10 minutes"),
    (3_600_000, "within an hour"),
    (86_400_000, "within a day"),
    (None, "later"),
)


@dataclass(slots=True)
class Half:
    """An undecided transaction: times in epoch ms."""

    group: str
    topic: str
    key: str
    host: str
    stored: int
    checks: int


@dataclass(slots=True)
class Delays:
    """What waits for delivery: the levels, and counts for each of ``DUE_BOUNDS``.

    ``timed``: messages of the timer wheel; ``timed_late``: those that are overdue or not in the
    wheel yet.
    """

    levels: list[DelayLevel]
    dues: list[int]
    notes: list[str]
    timed: int = 0
    timed_late: int = 0


@dataclass(slots=True)
class Facts:
    """What a report shows; a part is ``None`` if it could not be read, with why in ``problems``."""

    path: str
    at: int
    verdict: Verdict
    use: LogUse | None = None
    capacity: Capacity | None = None
    retention: RetentionReport | None = None
    lag: LagReport | None = None
    delays: Delays | None = None
    halves: list[Half] | None = None
    more_halves: bool = False
    index: IndexHealth | None = None
    remarks: list[ConfigRemark] | None = None
    config_path: str | None = None
    problems: dict[str, str] = field(default_factory=dict)


def gather(
    path: Path,
    *,
    level: str,
    config: MessageStoreConfig,
    config_file: str | os.PathLike[str] | None,
    jobs: int | None,
    progress: Progress | None,
    broker_versions: Sequence[str] | None = None,
    broker_options: dict[str, str] | None = None,
) -> Facts:
    """Examine a store and read what a report shows."""
    verdict = doctor(
        path, level=level, config=config if config_file is None else config_file,
        broker_versions=broker_versions, broker_options=broker_options, progress=progress,
    )  # fmt: skip
    facts = Facts(os.fspath(path), time.time_ns() // 1_000_000, verdict)
    check_crc = level == "deep"
    facts.use = _tried(facts, "log", lambda: read_log(
        path, config, check_crc=check_crc, jobs=jobs, progress=progress
    ))  # fmt: skip
    facts.capacity = _tried(facts, "capacity", lambda: capacity(path, config=config, at=facts.at))
    if config_file is not None:
        facts.config_path = os.fspath(config_file)
        facts.remarks = _tried(
            facts, "config", lambda: lint_config(config_file, verdict.store.get("rocketmq"))
        )
    store = _tried(facts, "store", lambda: _open(path, config))
    if store is None:
        for part in ("retention", "lag", "delays", "transactions", "index"):
            facts.problems[part] = facts.problems["store"]
        return facts
    with store:
        _release_pages(store)
        facts.retention = _tried(
            facts, "retention", lambda: retention(store, config=config, at=facts.at)
        )
        facts.lag = _tried(facts, "lag", lambda: lag(store, at=None))
        facts.delays = _tried(facts, "delays", lambda: _delays(store, facts.at))
        facts.halves = _tried(facts, "transactions", lambda: _halves(store, facts))
        _release_pages(store)
        facts.index = _tried(facts, "index", lambda: keys(store, progress=progress))
    return facts


def _tried(facts: Facts, part: str, read: Callable[[], _T]) -> _T | None:
    """Return what ``read`` returns; if it fails, note why and return ``None``."""
    try:
        return read()
    except _READ_ERRORS as error:
        facts.problems[part] = str(error) or type(error).__name__
        return None


def _open(path: Path, config: MessageStoreConfig) -> DefaultMessageStore:
    if path.is_file() or any(
        formats.file_name_to_offset(name) is not None for name in os.listdir(path)
    ):
        raise ValueError("only a log was given")
    return open_store(path, "r", config=config)


def _release_pages(store: DefaultMessageStore) -> None:
    """Release the pages of all files: what opening and each part read counts as memory else."""
    reader = store.reader
    queues = (reader.log.queue, *(queue.queue for queue in reader.queues))
    for file in itertools.chain.from_iterable(queue.files for queue in queues):
        release_pages(file)
    for index_file in reader.index.files:
        release_pages(index_file.file)


def _delays(store: DefaultMessageStore, now: int) -> Delays:
    report = store.delays()
    bounds = [now + bound for bound, _ in DUE_BOUNDS if bound is not None]
    counts = report.due_counts(bounds)
    timers = store.timers()
    late = timers.overdue + timers.not_enqueued
    return Delays(
        [one for one in report.levels if one.max_offset], counts, list(report.notes),
        len(timers), late,
    )  # fmt: skip


def _halves(store: DefaultMessageStore, facts: Facts) -> list[Half]:
    found = []
    waiting = store.transactions()
    for one in itertools.islice(waiting, _MOST_HALVES):
        message = one.message
        found.append(Half(
            one.group, one.topic, message.keys or "", str(message.born_host),
            message.store_timestamp, one.checks,
        ))  # fmt: skip
    facts.more_halves = next(waiting, None) is not None
    return found
