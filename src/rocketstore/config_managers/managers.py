"""The broker's tables: topics, consumer groups and offsets, delay offsets, consumer filters.

Each class has RocketMQ's name and its file below ``config``. ``load`` reads files of any version,
``persist`` writes files that every version reads. A running broker does not reload its files and
overwrites them: call ``persist`` only while no broker runs.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rocketstore.config_managers import files as config_files
from rocketstore.config_managers import json_dialect
from rocketstore.config_managers.tables import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    as_integer,
    as_object,
    as_offsets,
    decode_entry,
    encode_entry,
    encode_offsets,
)
from rocketstore.errors import CorruptionError

TOPIC_GROUP_SEPARATOR = "@"
LMQ_PREFIX = "%LMQ%"


class ConfigManager(ABC):
    """Base class of the tables.

    Parameters
    ----------
    root : path
        The store's root; the file is in its ``config`` folder.
    clock : callable, optional
        Epoch ms for versions and dead times.

    Attributes
    ----------
    problem : CorruptionError or None
        Why ``load`` read the ``.bak`` although the file exists.
    loaded_path : Path or None
        The file that ``load`` read: the table's own, or its ``.bak``.

    Notes
    -----
    Threading: one caller at a time. Source: RocketMQ ``common/ConfigManager.java``.
    """

    FILE_NAME: ClassVar[str]

    def __init__(
        self, root: str | os.PathLike[str], *, clock: Callable[[], int] | None = None
    ) -> None:
        self.root = Path(root)
        self.problem: CorruptionError | None = None
        self.loaded_path: Path | None = None
        self._clock = clock if clock is not None else _now_ms
        self._others: dict[str, Any] = {}
        self._take({})

    @property
    def config_file_path(self) -> Path:
        """Path of the table's file."""
        return config_files.config_path(self.root, self.FILE_NAME)

    def load(self) -> bool:
        """Read the file, or its ``.bak`` if it is missing or corrupt.

        Returns
        -------
        bool
            Whether a file exists; otherwise the table is empty.

        Raises
        ------
        CorruptionError
            If a file exists, but none is good; the table is unchanged.
        MappedFileError, UnsafePathError, PermissionError
            If a file is not regular, is a link out of the root, or is not readable.
        """
        found = config_files.read_config_file(self.config_file_path, self.root, self._take)
        self.problem = found.problem
        self.loaded_path = found.path
        if found.path is None:
            self._take({})
        return found.path is not None

    def persist(self) -> None:
        """Replace the file durably; the previous file becomes the ``.bak``.

        Raises
        ------
        StoreFullError
            If the disk is full; the file is unchanged.
        """
        config_files.write_config_file(
            self.config_file_path, self.root, self._document(), type(self)(self.root)._take
        )

    def encode(self) -> str:
        """Return the text that ``persist`` writes."""
        return json_dialect.dumps(self._document())

    def decode(self, content: bytes | str) -> None:
        """Replace the table by the content of a file.

        Raises ``DecodeError`` or ``ContentError`` (both ``ValueError``) with the place of the
        fault; the table is then unchanged.
        """
        content = content.encode() if isinstance(content, str) else content
        self._take(as_object(json_dialect.loads(content), "$"))

    @abstractmethod
    def _document(self) -> dict[str, Any]:
        """Return the object to write."""

    @abstractmethod
    def _take(self, document: dict[str, Any]) -> None:
        """Replace the table by an object that was read.

        Raises ``ContentError``; the table is then unchanged.
        """

    def _take_version(self, document: dict[str, Any], known: Iterable[str]) -> DataVersion:
        """Return the version, and keep unknown members for writing."""
        version = decode_entry(DataVersion, document.get("dataVersion"), "$.dataVersion")
        known = {*known, "dataVersion"}
        self._others = {key: value for key, value in document.items() if key not in known}
        return version


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TopicConfigManager(ConfigManager):
    """``topics.json``.

    Attributes
    ----------
    topic_config_table : dict of str to TopicConfig
    data_version : DataVersion

    Notes
    -----
    Source: RocketMQ ``broker/topic/TopicConfigManager.java``.
    """

    FILE_NAME = config_files.TOPICS_FILE

    def _take(self, document: dict[str, Any]) -> None:
        where = "$.topicConfigTable"
        table = as_object(document.get("topicConfigTable"), where)
        configs = {
            topic: decode_entry(TopicConfig, entry, f"{where}.{topic}", topic_name=topic)
            for topic, entry in table.items()
        }
        self.data_version = self._take_version(document, ["topicConfigTable"])
        self.topic_config_table = configs

    def _document(self) -> dict[str, Any]:
        table = {topic: encode_entry(entry) for topic, entry in self.topic_config_table.items()}
        version = encode_entry(self.data_version)
        return {**self._others, "dataVersion": version, "topicConfigTable": table}

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """Return a topic's entry, ``None`` if it is unknown."""
        return self.topic_config_table.get(topic)

    def update_topic_config(self, config: TopicConfig) -> None:
        """Add or replace a topic. Raises ``ValueError`` without a name."""
        if not config.topic_name:
            raise ValueError("a topic needs a name")
        self.topic_config_table[config.topic_name] = config
        self.data_version.next_version(self._clock())

    def delete_topic_config(self, topic: str) -> bool:
        """Remove a topic; return whether it existed."""
        if self.topic_config_table.pop(topic, None) is None:
            return False
        self.data_version.next_version(self._clock())
        return True

    def is_order_topic(self, topic: str) -> bool:
        """Return whether the topic is known and ordered."""
        config = self.topic_config_table.get(topic)
        return config is not None and config.order


