"""Which records a pass takes: the twin of ``rs_record_filter.h``."""

from __future__ import annotations

from rocketstore import formats
from rocketstore._reference import java_text, sql92
from rocketstore._reference.message import StoredMessage
from rocketstore._reference.record_check import pairs
from rocketstore.record_filters import CompiledFilter, RecordFilters
from rocketstore.sql92_program import Verdict

_TAGS, _KEYS, _UNIQUE_KEY = (
    name.encode()
    for name in (formats.PROPERTY_TAGS, formats.PROPERTY_KEYS, formats.PROPERTY_UNIQUE_KEY)
)


class Judge:
    """Evaluates an SQL92 filter over stored properties, and counts its errors there."""

    def __init__(self, filter: CompiledFilter | None) -> None:
        self._filter = filter
        self._program = None if filter is None else sql92.Program(filter.program)

    def passes(self, properties: bytes) -> bool:
        """Return whether the filter is TRUE, or there is none."""
        if self._program is None or self._filter is None:
            return True
        verdict = self._program.evaluate_stored(properties)
        if verdict == Verdict.ERROR:
            self._filter.count_errors(1)
        return verdict == Verdict.TRUE


class RecordFilter:
    """Judges records."""

    def __init__(self, filters: RecordFilters) -> None:
        self._filters = filters
        self._judge = Judge(filters.filter)

    def takes(self, message: StoredMessage) -> bool:
        """Return whether a message passes all filters; the SQL92 filter is asked last."""
        filters, stored = self._filters, message.properties_bytes
        if not self._takes_place(message):
            return False
        if filters.tags is not None or filters.keys is not None:
            values = {name: stored[start:stop] for name, start, stop in pairs(stored)}
            if filters.tags is not None:
                tags = values.get(_TAGS)
                if tags is None or text(tags) not in filters.tags:
                    return False
            if filters.keys is not None and not _has_key(values, filters.keys):
                return False
        return self._judge.passes(stored)

    def _takes_place(self, message: StoredMessage) -> bool:
        filters = self._filters
        topic = message.topic.encode()
        queue_id = message.queue_id
        if filters.topics is not None and topic not in filters.topics:
            return False
        if filters.queue_ids is not None and queue_id not in filters.queue_ids.get(topic, ()):
            return False
        for number, first, last in filters.ranges.get(topic, ()):
            if number == queue_id and not first <= message.queue_offset <= last:
                return False
        return filters.first_time <= message.store_timestamp <= filters.last_time


def _has_key(values: dict[bytes, bytes], keys: frozenset[bytes]) -> bool:
    parts = values.get(_KEYS)
    found = [] if parts is None else text(parts).split(formats.KEY_SEPARATOR.encode())
    if _UNIQUE_KEY in values:
        found.append(text(values[_UNIQUE_KEY]))
    return not keys.isdisjoint(found)


def text(stored: bytes) -> bytes:
    """Return the UTF-8 of the text that Java reads from stored bytes."""
    return java_text.decode(stored).encode()
