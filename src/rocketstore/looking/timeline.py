"""``trace``: what happened to one message, from its put to its copies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.log.damage import DamagedRange
from rocketstore.looking.search import grep
from rocketstore.message import StoredMessage, decode_message_id
from rocketstore.status import RecordStatus
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store
from rocketstore.transaction.log_reading import count_of, identity_of
from rocketstore.transaction.op_messages import offsets_in

#: Messages whose history is read at most.
_MOST_MESSAGES = 1000
#: Bytes of the log that are read although the index lacks them; of more, all of the log is read.
_MOST_UNINDEXED_NBYTES = 64 << 20
_GOOD = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
_KIND = formats.SYS_FLAG_TRANSACTION_MASK


class EventKind(StrEnum):
    """What a record means for its message."""

    PUT = "put"
    #: Prepared in a transaction, not visible yet.
    HALF = "half"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    #: The half message was written again because its producer is asked.
    CHECK = "check"
    #: Waits for its delivery time.
    DELAY = "delay"
    #: Delivered after a delay.
    DUE = "due"
    #: A consumer sent it back, to be consumed again.
    RETRY = "retry"
    #: In a group's dead-letter queue.
    DEAD = "dead"
    #: Written again otherwise: sent twice, rolled on by the timer, discarded.
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a message's history.

    Attributes
    ----------
    time : int
        Store time, epoch ms.
    kind : EventKind
    offset : int
        Physical offset of the record.
    topic : str
    queue_id, queue_offset : int
    group : str or None
        Consumer group of retries and dead letters, producer group of transactions.
    detail : str
        Further facts, in words.
    message : str
        The message's unique key, else ``@`` and the offset of its first record.
    """

    time: int
    kind: EventKind
    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    group: str | None
    detail: str
    message: str


@dataclass(slots=True)
class Timeline:
    """The history of the messages that a key or an offset names, by log offset.

    Attributes
    ----------
    path, asked : str
    events : list of Event
    damaged : list of DamagedRange
        Ranges that could not be searched; events in them are missing.
    whole_log : bool
        The log was read, because no index covers all of it.
    truncated : bool
        The key names more than 1,000 messages.
    """

    path: str
    asked: str
    events: list[Event] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)
    whole_log: bool = False
    truncated: bool = False

    @property
    def messages(self) -> list[str]:
        """Names of the messages, in order of appearance."""
        return list(dict.fromkeys(event.message for event in self.events))


class _Records(Protocol):
    """Where records are looked up."""

    damaged: list[DamagedRange]
    whole_log: bool

    def at(self, offset: int) -> StoredMessage | None: ...

    def with_key(self, key: str) -> Iterator[StoredMessage]: ...

    def like(self, message: StoredMessage) -> Iterator[StoredMessage]: ...

    def of_topic(self, topic: str, start: int) -> Iterator[StoredMessage]: ...

    def due_of(self, message: StoredMessage) -> int | None: ...


