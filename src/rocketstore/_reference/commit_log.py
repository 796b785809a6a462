"""The appender: encodes records in place into the current log segment."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

from rocketstore import formats
from rocketstore._reference import put_arguments as arguments
from rocketstore._reference.call_times import CallTimes, TimedCall
from rocketstore._reference.locks import OrderedLock
from rocketstore._reference.message import StoredMessage, parse_host
from rocketstore._reference.offset_properties import LightSwitches
from rocketstore._reference.put_record import Record, RecordRules
from rocketstore._reference.put_result import PutManyResult, PutMessageResult
from rocketstore._reference.staged_records import staged_record, staged_rows
from rocketstore.dialect import BatchProperties, Dialect
from rocketstore.errors import (
    ForkedStoreError,
    ServiceFailedError,
    StoreClosedError,
    error_text,
)
from rocketstore.lock_order import LockRank
from rocketstore.status import AppendMessageStatus, PutMessageStatus, RecordFlags
from rocketstore.timer_rules import TimerRules

__all__ = ["Appender", "PutManyResult", "PutMessageResult"]

#: Records of one mutex hold of ``put_many`` and ``put_columns``.
CHUNK_COUNT = 512
CHUNK_NBYTES = 4 * 1024 * 1024
#: Attempts to make room for one record; each is progress of this or of another thread.
ROUND_LIMIT = 1000
#: Of these, attempts in which nothing changed.
IDLE_ROUND_LIMIT = 3

_MESSAGE_ATTRIBUTES = (
    "topic",
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body",
    "properties",
)
_BATCH_ATTRIBUTES = (
    "topic",
    "queue_id",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
)

_fork_count = 0


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Appender:
    """Appends to one log; any number of threads may put. Callbacks run without its mutex."""

    def __init__(
        self,
        *,
        roll: Callable[[int], int | None],
        extend: Callable[[int], int | None],
        wait: Callable[[int], int] | None = None,
        clock: Callable[[], int] | None = None,
        store_host: str = "127.0.0.1:10911",
        broker_version: str = "5.3.3",
        max_message_size: int = 4194304,
        segment_nbytes: int = 1073741824,
        delay_ms: Sequence[int] = (),
        append_property_crc: bool = False,
        unique_key_maker: Callable[[], str] | None = None,
        enable_lmq: bool = False,
        enable_multi_dispatch: bool = False,
        max_lmq_consume_queue_num: int = 20000,
        enable_lmq_quota: bool = False,
        before_roll: Callable[[], None] | None = None,
        timer_rules: TimerRules | None = None,
    ) -> None:
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        dialect.check_put(
            append_property_crc=bool(append_property_crc),
            light_queues=bool(enable_lmq or enable_multi_dispatch),
        )
        parse_host(store_host)
        self._rules = RecordRules(
            dialect,
            store_host,
            arguments.check_integer("max_message_size", max_message_size, (0, 2**31 - 1)),
            arguments.check_integer(
                "segment_nbytes",
                segment_nbytes,
                (formats.MIN_COMMIT_LOG_FILE_NBYTES, formats.MAX_COMMIT_LOG_FILE_NBYTES),
            ),
            len(delay_ms),
            bool(append_property_crc),
            LightSwitches(
                bool(enable_lmq),
                bool(enable_multi_dispatch),
                arguments.check_integer(
                    "max_lmq_consume_queue_num", max_lmq_consume_queue_num, (0, 2**31 - 1)
                ),
                bool(enable_lmq_quota),
            ),
            timer=timer_rules,
            now=self._timer_now,
        )
        self._roll = roll
        self._extend = extend
        self._before_roll = before_roll
        self._wait = wait
        self._clock = clock
        self._unique_key_maker = unique_key_maker
        self._forks = _fork_count
        self._mutex = OrderedLock(LockRank.LEAF)
        #: Held across ``roll`` and ``extend``, so that one call serves all threads that need room.
        self._room_lock = threading.RLock()
        self._buffer: memoryview | None = None  # guarded by: _mutex, as all below
        self._base_offset = 0
        self._position = 0
        self._frontier = 0
        self._populated = 0
        self._generation = 0
        self._last_store_timestamp = 0
        self._queues: dict[tuple[bytes, int], int] = {}
        self._closed = False
        self._failure: BaseException | None = None
        self.bell: threading.Lock | None = None
        self._refusal: PutMessageStatus | None = None
        self._put_times = 0
        self._put_nbytes = 0
        self._failed_times = 0
        self._times = CallTimes()

    # --- the log ------------------------------------------------------------------------------

    def attach(self, buffer: Any, base_offset: int, position: int, frontier: int) -> None:
        """Append to this (writable, segment-long) buffer from ``position``; release the old one."""
        self._check_usable()
        try:
            view = memoryview(buffer)
        except TypeError:
            raise TypeError(
                f"the segment's buffer must be bytes-like, not {type(buffer).__name__}"
            ) from None
        try:
            self._check_segment(view, base_offset, position, frontier)
            with self._mutex:
                self._check_usable()
                former, self._buffer = self._buffer, view.cast("B")
                self._base_offset, self._position = base_offset, position
                self._frontier, self._populated = frontier, 0
                self._generation += 1
        except BaseException:
            view.release()
            raise
        if former is not None:
            former.release()

    def _check_segment(
        self, view: memoryview, base_offset: int, position: int, frontier: int
    ) -> None:
        size = self._rules.segment_nbytes
        if view.readonly or not view.c_contiguous:
            raise ValueError("the segment's buffer must be writable and contiguous")
        if view.nbytes != size:
            raise ValueError(f"the segment's buffer has {view.nbytes} bytes instead of {size}")
        arguments.check_integer("base_offset", base_offset, (0, 2**63 - 1 - size))
        arguments.check_integer("position", position, (0, size))
        if position > size - formats.BLANK.nbytes and position != size:
            raise ValueError(f"position {position} leaves no room for the end-of-segment marker")
        arguments.check_integer("frontier", frontier, (0, size))

    def detach(self) -> None:
        """Release the buffer; the next put requests a segment."""
        if self._forks != _fork_count:
            self._release()
            return
        with self._mutex:
            self._release()

    def _release(self) -> None:
        former, self._buffer = self._buffer, None
        self._generation += 1
        if former is not None:
            former.release()

    def set_frontier(self, position: int, base_offset: int | None = None) -> None:
        """Set the end of the allocated disk blocks; it never moves back within a segment."""
        self._check_forked()
        arguments.check_integer("position", position, (0, self._rules.segment_nbytes))
        with self._mutex:
            if base_offset is None or base_offset == self._base_offset:
                self._generation += position > self._frontier
                self._frontier = max(self._frontier, position)

    def set_populated(self, position: int, base_offset: int | None = None) -> None:
        """Set the end of the present pages: a put before it keeps the GIL."""
        self._check_forked()
        arguments.check_integer("position", position, (0, self._rules.segment_nbytes))
        with self._mutex:
            if base_offset is None or base_offset == self._base_offset:
                self._populated = max(self._populated, position)

    @property
    def write_offset(self) -> int:
        """Physical offset after the last published record."""
        return self._base_offset + self._position

    def has_room(self, nbytes: int) -> bool:
        """Return whether ``nbytes`` fit the allocated blocks of the segment at this moment."""
        with self._mutex:
            return self.is_attached and nbytes <= self._frontier - self._position

    @property
    def write_position(self) -> int:
        """The same offset, as a position in the current segment."""
        return self._position

    @property
    def base_offset(self) -> int:
        """Physical offset of the current segment's first byte."""
        return self._base_offset

    @property
    def is_attached(self) -> bool:
        """Return whether there is a segment to append to."""
        return self._buffer is not None

    @property
    def last_store_timestamp(self) -> int:
        """Store time of the last record; 0 before the first."""
        return self._last_store_timestamp

    # --- the topic-queue table ----------------------------------------------------------------

    def set_batch_topics(self, topics: Iterable[str]) -> None:
        """Set the topics that take inner batches."""
        names = frozenset(arguments.check_name("topic", topic) for topic in topics)
        self._check_forked()
        self._rules = replace(self._rules, batch_topics=names)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 if unknown."""
        key = self._queue_key(topic, queue_id)
        self._check_forked()
        with self._mutex:
            return self._queues.get(key, 0)

    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the queue offset of the next message."""
        key = self._queue_key(topic, queue_id)
        number = arguments.check_integer("queue_offset", queue_offset, (0, 2**62))
        self._check_forked()
        with self._mutex:
            self._queues[key] = number

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove a queue; its numbering restarts at 0."""
        key = self._queue_key(topic, queue_id)
        self._check_forked()
        with self._mutex:
            self._queues.pop(key, None)

    def _queue_key(self, topic: str, queue_id: int) -> tuple[bytes, int]:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        encoded = arguments.java_utf8(topic)
        if len(encoded) > formats.MAX_PROPERTIES_NBYTES:
            raise ValueError(f"topic of {len(encoded)} bytes is longer than any record can hold")
        return encoded, arguments.check_integer("queue_id", queue_id, arguments.QUEUE_ID)

    # --- switching off ------------------------------------------------------------------------

    def refuse(self, status: int | None) -> None:
        """Return this status from every put until ``refuse(None)``."""
        self._check_forked()
        refusal = None if status is None else PutMessageStatus(status)
        with self._mutex:
            self._refusal = refusal

    def fail(self, error: BaseException) -> None:
        """Make every later put raise ``ServiceFailedError``; the first cause stays."""
        self._check_forked()
        with self._mutex:
            if self._failure is None:
                self._failure = error

    def close(self) -> None:
        """Release the buffer; later puts raise ``StoreClosedError``. Idempotent."""
        self._closed = True
        self.detach()

    def _check_forked(self) -> None:
        if self._forks != _fork_count:
            raise ForkedStoreError(
                "this store was opened by the parent process; open it by path in the child"
            )

    def _check_usable(self) -> None:
        self._check_forked()
        if self._closed:
            raise StoreClosedError("the store is closed")
        if self._failure is not None:
            raise ServiceFailedError(
                f"the store accepts no puts until it is reopened: {error_text(self._failure)}"
            ) from self._failure

    # --- counters -----------------------------------------------------------------------------

    @property
    def put_times(self) -> int:
        """Messages appended."""
        return self._put_times

    @property
    def put_nbytes(self) -> int:
        """Bytes of the records appended."""
        return self._put_nbytes

    @property
    def failed_times(self) -> int:
        """Puts that were refused, or for which no room was found."""
        return self._failed_times

    @property
    def times(self) -> tuple[int, int, dict[int, int], dict[int, int]]:
        """How long calls took."""
        return self._times.read()

    def add_wait(self, elapsed_ms: int) -> None:
        """Count the time of a put whose wait was left to its caller."""
        self._times.add(elapsed_ms)

    # --- putting ------------------------------------------------------------------------------

    def put(
        self,
        topic: str,
        body: Any,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        *,
        properties: dict[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        delay_level: int = 0,
        wait_store_msg_ok: bool = True,
        unique_key: str | bool | None = None,
        _wait: Callable[[int], int] | None = None,
    ) -> PutMessageResult:
        """Append one message."""
        self._check_usable()
        record = self._rules.make(
            topic,
            queue_id,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
        )
        content = arguments.check_body(body)
        level = arguments.check_integer("delay_level", delay_level, (0, 2**31 - 1))
        pairs = arguments.gather_properties(
            properties, unique_key, tags, keys, wait_store_msg_ok, level, self._unique_key_maker
        )
        return self._put_one(self._rules.finish(record, content, pairs), _wait)

    def put_message(self, message: Any) -> PutMessageResult:
        """Append one message, given as an object with ``Message``'s attributes."""
        self._check_usable()
        return self._put_one(self._from_message(message))

    def put_messages(self, batch: Any) -> PutMessageResult:
        """Append a batch to one queue: consecutive, in one segment, all or nothing."""
        self._check_usable()
        records, refused = self._from_batch(batch)
        if refused is None:
            call = self._begin(None, records[0].waits)
            self._append([records], self._now(), call)
            waited = self._await(records)
            self._times.end(call)
            refused = None if records[0].status is None else records[0]
        else:
            self._failed_times += 1
        if refused is not None:
            return refused.result(PutMessageStatus.PUT_OK)
        first = records[0]
        return PutMessageResult(
            waited if first.waits else PutMessageStatus.PUT_OK,
            AppendMessageStatus.PUT_OK,
            first.physical_offset,
            sum(record.nbytes for record in records),
            first.queue_offset,
            first.store_timestamp,
            [(parse_host(record.store_host), record.physical_offset) for record in records],
        )

    def put_many(
        self, messages: Iterable[Any], *, _wait: Callable[[int], int] | None = None
    ) -> PutManyResult:
        """Append messages, one mutex hold per chunk."""
        self._check_usable()
        return self._put_chunks((self._from_message(message) for message in messages), _wait)

    def put_columns(
        self,
        topic: str,
        offsets: Any,
        data: Any,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: dict[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        wait_store_msg_ok: bool = True,
    ) -> PutManyResult:
        """Append the bodies ``data[offsets[i]:offsets[i + 1]]`` (int32 or int64 offsets)."""
        self._check_usable()
        head = (topic, queue_id, flag, sys_flag, born_timestamp, born_host, store_host, 0, 0)
        self._rules.make(*head)
        bounds = _column_offsets(offsets)
        content = arguments.check_body(data)
        _check_column(bounds, len(content))
        pairs = arguments.gather_properties(
            properties, None, tags, keys, wait_store_msg_ok, 0, None
        )
        rules = replace(self._rules, now=functools.cache(self._timer_now))  # one time for all rows
        return self._put_chunks(
            rules.finish(rules.make(*head), content[start:stop], dict(pairs))
            for start, stop in pairwise(bounds)
        )

    def put_staged(self, data: Any, base_offset: int) -> PutManyResult:
        """Append staged records, see ``staged_records.StageEncoder``."""
        self._check_usable()
        with memoryview(data) as view:
            limit = 2**63 - 1 - len(view)
            base = arguments.check_integer("base_offset", base_offset, (0, limit))
            return self._put_chunks(
                staged_record(view, position, row, self._rules)
                for position, row in staged_rows(
                    view, 0, len(view), base, RecordFlags.CHECK_BODY_CRC
                )
            )

    def _from_message(self, message: Any) -> Record:
        if isinstance(message, StoredMessage):
            arguments.check_relayed(message)
        values = [_attribute(message, name) for name in _MESSAGE_ATTRIBUTES]
        record = self._rules.make(*values[:-2])
        body = arguments.check_body(values[-2])
        return self._rules.finish(record, body, arguments.check_properties(values[-1]))

    def _from_batch(self, batch: Any) -> tuple[list[Record], Record | None]:
        topic, queue_id, sys_flag, born_timestamp, born_host, store_host = (
            _attribute(batch, name) for name in _BATCH_ATTRIBUTES
        )
        rules = self._rules
        head = rules.make(topic, queue_id, 0, sys_flag, born_timestamp, born_host, store_host, 0, 0)
        pairs = arguments.check_properties(_attribute(batch, "properties"))
        messages = list(_attribute(batch, "messages"))
        for message in messages:
            if isinstance(message, StoredMessage):
                arguments.check_relayed(message)
        items = []
        for message in messages:
            flag = arguments.check_integer("flag", _attribute(message, "flag"), arguments.I32)
            body = arguments.check_body(_attribute(message, "body"))
            own = arguments.check_properties(_attribute(message, "properties"))
            items.append((flag, body, arguments.encode(own, rules.dialect.trailing_separator)))
        if not items:
            raise ValueError("a batch needs at least one message")
        status = rules.batch_status(head, pairs, [i[1] for i in items], [i[2] for i in items])
        if status is not None:
            return [], head.refuse(status)
        common = arguments.encode(pairs, rules.dialect.trailing_separator)
        records = [
            rules.batch_record(head, flag, body, rules.batch_properties(own, common))
            for flag, body, own in items
        ]
        for record in records:
            record.waits = arguments.waits(pairs)
        return records, self._judge_batch(head, common, records)

    def _judge_batch(self, head: Record, common: bytes, records: list[Record]) -> Record | None:
        limit = formats.MAX_PROPERTIES_NBYTES
        dropped = self._rules.dialect.batch_properties == BatchProperties.DROPPED
        if len(common) > limit and not dropped:
            return head.refuse(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        if any(record.properties_nbytes > limit for record in records):
            return head.refuse(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        total = sum(record.nbytes for record in records)
        if not self._rules.dialect.record_extra and total > self._rules.max_message_size:
            return head.refuse(PutMessageStatus.MESSAGE_ILLEGAL)
        if total + formats.BLANK.nbytes > self._rules.segment_nbytes:
            return head.refuse(
                PutMessageStatus.MESSAGE_ILLEGAL, AppendMessageStatus.MESSAGE_SIZE_EXCEEDED
            )
        return None

    def _put_one(
        self, record: Record, wait: Callable[[int], int] | None = None
    ) -> PutMessageResult:
        if record.status is not None:
            self._failed_times += 1
            return record.result(PutMessageStatus.PUT_OK)
        call = self._begin(wait, record.waits)
        self._append([[record]], self._now(), call)
        waited = self._await([record], wait)
        if wait is None:
            self._times.end(call)
        return record.result(waited)

    def _begin(self, wait: Callable[[int], int] | None, waits: bool) -> TimedCall:
        """Begin a call; with a ``wait`` of its own the caller counts its time."""
        if wait is not None:
            return TimedCall()
        return self._times.begin(waits and self._wait is not None)

    def _put_chunks(
        self, source: Iterator[Record], wait: Callable[[int], int] | None = None
    ) -> PutManyResult:
        call = self._begin(wait, True)
        records: list[Record] = []
        while chunk := list(_take_chunk(source)):
            groups = [[record] for record in chunk if record.status is None]
            self._failed_times += len(chunk) - len(groups)
            if groups:
                self._append(groups, self._now(), TimedCall())
            records += chunk
        waited = self._await(records, wait)
        if wait is None:
            self._times.end(call)
        return PutManyResult._of(
            (record.result(waited) for record in records),
            (record.status is None and record.waits for record in records),
        )

    def _now(self) -> int | None:
        """Return the injected clock's time, None if the system clock is read under the mutex."""
        if self._clock is None:
            return None
        return arguments.check_integer("clock()", self._clock(), arguments.I64)

    def _timer_now(self) -> int:
        now = self._now()
        return time.time_ns() // 1_000_000 if now is None else now

    def _await(self, records: Sequence[Record], wait: Callable[[int], int] | None = None) -> int:
        """Wait for the last appended record that wants it, with ``wait`` if given.

        Returns a ``PutMessageStatus`` value.
        """
        wait = self._wait if wait is None else wait
        if wait is not None:
            for record in reversed(records):
                if record.status is None and record.waits:
                    return PutMessageStatus(wait(record.physical_offset + record.nbytes))
        return PutMessageStatus.PUT_OK

    def _append(self, groups: list[list[Record]], timestamp: int | None, call: TimedCall) -> None:
        """Append groups of records in order, each group in one segment.

        Groups that could not be appended have their status set.
        """
        done = idle = 0
        for _ in range(ROUND_LIMIT):
            with self._mutex:
                room, done = self._append_locked(groups, done, timestamp)
                seen = self._generation
            if room is None:
                if self.bell is not None and self.bell.locked():
                    with contextlib.suppress(RuntimeError):  # another thread rang
                        self.bell.release()
                return
            call.wait()
            try:
                answer = self._make_room(*room, seen)
            except BaseException:
                self._failed_times += len(groups) - done
                raise
            if answer is not None:
                self._refuse_groups(groups[done:], PutMessageStatus(answer))
                return
            idle = 0 if self._generation != seen else idle + 1
            if idle == IDLE_ROUND_LIMIT:
                break
        self._refuse_groups(groups[done:], PutMessageStatus.UNKNOWN_ERROR)

    def _append_locked(
        self, groups: list[list[Record]], done: int, timestamp: int | None
    ) -> tuple[tuple[Callable[[int], int | None], int] | None, int]:
        """Append groups until all are in the log, or room must be made.

        Returns (callback that makes room, its argument), None if finished, and the number of groups
        done.
        """
        try:
            self._check_usable()
        except (StoreClosedError, ServiceFailedError):
            self._failed_times += len(groups) - done
            raise
        if self._refusal is not None:
            self._refuse_groups(groups[done:], self._refusal)
            return None, len(groups)
        now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        while done < len(groups):
            room = self._append_group(groups[done], now)
            if room is not None:
                return room, done
            done += 1
        return None, done

    def _refuse_groups(self, groups: list[list[Record]], status: PutMessageStatus) -> None:
        unknown = status == PutMessageStatus.UNKNOWN_ERROR
        for group in groups:
            for record in group:
                record.refuse(status, AppendMessageStatus.UNKNOWN_ERROR if unknown else None)
        self._failed_times += len(groups)

    def _append_group(
        self, group: list[Record], now: int
    ) -> tuple[Callable[[int], int | None], int] | None:
        """Append one group, or return the callback that makes room for it and its argument."""
        size, blank = self._rules.segment_nbytes, formats.BLANK.nbytes
        first = group[0]
        if first.late is not None:
            self._rules.settle(first, first.late, self._queues)
            if first.status is not None:
                self._failed_times += 1
                return None
        need = sum(record.nbytes for record in group)
        if self._buffer is None or self._position == size:
            return self._roll, need
        if self._position + need + blank > size:
            if self._position + blank > self._frontier:
                return self._extend, self._position + blank
            self._write_blank()
            return self._roll, need
        if self._position + need > self._frontier:
            return self._extend, self._position + need + blank
        self._write_group(group, now)
        return None

    def _write_blank(self) -> None:
        assert self._buffer is not None
        start = self._position
        content = formats.BLANK.struct.pack(self._rules.segment_nbytes - start, formats.BLANK_MAGIC)
        self._store(start, content)
        self._position = self._rules.segment_nbytes
        self._generation += 1

    def _write_group(self, group: list[Record], now: int) -> None:
        offset = self.write_offset
        first = group[0]
        next_offset = queue_offset = self._queues.get(first.key, 0)
        light_offsets = [] if first.late is None else list(first.late.offsets(self._queues))
        contents = []
        for record in group:
            record.physical_offset = offset
            record.store_timestamp = now
            record.queue_offset = next_offset if record.queued else 0
            next_offset += record.width if record.queued else 0
            contents.append(record.encode())
            offset += record.nbytes
        content = b"".join(contents)
        assert len(content) == offset - self.write_offset
        self._store(self._position, content)
        self._position += len(content)
        if next_offset != queue_offset:
            self._queues[first.key] = next_offset
        if first.late is not None:
            first.late.take(self._queues, light_offsets, first.key if first.queued else None)
        self._last_store_timestamp = now
        self._put_times += len(group)
        self._put_nbytes += len(content)

    def _store(self, start: int, content: bytes) -> None:
        """Store the first total size last, so that a reader sees all records or none."""
        assert self._buffer is not None
        width = formats.RECORD_HEAD.fields[0].nbytes
        self._buffer[start + width : start + len(content)] = content[width:]
        self._buffer[start : start + width] = content[:width]

    def _make_room(
        self, callback: Callable[[int], int | None], argument: int, seen: int
    ) -> int | None:
        """Return the result of ``callback``; skip it if another thread made room already."""
        if callback == self._roll and self._before_roll is not None:
            self._before_roll()  # may wait for a putting thread that needs the lock
        with self._room_lock:
            return callback(argument) if self._generation == seen else None


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name)
    except AttributeError:
        raise TypeError(
            f"{type(thing).__name__} has no attribute {name!r}; give a Message, or an object with "
            "its attributes"
        ) from None


def _take_chunk(source: Iterator[Record]) -> Iterator[Record]:
    """Yield records up to the limits of one mutex hold."""
    nbytes = 0
    for record in islice(source, CHUNK_COUNT):
        yield record
        nbytes += 0 if record.status is not None else record.nbytes
        if nbytes >= CHUNK_NBYTES:
            return


def _column_offsets(offsets: Any) -> list[int]:
    try:
        view = memoryview(offsets)
    except TypeError:
        raise TypeError(
            f"offsets must be an int32 or int64 buffer, not {type(offsets).__name__}"
        ) from None
    except (BufferError, ValueError):
        raise ValueError("offsets must be a contiguous int32 or int64 buffer") from None
    with view:
        signed = view.format in ("i", "l", "q") and view.itemsize in (4, 8)
        if not signed or view.ndim != 1 or not view.c_contiguous:
            raise ValueError("offsets must be a contiguous int32 or int64 buffer")
        if not len(view):
            raise ValueError("offsets must have one entry more than there are messages")
        return view.tolist()


def _check_column(bounds: list[int], nbytes: int) -> None:
    rising = all(a <= b for a, b in pairwise(bounds))
    if not rising or bounds[0] < 0 or bounds[-1] > nbytes:
        raise ValueError(f"offsets must not decrease and must be in 0 .. {nbytes}")
