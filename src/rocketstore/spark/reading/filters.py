"""Filters that Spark hands down, as bounds of what is read.

Spark checks every row itself again, so bounds may let too much through, never too little.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql import datasource

from rocketstore.spark.base.options import ReadOptions

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
#: Times beyond are shown as the nearest that a timestamp holds, so they bound nothing.
_MAX_MS = (2**63 - 1) // 1000
#: The same column under Kafka's name.
_NAMES = {"partition": "queueId", "timestamp": "storeTimestamp"}


def narrowed(options: ReadOptions, filters: Iterable[Any]) -> ReadOptions:
    """Return options that read at least the rows which pass all filters, and less where possible.

    Parameters
    ----------
    options : ReadOptions
    filters : iterable of pyspark.sql.datasource.Filter
        Those of topic, tags, keys, storeTimestamp and physicalOffset are used, others passed over.
    """
    for item in filters:
        attribute = getattr(item, "attribute", None)
        if not isinstance(attribute, tuple) or len(attribute) != 1:
            continue
        name = _NAMES.get(attribute[0], attribute[0])
        if name in ("topic", "tags", "keys"):
            options = _by_words(options, name, item)
        elif name in ("storeTimestamp", "physicalOffset"):
            options = _by_range(options, name, item)
    return options


def _by_words(options: ReadOptions, name: str, item: Any) -> ReadOptions:
    if isinstance(item, datasource.EqualTo):
        words = [item.value]
    elif isinstance(item, datasource.In):
        words = [word for word in item.value if word is not None]
    else:
        return options
    if not all(isinstance(word, str) for word in words):
        return options
    field = {"topic": "topics"}.get(name, name)
    given = getattr(options, field)
    if name == "keys" and (given is not None or not all(_is_one_key(word) for word in words)):
        return options
    kept = tuple(word for word in dict.fromkeys(words) if given is None or word in given)
    changed: dict[str, Any] = {field: kept}
    return replace(options, **changed)


def _is_one_key(word: str) -> bool:
    """Whether a message whose KEYS are exactly ``word`` is found by the key ``word``."""
    return bool(word) and " " not in word


def _by_range(options: ReadOptions, name: str, item: Any) -> ReadOptions:
    """Bounds ``at`` and ``at + 1`` are wide enough for strict and other comparisons."""
    lower = isinstance(
        item, datasource.EqualTo | datasource.GreaterThan | datasource.GreaterThanOrEqual
    )
    upper = isinstance(item, datasource.EqualTo | datasource.LessThan | datasource.LessThanOrEqual)
    if not lower and not upper:
        return options
    if name == "storeTimestamp":
        at = _milliseconds(item.value)
        first, last = "starting_timestamp", "ending_timestamp"
    else:
        at = item.value if type(item.value) is int else None
        first, last = "starting_physical_offset", "ending_physical_offset"
    if at is None:
        return options
    changed: dict[str, Any] = {}
    if lower and at > 0:
        changed[first] = max(at, getattr(options, first) or 0)
    if upper and name == "storeTimestamp" and at < 0:
        return options
    if upper and at < 2**63 - 1:
        given = getattr(options, last)
        changed[last] = max(0, at + 1 if given is None else min(at + 1, given))
    return replace(options, **changed)


def _milliseconds(value: Any) -> int | None:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    ms = (value - _EPOCH) // _MICROSECOND // 1000
    return ms if abs(ms) < _MAX_MS else None
