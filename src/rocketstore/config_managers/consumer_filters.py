"""The filters that consumers subscribed with: ``consumerFilter.json``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
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
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.bloom_filter import BloomFilter
from rocketstore.filter.sql92.parser import Parser
from rocketstore.filter.sql92.stored import EXPRESSION_TYPE

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
    broker_version : str, optional
        The RocketMQ version whose SQL92 dialect applies; the default is the newest.

    Attributes
    ----------
    filter_data_by_topic : dict of str to dict of str to ConsumerFilterData
        Topic, group, filter.
    refused : dict of (str, str) to str
        Topic and group of filters in the file whose bits are not for this bloom filter, with the
        reason. RocketMQ ignores the whole file because of one of them; here the others stay.

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
        broker_version: str | None = None,
    ) -> None:
        self.bloom_filter = bloom_filter if bloom_filter is not None else BloomFilter.create()
        self.refused: dict[tuple[str, str], str] = {}
        version = DEFAULT_VERSION if broker_version is None else broker_version
        self._text_search = Dialect.for_version(version).filter_text_search
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
        self._others = {key: document[key] for key in document if key != "filterDataByTopic"}
        self.refused = {}
        for topic, kept in found.items():
            for group, data in list(kept.items()):
                reason = self._refusal(data.bloom_filter_data)
                if reason is not None:
                    self.refused[topic, group] = reason
                    del kept[group]
        self.filter_data_by_topic = {topic: kept for topic, kept in found.items() if kept}
        loaded_dead = self._clock() - _LOADED_DEAD_FOR_MS
        for data in self._entries():
            if data.dead_time == 0:
                data.dead_time = max(data.born_time, loaded_dead)

    def _entries(self) -> Iterator[ConsumerFilterData]:
        for groups in self.filter_data_by_topic.values():
            yield from groups.values()

    def _refusal(self, data: BloomFilterData | None) -> str | None:
        bloom = self.bloom_filter
        if data is None:
            return "it has no bits"
        if data.bit_num != bloom.m or len(data.bit_pos) != bloom.k:
            found = f"{len(data.bit_pos)} of {data.bit_num} bits"
            return f"it has {found}, and the bloom filter gives {bloom.k} of {bloom.m}"
        if not all(0 <= position < bloom.m for position in data.bit_pos):
            return f"a bit is outside the bloom filter's {bloom.m}"
        return None

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
        expression_type: str = EXPRESSION_TYPE,
        client_version: int | None = None,
        *,
        born_after: int = 0,
    ) -> ConsumerFilterData:
        """Register a consumer's filter, as a broker does at the consumer's heartbeat.

        Parameters
        ----------
        topic, group, expression
        expression_type : str
        client_version : int, optional
            The subscription's version. One that is not newer than the registered filter's changes
            nothing, but a filter of the same version is alive again. The default is newer than any.
        born_after : int
            Epoch ms; a new or changed filter is born at this time or later.

        Returns
        -------
        ConsumerFilterData
            The filter in force: a new one, or the registered one if its expression did not change.

        Raises
        ------
        ValueError
            Without topic, group or expression, or for another type.
        FilterSyntaxError
            If RocketMQ refuses the expression; the consumer then has no filter any longer.
        """
        if not topic or not group or not expression:
            raise ValueError("a filter needs topic, group and expression")
        if expression_type != EXPRESSION_TYPE:
            raise ValueError(f"the type of a filter must be {EXPRESSION_TYPE!r}")
        old, now = self.get(topic, group), self._clock()
        if client_version is None:
            client_version = now if old is None else max(now, old.client_version + 1)
        if old is not None and client_version <= old.client_version:
            if client_version == old.client_version:
                old.dead_time = 0 if old.dead else old.dead_time
            return old
        bits = BloomFilterData(
            bit_pos=self.bloom_filter.bit_positions(group, topic), bit_num=self.bloom_filter.m
        )
        if old is not None and _is_same(old, expression, expression_type, bits):
            old.client_version = client_version
            old.dead_time = 0 if old.dead else old.dead_time
            return old
        try:
            Parser(expression, text_search=self._text_search, strict=False).parse()
        except FilterSyntaxError:
            self.filter_data_by_topic.get(topic, {}).pop(group, None)
            raise
        data = ConsumerFilterData(
            consumer_group=group,
            topic=topic,
            expression=expression,
            expression_type=expression_type,
            born_time=max(now, born_after),
            client_version=client_version,
            bloom_filter_data=bits,
        )
        self.filter_data_by_topic.setdefault(topic, {})[group] = data
        return data

    def make_all_younger(self, born_time: int) -> None:
        """Let no bit map of a message that was stored up to ``born_time`` count for any filter."""
        for data in self._entries():
            if data.born_time < born_time:
                dead = data.dead
                data.born_time = born_time
                data.dead_time = max(data.dead_time, born_time) if dead else data.dead_time

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


def _is_same(
    data: ConsumerFilterData, expression: str, expression_type: str, bits: BloomFilterData
) -> bool:
    """Return whether a registered filter already has this expression and these bits."""
    found = data.bloom_filter_data
    return (
        (data.expression, data.expression_type) == (expression, expression_type)
        and found is not None
        and (found.bit_num, found.bit_pos) == (bits.bit_num, bits.bit_pos)
    )
