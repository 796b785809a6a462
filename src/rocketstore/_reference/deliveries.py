"""Staged records of delayed messages that are due: the twin of ``_native/deliveries``."""

from __future__ import annotations

import re

from rocketstore import formats
from rocketstore._reference import put_arguments as arguments
from rocketstore._reference.arguments import Buffer, check_int64
from rocketstore._reference.hosts import format_host
from rocketstore._reference.message import encode_record
from rocketstore._reference.offset_properties import LightSwitches
from rocketstore._reference.put_record import Record, RecordRules
from rocketstore._reference.record import reordered_properties
from rocketstore._reference.record_check import Row, check, host_nbytes, record_buffer
from rocketstore.dialect import Dialect
from rocketstore.status import KernelStatus, RecordStatus

_UNIT = formats.CONSUME_QUEUE_UNIT
_I31 = (0, 2**31 - 1)
_MOST_PAIRS = 64
_MOST_PORT = 65535
_QUEUE_ID = re.compile(rb"[0-9]{1,10}")
_NAME_VALUE = bytes([formats.NAME_VALUE_SEPARATOR])
_PAIR = bytes([formats.PROPERTY_SEPARATOR])


class DeliveryEncoder:
    """Encodes delayed messages as staged records; see the native stub."""

    def __init__(
        self,
        *,
        broker_version: str = "5.5.0",
        max_message_size: int = 4194304,
        segment_nbytes: int = 1073741824,
        append_property_crc: bool = False,
        gives_offsets: bool = False,
        capacity: int = 1048576,
    ) -> None:
        self._dialect = Dialect.for_version(broker_version, allow_newer=True)
        self._rules = RecordRules(
            self._dialect,
            "127.0.0.1:0",
            arguments.check_integer("max_message_size", max_message_size, _I31),
            arguments.check_integer(
                "segment_nbytes",
                segment_nbytes,
                (formats.MIN_COMMIT_LOG_FILE_NBYTES, formats.MAX_COMMIT_LOG_FILE_NBYTES),
            ),
            0,
            bool(append_property_crc),
            LightSwitches(False, False, 0, False),
        )
        self._gives_offsets = bool(gives_offsets)
        self._capacity = arguments.check_integer("capacity", capacity, (1, 2**31 - 1))
        self._staged = bytearray()
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes staged and not yet taken."""
        return len(self._staged)

    def take(self) -> bytes:
        """Return what was staged since the last ``take``."""
        staged = bytes(self._staged)
        self._staged.clear()
        self.rows = 0
        return staged

    def stage(
        self,
        units: Buffer,
        position: int,
        stop: int,
        queue_offset: int,
        queue_id: int,
        now: int,
        delay: int,
        log: Buffer,
        log_stop: int,
        base_offset: int,
        segment_end: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Stage due messages; return (position, status)."""
        check_int64(
            position, stop, queue_offset, queue_id, now, delay, log_stop, base_offset, segment_end,
            flags,
        )  # fmt: skip
        if not 0 <= queue_id < 2**31:
            raise ValueError(f"queue_id {queue_id} is out of range")
        queue = record_buffer(units, position, stop, 0, 0)
        view = record_buffer(log, 0, log_stop, base_offset, segment_end)
        while position + _UNIT.nbytes <= stop:
            offset, size, due = _UNIT.struct.unpack_from(queue, position)
            filler = size <= 0 or size == formats.FILLER_UNIT_SIZE
            if filler or offset < 0 or due <= formats.MAX_EXT_ADDRESS:
                return position, KernelStatus.MISMATCH
            if due > now and (delay < 0 or due <= now + delay):
                return position, RecordStatus.OK
            if not base_offset <= offset < segment_end:
                return position, KernelStatus.OTHER_SEGMENT
            at = offset - base_offset
            row = check(view[at:log_stop], offset, segment_end, flags) if at <= log_stop else None
            if row is None or row.status != RecordStatus.OK or row.total_size != size:
                return position, KernelStatus.MISMATCH
            if (row.queue_id, row.queue_offset) != (queue_id, queue_offset):
                return position, KernelStatus.MISMATCH
            record = self._deliver(bytes(view[at : at + size]), row)
            if record is None:
                return position, KernelStatus.MISMATCH
            if not self._write(record):
                return position, KernelStatus.LIMIT
            position += _UNIT.nbytes
            queue_offset += 1
        return position, RecordStatus.END

    def _deliver(self, content: bytes, row: Row) -> Record | None:
        """Return the new record; ``None`` for a message that is not ordinary."""
        topic = content[row.topic_at : row.topic_at + row.topic_nbytes]
        if topic != formats.TOPIC_SCHEDULE.encode() or row.sys_flag & (
            formats.SYS_FLAG_TRANSACTION_PREPARED | formats.SYS_FLAG_INNER_BATCH
        ):
            return None
        text = reordered_properties(
            content[row.properties_at :], self._dialect.property_buckets, True
        )
        pairs = dict(pair.split(_NAME_VALUE, 1) for pair in text.split(_PAIR)[:-1])
        if len(pairs) > _MOST_PAIRS:
            return None
        if self._gives_offsets and formats.PROPERTY_INNER_MULTI_DISPATCH.encode() in pairs:
            return None
        if self._rules.property_crc:
            pairs.pop(formats.PROPERTY_CRC32.encode(), None)
        place = self._place(pairs)
        return None if place is None else self._record(content, row, pairs, *place)

    def _place(self, pairs: dict[bytes, bytes]) -> tuple[str, int] | None:
        """Return the real topic and queue id; ``None`` if one is not valid."""
        topic = pairs.get(formats.PROPERTY_REAL_TOPIC.encode(), b"")
        queue_id = pairs.get(formats.PROPERTY_REAL_QUEUE_ID.encode(), b"")
        if not _QUEUE_ID.fullmatch(queue_id) or int(queue_id) >= 2**31:
            return None
        try:
            name = arguments.check_topic(topic.decode("ascii"))
        except ValueError:
            return None
        limit = formats.MAX_TOPIC_LENGTH
        if self._dialect.long_retry_topics and name.startswith(formats.TOPIC_RETRY_PREFIX):
            limit = formats.MAX_RETRY_TOPIC_NBYTES
        if len(name) > limit or name in (formats.TOPIC_SCHEDULE, formats.TOPIC_HALF):
            return None
        return name, int(queue_id)

    def _record(
        self, content: bytes, row: Row, pairs: dict[bytes, bytes], topic: str, queue_id: int
    ) -> Record | None:
        born_at = formats.RECORD_HEAD.nbytes
        store_at = born_at + host_nbytes(row.sys_flag, formats.SYS_FLAG_BORN_HOST_V6)
        born_host = content[born_at:store_at]
        store_at += formats.RECORD_STORED.nbytes
        end = store_at + host_nbytes(row.sys_flag, formats.SYS_FLAG_STORE_HOST_V6)
        store_host = content[store_at:end]
        if any(int.from_bytes(host[-4:], "big") > _MOST_PORT for host in (born_host, store_host)):
            return None
        text = b"".join(name + _NAME_VALUE + value + _PAIR for name, value in pairs.items())
        if not self._dialect.trailing_separator:
            text = text.removesuffix(_PAIR)
        is_long = len(topic) > formats.MAX_TOPIC_LENGTH
        record = Record(
            topic,
            queue_id,
            row.flag,
            row.sys_flag,
            row.born_timestamp,
            format_host(born_host),
            format_host(store_host),
            row.reconsume_times,
            0,
            content[row.body_at : row.body_at + row.body_nbytes],
            text,
            2 if self._dialect.record_version_2 and is_long else 1,
            self._rules.property_crc,
        )
        if record.properties_nbytes > formats.MAX_PROPERTIES_NBYTES:
            return None
        if row.body_nbytes > self._rules.max_message_size:
            return None
        return None if self._rules.fits(record).status is not None else record

    def _write(self, record: Record) -> bool:
        """Stage the record; return False without room."""
        content = encode_record(
            record.topic, record.body, record.queue_id, 0, len(self._staged), record.flag,
            record.sys_flag, 0 if record.born_timestamp is None else record.born_timestamp,
            record.born_host, 0, record.store_host, record.reconsume_times, 0, record.properties,
            record.version,
        )  # fmt: skip
        if len(content) > self._capacity - len(self._staged):
            if self._staged:
                return False
            self._capacity = len(content)
        self._staged += content
        self.rows += 1
        return True
