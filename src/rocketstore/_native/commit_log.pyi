"""The appender: encodes records in place into the current log segment; ``put`` is the store's."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from typing_extensions import Buffer

from rocketstore._native.message import Message
from rocketstore._native.put_result import PutManyResult as PutManyResult
from rocketstore._native.put_result import PutMessageResult as PutMessageResult

@final
class Appender:
    """One per log; any number of threads may put. Callbacks run without the appender's mutex.

    roll(needed_nbytes) -> int or None
        The segment is full (its blank is already written) or there is none: attach the next one.
    extend(end_position) -> int or None
        The next record ends behind the allocated frontier: allocate and ``set_frontier``.
    wait(end_offset) -> int
        SYNC_FLUSH: called after the append of what waits; returns a PutMessageStatus value.

    before_roll()
        Called in front of ``roll``, without any lock, by every thread that needs a segment: the
        place to wait for others, which may put.

    ``roll`` and ``extend`` are called by one thread at a time, once for all that need the room;
    they must not put. What they raise, the put raises; a PutMessageStatus value that they return,
    it answers; the next put asks again. When they make no room (three times in a row) the put
    answers UNKNOWN_ERROR. ``clock`` is called once per put, batch or chunk, in front of the mutex;
    without it the system's clock is read under the mutex.
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
    ) -> None:
        """The dialect comes from ``rocketstore.dialect.Dialect.for_version(broker_version)``.

        Without ``delay_ms`` (only its length counts) no message is moved to the schedule topic.
        The last four are RocketMQ's settings of light queues; what a version does with them, the
        dialect says. With its switch on, a message with INNER_MULTI_DISPATCH is stored with
        INNER_MULTI_QUEUE_OFFSET: its offsets in the queues named there, which count on in the
        topic-queue table. A name that can be no queue is a ``ValueError``, one that is too long
        for a folder answers MESSAGE_ILLEGAL. ``put_messages`` gives no such offsets.
        """

    # the log
    def attach(self, buffer: Any, base_offset: int, position: int, frontier: int) -> None:
        """Append to this (writable, segment-long) buffer from ``position``; releases the former.

        ``frontier`` and the arguments of the two methods below are positions in the segment."""
    def detach(self) -> None:
        """Release the buffer; the next put asks for a segment."""
    def set_frontier(self, position: int, base_offset: int | None = None) -> None:
        """Disk blocks exist up to here (monotonic within a segment). With ``base_offset`` it counts
        only while the segment that begins there is attached."""
    def set_populated(self, position: int, base_offset: int | None = None) -> None:
        """Pages are present up to here: below it a put keeps the GIL."""
    @property
    def write_offset(self) -> int:
        """Physical offset behind the last published record."""
    @property
    def write_position(self) -> int:
        """The same in the current segment."""
    @property
    def base_offset(self) -> int: ...
    @property
    def is_attached(self) -> bool:
        """Whether there is a segment to append to."""
    @property
    def last_store_timestamp(self) -> int: ...

    # the topic-queue table
    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """0 when unknown."""
    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """At most 2**62."""
    def remove_queue(self, topic: str, queue_id: int) -> None: ...
    def set_batch_topics(self, topics: Iterable[str]) -> None:
        """Set the topics that take inner batches (their queues are BatchConsumeQueues).

        From 5.0 on a message with the inner-batch flag is refused (MESSAGE_ILLEGAL) on any other
        topic. On these it takes INNER_NUM queue offsets and is stored with INNER_BASE, the first
        of them; a count outside 1 to 32767 is refused, and INNER_NUM without the flag anywhere."""

    # switching off
    def refuse(self, status: int | None) -> None:
        """Answer every put with this status (SERVICE_NOT_AVAILABLE ...) until ``refuse(None)``."""
    def fail(self, error: BaseException) -> None:
        """Every later put raises ``ServiceFailedError`` from this cause (the first one counts)."""
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
        """Puts that were refused, or for which no room could be made."""
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

        ``unique_key=True`` makes one with ``unique_key_maker`` unless ``properties`` have one; the
        same name twice is a ``ValueError``. Limits answer a status, wrong types and characters
        raise; either way nothing is appended. A born timestamp or host not given is the store's.
        ``_wait`` is called in place of the appender's ``wait``, for this put alone."""
    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message, given as an object with ``Message``'s attributes."""
    def put_messages(self, batch: Any) -> PutMessageResult:
        """Append a batch (attributes of ``MessageBatch``) to one queue: consecutive, in one
        segment, all or nothing; followers of the log see all its records at once."""
    def put_many(
        self, messages: Iterable[Message], *, _wait: Callable[[int], int] | None = None
    ) -> PutManyResult:
        """Append messages, one mutex hold per chunk of 512 messages or 4 MiB. A refused message
        stops no other. A wrong type raises before anything of its chunk is appended; the chunks
        before it stay. One wait at the end, for the last message that wants it; ``_wait`` as in
        ``put``."""
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
        """Append the bodies ``data[offsets[i]:offsets[i + 1]]`` (native int32 or int64 offsets, not
        falling); everything else is the same for all. Chunks and waiting as in ``put_many``."""
    def put_staged(self, data: Any, base_offset: int) -> PutManyResult:
        """Append the records staged in ``data`` (``staged_records.StageEncoder``), whose first byte
        is the stage's ``base_offset``. Everything but their places is taken as it is; limits answer
        a status. Chunks and waiting as in ``put_many``; ``DecodeError`` where no record lies, or a
        body's CRC is wrong, before anything of its chunk is appended."""
