"""Turn a put's arguments into records without a place: limits and transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketstore import formats
from rocketstore._reference import message
from rocketstore._reference import put_arguments as arguments
from rocketstore._reference.message import encode_record
from rocketstore._reference.offset_properties import (
    Key,
    LightQueue,
    LightSwitches,
    OffsetLimits,
    OffsetProperties,
    light_names,
    light_queues,
)
from rocketstore._reference.put_result import PutMessageResult
from rocketstore.dialect import BatchProperties, Dialect, LightOffsets
from rocketstore.status import AppendMessageStatus, PutMessageStatus
from rocketstore.timer_rules import DUE_NOW, TimerPlace, TimerRules

_SEPARATOR = bytes([formats.PROPERTY_SEPARATOR])
_TIMER_PROPERTIES = (
    formats.PROPERTY_TIMER_DELIVER_MS,
    formats.PROPERTY_TIMER_DELAY_SEC,
    formats.PROPERTY_TIMER_DELAY_MS,
)
_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL

_known_host = functools.lru_cache(maxsize=1024)(message.parse_host)


def stored_host(host: Any) -> bytes:
    """Parse a host; most messages come from a few hosts."""
    return _known_host(host) if isinstance(host, str) else message.parse_host(host)


@dataclass
class Record:
    """A record to be appended; ``status`` is set if it is refused."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int | None
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes = b""
    properties: bytes = b""
    version: int = 1
    property_crc: bool = False
    waits: bool = True
    #: Queue offsets that it takes: the messages of an inner batch, else 1.
    width: int = 1
    late: OffsetProperties | None = None
    status: PutMessageStatus | None = None
    append_status: AppendMessageStatus | None = None
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0

    @property
    def queued(self) -> bool:
        """Return whether the record takes a queue offset."""
        return self.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK in (
            formats.SYS_FLAG_TRANSACTION_NOT,
            formats.SYS_FLAG_TRANSACTION_COMMIT,
        )

    @property
    def key(self) -> Key:
        """Key of the topic-queue table."""
        return self.topic.encode(), self.queue_id

    @property
    def properties_nbytes(self) -> int:
        """Length of the stored properties, including the CRC."""
        nbytes = len(self.properties)
        if self.property_crc:
            separator = nbytes > 0 and not self.properties.endswith(_SEPARATOR)
            nbytes += separator + formats.PROPERTY_CRC32_NBYTES
        return nbytes

    @property
    def nbytes(self) -> int:
        """Length of the whole record."""
        wide = formats.HOST_V6.nbytes - formats.HOST_V4.nbytes
        return (
            formats.RECORD_HEADER_V4_NBYTES
            + wide * (self.born_host.startswith("[") + self.store_host.startswith("["))
            + len(self.body)
            + (
                formats.TOPIC_LENGTH_NBYTES_V2
                if self.version == 2
                else formats.TOPIC_LENGTH_NBYTES_V1
            )
            + len(self.topic)
            + formats.PROPERTIES_LENGTH_NBYTES
            + self.properties_nbytes
        )

    def encode(self) -> bytes:
        """Return the record's bytes once its place is known."""
        born = self.store_timestamp if self.born_timestamp is None else self.born_timestamp
        return encode_record(
            self.topic,
            self.body,
            self.queue_id,
            self.queue_offset,
            self.physical_offset,
            self.flag,
            self.sys_flag,
            born,
            self.born_host,
            self.store_timestamp,
            self.store_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
            self.properties,
            self.version,
            self.property_crc,
        )

    def refuse(self, status: int, append_status: AppendMessageStatus | None = None) -> Record:
        """Set the status and return the record."""
        self.status = PutMessageStatus(status)
        self.append_status = append_status
        return self

    def result(self, waited: int) -> PutMessageResult:
        """Return the outcome; ``waited`` is the status of the flush."""
        if self.status is not None:
            return PutMessageResult(self.status, self.append_status)
        return PutMessageResult(
            waited if self.waits else PutMessageStatus.PUT_OK,
            AppendMessageStatus.PUT_OK,
            self.physical_offset,
            self.nbytes,
            self.queue_offset,
            self.store_timestamp,
            ((stored_host(self.store_host), self.physical_offset),),
        )


