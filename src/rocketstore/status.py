"""Outcomes: RocketMQ's statuses and the status codes of the kernels. No I/O, standard library
only."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Status(IntEnum):
    """A RocketMQ status number that prints as its name; JSON and numeric formats use the number."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        is_numeric = spec != "" and spec[-1] in "bcdoxXneEfFgG%"
        return format(self.value if is_numeric else self.name, spec)


class PutMessageStatus(Status):
    """Outcome of a put; names and ordinals are RocketMQ 5.x's, the old 4.9 names are aliases."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    CREATE_MAPEDFILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    OS_PAGECACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15


class AppendMessageStatus(Status):
    """Outcome of the append itself."""

    PUT_OK = 0
    END_OF_FILE = 1
    MESSAGE_SIZE_EXCEEDED = 2
    PROPERTIES_SIZE_EXCEEDED = 3
    UNKNOWN_ERROR = 4
    ROCKSDB_ERROR = 5


class GetMessageStatus(Status):
    """Outcome of ``get_message``."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class TransactionState(Status):
    """State of a transaction; a callback of a check returns one of the first three."""

    #: Undecided: the half message is stored, and nothing else.
    UNKNOWN = 0
    COMMIT = 1
    ROLLBACK = 2
    #: Given up after as many checks as are allowed; see ``TRANS_CHECK_MAX_TIME_TOPIC``.
    DISCARDED = 3


class RecordStatus(Status):
    """Result of the strict record check at one place in the log."""

    OK = 0
    #: End-of-segment marker that spans exactly the rest of the segment.
    BLANK = 1
    #: Eight zero bytes: nothing was written here.
    EMPTY = 2
    #: The position is at the end of the readable bytes.
    END = 3
    #: The record fits the segment but extends past the readable bytes.
    INCOMPLETE = 4
    #: Valid except for its stored offset, which is lower than its place.
    GHOST = 5
    #: Valid, with NULs in its properties: past the durable offset a torn write, before it accepted.
    NUL_PROPERTIES = 6
    #: Valid, but its topic names no directory (not UTF-8, ``/``, control character, ``.``, ``..``).
    UNSAFE_TOPIC = 7

    FIRST_DAMAGE = 16
    BAD_SIZE = 16
    BAD_MAGIC = 17
    BAD_BLANK = 18
    BAD_PHYSICAL_OFFSET = 19
    BAD_QUEUE_ID = 20
    BAD_QUEUE_OFFSET = 21
    BAD_BODY_LENGTH = 22
    BAD_BODY_CRC = 23
    BAD_TOPIC_LENGTH = 24
    BAD_TOPIC = 25
    BAD_PROPERTIES_LENGTH = 26
    BAD_LENGTH_SUM = 27
    BAD_PROPERTIES = 28
    BAD_PROPERTY_CRC = 29
    #: Reading the mapping faulted: the file was shortened, or the disk failed.
    FAULT = 30
    #: The buffer of a pass over records is full: drain it and continue at the same place.
    FULL = 64


class KernelStatus(Status):
    """Outcomes of the queue, index and dispatch kernels that are not about one log record."""

    OK = 0
    #: The file has no room for another unit or entry.
    FULL = 64
    #: ``Dispatcher`` needs a (new) file for the queue it names in ``stalled``.
    NEED_QUEUE = 65
    #: ``Dispatcher`` needs a (new) index file.
    NEED_INDEX = 66
    #: A record's queue offset is past the queue's next unit.
    QUEUE_GAP = 67
    #: A chain of index entries exceeds its step limit or turns back.
    BAD_CHAIN = 68
    #: A header or entry contradicts the file.
    BAD_ENTRY = 69
    #: The unit's record is outside the given log buffer.
    OTHER_SEGMENT = 70
    #: A limit on count or bytes was reached.
    LIMIT = 71
    #: An invalid unit: negative offset, size out of range, order broken.
    BAD_UNIT = 72
    #: A unit and its record disagree.
    MISMATCH = 73
    #: Unwritten unit (zeros).
    NO_UNIT = 74
    #: ``Dispatcher`` needs a (new) consume-queue-ext file for the queue it names in ``stalled``.
    NEED_EXT = 75


class RecordFlags(IntEnum):
    """Bits of the ``flags`` argument of the record kernels."""

    #: Compare the body's CRC.
    CHECK_BODY_CRC = 1
    #: A whole-record CRC property of the exact form must match.
    CHECK_PROPERTY_CRC = 2
    #: A whole-record CRC property must exist and match.
    REQUIRE_PROPERTY_CRC = 4
    #: Report in the ``property_crc`` column whether one exists and matches.
    REPORT_PROPERTY_CRC = 8
    #: Parse TAGS, KEYS, UNIQ_KEY and DELAY and compute the tags code.
    PARSE_PROPERTIES = 16


class MultiDispatch(IntFlag):
    """To which queues besides its own a record is dispatched (``INNER_MULTI_DISPATCH``)."""

    #: Light queues (``%LMQ%``), with the queue offsets that the record carries.
    LIGHT = 1
    #: Other queues also (4.9).
    PLAIN = 2
    #: Not for records of retry, system and schedule topics (5.x).
    NOT_OF_SYSTEM = 4
    #: Nor for those of dead-letter topics (5.5.0).
    NOT_OF_DLQ = 8


class FlushDiskType(Status):
    """When a put is acknowledged."""

    SYNC_FLUSH = 0
    ASYNC_FLUSH = 1
