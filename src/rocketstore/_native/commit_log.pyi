"""The appender: encodes records in place into the current log segment."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, final

from typing_extensions import Buffer

from rocketstore._native.message import Message
from rocketstore._native.put_result import PutManyResult as PutManyResult
from rocketstore._native.put_result import PutMessageResult as PutMessageResult
from rocketstore.timer_rules import TimerRules

@final
class Appender:
    """Appends to one log; any number of threads may put. Callbacks run without its mutex.

    roll(needed_nbytes) -> int or None
        The segment is full (its blank is already written) or there is none: attach the next one.
    extend(end_position) -> int or None
        The next record ends past the allocated frontier: allocate and ``set_frontier``.
    wait(end_offset) -> int
        SYNC_FLUSH: called after the append for messages that wait; returns a PutMessageStatus.

    before_roll()
        Called before ``roll``, without any lock, by every thread that needs a segment. It may
        wait for other threads, which may put.

    One thread at a time calls ``roll`` and ``extend``, once for all threads that need the room.
    They must not put. The put raises what they raise, or returns the PutMessageStatus value
    that they return; the next put calls them again. If they make no room three times in a row,
    the put returns UNKNOWN_ERROR. ``clock`` is called once per put, batch or chunk, before the
    mutex is taken; without ``clock`` the system clock is read under the mutex.
    """

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
        """Set up the appender for ``Dialect.for_version(broker_version)``.

        Without ``delay_ms`` (only its length counts) no message is moved to the schedule topic.
        From 5.0 a message with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS goes where
        ``timer_rules.place`` sends it (one time for all rows of ``put_columns``); without
        ``timer_rules`` it is refused with WHEEL_TIMER_NOT_ENABLE.
        The ``lmq`` and multi-dispatch arguments are RocketMQ's settings of light queues; their
        effect depends on the version. If they are on, a message with INNER_MULTI_DISPATCH is stored
        with INNER_MULTI_QUEUE_OFFSET: its offsets in the queues named there, which are counted in
        the topic-queue table. A name that cannot be a queue is a ``ValueError``; a name too long
        for a folder gives MESSAGE_ILLEGAL. ``put_messages`` assigns no such offsets.
        """

    # the log
    def attach(self, buffer: Any, base_offset: int, position: int, frontier: int) -> None:
        """Append to this (writable, segment-long) buffer from ``position``; release the old one.

        ``frontier`` and the arguments of the two methods below are positions in the segment."""
    def detach(self) -> None:
        """Release the buffer; the next put requests a segment."""
    def set_frontier(self, position: int, base_offset: int | None = None) -> None:
        """Set the end of the allocated disk blocks (monotonic within a segment). With
        ``base_offset`` it applies only while the segment that begins there is attached."""
    def set_populated(self, position: int, base_offset: int | None = None) -> None:
        """Set the end of the present pages: a put before it keeps the GIL."""
    def has_room(self, nbytes: int) -> bool:
        """Return whether ``nbytes`` fit the allocated blocks of the segment at this moment;
        ``False`` without a segment."""
    @property
    def write_offset(self) -> int:
        """Physical offset after the last published record."""
    @property
    def write_position(self) -> int:
        """The same in the current segment."""
    @property
    def base_offset(self) -> int: ...
    @property
    def is_attached(self) -> bool:
        """Return whether there is a segment to append to."""
    @property
    def last_store_timestamp(self) -> int: ...

    #: A lock that every append releases if it is held; a thread that waits for records acquires it.
    bell: Lock | None

    # the topic-queue table
    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 if unknown."""
    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the queue offset of the next message, at most 2**62."""
    def remove_queue(self, topic: str, queue_id: int) -> None: ...
    def set_batch_topics(self, topics: Iterable[str]) -> None:
        """Set the topics that take inner batches (their queues are BatchConsumeQueues).

        From 5.0 on a message with the inner-batch flag is refused (MESSAGE_ILLEGAL) on any other
        topic. On these it takes INNER_NUM queue offsets and is stored with INNER_BASE, the first
        of them. A count outside 1 to 32767 is refused; so is INNER_NUM without the flag on any
        topic."""

    # switching off
    def refuse(self, status: int | None) -> None:
        """Return this status (SERVICE_NOT_AVAILABLE ...) from every put until ``refuse(None)``."""
    def fail(self, error: BaseException) -> None:
        """Make every later put raise ``ServiceFailedError`` from this cause; the first cause
        stays."""
    def close(self) -> None:
        """Release the buffer; later puts raise ``StoreClosedError``. Idempotent."""

    # counters
    @property
    def put_times(self) -> int:
        """Messages appended."""
    @property
    def put_nbytes(self) -> int:
        """Bytes of the records appended."""
    @property
    def failed_times(self) -> int:
        """Puts that were refused, or for which no room was found."""
    @property
    def times(self) -> tuple[int, int, dict[int, int], dict[int, int]]:
        """Return how long calls took since the beginning: their number, the longest in ms, and by
        whole ms (at most 10,001) how many of those that never waited, and how many that did.

        Calls that wait for the disk or for room are timed, and one of 64 of the others; both have
        their own counts. A call of many messages is one call. Calls that are refused before they
        reach the log, that raise, or that have a ``_wait`` of their own are not counted."""
    def add_wait(self, elapsed_ms: int) -> None:
        """Count the time of a put whose wait was left to its caller (``_wait``)."""
    def put(
        self,
        topic: str,
        body: Buffer,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
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
        """Append one message with ``properties``, UNIQ_KEY, TAGS, KEYS, WAIT (false only), DELAY.

        ``unique_key=True`` makes a key with ``unique_key_maker`` unless ``properties`` have one.
        The same name twice is a ``ValueError``. An exceeded limit returns a status; wrong types and
        characters raise; either way nothing is appended. The default born timestamp and host are
        the store's. ``_wait`` replaces the appender's ``wait`` for this put."""
    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message, given as an object with ``Message``'s attributes."""
    def put_messages(self, batch: Any) -> PutMessageResult:
        """Append a batch (attributes of ``MessageBatch``) to one queue: consecutive, in one
        segment, all or nothing. A reader of the log sees all its records at once."""
    def put_many(
        self, messages: Iterable[Message], *, _wait: Callable[[int], int] | None = None
    ) -> PutManyResult:
        """Append messages, one mutex hold per chunk of 512 messages or 4 MiB. A refused message
        does not stop the others. A wrong type raises before anything of its chunk is appended; the
        chunks before it stay. Waits once, at the end, for the last message that wants it; ``_wait``
        as in ``put``."""
    def put_columns(
        self,
        topic: str,
        offsets: Buffer,
        data: Buffer,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        wait_store_msg_ok: bool = True,
    ) -> PutManyResult:
        """Append the bodies ``data[offsets[i]:offsets[i + 1]]`` (native int32 or int64 offsets,
        ascending); all other fields are the same for all. Chunks and waiting as in ``put_many``."""
    def put_staged(self, data: Any, base_offset: int) -> PutManyResult:
        """Append the records staged in ``data`` (``staged_records.StageEncoder``), whose first byte
        is the stage's ``base_offset``. Everything except their places is kept; an exceeded
        limit returns a status. Chunks and waiting as in ``put_many``. ``DecodeError`` if there is
        no record, or a body's CRC is wrong, before anything of its chunk is appended."""
