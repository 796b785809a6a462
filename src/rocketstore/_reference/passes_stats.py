"""Sums over the log's records in pure Python: twin of ``_native/passes_stats``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketstore import formats
from rocketstore._reference import record_check
from rocketstore._reference.arguments import INT64_MAX, INT64_MIN
from rocketstore._reference.passes import Pass, bounded
from rocketstore._reference.record_check import Row
from rocketstore.status import RecordStatus

_BY = ("topic", "queueId", "tags", "bucket", "bodySize")
_TAGS = formats.PROPERTY_TAGS.encode()


class StatsPass(Pass):
    """See ``_native/passes_stats.pyi``."""

    def __init__(
        self, by: Iterable[str] = (), *, bucket_ms: int = 60000, max_groups: int = 65536
    ) -> None:
        self._bucket_ms = bounded("bucket_ms", bucket_ms, 1, INT64_MAX)
        self._max_groups = bounded("max_groups", max_groups, 1, INT64_MAX)
        self._by = set()
        for name in by:
            if name not in _BY:
                raise ValueError(f"{name!r} must be one of {_BY}")
            self._by.add(name)
        self._groups: dict[tuple[Any, ...], list[int]] = {}

    def _take(self, record: memoryview, row: Row) -> bool:
        if row.status == RecordStatus.GHOST:
            return True
        values = {
            "topic": bytes(record[row.topic_at : row.topic_at + row.topic_nbytes]),
            "queueId": row.queue_id,
            "tags": _tags_of(record, row),
            "bucket": max(row.store_timestamp // self._bucket_ms * self._bucket_ms, INT64_MIN),
            "bodySize": 1 << row.body_nbytes.bit_length() >> 1,
        }
        key = tuple(values[name] if name in self._by else None for name in _BY)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._max_groups:
                return False
            group = [0, 0, 0, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN]
            self._groups[key] = group
        count, nbytes, body_nbytes, *bounds = group
        group[:] = (
            *(count + 1, nbytes + row.total_size, body_nbytes + row.body_nbytes),
            *(min(bounds[0], row.store_timestamp), max(bounds[1], row.store_timestamp)),
            *(min(bounds[2], row.queue_offset), max(bounds[3], row.queue_offset)),
        )
        return True

    def take(self) -> list[tuple[Any, ...]]:
        """Return the groups since the last call in order of appearance and clear them."""
        groups = [(*key, *sums) for key, sums in self._groups.items()]
        self._groups = {}
        return groups


def _tags_of(record: memoryview, row: Row) -> bytes | None:
    properties = bytes(record[row.properties_at : row.total_size])
    found = None
    for name, start, stop in record_check.pairs(properties):
        if name == _TAGS:
            found = properties[start:stop]
    return found
