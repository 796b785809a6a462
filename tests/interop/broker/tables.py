"""The tables that a broker needs beside a store of ours: topics and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rocketstore.config_managers import (
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    TopicConfig,
    TopicConfigManager,
)


def write_tables(root: Path, topics: Mapping[str, int], groups: Iterable[str]) -> None:
    """Write ``topics``, each with so many queues, and ``groups`` by our config files."""
    table = TopicConfigManager(root)
    for topic, count in topics.items():
        table.update_topic_config(
            TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        )
    table.persist()
    others = SubscriptionGroupManager(root)
    for group in groups:
        others.update_subscription_group_config(SubscriptionGroupConfig(group_name=group))
    others.persist()
