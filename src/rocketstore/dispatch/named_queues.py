"""Multi dispatch: the queues besides its own that a record names and is dispatched to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocketstore import formats
from rocketstore.dispatch.queue_offset_rule import NextRecord
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import NO_UNIT, OF_A_QUEUE, LogScan, RecordBatch
from rocketstore.message import StoredMessage
from rocketstore.queues.directories import is_folder_name
from rocketstore.queues.queue_table import QueueTable
from rocketstore.status import MultiDispatch, RecordFlags

_NUMBER = re.compile(r"\+?0*[0-9]{1,19}")
_EVERY_NAME = MultiDispatch.LIGHT | MultiDispatch.PLAIN


def named_queues(message: StoredMessage, flags: int) -> Iterator[tuple[str, int, int]]:
    """Yield (topic, queue id, queue offset) of the other queues that get a record.

    Parameters
    ----------
    message : StoredMessage
    flags : int
        ``MultiDispatch`` flags.

    Notes
    -----
    The rule is the dispatcher's, but also yields names that no folder can have. Source: RocketMQ
    ``store/DefaultMessageStore.java``
    ``notifyMessageArrive4MultiQueue``.
    """
    for name, number in _numbered_names(message, flags):
        if number >= 0:
            light = name.startswith(formats.TOPIC_LMQ_PREFIX)
            yield name, 0 if light else message.queue_id, number


def odd_names(message: StoredMessage, flags: int) -> list[str]:
    """Describe which of the queues that a record names do not get it, and why.

    Parameters
    ----------
    message : StoredMessage
    flags : int
        ``MultiDispatch`` flags.
    """
    names, numbers = (
        formats.PROPERTY_INNER_MULTI_DISPATCH,
        formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    )
    where, notes = f"log offset {message.physical_offset}", []
    for name, number in _numbered_names(message, flags):
        reason = f"{numbers} has no queue offset for it" if number < 0 else ""
        if not is_folder_name(name):
            reason = "no queue can have this name"
        if reason:
            notes.append(
                f"{where}: {names} names {name[:80]!r}, but {reason}; that queue does not get the "
                "message"
            )
    listed, texts = _lists(message, flags)
    if listed and not notes and len(listed) != len(texts):
        notes.append(f"{where}: {numbers} has {len(texts)} items for {len(listed)} names")
    return notes


def _numbered_names(message: StoredMessage, flags: int) -> list[tuple[str, int]]:
    """Return the names of other queues that ``flags`` select, with the queue offset in each.

    The queue offset is the item at the same position of the other list, -1 if there is none.
    """
    names, texts = _lists(message, flags)
    found = []
    for name, text in zip(names, [*texts, *[""] * len(names)], strict=False):
        light = name.startswith(formats.TOPIC_LMQ_PREFIX)
        is_number = _NUMBER.fullmatch(text) is not None and int(text) < 2**63
        if flags & (MultiDispatch.LIGHT if light else MultiDispatch.PLAIN):
            found.append((name, int(text) if is_number else -1))
    return found


def _lists(message: StoredMessage, flags: int) -> tuple[list[str], list[str]]:
    """Return the items of the two properties; empty if ``flags`` exclude the record's topic."""
    listed = message.properties.get(formats.PROPERTY_INNER_MULTI_DISPATCH)
    texts = message.properties.get(formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET)
    if not listed or texts is None or _is_left_out(message.topic, flags):
        return [], []
    names = listed.rstrip(formats.MULTI_DISPATCH_SEPARATOR)
    return _items(names) if names else [], _items(texts)


def _is_left_out(topic: str, flags: int) -> bool:
    if flags & MultiDispatch.NOT_OF_DLQ and topic.startswith(formats.TOPIC_DLQ_PREFIX):
        return True
    prefixes = (formats.TOPIC_RETRY_PREFIX, formats.TOPIC_SYSTEM_PREFIX)
    is_system = topic.startswith(prefixes) or topic == formats.TOPIC_SCHEDULE
    return bool(flags & MultiDispatch.NOT_OF_SYSTEM) and is_system


def _items(text: str) -> list[str]:
    """Split like Java: drop empty items at the end."""
    return text.rstrip(formats.MULTI_DISPATCH_SEPARATOR).split(formats.MULTI_DISPATCH_SEPARATOR)


def has_units_of_other_rules(log: CommitLog, queues: QueueTable, flags: int) -> bool:
    """Return whether queues may hold units that dispatch with ``flags`` would not write.

    Another RocketMQ version may have dispatched a part of the log: 4.9 fills queues that later
    versions skip. Its units are valid all the same.

    Parameters
    ----------
    log : CommitLog
    queues : QueueTable
        Loaded.
    flags : int
        ``MultiDispatch`` flags.
    """
    scan = LogScan(log, max(log.min_offset, 0), log.max_offset, RecordFlags.PARSE_PROPERTIES)
    for batch in scan:
        if not batch.summary().named:
            continue
        columns = batch.columns
        for number in columns["multi_dispatch_at"].nonzero()[0].tolist():
            message = log.look_message_by_offset(int(columns["physical_offset"][number]))
            if message is None:
                continue
            given = set(named_queues(message, flags))
            for place in named_queues(message, _EVERY_NAME):
                queue = queues.get(*place[:2])
                if place not in given and queue is not None and queue.queue.files:
                    return True
    return False


def next_of_queue(
    log: CommitLog, start: int, stop: int, topic: str, queue_id: int, names: int
) -> NextRecord | None:
    """Return the queue's first record from ``start`` to ``stop`` that has a unit.

    ``None`` if there is no such record before the first corrupt range.

    Parameters
    ----------
    names : int
        0 for records of the topic; ``MultiDispatch`` flags for records of other topics that name
        the queue.
    """
    flags = log.record_flags | (RecordFlags.PARSE_PROPERTIES if names else 0)
    for batch in LogScan(log, start, stop, flags):
        for number in _candidates(batch, topic, queue_id, names=names != 0):
            row = batch.row(number)
            message = batch.window.message(row["position"])
            place, own = message.physical_offset, message.topic == topic
            numbers = [message.queue_offset] if own and not names else []
            if names and not own:
                queues = named_queues(message, names)
                numbers = [number for *queue, number in queues if queue == [topic, queue_id]]
            if numbers:
                return NextRecord(numbers[0], place, place + message.store_size)
    return None


def _candidates(batch: RecordBatch, topic: str, queue_id: int, *, names: bool) -> list[int]:
    """Return the rows that may be records of a queue, or may name it."""
    columns = batch.columns
    if names:
        chosen = columns["multi_dispatch_at"] != 0
    else:
        chosen = columns["queue_id"] == queue_id
        chosen &= columns["topic_nbytes"] == len(topic.encode())
    kinds = columns["sys_flag"] & formats.SYS_FLAG_TRANSACTION_MASK
    for kind in NO_UNIT:
        chosen &= kinds != kind
    numbers: list[int] = chosen.nonzero()[0].tolist()
    return [number for number in numbers if columns["status"][number] in OF_A_QUEUE]
