"""Every on-disk record of a RocketMQ message store, declared once.

This module is data. It is the source (``make gen``) of the ``struct`` formats of the reference
kernels, the NumPy dtypes, the C header and ``.pxd`` of the native kernels, and the maps in
``docs/formats.md``; a test compares them. All integers on disk are big-endian; layouts marked
``native`` live in memory only.
"""

from __future__ import annotations

import datetime
import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

_STRUCT_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: its name, its type (``i1 i2 i4 i8`` or ``S<n>``) and what it holds."""

    name: str
    type: str
    doc: str

    @property
    def nbytes(self) -> int:
        """Width in bytes."""
        return int(self.type[1:])

    @property
    def struct_code(self) -> str:
        """The field's code in a ``struct`` format, without the byte order."""
        return _STRUCT_CODES.get(self.type) or f"{self.nbytes}s"


@dataclass(frozen=True)
class Layout:
    """A record of fixed width, without padding.

    Parameters
    ----------
    name : str
        Prefix of the generated C names.
    fields : tuple of Field
    doc : str
        One sentence.
    source : str
        Where RocketMQ keeps the rule; ``""`` for rocketstore's own records.
    native : bool
        In-memory record in the machine's byte order; otherwise big-endian.
    """

    name: str
    fields: tuple[Field, ...]
    doc: str
    source: str = ""
    native: bool = False

    @functools.cached_property
    def nbytes(self) -> int:
        """Width of the record in bytes."""
        return sum(field.nbytes for field in self.fields)

    @functools.cached_property
    def _offsets(self) -> dict[str, int]:
        return {field.name: at for field, at in self.placed()}

    def placed(self) -> Iterator[tuple[Field, int]]:
        """Yield each field with its offset from the record's first byte."""
        at = 0
        for field in self.fields:
            yield field, at
            at += field.nbytes

    def at(self, name: str) -> int:
        """Return the offset of the field ``name`` in bytes, or raise ``KeyError``."""
        return self._offsets[name]

    @functools.cached_property
    def struct(self) -> struct.Struct:
        """The record as a ``struct.Struct``, one code per field."""
        order = "=" if self.native else ">"
        return struct.Struct(order + "".join(field.struct_code for field in self.fields))

    @functools.cached_property
    def dtype(self) -> numpy.dtype[Any]:
        """The record as a NumPy structured dtype (NumPy is imported here, on first use)."""
        import numpy

        order = "=" if self.native else ">"
        return numpy.dtype(
            [(f.name, f.type if f.type[0] == "S" else order + f.type) for f in self.fields]
        )


# --- Commit log -------------------------------------------------------------------------------