class SubscriptionGroupManager(ConfigManager):
    """``subscriptionGroup.json``.

    Attributes
    ----------
    subscription_group_table : dict of str to SubscriptionGroupConfig
    forbidden_table : dict of str to dict of str to int
        5.x: group, topic, bits of the operations that are forbidden to the group.
    data_version : DataVersion

    Notes
    -----
    Source: RocketMQ ``broker/subscription/SubscriptionGroupManager.java``.
    """

    FILE_NAME = config_files.SUBSCRIPTION_GROUPS_FILE

    def _take(self, document: dict[str, Any]) -> None:
        where = "$.subscriptionGroupTable"
        table = as_object(document.get("subscriptionGroupTable"), where)
        configs = {
            group: decode_entry(
                SubscriptionGroupConfig, entry, f"{where}.{group}", group_name=group
            )
            for group, entry in table.items()
        }
        where = "$.forbiddenTable"
        forbidden = {
            group: {
                topic: as_integer(bits, f"{where}.{group}.{topic}", 2**31)
                for topic, bits in as_object(topics, f"{where}.{group}").items()
            }
            for group, topics in as_object(document.get("forbiddenTable"), where).items()
        }
        known = ("subscriptionGroupTable", "forbiddenTable")
        self.data_version = self._take_version(document, known)
        self.subscription_group_table = configs
        self.forbidden_table = forbidden

    def _document(self) -> dict[str, Any]:
        table = self.subscription_group_table
        return {
            **self._others,
            "dataVersion": encode_entry(self.data_version),
            "forbiddenTable": self.forbidden_table,
            "subscriptionGroupTable": {group: encode_entry(table[group]) for group in table},
        }

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's entry, ``None`` if it is unknown; never create one."""
        return self.subscription_group_table.get(group)

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group. Raises ``ValueError`` without a name."""
        if not config.group_name:
            raise ValueError("a group needs a name")
        self.subscription_group_table[config.group_name] = config
        self.data_version.next_version(self._clock())

    def delete_subscription_group_config(self, group: str) -> bool:
        """Remove a group and its forbidden operations; return whether it existed."""
        self.forbidden_table.pop(group, None)
        if self.subscription_group_table.pop(group, None) is None:
            return False
        self.data_version.next_version(self._clock())
        return True

    def disable_consume(self, group: str) -> bool:
        """Disable consumption for a group; return whether the group exists."""
        config = self.subscription_group_table.get(group)
        if config is None:
            return False
        config.consume_enable = False
        self.data_version.next_version(self._clock())
        return True


class ConsumerOffsetManager(ConfigManager):
    """``consumerOffset.json``.

    Attributes
    ----------
    offset_table : dict of str to dict of int to int
        ``topic@group``, queue id, next queue offset to consume.
    pull_offset_table : dict of str to dict of int to int
        5.5: the same for the last pulls; empty in earlier versions.
    data_version : DataVersion
    has_version : bool
        Write the version, as 5.x does (default).

    Notes
    -----
    Source: RocketMQ ``broker/offset/ConsumerOffsetManager.java``.
    """

    FILE_NAME = config_files.CONSUMER_OFFSETS_FILE
    #: Brokers derive ``groupTopicMap`` from the offsets when they write it, and never read it.
    _KNOWN: ClassVar[tuple[str, ...]] = ("offsetTable", "pullOffsetTable", "groupTopicMap")
    has_version = True

    def _take(self, document: dict[str, Any]) -> None:
        offsets = _offset_tables(document, "offsetTable")
        pulled = _offset_tables(document, "pullOffsetTable")
        self.data_version = self._take_version(document, self._KNOWN)
        self.offset_table = offsets
        self.pull_offset_table = pulled

    def _document(self) -> dict[str, Any]:
        version = {"dataVersion": encode_entry(self.data_version)} if self.has_version else {}
        document = {
            **self._others,
            **version,
            "offsetTable": {
                key: encode_offsets(offsets) for key, offsets in self.offset_table.items()
            },
        }
        if self.pull_offset_table:
            document["pullOffsetTable"] = {
                key: encode_offsets(offsets) for key, offsets in self.pull_offset_table.items()
            }
        return document

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the next offset to consume, even if it is smaller than before.

        Raises ``ValueError`` if a name contains ``@`` or is empty, or if a number is negative or
        more than the table can hold: 31 bits for a queue id, 63 for an offset. Raises ``TypeError``
        for what is no int.
        """
        key = _topic_at_group(topic, group)
        _check_number("queue id", queue_id, 0, 31)
        _check_number("offset", offset, 0, 63)
        self.offset_table.setdefault(key, {})[queue_id] = offset

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset to consume, -1 if none was committed."""
        return self.offset_table.get(_topic_at_group(topic, group), {}).get(queue_id, -1)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's committed offsets of all queues of a topic."""
        return dict(self.offset_table.get(_topic_at_group(topic, group), {}))

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """Return the topics for which the group has committed offsets."""
        return {topic for topic, name, _ in self.entries() if name == group}

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that have committed offsets for the topic."""
        return {group for name, group, _ in self.entries() if name == topic}

    def query_min_offset_in_all_group(
        self, topic: str, exclude_groups: Iterable[str] = ()
    ) -> dict[int, int]:
        """Return the smallest offset of each queue of a topic over all groups but the excluded.

        RocketMQ also removes the excluded groups' entries; this method changes nothing.
        """
        excluded = set(exclude_groups)
        smallest: dict[int, int] = {}
        for name, group, offsets in self.entries():
            if name == topic and group not in excluded:
                for queue_id, offset in offsets.items():
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        return smallest

    def clone_offset(self, source_group: str, target_group: str, topic: str) -> bool:
        """Copy a group's offsets of a topic to another group; return whether there were any."""
        offsets = self.offset_table.get(_topic_at_group(topic, source_group))
        if offsets is None:
            return False
        self.offset_table[_topic_at_group(topic, target_group)] = dict(offsets)
        return True

    def remove_offset(self, group: str) -> bool:
        """Remove a group's offsets of all topics; return whether there were any."""
        gone = _keys_of(group, self.offset_table)
        for key in gone:
            del self.offset_table[key]
        for key in _keys_of(group, self.pull_offset_table):
            del self.pull_offset_table[key]
        return bool(gone)

    def entries(self) -> Iterable[tuple[str, str, dict[int, int]]]:
        """Yield (topic, group, offsets by queue id); skip keys without exactly one ``@``."""
        for key, offsets in self.offset_table.items():
            parts = key.split(TOPIC_GROUP_SEPARATOR)
            if len(parts) == 2:
                yield parts[0], parts[1], offsets


