"""Check how a broker will read its tables below ``config``, and compare them with the queues.

RocketMQ reads a table, or its ``.bak`` if the table is missing, empty or broken. If both are broken
it does not start. With no good file and no broken ``.bak`` it starts with an empty table.
Source: ``common/ConfigManager.java``, ``broker/BrokerController.java``.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.config_managers import files as config_files
from rocketstore.config_managers import json_dialect, table_types
from rocketstore.config_managers.consumer_filters import ConsumerFilterManager
from rocketstore.config_managers.files import BACKUP_SUFFIX, ContentError
from rocketstore.config_managers.managers import (
    ConfigManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from rocketstore.config_managers.tables import TopicConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import CorruptionError, MappedFileError, UnsafePathError
from rocketstore.survey.lost_queues import StatedEnd, committed_offsets, stated_ends
from rocketstore.verify.beside.judgement import Bounds, Judgement


class _Table(NamedTuple):
    """A table of RocketMQ.

    ``lost``: what a broker lacks if it starts without the table. ``is_needed``: a broken table
    keeps the broker from starting.
    """

    name: str
    manager: type[ConfigManager] | None
    lost: str
    is_needed: bool = True


TABLES = (
    _Table(
        config_files.TOPICS_FILE, TopicConfigManager,
        "it has no topic until each is recreated, with the broker's defaults",
    ),
    _Table(
        config_files.SUBSCRIPTION_GROUPS_FILE, SubscriptionGroupManager,
        "it has no consumer group until each is recreated, with the broker's defaults",
    ),
    _Table(
        config_files.CONSUMER_OFFSETS_FILE, ConsumerOffsetManager,
        "the offsets of all consumer groups start over",
    ),
    _Table(
        config_files.LMQ_CONSUMER_OFFSETS_FILE, LmqConsumerOffsetManager,
        "the offsets of all consumer groups of light queues start over",
    ),
    _Table(
        config_files.DELAY_OFFSETS_FILE, DelayOffsetManager,
        "it redelivers every delayed message that the log still has",
    ),
    _Table(
        config_files.CONSUMER_FILTERS_FILE, ConsumerFilterManager,
        "it has no SQL filter until each consumer registers its own again",
    ),
    _Table(
        "consumerOrderInfo.json", None,
        "orderly POP consumers get unacknowledged messages again",
    ),
    _Table(
        "topicQueueMapping.json", None, "it has no static topic",
    ),
    _Table(
        "messageRequestMode.json", None,
        "all consumer groups pull, even those that were set to POP", is_needed=False,
    ),
    _Table(
        "timermetrics", None, "its counts of timed messages start at 0"
    ),
    _Table(
        "transactionMetrics", None, "its counts of transactions start at 0", is_needed=False
    ),
)  # fmt: skip
#: Versions that read tables differently.
_LINES = tuple(Dialect.for_version(version) for version in ("4.9.8", "5.3.3", "5.5.0"))
_BY_NAME = {table.name: table for table in TABLES}
#: Length of ``timercheck``, and what it holds: epoch ms, position, queue offset, master's.
_TIMER_CHECK_NBYTES = 32


class TableFile(NamedTuple):
    """The content of one file of a table.

    ``state``: ``missing``, ``empty`` (0 bytes), ``void`` (blanks or null), ``broken``, ``unjudged``
    (unreadable or too large), ``good``. ``manager``: the decoded table, ``None`` if not decoded.
    ``refused``: the error of fastjson 2.
    """

    path: Path
    state: str
    position: int = 0
    reason: str = ""
    document: Any = None
    manager: ConfigManager | None = None
    refused: json_dialect.JsonDialectError | None = None
    #: This user may not read it.
    is_closed: bool = False

    def as_read(self, check: table_types.Check | None, dialect: Dialect) -> TableFile:
        """Return this file as a broker of ``dialect`` reads it: ``broken`` if refused."""
        if self.state != "good" or check is None:
            return self
        if dialect.fastjson_2 and self.refused is not None:
            reason = f"{self.refused.reason}, which RocketMQ 5.4 and later refuse"
            return self._replace(state="broken", position=self.refused.position, reason=reason)
        try:
            check(self.document, "$", dialect)
        except ContentError as error:
            return self._replace(state="broken", reason=str(error))
        return self


class BrokerTables:
    """The tables of a store, read when this object is created.

    They are read before the queues, so that offsets which a running broker writes meanwhile do not
    appear wrong.

    Parameters
    ----------
    root : Path
        The store's root.
    is_there : bool
        Whether their path is a folder, or missing.

    Attributes
    ----------
    dialect : Dialect or None
        The broker's. While it is unknown, a table counts as broken only if no version reads it.
    """

    def __init__(self, root: Path, *, is_there: bool = True) -> None:
        self.dialect: Dialect | None = None
        self._is_there = is_there
        self._root = root
        self._folder = root / formats.CONFIG_DIR
        names = self._names()
        self._files: dict[str, tuple[TableFile, TableFile]] = {}
        for name in (*_BY_NAME, *names):
            if name not in self._files:
                self._files[name] = self._read(name), self._read(name + BACKUP_SUFFIX)
        timer = self._folder / formats.TIMER_CHECK_FILE
        self._timer_check = _timer_check(timer, root) if is_there else None

    def _names(self) -> list[str]:
        """Return the names of further tables, of other versions or of plugins."""
        try:
            found = sorted(os.listdir(self._folder))
        except OSError:
            return []  # missing, or reported by StoreAccess
        return [name for name in found if name.endswith(".json")]

    def _read(self, name: str) -> TableFile:
        path = self._folder / name
        if not self._is_there:
            return TableFile(path, "missing")
        try:
            content = config_files.read_table(path, self._root)
        except CorruptionError as error:
            return TableFile(path, "unjudged", error.position, error.reason)
        except (OSError, MappedFileError, UnsafePathError) as error:
            is_closed = isinstance(error, PermissionError)
            return TableFile(path, "unjudged", 0, str(error), is_closed=is_closed)
        if content is None:
            return TableFile(path, "missing")
        if not content:
            return TableFile(path, "empty", 0, "the file is empty")
        return _decoded(path, content, _BY_NAME.get(name.removesuffix(BACKUP_SUFFIX)), self._root)

    def _as_read(self, name: str) -> tuple[TableFile, TableFile]:
        """Return file and ``.bak`` of a table, as a broker reads them."""
        check = table_types.TYPES.get(name)
        file, backup = self._files[name]
        return self._as_one_reads(file, check), self._as_one_reads(backup, check)

    def _as_one_reads(self, file: TableFile, check: table_types.Check | None) -> TableFile:
        dialects = _LINES if self.dialect is None else (self.dialect,)
        found = [file.as_read(check, dialect) for dialect in dialects]
        return next((one for one in found if one.state == file.state), found[-1])

    def _used(self, name: str) -> TableFile | None:
        """Return the file that a broker reads, ``None`` if it reads neither."""
        file, backup = self._as_read(name)
        if file.state in ("good", "void"):
            return file
        return backup if backup.state == "good" else None

    def topics(self) -> Mapping[str, TopicConfig] | None:
        """Return the topics that a broker knows, ``None`` if it reads no table."""
        used = self._used(config_files.TOPICS_FILE)
        manager = used.manager if used is not None else None
        return manager.topic_config_table if isinstance(manager, TopicConfigManager) else None

    def groups(self) -> set[str]:
        """Return the groups that a broker knows; empty if it reads no table."""
        used = self._used(config_files.SUBSCRIPTION_GROUPS_FILE)
        manager = used.manager if used is not None else None
        if not isinstance(manager, SubscriptionGroupManager):
            return set()
        return set(manager.subscription_group_table)

    def groups_with_offsets(self) -> set[str]:
        """Return the groups that have offsets."""
        used = self._used(config_files.CONSUMER_OFFSETS_FILE)
        manager = used.manager if used is not None else None
        if not isinstance(manager, ConsumerOffsetManager):
            return set()
        return {group for _, group, _, _ in committed_offsets(manager)}

    # --- the files ----------------------------------------------------------------------------

    def judge_files(self) -> Iterator[Judgement]:
        """Judge how a broker reads each table."""
        for name in self._files:
            yield from _judge_pair(_BY_NAME.get(name), *self._as_read(name))

    # --- against the queues -------------------------------------------------------------------

    def judge_offsets(
        self, bounds: Bounds, gone: Container[tuple[str, int]] = ()
    ) -> Iterator[Judgement]:
        """Compare consumer and delay offsets with the queues, except those that are ``gone``."""
        for name in (config_files.CONSUMER_OFFSETS_FILE, config_files.LMQ_CONSUMER_OFFSETS_FILE):
            used = self._used(name)
            manager = used.manager if used is not None else None
            if used is not None and isinstance(manager, ConsumerOffsetManager):
                yield from _judge_consumers(used.path, manager, bounds, gone)
        used = self._used(config_files.DELAY_OFFSETS_FILE)
        if used is not None and isinstance(used.manager, DelayOffsetManager):
            yield from _judge_delays(used.path, used.manager, bounds, gone)

    def stated_ends(self) -> dict[tuple[str, int], StatedEnd]:
        """Return, by queue, the highest offset of consumers and delayed delivery."""
        used = [file for file in map(self._used, self._files) if file is not None]
        return stated_ends([file.manager for file in used if file.manager is not None])

    def judge_timer_files(self) -> Iterator[Judgement]:
        """Judge the timer's files that keep a broker from starting."""
        from rocketstore.verify.beside.timer_files import judge_timer_files

        flushed = self._timer_check[1] if isinstance(self._timer_check, tuple) else None
        if self.dialect is not None:
            yield from judge_timer_files(self._root, self.dialect, flushed)

    def judge_timer(self, bounds: Bounds, log_end: int) -> Iterator[Judgement]:
        """Compare the timer's files with its queue and with the log's end."""
        path = self._folder / formats.TIMER_CHECK_FILE
        if isinstance(self._timer_check, str):
            yield Judgement("config-table", str(path), 0, self._timer_check, code="timer.behind")
        elif self._timer_check is not None:
            yield from _judge_timer_check(path, self._timer_check, bounds)
        from rocketstore.verify.beside.timer_files import judge_timer_log

        yield from judge_timer_log(self._root, log_end)