@dataclass(frozen=True)
class RecordRules:
    """The limits and transforms of one store."""

    dialect: Dialect
    store_host: str
    max_message_size: int
    segment_nbytes: int
    delay_level_count: int
    property_crc: bool
    switches: LightSwitches
    #: Topics whose queues are BatchConsumeQueues.
    batch_topics: frozenset[str] = frozenset()
    #: ``None``: timer messages are refused.
    timer: TimerRules | None = None
    #: Epoch ms, for delays of timer messages.
    now: Callable[[], int] = lambda: 0

    def make(
        self,
        topic: Any,
        queue_id: Any,
        flag: Any,
        sys_flag: Any,
        born_timestamp: Any,
        born_host: Any,
        store_host: Any,
        reconsume_times: Any,
        prepared_transaction_offset: Any,
    ) -> Record:
        """Check the arguments that a single message and a batch have in common."""
        topic = arguments.check_topic(topic)
        queue_id = arguments.check_integer("queue_id", queue_id, arguments.QUEUE_ID)
        flag = arguments.check_integer("flag", flag, arguments.I32)
        sys_flag = arguments.check_integer("sys_flag", sys_flag, arguments.I32)
        if born_timestamp is not None:
            born_timestamp = arguments.check_integer(
                "born_timestamp", born_timestamp, arguments.I64
            )
        reconsume_times = arguments.check_integer("reconsume_times", reconsume_times, arguments.I32)
        prepared_transaction_offset = arguments.check_integer(
            "prepared_transaction_offset", prepared_transaction_offset, arguments.I64
        )
        if store_host is None:
            store_host = self.store_host
        else:
            stored_host(store_host)
        if born_host is None:
            born_host = store_host
        else:
            stored_host(born_host)
        return Record(
            topic,
            queue_id,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            property_crc=self.property_crc,
        )

    def finish(self, record: Record, body: bytes, pairs: dict[str, str]) -> Record:
        """Apply the limits and the delay transform to a single message, in RocketMQ's order."""
        record.body = body
        record.waits = arguments.waits(pairs)
        if not self.topic_fits(record.topic):
            return record.refuse(_ILLEGAL)
        refusal = self._hooks(record, pairs)
        if refusal is not None:
            return record.refuse(refusal)
        refusal = self._time(record, pairs)
        if refusal is not None:
            return record.refuse(refusal)
        if self.dialect.limits_in_characters:
            encoded = arguments.encode(pairs, self.dialect.trailing_separator)
            if arguments.utf16_length(encoded) > formats.MAX_PROPERTIES_NBYTES:
                return record.refuse(_ILLEGAL)
        self._delay(record, pairs)
        if self.property_crc:
            pairs.pop(formats.PROPERTY_CRC32, None)
        self._set_version(record)
        record.late = self._late(record, pairs)
        if record.late is not None:
            return self._prepare_offset_properties(record, record.late)
        record.properties = arguments.encode(pairs, self.dialect.trailing_separator)
        if record.properties_nbytes > formats.MAX_PROPERTIES_NBYTES:
            return record.refuse(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        if len(body) > self.max_message_size:
            return record.refuse(_ILLEGAL)
        return self.fits(record)

    # --- properties that the append fills in --------------------------------------------------

    def _late(self, record: Record, pairs: dict[str, str]) -> OffsetProperties | None:
        """Return the properties that only the append can fill in, or None.

        Adds their places to ``pairs``.
        """
        has_base = self._is_inner_batch(record) and record.queued
        lights = self._lights(record, pairs)
        if not has_base and lights is None:
            return None
        if has_base:
            pairs[formats.PROPERTY_INNER_BASE] = ""
        kind = self.dialect.light_offsets
        if lights is not None:
            wait = pairs.pop(formats.PROPERTY_WAIT, None)
            pairs[formats.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = ""
            if wait is not None and kind == LightOffsets.ALL:
                pairs[formats.PROPERTY_WAIT] = wait
        extra = self.max_record_nbytes - self.max_message_size
        return OffsetProperties(
            pairs,
            lights,
            has_base,
            self.dialect.trailing_separator,
            OffsetLimits.of(
                self.dialect,
                self.switches,
                self.max_message_size,
                extra,
                light=lights is not None,
            ),
            takes=record.queued or kind == LightOffsets.ALL,
            absolute=kind == LightOffsets.ANY_NAME,
        )

    def _lights(self, record: Record, pairs: dict[str, str]) -> tuple[LightQueue, ...] | None:
        """Return the queues besides its own in which the append assigns the message offsets."""
        value = pairs.get(formats.PROPERTY_INNER_MULTI_DISPATCH)
        if value is None or not self.switches.gives_offsets(self.dialect, record.topic, value):
            return None
        if self.dialect.light_offsets == LightOffsets.QUEUED and (
            not record.queued or record.topic in self.batch_topics
        ):
            return None
        return light_queues(self.dialect, self.switches, light_names(value), record.queue_id)

    def _prepare_offset_properties(self, record: Record, late: OffsetProperties) -> Record:
        """Refuse a record that is too long even with empty values."""
        limits = late.limits
        record.properties = arguments.encode(late.pairs, late.trailing_separator)
        if any(
            len(light.key[0]) > formats.MAX_FOLDER_NAME_NBYTES
            for light in late.lights or ()
            if light.key is not None
        ):
            return record.refuse(_ILLEGAL)
        long_body = len(record.body) > self.max_message_size
        if limits.body_first and long_body:
            return record.refuse(_ILLEGAL)
        if record.properties_nbytes > formats.MAX_PROPERTIES_NBYTES:
            return record.refuse(*limits.properties)
        return record.refuse(*limits.size) if long_body else record

    def settle(self, record: Record, late: OffsetProperties, queues: Mapping[Key, int]) -> Record:
        """Fill in the late properties of the log's next record; this may refuse it."""
        record.properties = late.compose(queues, queues.get(record.key, 0))
        refusal = late.limits.exceeded_by(late.lights or (), queues)
        if refusal is not None:
            return record.refuse(*refusal)
        if record.properties_nbytes > formats.MAX_PROPERTIES_NBYTES:
            return record.refuse(*late.limits.properties)
        if record.nbytes > late.limits.record_nbytes:
            return record.refuse(*late.limits.size)
        if record.nbytes + formats.BLANK.nbytes > self.segment_nbytes:
            return record.refuse(_ILLEGAL, AppendMessageStatus.MESSAGE_SIZE_EXCEEDED)
        return record

    # --- limits and transforms ----------------------------------------------------------------

    @property
    def max_record_nbytes(self) -> int:
        """Length limit of a record, whatever the segment."""
        extra = formats.RECORD_EXTRA_NBYTES if self.dialect.record_extra else 0
        return self.max_message_size + extra

    def fits(self, record: Record) -> Record:
        """Refuse a record that is too long for the limit or for any segment."""
        if record.nbytes > self.max_record_nbytes:
            return record.refuse(_ILLEGAL)
        if record.nbytes + formats.BLANK.nbytes > self.segment_nbytes:
            return record.refuse(_ILLEGAL, AppendMessageStatus.MESSAGE_SIZE_EXCEEDED)
        return record

    def topic_fits(self, topic: str) -> bool:
        """Return whether the topic is short enough (it is ASCII, so units are bytes)."""
        retry = topic.startswith(formats.TOPIC_RETRY_PREFIX)
        if retry and self.dialect.long_retry_topics:
            return len(topic) <= formats.MAX_RETRY_TOPIC_NBYTES
        return len(topic) <= formats.MAX_TOPIC_LENGTH

    def _set_version(self, record: Record) -> None:
        long_topic = len(record.topic) > formats.MAX_TOPIC_LENGTH
        record.version = 2 if self.dialect.record_version_2 and long_topic else 1

    def _hooks(self, record: Record, pairs: dict[str, str]) -> PutMessageStatus | None:
        """Run the broker's inner-batch and timer checks; a delay level clears timer properties."""
        if self.dialect.version < (5, 0, 0):
            return None
        if not self._is_fit_for_topic(record, pairs):
            return _ILLEGAL
        if not record.queued or record.topic == formats.TOPIC_TIMER:
            return None
        if arguments.parse_level(pairs.get(formats.PROPERTY_DELAY)) > 0:
            if self._transforms(record, pairs):
                for name in _TIMER_PROPERTIES:
                    pairs.pop(name, None)
            return None
        if self.timer is None and self._is_timed(record, pairs):
            return PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
        return None

    def _is_timed(self, record: Record, pairs: dict[str, str]) -> bool:
        """Return whether a message asks for a delivery time, and was not timed before."""
        return (
            self.dialect.version >= (5, 0, 0)
            and record.queued
            and record.topic != formats.TOPIC_TIMER
            and formats.PROPERTY_TIMER_OUT_MS not in pairs
            and any(name in pairs for name in _TIMER_PROPERTIES)
            and arguments.parse_level(pairs.get(formats.PROPERTY_DELAY)) <= 0
        )

    def _timer_place(self, record: Record, pairs: dict[str, str]) -> TimerPlace:
        """Return where the timer's rules send a message."""
        if self.timer is None or not self._is_timed(record, pairs):
            return TimerPlace(None)
        return self.timer.place(pairs, self.now())

    def _time(self, record: Record, pairs: dict[str, str]) -> PutMessageStatus | None:
        """Move a message with a delivery time to the timer topic; return why it is refused."""
        place = self._timer_place(record, pairs)
        if place.status is None and place.out != DUE_NOW:
            pairs[formats.PROPERTY_TIMER_OUT_MS] = str(place.out)
            pairs[formats.PROPERTY_REAL_TOPIC] = record.topic
            pairs[formats.PROPERTY_REAL_QUEUE_ID] = str(record.queue_id)
            record.topic, record.queue_id = formats.TOPIC_TIMER, 0
        return place.status

    def _is_inner_batch(self, record: Record) -> bool:
        inner = record.sys_flag & formats.SYS_FLAG_INNER_BATCH
        return bool(inner) and self.dialect.version >= (5, 0, 0)

    def _is_fit_for_topic(self, record: Record, pairs: dict[str, str]) -> bool:
        """Return whether an inner batch is on a batch topic, stays there, and has a valid count.

        RocketMQ raises for a count that is not a short. It counts a number below 1 as 1 but
        dispatches it unchanged; then the queue cannot be recovered.
        """
        count = pairs.get(formats.PROPERTY_INNER_NUM)
        if not self._is_inner_batch(record):
            return count is None
        if record.topic not in self.batch_topics or self._transforms(record, pairs):
            return False
        record.width = 1 if count is None else arguments.parse_level(count)
        return 1 <= record.width <= formats.MAX_INNER_BATCH_COUNT

    def _transforms(self, record: Record, pairs: dict[str, str]) -> bool:
        """Return whether a delay level moves the message to the schedule topic."""
        if not record.queued or self.delay_level_count == 0:
            return False
        if arguments.parse_level(pairs.get(formats.PROPERTY_DELAY)) <= 0:
            return False
        real_topic = pairs.get(formats.PROPERTY_REAL_TOPIC)
        if record.topic == formats.TOPIC_SCHEDULE and real_topic is not None:
            return False
        return self.dialect.version < (5, 0, 0) or real_topic != formats.TOPIC_SCHEDULE

    def _delay(self, record: Record, pairs: dict[str, str]) -> None:
        if not self._transforms(record, pairs):
            return
        level = arguments.parse_level(pairs[formats.PROPERTY_DELAY])
        if level > self.delay_level_count:
            level = self.delay_level_count
            pairs[formats.PROPERTY_DELAY] = str(level)
        pairs[formats.PROPERTY_REAL_TOPIC] = record.topic
        pairs[formats.PROPERTY_REAL_QUEUE_ID] = str(record.queue_id)
        record.topic = formats.TOPIC_SCHEDULE
        record.queue_id = level - 1

    def batch_status(
        self, head: Record, pairs: dict[str, str], bodies: Sequence[bytes], subs: Sequence[bytes]
    ) -> PutMessageStatus | None:
        """Return why a whole batch is refused, or None."""
        retry = head.topic.startswith(formats.TOPIC_RETRY_PREFIX)
        if not self.topic_fits(head.topic) or (retry and self.dialect.version >= (5, 0, 0)):
            return _ILLEGAL
        if self._is_inner_batch(head):
            return _ILLEGAL  # it is one record, not a client batch to be split
        refusal = self._hooks(head, dict(pairs))
        if refusal is not None:
            return refusal
        place = self._timer_place(head, dict(pairs))
        if place.status is not None or place.out != DUE_NOW:
            return place.status or PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        if head.sys_flag & formats.SYS_FLAG_TRANSACTION_MASK != formats.SYS_FLAG_TRANSACTION_NOT:
            return _ILLEGAL
        if arguments.parse_level(pairs.get(formats.PROPERTY_DELAY)) > 0:
            return _ILLEGAL
        frame = formats.BATCH_ITEM_HEAD.nbytes + formats.PROPERTIES_LENGTH_NBYTES
        nbytes = sum(frame + len(b) + len(p) for b, p in zip(bodies, subs, strict=True))
        return _ILLEGAL if nbytes > self.max_message_size else None

    def batch_properties(self, sub: bytes, batch: bytes) -> bytes:
        """Return the stored properties of one message of a batch."""
        if self.dialect.batch_properties == BatchProperties.DROPPED or not batch:
            return sub
        joined = self.dialect.batch_properties == BatchProperties.JOINED
        if joined and sub and not sub.endswith(_SEPARATOR):
            return sub + _SEPARATOR + batch
        return sub + batch

    def batch_record(self, head: Record, flag: int, body: bytes, properties: bytes) -> Record:
        """Return the record of one message of a batch; its length is not checked yet."""
        record = Record(
            head.topic,
            head.queue_id,
            flag,
            head.sys_flag,
            head.born_timestamp,
            head.born_host,
            head.store_host,
            0,
            0,
            body=body,
            properties=properties,
            property_crc=self.property_crc,
        )
        self._set_version(record)
        return record
