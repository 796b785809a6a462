"""Reading answers out of a store: its use, lag, history, index and future; read-only."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketstore.looking.consumer_lag import LagReport, LagState, QueueLag, lag
    from rocketstore.looking.disk_forecast import Capacity, CapacityLevel, capacity
    from rocketstore.looking.evidence import Evidence, prove
    from rocketstore.looking.expiry import (
        ExpiringFile,
        LostUnread,
        RetentionReport,
        retention,
        what_if_config,
    )
    from rocketstore.looking.index_health import IndexFileHealth, IndexHealth, keys
    from rocketstore.looking.search import Grep, Match, grep
    from rocketstore.looking.timeline import Event, EventKind, Timeline, trace
    from rocketstore.looking.usage import Usage, UsageRow, du, volume

_MODULES = {
    "Capacity": "disk_forecast",
    "CapacityLevel": "disk_forecast",
    "Event": "timeline",
    "EventKind": "timeline",
    "Evidence": "evidence",
    "ExpiringFile": "expiry",
    "Grep": "search",
    "IndexFileHealth": "index_health",
    "IndexHealth": "index_health",
    "LagReport": "consumer_lag",
    "LagState": "consumer_lag",
    "LostUnread": "expiry",
    "Match": "search",
    "QueueLag": "consumer_lag",
    "RetentionReport": "expiry",
    "Timeline": "timeline",
    "Usage": "usage",
    "UsageRow": "usage",
    "capacity": "disk_forecast",
    "du": "usage",
    "grep": "search",
    "keys": "index_health",
    "lag": "consumer_lag",
    "prove": "evidence",
    "retention": "expiry",
    "trace": "timeline",
    "volume": "usage",
    "what_if_config": "expiry",
}

__all__ = [
    "Capacity",
    "CapacityLevel",
    "Event",
    "EventKind",
    "Evidence",
    "ExpiringFile",
    "Grep",
    "IndexFileHealth",
    "IndexHealth",
    "LagReport",
    "LagState",
    "LostUnread",
    "Match",
    "QueueLag",
    "RetentionReport",
    "Timeline",
    "Usage",
    "UsageRow",
    "capacity",
    "du",
    "grep",
    "keys",
    "lag",
    "prove",
    "retention",
    "trace",
    "volume",
    "what_if_config",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted({*globals(), *__all__})