def _decoded(path: Path, content: bytes, table: _Table | None, root: Path) -> TableFile:
    if not content.strip(b" \t\r\n\f\b"):
        return TableFile(path, "void", 0, "the file holds only blanks")
    try:
        document, refused = json_dialect.loads_and_judge(content)
        if document is None:
            return TableFile(path, "void", 0, "the file holds null, not a table")
        if not isinstance(document, dict):
            return TableFile(path, "broken", 0, "the file does not hold an object")
    except json_dialect.JsonTooLargeError as error:
        return TableFile(path, "unjudged", error.position, f"{error.reason}; it was not judged")
    except json_dialect.JsonDialectError as error:
        return TableFile(path, "broken", error.position, error.reason)
    manager = None if table is None or table.manager is None else table.manager(root)
    if manager is not None:
        try:
            manager.decode(content)
        except ContentError:
            manager = None  # ``as_read`` checks whether a broker reads it
    return TableFile(path, "good", document=document, manager=manager, refused=refused)


def _judge_pair(table: _Table | None, file: TableFile, backup: TableFile) -> Iterator[Judgement]:
    if file.state in ("good", "missing") and backup.state in ("good", "missing", "empty"):
        if file.state == "missing" and backup.state == "good":
            reason = f"the file is missing; {backup.path.name} is read instead"
            yield Judgement(
                "config-table", str(file.path), 0, reason, is_finding=False,
                code="config.bak-used",
            )  # fmt: skip
        if file.state == "missing" and backup.state == "empty":
            yield _verdict(backup, f"the file is empty and there is no {file.path.name}; "
                           + _starts_without(table))  # fmt: skip
        return
    if "unjudged" in (file.state, backup.state):
        for one in (file, backup):
            if one.state == "unjudged" and not one.is_closed:  # StoreAccess reports that
                yield _verdict(one, one.reason)
        return
    if file.state == "good":
        reason = f"{backup.reason}; a broker reads it only when {file.path.name} is lost"
        yield Judgement("config-table", str(backup.path), backup.position, reason, is_finding=False)
        return
    yield _judge_bad(table, file, backup)


