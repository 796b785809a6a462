"""The broker's tables: topics, consumer groups and offsets, delay offsets, consumer filters.

Each class has RocketMQ's name and its file below ``config``. ``load`` reads files of any version,
``persist`` writes files that every version reads. A running broker does not reload its files and
overwrites them: call ``persist`` only while no broker runs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketstore.config_managers.consumer_filters import (
        ConsumerFilterManager,
    )
    from rocketstore.config_managers.managers import (
        ConfigManager,
        ConsumerOffsetManager,
        DelayOffsetManager,
        LmqConsumerOffsetManager,
        SubscriptionGroupManager,
        TopicConfigManager,
    )
    from rocketstore.config_managers.tables import (
        BloomFilterData,
        ConsumerFilterData,
        DataVersion,
        SubscriptionGroupConfig,
        TopicConfig,
    )

_MODULES = {
    "BloomFilterData": "tables",
    "ConfigManager": "managers",
    "ConsumerFilterData": "tables",
    "ConsumerFilterManager": "consumer_filters",
    "ConsumerOffsetManager": "managers",
    "DataVersion": "tables",
    "DelayOffsetManager": "managers",
    "LmqConsumerOffsetManager": "managers",
    "SubscriptionGroupConfig": "tables",
    "SubscriptionGroupManager": "managers",
    "TopicConfig": "tables",
    "TopicConfigManager": "managers",
}

__all__ = [
    "BloomFilterData",
    "ConfigManager",
    "ConsumerFilterData",
    "ConsumerFilterManager",
    "ConsumerOffsetManager",
    "DataVersion",
    "DelayOffsetManager",
    "LmqConsumerOffsetManager",
    "SubscriptionGroupConfig",
    "SubscriptionGroupManager",
    "TopicConfig",
    "TopicConfigManager",
]


def __getattr__(name: str) -> Any:
    """Import a class on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