class LmqConsumerOffsetManager(ConsumerOffsetManager):
    """``lmqConsumerOffset.json``, which a broker with ``enableLmq`` uses instead.

    Attributes
    ----------
    lmq_offset_table : dict of str to int
        ``topic@group`` of groups that begin with ``%LMQ%``: offset of queue 0.

    Notes
    -----
    Source: RocketMQ ``broker/offset/LmqConsumerOffsetManager.java``.
    """

    FILE_NAME = config_files.LMQ_CONSUMER_OFFSETS_FILE
    _KNOWN = (*ConsumerOffsetManager._KNOWN, "lmqOffsetTable")

    def _take(self, document: dict[str, Any]) -> None:
        where = "$.lmqOffsetTable"
        offsets = {
            key: as_integer(offset, f"{where}.{key}")
            for key, offset in as_object(document.get("lmqOffsetTable"), where).items()
        }
        super()._take(document)
        self.lmq_offset_table = offsets

    def _document(self) -> dict[str, Any]:
        return {**super()._document(), "lmqOffsetTable": dict(self.lmq_offset_table)}

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the next offset as the base class does; a light group has one queue."""
        super().commit_offset(group, topic, queue_id, offset)
        if group.startswith(LMQ_PREFIX):
            key = _topic_at_group(topic, group)
            del self.offset_table[key]
            self.lmq_offset_table[key] = offset

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset as the base class does; ignore a light group's queue id."""
        if not group.startswith(LMQ_PREFIX):
            return super().query_offset(group, topic, queue_id)
        return self.lmq_offset_table.get(_topic_at_group(topic, group), -1)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets as the base class does; a light group has only queue 0."""
        if not group.startswith(LMQ_PREFIX):
            return super().query_offsets(group, topic)
        offset = self.query_offset(group, topic, 0)
        return {} if offset < 0 else {0: offset}

    def remove_offset(self, group: str) -> bool:
        """Remove a group's offsets as the base class does."""
        if not group.startswith(LMQ_PREFIX):
            return super().remove_offset(group)
        gone = _keys_of(group, self.lmq_offset_table)
        for key in gone:
            del self.lmq_offset_table[key]
        return bool(gone)


