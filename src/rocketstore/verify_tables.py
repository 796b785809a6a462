"""What a broker will make of its tables below ``config``: read, judged, compared with the queues.

RocketMQ reads a table, or its ``.bak`` where the table is missing, empty or broken. With both
broken it does not start; with no good file and no broken ``.bak`` it starts with an empty table.
Source: ``common/ConfigManager.java``, ``broker/BrokerController.java``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import config_files, formats, json_dialect
from rocketstore.config_files import BACKUP_SUFFIX, ContentError
from rocketstore.config_managers import (
    LMQ_PREFIX,
    TOPIC_GROUP_SEPARATOR,
    ConfigManager,
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from rocketstore.errors import CorruptionError, MappedFileError, UnsafePathError

#: Lowest and next queue offset of a queue, ``None`` for one that is not there.
Bounds = Callable[[str, int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One thing about a store's files that is worth telling.

    Attributes
    ----------
    kind : str
        That of the finding it makes.
    path : str
    position : int
        From the start of the file, in bytes.
    reason : str
    is_finding : bool
        Something is wrong; otherwise it is only worth knowing.
    """

    kind: str
    path: str
    position: int
    reason: str
    is_finding: bool = True


class _Table(NamedTuple):
    """A table of RocketMQ's.

    ``lost``: what a broker lacks that starts without it. ``is_needed``: a broken one keeps the
    broker from starting. ``columns``: members that hold the table and may not be null.
    """

    name: str
    manager: type[ConfigManager] | None
    lost: str
    is_needed: bool = True
    columns: tuple[str, ...] = ()


TABLES = (
    _Table(
        config_files.TOPICS_FILE, TopicConfigManager,
        "it has no topic until each is created anew, with the broker's defaults",
        columns=("topicConfigTable", "dataVersion"),
    ),
    _Table(
        config_files.SUBSCRIPTION_GROUPS_FILE, SubscriptionGroupManager,
        "it has no consumer group until each is created anew, with the broker's defaults",
        columns=("subscriptionGroupTable", "dataVersion"),
    ),
    _Table(
        config_files.CONSUMER_OFFSETS_FILE, ConsumerOffsetManager,
        "the offsets of all consumer groups start anew",
        columns=("offsetTable", "dataVersion"),
    ),
    _Table(
        config_files.LMQ_CONSUMER_OFFSETS_FILE, LmqConsumerOffsetManager,
        "the offsets of all consumer groups of light queues start anew",
        columns=("lmqOffsetTable", "offsetTable"),
    ),
    _Table(
        config_files.DELAY_OFFSETS_FILE, DelayOffsetManager,
        "it delivers every delayed message again that the log still has",
        columns=("offsetTable",),
    ),
    _Table(
        config_files.CONSUMER_FILTERS_FILE, ConsumerFilterManager,
        "it has no SQL filter until each consumer registers its own again",
    ),
    _Table(
        "consumerOrderInfo.json", None,
        "orderly POP consumers get again what they had not acknowledged",
        columns=("table",),
    ),
    _Table(
        "topicQueueMapping.json", None, "it has no static topic",
        columns=("topicQueueMappingInfoMap", "dataVersion"),
    ),
    _Table(
        "messageRequestMode.json", None,
        "all consumer groups pull, those too that were set to POP", is_needed=False,
    ),
    _Table(
        "timermetrics", None, "its counts of timed messages start at 0", columns=("timingCount",)
    ),
    _Table(
        "transactionMetrics", None, "its counts of transactions start at 0", is_needed=False
    ),
)  # fmt: skip
_BY_NAME = {table.name: table for table in TABLES}
#: Length of ``timercheck``, and what it holds: epoch ms, position, queue offset, master's.
_TIMER_CHECK_FILE = "timercheck"
_TIMER_CHECK_NBYTES = 32


class TableFile(NamedTuple):
    """What one file of a table holds.

    ``state``: ``missing``, ``empty`` (0 bytes), ``void`` (a value that is nothing), ``broken``,
    ``unjudged`` (could not be looked at), ``good``. ``manager``: the table, decoded.
    """

    path: Path
    state: str
    position: int = 0
    reason: str = ""
    document: Any = None
    manager: ConfigManager | None = None


