"""Sums over the log's records by the values of properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketstore import formats, kernels
from rocketstore.status import RecordFlags, RecordStatus

_ROWS = 1024
#: Groups until the caller must take them.
_MAX_GROUPS = 65536
_SEPARATOR = bytes((formats.NAME_VALUE_SEPARATOR,))


class PropertySums:
    """A pass that sums up records by properties, and by the fields of ``StatsPass``.

    Parameters
    ----------
    fields : sequence of str
        Any of ``topic``, ``queueId``, ``tags``.
    properties : sequence of str
        Names of properties.
    bucket_ms : int or None
        Width of a time bucket.

    Notes
    -----
    ``take`` returns groups in the shape of ``StatsPass.take``; in place of the body's size there is
    a tuple of values, ``None`` for an absent property. Threading: one thread at a time.
    """

    def __init__(
        self, fields: Sequence[str], properties: Sequence[str], bucket_ms: int | None
    ) -> None:
        self._fields = frozenset(fields)
        self._properties = tuple(properties)
        self._needles = [name.encode("utf-8", "replace") + _SEPARATOR for name in properties]
        self._bucket_ms = bucket_ms
        self._groups: dict[tuple[Any, ...], list[int]] = {}
        self._rows = bytearray(_ROWS * formats.PARSED_RECORD.nbytes)

    def consume(
        self,
        window: Any,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``rocketstore.sources.walk.Pass``."""
        import numpy

        if "tags" in self._fields:
            flags |= RecordFlags.PARSE_PROPERTIES
        # A row that is not full ends at ``stop`` or at an obstacle.
        while True:
            if base_offset + position >= limit:
                return int(RecordStatus.END), position
            count, reached, status = kernels.message.scan_records(
                window, position, stop, base_offset, segment_end, flags, self._rows
            )
            rows = numpy.frombuffer(self._rows, formats.PARSED_RECORD.dtype, count)
            inside = int((rows["physical_offset"] < limit).sum())
            self._add(window, rows[:inside])
            if inside < count:
                return int(RecordStatus.END), int(rows["position"][inside])
            position = reached
            # Also where a window ends, for windows may be smaller than what fills the rows.
            is_full = len(self._groups) >= _MAX_GROUPS
            if is_full and status in (RecordStatus.OK, RecordStatus.INCOMPLETE):
                return int(RecordStatus.FULL), position
            if status != RecordStatus.OK:
                return status, position

    def _add(self, window: Any, rows: Any) -> None:
        names = (
            *("status", "position", "topic_at", "topic_nbytes", "queue_id", "tags_at"),
            *("tags_nbytes", "store_timestamp", "properties_at", "properties_nbytes"),
            *("total_size", "body_nbytes", "queue_offset"),
        )
        fields, width = self._fields, self._bucket_ms
        for (
            status, at, topic_at, topic_nbytes, queue_id, tags_at, tags_nbytes, stored,
            properties_at, properties_nbytes, nbytes, body_nbytes, queue_offset,
        ) in zip(*(rows[name].tolist() for name in names), strict=True):  # fmt: skip
            if status == RecordStatus.GHOST:
                continue
            topic = tags = None
            if "topic" in fields:
                topic = bytes(window[at + topic_at : at + topic_at + topic_nbytes])
            if "tags" in fields and tags_at >= 0:
                tags = bytes(window[at + tags_at : at + tags_at + tags_nbytes])
            first = at + properties_at
            key = (
                topic,
                queue_id if "queueId" in fields else None,
                tags,
                stored - stored % width if width else None,
                self._values(bytes(window[first : first + properties_nbytes])),
            )
            sums = self._groups.get(key)
            if sums is None:
                self._groups[key] = [1, nbytes, body_nbytes, stored, stored, *(2 * [queue_offset])]
                continue
            sums[0] += 1
            sums[1] += nbytes
            sums[2] += body_nbytes
            sums[3] = min(sums[3], stored)
            sums[4] = max(sums[4], stored)
            sums[5] = min(sums[5], queue_offset)
            sums[6] = max(sums[6], queue_offset)

    def _values(self, stored: bytes) -> tuple[str | None, ...]:
        if not any(needle in stored for needle in self._needles):
            return (None,) * len(self._properties)
        pairs = kernels.message.parse_properties(stored)
        return tuple(pairs.get(name) for name in self._properties)

    def take(self) -> list[tuple[Any, ...]]:
        """Return the groups since the last call, and forget them."""
        groups, self._groups = self._groups, {}
        return [(*key, *sums) for key, sums in groups.items()]