RECORD_HEAD = Layout(
    "record_head",
    (
        Field("total_size", "i4", "Length of the whole record, this field included, in bytes."),
        Field("magic", "i4", "Record version: MAGIC_V1 or MAGIC_V2 (BLANK_MAGIC ends a segment)."),
        Field("body_crc", "i4", "CRC-32 of the stored body with the top bit cleared."),
        Field("queue_id", "i4", "Queue of the topic."),
        Field("flag", "i4", "The producer's own flag."),
        Field("queue_offset", "i8", "Number in the queue; 0 for PREPARED and ROLLBACK records."),
        Field("physical_offset", "i8", "Commit-log offset of this record's first byte."),
        Field("sys_flag", "i4", "SYS_FLAG_* bits."),
        Field("born_timestamp", "i8", "When the client sent it, epoch ms."),
    ),
    "The part of a commit-log record before the born host.",
    "store/CommitLog.java",
)
HOST_V4 = Layout(
    "host_v4",
    (Field("address", "S4", "IPv4 address."), Field("port", "i4", "Port.")),
    "A host with an IPv4 address.",
    "common/message/MessageExt.java",
)
HOST_V6 = Layout(
    "host_v6",
    (Field("address", "S16", "IPv6 address."), Field("port", "i4", "Port.")),
    "A host with an IPv6 address.",
    "common/message/MessageExt.java",
)
RECORD_STORED = Layout(
    "record_stored",
    (Field("store_timestamp", "i8", "When the broker stored it, epoch ms."),),
    "Between the born host and the store host.",
    "store/CommitLog.java",
)
RECORD_TAIL = Layout(
    "record_tail",
    (
        Field("reconsume_times", "i4", "How often it was sent back by consumers."),
        Field("prepared_transaction_offset", "i8", "Commit-log offset of the half message, or 0."),
        Field("body_length", "i4", "Length of the body that follows, in bytes."),
    ),
    "After the store host. Followed by body, topic length (1 byte in V1, 2 in V2), topic, "
    "properties length (2 bytes), properties.",
    "store/CommitLog.java",
)
BLANK = Layout(
    "blank",
    (
        Field("total_size", "i4", "All bytes left in the segment, these 8 included."),
        Field("magic", "i4", "BLANK_MAGIC."),
    ),
    "Ends every full segment; bytes after it are arbitrary.",
    "store/CommitLog.java",
)
BATCH_ITEM_HEAD = Layout(
    "batch_item_head",
    (
        Field("total_size", "i4", "Length of this item."),
        Field("magic", "i4", "0; ignored."),
        Field("body_crc", "i4", "0; ignored."),
        Field("flag", "i4", "The message's own flag."),
        Field("body_length", "i4", "Then follow body, properties length (2 bytes), properties."),
    ),
    "One message of a client batch as a client sends it.",
    "common/message/MessageDecoder.java",
)

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
BLANK_MAGIC = -875286124
TOPIC_LENGTH_NBYTES_V1 = 1
TOPIC_LENGTH_NBYTES_V2 = 2
PROPERTIES_LENGTH_NBYTES = 2
#: Header of a V1 or V2 record with two IPv4 hosts, up to and including the body length.
RECORD_HEADER_V4_NBYTES = (
    RECORD_HEAD.nbytes + RECORD_STORED.nbytes + RECORD_TAIL.nbytes + 2 * HOST_V4.nbytes
)
#: Shortest possible record (V1, IPv4, no body, topic of no bytes, no properties).
RECORD_MIN_NBYTES = RECORD_HEADER_V4_NBYTES + TOPIC_LENGTH_NBYTES_V1 + PROPERTIES_LENGTH_NBYTES

SYS_FLAG_COMPRESSED = 0x001
SYS_FLAG_MULTI_TAGS = 0x002
SYS_FLAG_TRANSACTION_MASK = 0x00C
SYS_FLAG_TRANSACTION_NOT = 0x000
SYS_FLAG_TRANSACTION_PREPARED = 0x004
SYS_FLAG_TRANSACTION_COMMIT = 0x008
SYS_FLAG_TRANSACTION_ROLLBACK = 0x00C
SYS_FLAG_BORN_HOST_V6 = 0x010
SYS_FLAG_STORE_HOST_V6 = 0x020
SYS_FLAG_NEED_UNWRAP = 0x040
SYS_FLAG_INNER_BATCH = 0x080
SYS_FLAG_COMPRESSION_TYPE_MASK = 0x700
#: Values of the mask: LZ4 frames, Zstandard frames, and zlib, which 4.9 writes without a type.
COMPRESSION_LZ4, COMPRESSION_ZSTD, COMPRESSION_ZLIB = 0x100, 0x200, 0x300

#: Between a property's name and its value, and between pairs.
NAME_VALUE_SEPARATOR = 0x01
PROPERTY_SEPARATOR = 0x02
KEY_SEPARATOR = " "

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT = "WAIT"
PROPERTY_DELAY = "DELAY"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
#: Of a message that is consumed again: its first topic, and its first message id.
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSACTION = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
#: 5.x: the unique key of a half message.
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
#: In a copy of a half message: the queue offset of the first one.
PROPERTY_TRANSACTION_FIRST_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECK_IMMUNITY_SEC = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_BASE = "INNER_BASE"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
#: ``__CRC32#``, a separator, ten digits (least significant first), a separator.
PROPERTY_CRC32_NBYTES = len(PROPERTY_CRC32) + 1 + 10 + 1