class BrokerTables:
    """The tables of one store as they lay there when this was made.

    Read before queues are looked at, so that offsets which a running broker writes meanwhile are
    not taken for wrong ones.

    Parameters
    ----------
    root : Path
        The store's root.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / formats.CONFIG_DIR
        names = self._names()
        self._files: dict[str, tuple[TableFile, TableFile]] = {}
        for name in (*_BY_NAME, *names):
            if name not in self._files:
                self._files[name] = self._read(name), self._read(name + BACKUP_SUFFIX)
        self._timer_check = _timer_check(self._folder / _TIMER_CHECK_FILE, root)

    def _names(self) -> list[str]:
        """Further tables that lie there, of other versions or of plugins."""
        try:
            found = sorted(os.listdir(self._folder))
        except OSError:
            return []  # told by StoreAccess, or nothing is there
        return [name for name in found if name.endswith(".json")]

    def _read(self, name: str) -> TableFile:
        path = self._folder / name
        try:
            content = config_files.read_bytes(path, self._root)
        except CorruptionError as error:
            return TableFile(path, "unjudged", error.position, error.reason)
        except (OSError, MappedFileError, UnsafePathError) as error:
            return TableFile(path, "unjudged", 0, str(error))
        if content is None:
            return TableFile(path, "missing")
        if not content:
            return TableFile(path, "empty", 0, "the file is empty")
        return _decoded(path, content, _BY_NAME.get(name.removesuffix(BACKUP_SUFFIX)), self._root)

    def _used(self, name: str) -> TableFile | None:
        """The file that a broker reads, ``None`` where it reads none."""
        file, backup = self._files[name]
        if file.state in ("good", "void"):
            return file
        return backup if backup.state == "good" else None

    # --- the files ----------------------------------------------------------------------------

    def judge_files(self) -> Iterator[Judgement]:
        """Say what a broker makes of each table."""
        for name, (file, backup) in self._files.items():
            yield from _judge_pair(_BY_NAME.get(name), file, backup)

    # --- against the queues -------------------------------------------------------------------

    def judge_offsets(self, bounds: Bounds) -> Iterator[Judgement]:
        """Compare consumer and delay offsets with the queues."""
        for name in (config_files.CONSUMER_OFFSETS_FILE, config_files.LMQ_CONSUMER_OFFSETS_FILE):
            used = self._used(name)
            manager = used.manager if used is not None else None
            if used is not None and isinstance(manager, ConsumerOffsetManager):
                yield from _judge_consumers(used.path, manager, bounds)
        used = self._used(config_files.DELAY_OFFSETS_FILE)
        if used is not None and isinstance(used.manager, DelayOffsetManager):
            yield from _judge_delays(used.path, used.manager, bounds)

    def judge_timer(self, bounds: Bounds, log_end: int) -> Iterator[Judgement]:
        """Compare the timer's files with its queue and with the log's end."""
        path = self._folder / _TIMER_CHECK_FILE
        if isinstance(self._timer_check, str):
            yield Judgement("config-table", str(path), 0, self._timer_check)
        elif self._timer_check is not None:
            yield from _judge_timer_check(path, self._timer_check, bounds)
        from rocketstore.timer_files import judge_timer_log

        yield from judge_timer_log(self._root, log_end)


def _decoded(path: Path, content: bytes, table: _Table | None, root: Path) -> TableFile:
    if not content.strip(b" \t\r\n\f\b"):
        return TableFile(path, "void", 0, "the file holds nothing but blanks")
    try:
        document = json_dialect.loads(content)
        if document is None:
            return TableFile(path, "void", 0, "the file holds null and no table")
        if not isinstance(document, dict):
            return TableFile(path, "broken", 0, "the file holds no object")
        manager = None
        if table is not None:
            _refuse_nulls(document, table.columns)
            manager = None if table.manager is None else table.manager(root)
        if manager is not None:
            manager.decode(content)
    except json_dialect.JsonTooLargeError as error:
        return TableFile(path, "unjudged", error.position, f"{error.reason}; it was not judged")
    except json_dialect.JsonDialectError as error:
        return TableFile(path, "broken", error.position, error.reason)
    except ContentError as error:
        return TableFile(path, "broken", 0, str(error))
    return TableFile(path, "good", document=document, manager=manager)


def _refuse_nulls(document: dict[str, Any], columns: tuple[str, ...]) -> None:
    """RocketMQ's tables take no null: reading one fails."""
    for name in columns:
        if name in document and document[name] is None:
            raise ContentError(f"$.{name}: null where an object should be")
        table = document.get(name)
        if table is not None and not isinstance(table, dict):
            raise ContentError(f"$.{name}: no object")
        if name == "dataVersion" or not isinstance(table, dict):
            continue
        for key, entry in table.items():
            inner = entry.items() if name == "offsetTable" and isinstance(entry, dict) else ()
            if entry is None or any(value is None for _, value in inner):
                raise ContentError(f"$.{name}.{key}: null where a value should be")


def _judge_pair(table: _Table | None, file: TableFile, backup: TableFile) -> Iterator[Judgement]:
    if file.state in ("good", "missing") and backup.state in ("good", "missing", "empty"):
        if file.state == "missing" and backup.state == "good":
            reason = f"the file is missing; {backup.path.name} is read instead"
            yield Judgement("config-table", str(file.path), 0, reason, is_finding=False)
        if file.state == "missing" and backup.state == "empty":
            yield _verdict(backup, f"the file is empty and there is no {file.path.name}; "
                           + _starts_without(table))  # fmt: skip
        return
    if "unjudged" in (file.state, backup.state):
        for one in (file, backup):
            if one.state == "unjudged":
                yield Judgement("config-table", str(one.path), one.position, one.reason)
        return
    if file.state == "good":
        reason = f"{backup.reason}; a broker reads it only when {file.path.name} is lost"
        yield Judgement("config-table", str(backup.path), backup.position, reason, is_finding=False)
        return
    yield _judge_bad(table, file, backup)