def _check_number(name: str, value: int, least: int, bit_count: int) -> None:
    """Raise if a table with the number could not be read again."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not least <= value < 2**bit_count:
        raise ValueError(f"{name} is {value}; it must be from {least} to 2**{bit_count} - 1")


def _topic_at_group(topic: str, group: str) -> str:
    if not topic or not group or TOPIC_GROUP_SEPARATOR in topic + group:
        raise ValueError(f"topic {topic!r} and group {group!r} must be names without '@'")
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _keys_of(group: str, table: Mapping[str, Any]) -> list[str]:
    return [key for key in table if key.partition(TOPIC_GROUP_SEPARATOR)[2] == group]


def _offset_tables(document: dict[str, Any], name: str) -> dict[str, dict[int, int]]:
    where = f"$.{name}"
    return {
        key: as_offsets(offsets, f"{where}.{key}")
        for key, offsets in as_object(document.get(name), where).items()
    }


class DelayOffsetManager(ConfigManager):
    """``delayOffset.json``: the offset up to which each delay level was delivered.

    Attributes
    ----------
    offset_table : dict of int to int
        Delay level (from 1), queue offset in queue ``level - 1`` of ``SCHEDULE_TOPIC_XXXX``.
    data_version : DataVersion
    has_version : bool
        Write the version, as 5.x does (default).
    Notes
    -----
    Source: RocketMQ ``schedule/ScheduleMessageService.java``, which also delivers the messages.
    """

    FILE_NAME = config_files.DELAY_OFFSETS_FILE
    has_version = True

    @property
    def others(self) -> dict[str, Any]:
        """Members of the file that a broker ignores."""
        return self._others

    def _take(self, document: dict[str, Any]) -> None:
        offsets = as_offsets(document.get("offsetTable"), "$.offsetTable")
        self.data_version = self._take_version(document, ["offsetTable"])
        self.offset_table = offsets

    def _document(self) -> dict[str, Any]:
        version = {"dataVersion": encode_entry(self.data_version)} if self.has_version else {}
        return {**self._others, **version, "offsetTable": encode_offsets(self.offset_table)}

    def update_offset(self, delay_level: int, offset: int) -> None:
        """Record that everything before ``offset`` was delivered.

        Raises ``ValueError`` for a level below 1 or above 31 bits, and for an offset that is
        negative or has more than 63 bits; ``TypeError`` for what is no int.
        """
        _check_number("level", delay_level, 1, 31)
        _check_number("offset", offset, 0, 63)
        self.offset_table[delay_level] = offset

    def correct_delay_offset(self, bounds: Callable[[int], tuple[int, int]]) -> dict[int, int]:
        """Move offsets outside their queue to its nearest end.

        Parameters
        ----------
        bounds : callable
            Returns min and max offset of a queue of ``SCHEDULE_TOPIC_XXXX``.

        Returns
        -------
        dict
            The former offset of each level that was changed.
        """
        former = {}
        for level, offset in self.offset_table.items():
            low, high = bounds(level - 1)
            corrected = min(max(offset, low), high)
            if corrected != offset:
                former[level] = offset
                self.offset_table[level] = corrected
        return former