class _LogRecords:
    """Looks records up by reading the log."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None,
        progress: Progress | None,
    ) -> None:
        self._path = path
        self._config = config
        self._progress = progress
        self.damaged: list[DamagedRange] = []
        self.whole_log = True

    def _read(self, **limits: Any) -> Iterator[StoredMessage]:
        found = grep(self._path, raw=True, config=self._config, progress=self._progress, **limits)
        for message, _ in found:
            yield message
        known = set(self.damaged)
        self.damaged += [one for one in found.damaged if one not in known]

    def at(self, offset: int) -> StoredMessage | None:
        """Return the good record that begins at a physical offset."""
        for message in self._read(start=offset, stop=offset + 1, limit=1):
            return message if message.physical_offset == offset else None
        return None

    def with_key(self, key: str) -> Iterator[StoredMessage]:
        """Yield the records with a key or unique key."""
        return self._read(keys=[key])

    def like(self, message: StoredMessage) -> Iterator[StoredMessage]:
        """Yield the records that are copies of a message without a unique key."""
        identity = identity_of(message)[2:]
        return (one for one in self._read() if identity_of(one)[2:] == identity)

    def of_topic(self, topic: str, start: int) -> Iterator[StoredMessage]:
        """Yield the records of a topic from a physical offset on."""
        return self._read(topics=[topic], start=start)

    def due_of(self, message: StoredMessage) -> int | None:
        """Return the due time of a delayed record: its queue is not known."""
        return None


class _StoreRecords(_LogRecords):
    """Looks records up in an open store, by its index and queues where they suffice."""

    def __init__(
        self,
        store: DefaultMessageStore,
        path: str | os.PathLike[str],
        config: MessageStoreConfig | None,
        progress: Progress | None,
    ) -> None:
        super().__init__(path, config, progress)
        self._reader = store.reader
        index = self._reader.index
        unindexed = sum(stop - start for start, stop in index.gaps)
        self.whole_log = not index.files or unindexed > _MOST_UNINDEXED_NBYTES
        self.damaged += store.recovery_report.damaged

    def at(self, offset: int) -> StoredMessage | None:
        """See ``_LogRecords``."""
        log = self._reader.log
        if not max(log.min_offset, 0) <= offset < log.max_offset:
            return None
        status, message = log.record_at(offset)
        return message.detach() if message is not None and status in _GOOD else None

    def with_key(self, key: str) -> Iterator[StoredMessage]:
        """See ``_LogRecords``."""
        if self.whole_log:
            yield from super().with_key(key)
            return
        offsets: set[int] = set()
        for topic in self._reader.queues.topics():
            hits, broken = self._reader.index.find_offsets(topic, key, 0, 2**63 - 1)
            if broken:
                self.whole_log = True
                yield from super().with_key(key)
                return
            offsets.update(hits)
        found = {offset: self.at(offset) for offset in offsets}
        for start, stop in self._reader.index.gaps:
            found.update((one.physical_offset, one) for one in self._in_gap(start, stop))
        for offset in sorted(found):
            message = found[offset]
            if message is not None and _carries(message, key):
                yield message

    def _in_gap(self, start: int, stop: int) -> Iterator[StoredMessage]:
        log = self._reader.log
        start, stop = max(start, log.min_offset), min(stop, log.max_offset)
        if start < stop:
            yield from (one.detach() for one in self._reader.scan(start, stop, "skip"))

    def of_topic(self, topic: str, start: int) -> Iterator[StoredMessage]:
        """See ``_LogRecords``."""
        for queue_id in self._reader.queues.queue_ids(topic):
            queue = self._reader.queues.get(topic, queue_id)
            for _, buffer, count in queue.view() if queue is not None else ():
                import numpy

                units = numpy.frombuffer(buffer, formats.CONSUME_QUEUE_UNIT.dtype, count)
                offsets = units["physical_offset"]
                for offset in offsets[offsets >= start].tolist():
                    message = self.at(offset)
                    if message is not None and message.topic == topic:
                        yield message

    def due_of(self, message: StoredMessage) -> int | None:
        """Return the due time in the unit of a delayed record."""
        queue = self._reader.queues.get(message.topic, message.queue_id)
        unit = None if queue is None else queue.unit(message.queue_offset)
        return None if unit is None or unit[0] != message.physical_offset else unit[2]


def trace(
    path: str | os.PathLike[str],
    asked: str | int,
    *,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
) -> Timeline:
    """Follow messages through all their records. Read-only.

    Parameters
    ----------
    path : str or path-like
        A store, its ``commitlog`` folder, or one segment. A store answers by its index, unless the
        index lacks parts of the log; otherwise the log is read.
    asked : str or int
        A key, a unique key, a message id, or the physical offset of any of the records. Digits are
        an offset if a record begins there, else a key.
    config : MessageStoreConfig, optional
    progress : callable, optional

    Returns
    -------
    Timeline
        Empty if nothing is found.

    Notes
    -----
    Copies are found by their unique key; for messages without one, by born time, host and CRC of
    the body. Which consumers read a message is not in the store.

    Raises
    ------
    FileNotFoundError, MappedFileError, UnsafePathError, PermissionError
        There is no readable log.
    """
    place = Path(path)
    if place.is_dir() and is_store(store_parts(place)):
        with open_store(place, "r", config=config, progress=progress) as store:
            return _trace(_StoreRecords(store, path, config, progress), path, asked)
    return _trace(_LogRecords(path, config, progress), path, asked)


def _trace(records: _Records, path: str | os.PathLike[str], asked: str | int) -> Timeline:
    timeline = Timeline(os.fspath(path), str(asked), whole_log=records.whole_log)
    found = _asked_records(records, asked)
    messages: dict[tuple[object, ...], list[StoredMessage]] = {}
    for message in found:
        name = _name(message)
        if name not in messages:
            if len(messages) >= _MOST_MESSAGES:
                timeline.truncated = True
                break
            messages[name] = []
        messages[name].append(message)
    for first in [group[0] for group in messages.values()]:
        timeline.events += _history(records, first)
    timeline.events.sort(key=lambda event: (event.offset, event.kind))
    timeline.damaged = records.damaged
    return timeline


def _asked_records(records: _Records, asked: str | int) -> Iterable[StoredMessage]:
    text = str(asked)
    if text.isascii() and text.isdigit() and len(text) <= 19:
        message = records.at(int(text))
        if message is not None:
            return [message]
    if isinstance(asked, int):
        return []
    try:
        host_offset = decode_message_id(asked)[1]
    except ValueError:
        host_offset = -1
    if host_offset >= 0:
        message = records.at(host_offset)
        if message is not None and message.msg_id.lower() == asked.lower():
            return [message]
    return records.with_key(asked)


def _carries(message: StoredMessage, key: str) -> bool:
    keys = message.keys
    return message.unique_key == key or (
        keys is not None and key in keys.split(formats.KEY_SEPARATOR)
    )


def _name(message: StoredMessage) -> tuple[object, ...]:
    """Return what all records of a message have in common."""
    key = message.unique_key
    return (key,) if key else identity_of(message)[2:]


def _history(records: _Records, message: StoredMessage) -> Iterator[Event]:
    """Yield the events of the message of which ``message`` is a record."""
    key = message.unique_key
    found = {message.physical_offset: message}
    for one in records.with_key(key) if key else records.like(message):
        if _name(one) == _name(message):
            found[one.physical_offset] = one
    name = key or f"@{min(found)}"
    halves: dict[int, StoredMessage] = {}
    seen_put = False
    for offset in sorted(found):
        one = found[offset]
        kind, group, detail = _judge(one, records, is_first=not seen_put)
        seen_put = seen_put or kind in (EventKind.PUT, EventKind.HALF, EventKind.DELAY)
        if one.topic == formats.TOPIC_HALF:
            halves[one.queue_offset] = one
        yield _event(one, kind, group, detail, name)
    if halves:
        commits = [one for one in found.values() if _is_commit(one)]
        yield from _decisions(records, halves, bool(commits), name)


def _event(one: StoredMessage, kind: EventKind, group: str | None, detail: str, name: str) -> Event:
    return Event(
        one.store_timestamp, kind, one.physical_offset, one.topic, one.queue_id, one.queue_offset,
        group, detail, name,
    )  # fmt: skip


def _is_commit(message: StoredMessage) -> bool:
    return message.sys_flag & _KIND == formats.SYS_FLAG_TRANSACTION_COMMIT


def _decisions(
    records: _Records, halves: dict[int, StoredMessage], is_committed: bool, name: str
) -> Iterator[Event]:
    """Yield the rollback that an op message states."""
    if is_committed:
        return
    start = min(half.physical_offset for half in halves.values())
    for op in records.of_topic(formats.TOPIC_OP, start):
        named = [offset for offset in offsets_in(op.body) if offset in halves]
        if not named:
            continue
        group = halves[named[0]].properties.get(formats.PROPERTY_PRODUCER_GROUP)
        detail = f"op message for half message {named[0]}; no committed record follows"
        yield _event(op, EventKind.ROLLBACK, group, detail, name)
        return


def _judge(
    message: StoredMessage, records: _Records, *, is_first: bool
) -> tuple[EventKind, str | None, str]:
    """Return what a record means, its group, and a detail."""
    pairs, topic = message.properties, message.topic
    real = pairs.get(formats.PROPERTY_REAL_TOPIC, "")
    producers = pairs.get(formats.PROPERTY_PRODUCER_GROUP)
    if topic == formats.TOPIC_SCHEDULE:
        return _waiting(message, records, real)
    if topic == formats.TOPIC_TIMER:
        due = pairs.get(formats.PROPERTY_TIMER_OUT_MS, "?")
        rolls = pairs.get(formats.PROPERTY_TIMER_ROLL_TIMES)
        if rolls is not None:
            return EventKind.COPY, None, f"timer: rolled {rolls} times, due {due}"
        if formats.PROPERTY_TIMER_DELETE_UNIQUE_KEY in pairs:
            return EventKind.COPY, None, "timer: deletes a message"
        return EventKind.DELAY, None, f"timer: due {due}, for {real}"
    if topic == formats.TOPIC_HALF:
        checks = count_of(pairs)
        if checks or formats.PROPERTY_TRANSACTION_FIRST_OFFSET in pairs:
            return EventKind.CHECK, producers, f"checked {checks} times"
        return EventKind.HALF, producers, f"for {real}"
    if topic == formats.TOPIC_DISCARDED:
        return EventKind.COPY, producers, f"discarded after {count_of(pairs)} checks"
    kind = message.sys_flag & _KIND
    if kind == formats.SYS_FLAG_TRANSACTION_COMMIT:
        detail = f"of the half message at {message.prepared_transaction_offset}"
        return EventKind.COMMIT, producers, detail
    if kind == formats.SYS_FLAG_TRANSACTION_PREPARED:
        return EventKind.HALF, producers, ""
    if kind == formats.SYS_FLAG_TRANSACTION_ROLLBACK:
        return EventKind.ROLLBACK, producers, ""
    return _of_queue(message, pairs, real, is_first=is_first)


def _waiting(
    message: StoredMessage, records: _Records, real: str
) -> tuple[EventKind, str | None, str]:
    level = message.delay_level
    due = records.due_of(message)
    detail = f"level {level}" + ("" if due is None else f", due {due}") + f", for {real}"
    if real.startswith(formats.TOPIC_RETRY_PREFIX):
        group = real[len(formats.TOPIC_RETRY_PREFIX) :]
        return EventKind.RETRY, group, f"attempt {message.reconsume_times}: {detail}"
    return EventKind.DELAY, None, detail


def _of_queue(
    message: StoredMessage, pairs: dict[str, str], real: str, *, is_first: bool
) -> tuple[EventKind, str | None, str]:
    """Judge a record of a topic that consumers read."""
    topic = message.topic
    times = f"attempt {message.reconsume_times}"
    if topic.startswith(formats.TOPIC_DLQ_PREFIX):
        return EventKind.DEAD, topic[len(formats.TOPIC_DLQ_PREFIX) :], times
    is_due = real == topic and (
        formats.PROPERTY_DELAY in pairs or formats.PROPERTY_TIMER_OUT_MS in pairs
    )
    if topic.startswith(formats.TOPIC_RETRY_PREFIX):
        group = topic[len(formats.TOPIC_RETRY_PREFIX) :]
        return (EventKind.DUE if is_due else EventKind.RETRY), group, times
    if is_due:
        return EventKind.DUE, None, "delivered"
    return (EventKind.PUT, None, "") if is_first else (EventKind.COPY, None, "put again")