def _judge_bad(table: _Table | None, file: TableFile, backup: TableFile) -> Judgement:
    """Judge a table that is missing, empty, broken or void."""
    name = backup.path.name
    if file.state == "void":
        return _verdict(file, f"{file.reason}; {_starts_without(table)}, and {name} is not read")
    deleted = "" if file.state == "missing" else "; RocketMQ 5.4 and later delete this file then"
    reason = "the file is missing" if file.state == "missing" else file.reason
    if backup.state == "good":
        reason += f"; a broker reads {name} instead{deleted}"
        return Judgement(
            "config-table", str(file.path), file.position, reason, is_finding=False,
            code="config.bak-used",
        )  # fmt: skip
    if backup.state == "broken":
        reason += f", and {name} is broken (position {backup.position}: {backup.reason})"
        stops = table is not None and table.is_needed
        code = "config.broken" if stops else "config.empty"
        return _verdict(file, f"{reason}; {_stops(table)}{deleted}", code)
    states = {"missing": "there is no", "empty": "nothing is in", "void": "nothing is in"}
    reason += f", and {states[backup.state]} {name}"
    return _verdict(file, f"{reason}; {_starts_without(table)}{deleted}")


def _verdict(file: TableFile, reason: str, code: str = "config.empty") -> Judgement:
    return Judgement("config-table", str(file.path), file.position, reason, code=code)