#: Regular expression of the names of topics to which a message may be put.
TOPIC_PATTERN = r"[%|a-zA-Z0-9_-]+|%RETRY%[%|a-zA-Z0-9_+-]*|%LMQ%[%|a-zA-Z0-9_$-]*"
TOPIC_SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TOPIC_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TOPIC_OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: Born time of a salvage's placeholder for a half message: a broker gives up so old a one without
#: a check.
LOST_HALF_BORN_TIMESTAMP = 1
#: Half messages that were asked about in vain.
TOPIC_DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
#: 5.5.0: half messages of transactions that are kept in RocksDB.
TOPIC_ROCKSDB_HALF = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
#: The consumer group whose offsets are the progress of half and op topic.
GROUP_TRANSACTION = "CID_RMQ_SYS_TRANS"
#: Tag of an op message, and what follows each number in its body (5.1.0 and later).
OP_TAG = "d"
OP_SEPARATOR = ","
#: Op messages are built in a hash map of this many buckets.
OP_PROPERTY_BUCKETS = 16
TOPIC_TIMER = "rmq_sys_wheel_timer"
TOPIC_RETRY_PREFIX = "%RETRY%"
TOPIC_DLQ_PREFIX = "%DLQ%"
TOPIC_LMQ_PREFIX = "%LMQ%"
TOPIC_SYSTEM_PREFIX = "rmq_sys_"
#: Between the names of INNER_MULTI_DISPATCH, and between its offsets.
MULTI_DISPATCH_SEPARATOR = ","

MAX_PROPERTIES_NBYTES = 32767
#: Messages in one inner batch: a queue unit counts them in 16 bits.
MAX_INNER_BATCH_COUNT = 32767
MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_NBYTES = 255
#: Longest name that file systems let a topic's folder have.
MAX_FOLDER_NAME_NBYTES = 255
#: A record may be this much longer than ``max_message_size``.
RECORD_EXTRA_NBYTES = 65536
MIN_COMMIT_LOG_FILE_NBYTES = 128
MAX_COMMIT_LOG_FILE_NBYTES = 2**31 - 1

#: Delay of a level without a configured time.
UNKNOWN_DELAY_MS = 1000

#: A run of NULs this long in the properties is a lost sector, wherever the record lies.
LOST_SECTOR_NBYTES = 512
#: So is a run of this length that reaches the record's last byte.
LOST_TAIL_NBYTES = 4

# --- Consume queue ----------------------------------------------------------------------------

CONSUME_QUEUE_UNIT = Layout(
    "cq_unit",
    (
        Field("physical_offset", "i8", "Commit-log offset of the message, in bytes."),
        Field("size", "i4", "Length of the stored message, in bytes."),
        Field("tags_code", "i8", "Hash of the tag, deliver time, or consume-queue-ext address."),
    ),
    "One message of a queue; unit n is at queue position 20 n.",
    "store/ConsumeQueue.java",
)
#: A pre-blank: it only fills the space before a queue's first message.
FILLER_UNIT_SIZE = 2**31 - 1
#: A tags code up to here is the address of a consume-queue-ext record (tag hashes have 32 bits).
MAX_EXT_ADDRESS = -(2**31) - 1

CONSUME_QUEUE_EXT_UNIT = Layout(
    "cq_ext_unit",
    (
        Field("size", "i2", "Length of this unit, its bit map included; EXT_END ends a file."),
        Field("tags_code", "i8", "Hash of the tag, or deliver time."),
        Field("store_timestamp", "i8", "Store time of the message, epoch ms."),
        Field("bit_map_size", "i2", "Bytes of the bit map that follows, 0 for none."),
    ),
    "Data that does not fit a queue unit; the unit's tags code then is EXT_ADDRESS_BASE + the "
    "offset of this unit in the queue's ext files.",
    "store/ConsumeQueueExt.java",
)
#: Address of the first ext unit of a queue.
EXT_ADDRESS_BASE = -(2**63)
#: Instead of a unit's size: the file ends here.
EXT_END = -1
#: Bytes reserved for it in every file.
EXT_END_NBYTES = 4
MAX_EXT_UNIT_NBYTES = 32767

BATCH_QUEUE_UNIT = Layout(
    "bcq_unit",
    (
        Field("physical_offset", "i8", "Commit-log offset of the record, in bytes."),
        Field("size", "i4", "Length of the stored record, in bytes."),
        Field("tags_code", "i8", "Hash of the tag."),
        Field("store_timestamp", "i8", "Store time of the record, epoch ms."),
        Field("base_offset", "i8", "Queue offset of the record's first message."),
        Field("batch_size", "i2", "Messages in the record; their queue offsets follow each other."),
        Field("compacted_offset", "i4", "Not used by the store: -1."),
        Field("reserved", "i4", "0."),
    ),
    "One record of a BatchConsumeQueue; units are in log order, whatever their queue offsets.",
    "store/queue/BatchConsumeQueue.java",
)

