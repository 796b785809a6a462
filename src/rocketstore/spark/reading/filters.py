"""Turn filters that Spark pushes down into bounds of what is read.

Spark checks every row again, so bounds may let rows through but must not drop matching ones.
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
#: Later times are clamped to the maximum of a timestamp, so they cannot serve as bounds.
_MAX_MS = (2**63 - 1) // 1000
#: Kafka's names of columns.
_NAMES = {"partition": "queueId", "timestamp": "storeTimestamp"}


def narrowed(options: ReadOptions, filters: Iterable[Any]) -> ReadOptions:
    """Return options that read at least the rows that pass all filters, and fewer if possible.

    Parameters
    ----------
    options : ReadOptions
    filters : iterable of pyspark.sql.datasource.Filter
        Filters of topic, tags, keys, storeTimestamp and physicalOffset are used, others ignored.
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
    """Return whether the key ``word`` finds a message whose KEYS are exactly ``word``."""
    return bool(word) and " " not in word


def _by_range(options: ReadOptions, name: str, item: Any) -> ReadOptions:
    """Restrict a range; bounds ``at`` and ``at + 1`` fit strict and non-strict comparisons."""
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