def _starts_without(table: _Table | None) -> str:
    if table is None:
        return "how a broker handles it is unknown"
    return f"a broker starts with an empty table: {table.lost}"


def _stops(table: _Table | None) -> str:
    if table is None:
        return "how a broker handles it is unknown"
    if not table.is_needed:
        return f"a broker starts with an empty table: {table.lost}"
    return "a broker will not start (ConfigManager.load fails)"


# --- offsets ----------------------------------------------------------------------------------


def _judge_consumers(
    path: Path,
    manager: ConsumerOffsetManager,
    bounds: Bounds,
    gone: Container[tuple[str, int]],
) -> Iterator[Judgement]:
    below = 0
    for topic, group, queue_id, offset in committed_offsets(manager):
        found = None if (topic, queue_id) in gone else bounds(topic, queue_id)
        what = f"group {group}, {topic} queue {queue_id}: offset {offset}"
        if offset < 0:
            yield _beyond(path, f"{what} is negative")
        elif found is not None and offset > found[1]:
            reason = (
                f"{what} is past the queue's end {found[1]}: the group never gets the "
                f"next {offset - found[1]} messages"
            )
            yield _beyond(path, reason)
        elif found is not None and offset < found[0]:
            below += 1
    if below:
        reason = f"offsets below their queue's lowest, because the messages have expired: {below}"
        yield Judgement(
            "config-offset", str(path), 0, reason, is_finding=False,
            code="config.consumer-below", count=below,
        )  # fmt: skip


def _beyond(path: Path, reason: str) -> Judgement:
    return Judgement("config-offset", str(path), 0, reason, code="config.consumer-beyond")


def _judge_delays(
    path: Path, manager: DelayOffsetManager, bounds: Bounds, gone: Container[tuple[str, int]]
) -> Iterator[Judgement]:
    for level, offset in manager.offset_table.items():
        if (formats.TOPIC_SCHEDULE, level - 1) in gone:
            continue
        low, high = bounds(formats.TOPIC_SCHEDULE, level - 1) or (0, 0)
        if 0 <= offset <= high:
            continue  # below the queue's lowest offset, a broker starts at the lowest
        nearest = min(max(offset, low), high)
        reason = (
            f"delay level {level}: offset {offset} is outside queue {level - 1} of "
            f"{formats.TOPIC_SCHEDULE}, which reaches from {low} to {high}; a broker starts at "
            f"{nearest}"
        )
        yield Judgement("config-offset", str(path), 0, reason, code="config.delay-beyond")


# --- the timer --------------------------------------------------------------------------------


def _timer_check(path: Path, root: Path) -> tuple[int, int, int, int] | str | None:
    """Read ``timercheck``; return ``None`` if it is missing, an error text if unreadable."""
    try:
        content = config_files.read_table(path, root)
    except (OSError, MappedFileError, UnsafePathError, CorruptionError) as error:
        return str(error)
    if content is None:
        return None
    if len(content) < _TIMER_CHECK_NBYTES:
        return (
            f"{len(content)} bytes instead of {_TIMER_CHECK_NBYTES} or more; a broker reads the "
            "missing bytes as zeros, and rereads its timed messages"
        )
    numbers = [int.from_bytes(content[at : at + 8], "big", signed=True) for at in (0, 8, 16, 24)]
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _judge_timer_check(
    path: Path, numbers: tuple[int, int, int, int], bounds: Bounds
) -> Iterator[Judgement]:
    _, flushed, queue_offset, _ = numbers
    if flushed < 0 or queue_offset < 0:
        reason = (
            f"timer log position {flushed} and queue offset {queue_offset} must not be negative"
        )
        yield Judgement("config-offset", str(path), 0, reason, code="timer.beyond")
        return
    found = bounds(formats.TOPIC_TIMER, 0)
    end = found[1] if found is not None else 0
    if queue_offset > end:
        reason = (
            f"the timer has read its queue up to {queue_offset}, which ends at {end}; timed "
            "messages in between are lost"
        )
        yield Judgement("config-offset", str(path), 16, reason, is_finding=False)