# --- Index file -------------------------------------------------------------------------------

INDEX_HEADER = Layout(
    "index_header",
    (
        Field("begin_timestamp", "i8", "Store time of the file's first entry, epoch ms."),
        Field("end_timestamp", "i8", "Store time of its latest entry."),
        Field("begin_physical_offset", "i8", "Commit-log offset of the first entry's message."),
        Field("end_physical_offset", "i8", "Of the latest entry's message."),
        Field("hash_slot_count", "i4", "Slots in use."),
        Field("index_count", "i4", "Number of the next entry; the first entry is 1."),
    ),
    "Before the slots.",
    "store/index/IndexHeader.java",
)
INDEX_SLOT = Layout(
    "index_slot",
    (Field("index", "i4", "Number of the newest entry of this slot's chain, 0 for none."),),
    "One chain's head.",
    "store/index/IndexFile.java",
)
INDEX_ENTRY = Layout(
    "index_entry",
    (
        Field("key_hash", "i4", "Non-negative hash of topic#key."),
        Field("physical_offset", "i8", "Commit-log offset of the message."),
        Field("time_diff", "i4", "Whole seconds since the file's begin_timestamp."),
        Field("previous_index", "i4", "Older entry of the same slot, 0 at the end."),
    ),
    "One key of one message.",
    "store/index/IndexFile.java",
)
#: Separates topic and key in the text that an index entry hashes.
INDEX_KEY_SEPARATOR = "#"
TAG_KEY_INFIX = "T#"

# --- Timer ------------------------------------------------------------------------------------

TIMER_SLOT = Layout(
    "timer_slot",
    (
        Field("time", "i8", "The slot's time divided by the precision; another one: not in use."),
        Field("first_position", "i8", "Of its oldest unit in the timer log."),
        Field("last_position", "i8", "Of its newest unit."),
        Field("count", "i4", "Its messages, less one for each that deletes another."),
        Field("magic", "i4", "0."),
    ),
    "One slot of the timer wheel: all messages that are due at one time.",
    "store/timer/TimerWheel.java",
)
TIMER_UNIT = Layout(
    "timer_unit",
    (
        Field("size", "i4", "Length of the unit: 52."),
        Field("previous_position", "i8", "Of the slot's unit before this one, -1 for none."),
        Field("magic", "i4", "TIMER_UNIT_* bits, or BLANK_MAGIC."),
        Field(
            "write_time", "i8", "When the unit was written, epoch ms, a multiple of the precision."
        ),
        Field("delay", "i4", "Time of the slot less the write time, in ms."),
        Field("physical_offset", "i8", "Commit-log offset of the message."),
        Field("message_size", "i4", "Length of the stored message, in bytes."),
        Field("topic_hash", "i4", "Java's hash of the topic it is for."),
        Field("reserved", "i8", "0."),
    ),
    "One message of a slot, linked to the one before.",
    "store/timer/TimerLog.java",
)
TIMER_CHECK = Layout(
    "timer_check",
    (
        Field("read_time", "i8", "Slots before this time were delivered, epoch ms."),
        Field("flushed_position", "i8", "The timer log is on disk up to here."),
        Field("queue_offset", "i8", "Next message of the timer topic to be put into the wheel."),
        Field("master_queue_offset", "i8", "The same of the master."),
        Field("state_version", "i8", "Data version: state."),
        Field("timestamp", "i8", "Data version: time, epoch ms."),
        Field("counter", "i8", "Data version: counter."),
    ),
    "First bytes of the file ``config/timercheck``; the rest of its 4096 bytes is zero.",
    "store/timer/TimerCheckpoint.java",
)
#: Two slots for each second of a week, whatever the precision.
TIMER_SLOT_COUNT = 7 * 86_400 * 2
TIMER_WHEEL_NBYTES = TIMER_SLOT_COUNT * TIMER_SLOT.nbytes
TIMER_UNIT_DEFAULT = 1
#: The message is due later than the wheel reaches: at this time it is put again.
TIMER_UNIT_ROLL = 2
#: The message deletes another one.
TIMER_UNIT_DELETE = 4
TIMER_UNIT_BITS = 0xF
#: What precisions a broker can have, in ms.
TIMER_PRECISIONS_MS = (100, 200, 500, 1000)
#: Most seconds until a slot that is still read after a stop: a week, less 60 slots.
TIMER_KEPT_SLOTS = 7 * 86_400 - 60
#: Upper bounds in seconds by which a broker counts what is pending.
TIMER_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)

