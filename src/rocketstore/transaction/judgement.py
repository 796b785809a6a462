"""What ``verify`` and ``info`` say about transactions: op messages without a half, ages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocketstore import formats
from rocketstore.message import StoredMessage
from rocketstore.query.store_reader import StoreReader
from rocketstore.transaction.log_reading import TransactionLog
from rocketstore.transaction.op_messages import offsets_in
from rocketstore.transaction.progress import read_progress

#: Ages by which undecided transactions are counted, in milliseconds.
AGES = (("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000))
OLDER = "older"


class Summary(NamedTuple):
    """The undecided transactions of a store.

    ``by_age`` counts those that are younger than a minute, an hour, a day, and the others.
    """

    undecided: int
    oldest_born_timestamp: int | None
    by_age: dict[str, int]


def has_transactions(reader: StoreReader) -> bool:
    """Return whether the store has a half or an op message."""
    topics = (formats.TOPIC_HALF, formats.TOPIC_OP)
    return any(reader.queues.get(topic, 0) is not None for topic in topics)


def summarize(reader: StoreReader, root: Path, now: int) -> Summary:
    """Count what is undecided.

    Raises ``CorruptionError`` if the table of offsets is damaged.
    """
    halves = TransactionLog(reader).undecided(read_progress(root)).halves
    by_age = dict.fromkeys([*(name for name, _ in AGES), OLDER], 0)
    for half in halves:
        age = now - half.born_timestamp
        by_age[next((name for name, limit in AGES if age < limit), OLDER)] += 1
    oldest = min((half.born_timestamp for half in halves), default=None)
    return Summary(len(halves), oldest, by_age)


def ops_without_half(reader: StoreReader) -> Iterator[tuple[StoredMessage, list[int]]]:
    """Yield op messages that name queue offsets which no half message has or had."""
    log = TransactionLog(reader)
    _, end = log.bounds(formats.TOPIC_HALF)
    is_end_of_log = False
    for message in log.records(formats.TOPIC_OP):
        named = offsets_in(message.body)
        if not is_end_of_log and any(offset >= end for offset in named):
            # A queue that is only read may seem to end at a gap; the log has what follows it.
            end, is_end_of_log = max(end, _end_in_log(reader)), True
        beyond = [offset for offset in named if not 0 <= offset < end]
        if beyond:
            yield message, beyond


def _end_in_log(reader: StoreReader) -> int:
    """Return the queue offset after that of the newest half message in the log."""
    first, stop = reader.scan_range(None, None)
    found = (
        message.queue_offset + 1
        for message in reader.scan(first, stop, "skip")
        if message.topic == formats.TOPIC_HALF
    )
    return max(found, default=0)
