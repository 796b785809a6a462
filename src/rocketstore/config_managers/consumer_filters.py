"""The filters that consumers subscribed with: ``consumerFilter.json``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from rocketstore.config_managers import files as config_files
from rocketstore.config_managers.managers import ConfigManager
from rocketstore.config_managers.tables import (
    BloomFilterData,
    ConsumerFilterData,
    as_object,
    decode_entry,
    encode_entry,
)
from rocketstore.filter.bloom_filter import BloomFilter

#: On loading, a filter that was alive counts as having been dead for this long.
_LOADED_DEAD_FOR_MS = 30_000
_FILTER_CLEAN_SPAN_MS = 24 * 3600 * 1000


class ConsumerFilterManager(ConfigManager):
    """``consumerFilter.json``: filter expressions of consumers, and their bits in ConsumeQueueExt.

    Parameters
    ----------
    root : path
    clock : callable, optional
    bloom_filter : BloomFilter, optional
        The bloom filter in use; the default is RocketMQ's (112 bits).

    Attributes
    ----------
    filter_data_by_topic : dict of str to dict of str to ConsumerFilterData
        Topic, group, filter.
    ignored : bool
        Whether the whole file is ignored, as in RocketMQ, because its bits are for a bloom filter
        of another size.

    Notes
    -----
    Source: RocketMQ ``broker/filter/ConsumerFilterManager.java``.
    """

    FILE_NAME = config_files.CONSUMER_FILTERS_FILE

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Callable[[], int] | None = None,
        bloom_filter: BloomFilter | None = None,
    ) -> None:
        self.bloom_filter = bloom_filter if bloom_filter is not None else BloomFilter.create()
        self.ignored = False
        super().__init__(root, clock=clock)

    def _take(self, document: dict[str, Any]) -> None:
        where = "$.filterDataByTopic"
        found: dict[str, dict[str, ConsumerFilterData]] = {}
        for topic, entry in as_object(document.get("filterDataByTopic"), where).items():
            place = f"{where}.{topic}"
            groups = as_object(as_object(entry, place).get("groupFilterData"), place)
            found[topic] = {
                group: decode_entry(
                    ConsumerFilterData, data, f"{place}.{group}", consumer_group=group, topic=topic
                )
                for group, data in groups.items()
            }
        entries = [data for groups in found.values() for data in groups.values()]
        self._others = {key: document[key] for key in document if key != "filterDataByTopic"}
        self.ignored = not all(self._fits(data.bloom_filter_data) for data in entries)
        self.filter_data_by_topic = {} if self.ignored else found
        loaded_dead = self._clock() - _LOADED_DEAD_FOR_MS
        for data in entries:
            if data.dead_time == 0:
                data.dead_time = max(data.born_time, loaded_dead)

    def _fits(self, data: BloomFilterData | None) -> bool:
        bloom = self.bloom_filter
        return data is not None and data.bit_num == bloom.m and len(data.bit_pos) == bloom.k

    def _document(self) -> dict[str, Any]:
        # As in RocketMQ, consumers that have been dead for a day are omitted.
        oldest = self._clock() - _FILTER_CLEAN_SPAN_MS
        table: dict[str, Any] = {}
        for topic, groups in self.filter_data_by_topic.items():
            kept = {
                group: encode_entry(data)
                for group, data in groups.items()
                if not (data.dead and data.dead_time <= oldest)
            }
            if kept:
                table[topic] = {"groupFilterData": kept, "topic": topic}
        return {**self._others, "filterDataByTopic": table}

    def register(
        self,
        topic: str,
        group: str,
        expression: str,
        expression_type: str = "SQL92",
        client_version: int = 0,
    ) -> ConsumerFilterData:
        """Add or replace a consumer's filter and mark it as alive.

        The expression is stored unchecked. Raises ``ValueError`` without topic, group or
        expression.
        """
        if not topic or not group or not expression:
            raise ValueError("a filter needs topic, group and expression")
        now = self._clock()
        data = ConsumerFilterData(
            consumer_group=group,
            topic=topic,
            expression=expression,
            expression_type=expression_type,
            born_time=now,
            client_version=client_version,
            bloom_filter_data=BloomFilterData(
                bit_pos=self.bloom_filter.bit_positions(group, topic), bit_num=self.bloom_filter.m
            ),
        )
        self.filter_data_by_topic.setdefault(topic, {})[group] = data
        return data

    def un_register(self, group: str) -> None:
        """Mark a group's filters of all topics as dead."""
        now = self._clock()
        for groups in self.filter_data_by_topic.values():
            data = groups.get(group)
            if data is not None and not data.dead:
                data.dead_time = max(now, data.born_time)

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return a consumer's filter, ``None`` if it is unknown."""
        groups: Mapping[str, ConsumerFilterData] = self.filter_data_by_topic.get(topic, {})
        return groups.get(group)