# --- Checkpoint, lock, abort, state -----------------------------------------------------------

CHECKPOINT = Layout(
    "checkpoint",
    (
        Field("physic_timestamp", "i8", "Store time of the newest flushed log data, epoch ms."),
        Field("logics_timestamp", "i8", "Store time of the newest dispatched record."),
        Field("index_timestamp", "i8", "End time of the newest full index file."),
        Field("master_flushed_offset", "i8", "5.0.0 and later."),
        Field("confirm_physical_offset", "i8", "5.1.1 and later: start of the last valid record."),
        Field(
            "logics_physical_offset", "i8", "5.5.0 and later: start of the last dispatched record."
        ),
    ),
    "First bytes of the file ``checkpoint``; the rest of its 4096 bytes is zero.",
    "store/StoreCheckpoint.java",
)
CHECKPOINT_FILE_NBYTES = 4096
LOCK_CONTENT = b"lock"

STORE_STATE = Layout(
    "store_state",
    (
        Field("magic", "S8", "STATE_MAGIC."),
        Field("flushed_offset", "i8", "The log is on disk up to here."),
        Field("dispatched_offset", "i8", "Consume queues are on disk up to here."),
        Field("indexed_offset", "i8", "Index files are on disk up to here."),
        Field("log_end_offset", "i8", "End of the log when this was written."),
        Field("commit_log_file_size", "i8", "Bytes."),
        Field("consume_queue_file_size", "i8", "Bytes."),
        Field("hash_slot_num", "i4", "Slots of an index file."),
        Field("index_num", "i4", "Entries of an index file."),
        Field("clean", "i4", "1 after an orderly close."),
        Field("queue_count", "i4", "Queues that had a unit when this was written."),
        Field("queue_crc", "i4", "CRC-32 over all queues' names, files and ends at that offset."),
        Field("index_file_count", "i4", "Index files that had an entry then; -1: none is kept."),
        Field("checkpoint_crc", "i4", "CRC-32 of the checkpoint as last written by rocketstore."),
        Field("former_checkpoint_crc", "i4", "CRC-32 of the checkpoint it replaces, 0 for none."),
        Field("broker_version", "S16", "Dialect written, ASCII, padded with NUL."),
        Field("timezone", "S64", "Zone of the index file names, ASCII, padded with NUL."),
        Field("crc", "i4", "CRC-32 of all bytes before this field."),
    ),
    "rocketstore's own hint file ``rocketstore.state``; RocketMQ ignores it.",
)
STATE_MAGIC = b"RKSTATE1"

# --- In memory --------------------------------------------------------------------------------

PARSED_RECORD = Layout(
    "parsed_record",
    (
        Field("physical_offset", "i8", "Actual offset of the record, whatever offset it stores."),
        Field("queue_offset", "i8", "As stored."),
        Field("born_timestamp", "i8", "As stored."),
        Field("store_timestamp", "i8", "As stored."),
        Field("prepared_transaction_offset", "i8", "As stored."),
        Field("tags_code", "i8", "What the consume-queue unit carries."),
        Field("position", "i4", "Of the record's first byte in the scanned buffer."),
        Field("total_size", "i4", "Bytes."),
        Field("status", "i4", "RecordStatus; below FIRST_DAMAGE the record is complete."),
        Field("magic", "i4", "As stored."),
        Field("body_crc", "i4", "As stored."),
        Field("queue_id", "i4", "As stored."),
        Field("flag", "i4", "As stored."),
        Field("sys_flag", "i4", "As stored."),
        Field("reconsume_times", "i4", "As stored."),
        Field("property_crc", "i4", "0 none of the exact form, 1 valid, 2 wrong (see scan flags)."),
        Field("delay_level", "i4", "DELAY as a number, 0 when absent or not a number."),
        Field("body_at", "i4", "From the record's first byte, like every ``_at``."),
        Field("body_nbytes", "i4", "Bytes."),
        Field("topic_at", "i4", ""),
        Field("topic_nbytes", "i4", "Bytes."),
        Field("properties_at", "i4", ""),
        Field("properties_nbytes", "i4", "Bytes."),
        Field("tags_at", "i4", "Value of TAGS, -1 when absent."),
        Field("tags_nbytes", "i4", "Bytes."),
        Field("keys_at", "i4", "Value of KEYS, -1 when absent."),
        Field("keys_nbytes", "i4", "Bytes."),
        Field("unique_key_at", "i4", "Value of UNIQ_KEY, -1 when absent."),
        Field("unique_key_nbytes", "i4", "Bytes."),
        Field(
            "multi_dispatch_at",
            "i4",
            "Value of INNER_MULTI_DISPATCH; 0 when it or INNER_MULTI_QUEUE_OFFSET is absent.",
        ),
    ),
    "One row of scan_records.",
    native=True,
)
SELECTED_MESSAGE = Layout(
    "selected_message",
    (
        Field("position", "i8", "Of the record in the log buffer."),
        Field("queue_offset", "i8", "Of the unit that names it."),
        Field("tags_code", "i8", "Of the unit."),
        Field("total_size", "i4", "Bytes."),
        Field("reserved", "i4", "0."),
    ),
    "One row of select_messages.",
    native=True,
)