def _judge_bad(table: _Table | None, file: TableFile, backup: TableFile) -> Judgement:
    """Of a table that is missing, empty, broken or void, where not both files are fine."""
    name = backup.path.name
    if file.state == "void":
        return _verdict(file, f"{file.reason}; {_starts_without(table)}, and {name} is not read")
    deleted = "" if file.state == "missing" else "; RocketMQ 5.4 and later delete this file then"
    reason = "the file is missing" if file.state == "missing" else file.reason
    if backup.state == "good":
        reason += f"; a broker reads {name} instead{deleted}"
        return Judgement("config-table", str(file.path), file.position, reason, is_finding=False)
    if backup.state == "broken":
        reason += f", and {name} is broken (position {backup.position}: {backup.reason})"
        return _verdict(file, f"{reason}; {_stops(table)}{deleted}")
    states = {"missing": "there is no", "empty": "nothing is in", "void": "nothing is in"}
    reason += f", and {states[backup.state]} {name}"
    return _verdict(file, f"{reason}; {_starts_without(table)}{deleted}")


def _verdict(file: TableFile, reason: str) -> Judgement:
    return Judgement("config-table", str(file.path), file.position, reason)


def _starts_without(table: _Table | None) -> str:
    if table is None:
        return "what a broker makes of it is not known here"
    return f"a broker starts with an empty table: {table.lost}"


def _stops(table: _Table | None) -> str:
    if table is None:
        return "what a broker makes of it is not known here"
    if not table.is_needed:
        return f"a broker starts with an empty table: {table.lost}"
    return "a broker will not start (ConfigManager.load fails)"


# --- offsets ----------------------------------------------------------------------------------


def _judge_consumers(
    path: Path, manager: ConsumerOffsetManager, bounds: Bounds
) -> Iterator[Judgement]:
    below = 0
    for topic, group, queue_id, offset in _committed(manager):
        found = bounds(topic, queue_id)
        what = f"group {group}, {topic} queue {queue_id}: offset {offset}"
        if offset < 0:
            yield Judgement("config-offset", str(path), 0, f"{what} is negative")
        elif found is not None and offset > found[1]:
            reason = (
                f"{what} lies past the queue's end {found[1]}: the group is never given the "
                f"next {offset - found[1]} messages"
            )
            yield Judgement("config-offset", str(path), 0, reason)
        elif found is not None and offset < found[0]:
            below += 1
    if below:
        reason = f"offsets below their queue's lowest, as the messages have expired: {below}"
        yield Judgement("config-offset", str(path), 0, reason, is_finding=False)


def _committed(manager: ConsumerOffsetManager) -> Iterator[tuple[str, str, int, int]]:
    """Topic, group, queue id and offset of every entry."""
    tables = (manager.offset_table, manager.pull_offset_table)
    for key, offsets in (item for table in tables for item in table.items()):
        topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
        if separator:
            yield from ((topic, group, queue_id, offsets[queue_id]) for queue_id in offsets)
    if isinstance(manager, LmqConsumerOffsetManager):
        for key, offset in manager.lmq_offset_table.items():
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if separator and topic.startswith(LMQ_PREFIX):
                yield topic, group, 0, offset


def _judge_delays(path: Path, manager: DelayOffsetManager, bounds: Bounds) -> Iterator[Judgement]:
    for level, offset in manager.offset_table.items():
        low, high = bounds(formats.TOPIC_SCHEDULE, level - 1) or (0, 0)
        if 0 <= offset <= high:
            continue  # below the lowest one, a broker begins there
        nearest = min(max(offset, low), high)
        reason = (
            f"delay level {level}: offset {offset} lies outside queue {level - 1} of "
            f"{formats.TOPIC_SCHEDULE}, which reaches from {low} to {high}; a broker begins at "
            f"{nearest}"
        )
        yield Judgement("config-offset", str(path), 0, reason)


# --- the timer --------------------------------------------------------------------------------


def _timer_check(path: Path, root: Path) -> tuple[int, int, int, int] | str | None:
    """What ``timercheck`` holds; ``None`` when it is missing, a text when it cannot be read."""
    try:
        content = config_files.read_bytes(path, root)
    except (OSError, MappedFileError, UnsafePathError, CorruptionError) as error:
        return str(error)
    if content is None:
        return None
    if len(content) < _TIMER_CHECK_NBYTES:
        return (
            f"{len(content)} bytes instead of {_TIMER_CHECK_NBYTES} or more; a broker takes what "
            "is missing for zeros, and reads its timed messages anew"
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
        yield Judgement("config-offset", str(path), 0, reason)
        return
    found = bounds("rmq_sys_wheel_timer", 0)
    end = found[1] if found is not None else 0
    if queue_offset > end:
        reason = (
            f"the timer has read its queue up to {queue_offset}, which ends at {end}; timed "
            "messages in between are gone"
        )
        yield Judgement("config-offset", str(path), 16, reason, is_finding=False)
