"""Which delayed messages the log shows as delivered.

A delivery is a record that bears level, topic and queue of a delayed message, and its body, born
fields and unique key. Deliveries of a level are made in the order of its queue. So after a crash,
when the persisted offsets are old, the log itself shows what has been done (D-54).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from rocketstore import formats
from rocketstore.delay.levels import LevelQueue
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan, RecordBatch, find_next_record
from rocketstore.message import StoredMessage
from rocketstore.message_copy import real_queue_id
from rocketstore.status import RecordFlags, RecordStatus

_log = logging.getLogger(__name__)
#: Real topic, queue id, born time, CRC of the body, unique key.
Key = tuple[str, int, int | None, int, str | None]
_READABLE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES)
#: Units past the next one that are compared although they were not due when a delivery was made.
_LEAST_AHEAD = 1024


class Delivered(NamedTuple):
    """What the log shows of one level.

    Attributes
    ----------
    offset : int
        All messages before it are delivered.
    ahead : set of int
        Delivered messages after it. Those in between were skipped, or are in doubt.
    """

    offset: int
    ahead: set[int]


def delivery_key(message: StoredMessage) -> Key | None:
    """Return the key of a delayed message or of its delivery; ``None`` without a real topic."""
    properties = message.properties
    topic = properties.get(formats.PROPERTY_REAL_TOPIC)
    queue_id = real_queue_id(properties)
    if topic is None or queue_id is None:
        return None
    unique_key = properties.get(formats.PROPERTY_UNIQUE_KEY)
    return topic, queue_id, message.born_timestamp, message.body_crc, unique_key


class LevelMatch:
    """Compares the deliveries of one level, in log order, with its units from an offset on.

    Of units that are alike, the ``counted`` ones before the offset take their deliveries first. If
    ``all_wait``, every delivery belongs to a unit after them, and is searched for in all that were
    put before it, due or not.
    """

    def __init__(
        self, log: CommitLog, queue: LevelQueue, offset: int, counted: int, *, all_wait: bool
    ) -> None:
        self._log = log
        self._all_wait = all_wait
        self._queue = queue
        #: Queue offsets of units that were read, by key.
        self._waiting: dict[Key, list[int]] = {}
        self._offset = max(offset, queue.min_offset)
        self._read_to = max(self._offset - counted, queue.min_offset)
        self._done: set[int] = set()

    def take(self, delivery: StoredMessage, key: Key) -> bool:
        """Match a delivery; return whether a unit waited for it."""
        found = self._waiting.get(key)
        while not found and self._read_next(delivery):
            found = self._waiting.get(key)
        if not found:
            return False
        offset = found.pop(0)
        self._done.add(offset)
        return True

    def _read_next(self, delivery: StoredMessage) -> bool:
        """Read the next unit; return whether there is one that the delivery may belong to."""
        at = self._read_to
        if at >= self._queue.max_offset:
            return False
        unit = self._queue.unit(at)
        if unit is not None:
            if unit[0] >= delivery.physical_offset:
                return False  # it was put after the delivery
            if not self._all_wait and at - self._offset >= _LEAST_AHEAD:
                due, now = self._queue.due(unit), delivery.store_timestamp
                if self._queue.corrected(due, now) > now:
                    return False
        self._read_to += 1
        if unit is None:
            self._done.add(at)  # a filler is no message
            return True
        status, message = self._log.record_at(unit[0])
        key = delivery_key(message) if message is not None and status in _READABLE else None
        if key is not None:
            self._waiting.setdefault(key, []).append(at)
        return True

    def result(self) -> Delivered:
        """Return what is delivered."""
        offset = self._offset
        while offset in self._done:
            offset += 1
        return Delivered(offset, {at for at in self._done if at > offset})


def alike_before(log: CommitLog, queue: LevelQueue, offset: int) -> int:
    """Return how many units directly before ``offset`` have its message's born time.

    Without a unique key, the deliveries of such messages may look like its own.
    """

    def born(at: int) -> int | None:
        unit = queue.unit(at) if at >= queue.min_offset else None
        message = None if unit is None else log.record_at(unit[0])[1]
        return None if message is None else message.born_timestamp

    time = born(offset)
    if time is None:
        return 0
    return next((n for n in range(_LEAST_AHEAD) if born(offset - n - 1) != time), _LEAST_AHEAD)


def find_delivered(
    log: CommitLog,
    queues: Mapping[int, LevelQueue],
    offsets: Mapping[int, int],
    start: int,
    counted: Mapping[int, int] = {},
    *,
    all_wait: bool = False,
) -> dict[int, Delivered]:
    """Match the log from ``start`` on with the units of each level from its offset on.

    Parameters
    ----------
    log : CommitLog
    queues : mapping of int to LevelQueue
        By level.
    offsets : mapping of int to int
        Offset of the first unit in question, by level.
    start : int
        Log offset of a record or a segment.
    counted : mapping of int to int
        By level, how many units before its offset were delivered after ``start``, if any.
    all_wait : bool
        No delivery after ``start`` is of a unit before those.

    Returns
    -------
    dict of int to Delivered
        By level. Without a matching delivery the offset is the given one, or the queue's min.
    """
    matches = {
        level: LevelMatch(log, queues[level], offset, counted.get(level, 0), all_wait=all_wait)
        for level, offset in offsets.items()
    }
    stop = log.max_offset
    flags = int(RecordFlags.PARSE_PROPERTIES)
    while start < stop:
        scan = LogScan(log, start, stop, flags)
        for batch in scan:
            _match_batch(batch, matches)
        if scan.status == RecordStatus.END:
            break
        found = find_next_record(log, scan.offset + 1)
        if found is None:
            break
        _log.warning("deliveries between log offsets %d and %d are unknown", scan.offset, found)
        start = found
    return {level: match.result() for level, match in matches.items()}


def _match_batch(batch: RecordBatch, matches: Mapping[int, LevelMatch]) -> None:
    rows = batch.columns
    # Delayed records themselves: without a table of delays, their code is this time.
    waiting = rows["tags_code"] == rows["store_timestamp"] + formats.UNKNOWN_DELAY_MS
    named = (rows["delay_level"] > 0) | (rows["multi_dispatch_at"] > 0)
    for row in rows[named & ~waiting]:
        if row["status"] not in _READABLE:
            continue
        message = batch.window.message(int(row["position"]))
        key = delivery_key(message)
        if key is None or message.topic != key[0] or message.queue_id != key[1]:
            continue
        level = int(row["delay_level"])
        if level > 0:
            if level in matches:
                matches[level].take(message, key)
            continue
        # A put that gives offsets in other queues stores the properties without the level.
        for match in matches.values():
            if match.take(message, key):
                break