LAYOUTS: tuple[Layout, ...] = (
    RECORD_HEAD,
    HOST_V4,
    HOST_V6,
    RECORD_STORED,
    RECORD_TAIL,
    BLANK,
    BATCH_ITEM_HEAD,
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_EXT_UNIT,
    BATCH_QUEUE_UNIT,
    INDEX_HEADER,
    INDEX_SLOT,
    INDEX_ENTRY,
    TIMER_SLOT,
    TIMER_UNIT,
    TIMER_CHECK,
    CHECKPOINT,
    STORE_STATE,
    PARSED_RECORD,
    SELECTED_MESSAGE,
)
#: Bytes of the shortest message in an inner batch: its head and the length of its properties.
BATCH_ITEM_MIN_NBYTES = BATCH_ITEM_HEAD.nbytes + PROPERTIES_LENGTH_NBYTES
#: Integer constants that the native kernels share; the generator writes each as ``RS_<name>``.
SHARED_CONSTANTS: tuple[str, ...] = (
    "MAGIC_V1",
    "MAGIC_V2",
    "BLANK_MAGIC",
    "TOPIC_LENGTH_NBYTES_V1",
    "TOPIC_LENGTH_NBYTES_V2",
    "PROPERTIES_LENGTH_NBYTES",
    "RECORD_HEADER_V4_NBYTES",
    "RECORD_MIN_NBYTES",
    "SYS_FLAG_COMPRESSED",
    "SYS_FLAG_MULTI_TAGS",
    "SYS_FLAG_TRANSACTION_MASK",
    "SYS_FLAG_TRANSACTION_NOT",
    "SYS_FLAG_TRANSACTION_PREPARED",
    "SYS_FLAG_TRANSACTION_COMMIT",
    "SYS_FLAG_TRANSACTION_ROLLBACK",
    "SYS_FLAG_BORN_HOST_V6",
    "SYS_FLAG_STORE_HOST_V6",
    "SYS_FLAG_NEED_UNWRAP",
    "SYS_FLAG_INNER_BATCH",
    "NAME_VALUE_SEPARATOR",
    "PROPERTY_SEPARATOR",
    "PROPERTY_CRC32_NBYTES",
    "MAX_PROPERTIES_NBYTES",
    "MAX_INNER_BATCH_COUNT",
    "MAX_TOPIC_LENGTH",
    "MAX_RETRY_TOPIC_NBYTES",
    "RECORD_EXTRA_NBYTES",
    "LOST_SECTOR_NBYTES",
    "LOST_TAIL_NBYTES",
    "FILLER_UNIT_SIZE",
    "MAX_EXT_ADDRESS",
    "EXT_END",
    "EXT_END_NBYTES",
    "MAX_EXT_UNIT_NBYTES",
    "MAX_FOLDER_NAME_NBYTES",
    "UNKNOWN_DELAY_MS",
)
#: Texts that the native kernels share, as C string literals.
SHARED_TEXTS: tuple[str, ...] = (
    *("PROPERTY_KEYS", "PROPERTY_TAGS", "PROPERTY_WAIT", "PROPERTY_DELAY", "PROPERTY_REAL_TOPIC"),
    *("PROPERTY_REAL_QUEUE_ID", "PROPERTY_UNIQUE_KEY", "PROPERTY_CRC32", "TOPIC_SCHEDULE"),
    *("TAG_KEY_INFIX", "INDEX_KEY_SEPARATOR", "KEY_SEPARATOR"),
    *("PROPERTY_INNER_NUM", "PROPERTY_INNER_BASE", "PROPERTY_TIMER_DELIVER_MS"),
    *("PROPERTY_TIMER_DELAY_SEC", "PROPERTY_TIMER_DELAY_MS", "PROPERTY_TIMER_OUT_MS"),
    *("TOPIC_TIMER", "TOPIC_RETRY_PREFIX", "TOPIC_LMQ_PREFIX", "PROPERTY_INNER_MULTI_DISPATCH"),
    *("PROPERTY_INNER_MULTI_QUEUE_OFFSET", "TOPIC_DLQ_PREFIX", "TOPIC_SYSTEM_PREFIX"),
    *("MULTI_DISPATCH_SEPARATOR", "TOPIC_HALF", "TOPIC_OP", "PROPERTY_TRANSACTION"),
    *("PROPERTY_PRODUCER_GROUP", "PROPERTY_TRANSACTION_ID", "PROPERTY_TRANSACTION_CHECK_TIMES"),
    *("PROPERTY_TRANSACTION_FIRST_OFFSET", "PROPERTY_CHECK_IMMUNITY_SEC"),
)

# --- Names of files ---------------------------------------------------------------------------

COMMIT_LOG_DIR = "commitlog"
CONSUME_QUEUE_DIR = "consumequeue"
CONSUME_QUEUE_EXT_DIR = "consumequeue_ext"
BATCH_QUEUE_DIR = "batchconsumequeue"
INDEX_DIR = "index"
CONFIG_DIR = "config"
TIMER_WHEEL_FILE = "timerwheel"
TIMER_LOG_DIR = "timerlog"
TIMER_CHECK_FILE = "timercheck"
ROCKSDB_STORE_DIR = "rocksdbstore"
CHECKPOINT_FILE = "checkpoint"
ABORT_FILE = "abort"
LOCK_FILE = "lock"
STATE_FILE = "rocketstore.state"
QUARANTINE_DIR = "quarantine"
SPARK_DIR = ".rocketstore-spark"
OFFSET_NAME_DIGITS = 20
INDEX_NAME_DIGITS = 17


def offset_to_file_name(offset: int) -> str:
    """Return the name of the mapped-queue file that starts at ``offset`` (20 digits)."""
    if not 0 <= offset < 2**63:
        raise ValueError(f"offset {offset} is outside 0 .. 2**63 - 1")
    return f"{offset:0{OFFSET_NAME_DIGITS}d}"


def file_name_to_offset(name: str) -> int | None:
    """Return the offset in a mapped-queue file name, ``None`` for any other name."""
    if len(name) != OFFSET_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    offset = int(name)
    return offset if offset < 2**63 else None


#: A time in the year 9999 in every time zone; later years have more digits.
_LAST_NAMED_MS = 253_402_214_400_000 - 1


def timestamp_to_index_name(timestamp: int, timezone: datetime.tzinfo | None = None) -> str:
    """Return the index file name (``yyyyMMddHHmmssSSS``) of an epoch-ms time in ``timezone``
    (None: local). Times outside the years 1970 to 9999 get the name of the nearest one inside."""
    seconds, milliseconds = divmod(min(max(timestamp, 0), _LAST_NAMED_MS), 1000)
    moment = datetime.datetime.fromtimestamp(seconds, timezone)
    return moment.strftime("%Y%m%d%H%M%S") + f"{milliseconds:03d}"


def is_index_name(name: str) -> bool:
    """Return whether ``name`` looks like an index file: 17 digits that are a Java ``long``."""
    return len(name) == INDEX_NAME_DIGITS and name.isascii() and name.isdigit()


def index_file_nbytes(slots: int, entries: int) -> int:
    """Return the length of an index file with ``slots`` hash slots and ``entries`` entries."""
    return INDEX_HEADER.nbytes + INDEX_SLOT.nbytes * slots + INDEX_ENTRY.nbytes * entries
