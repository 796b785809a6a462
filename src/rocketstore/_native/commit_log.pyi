"""The appender: encodes records in place into the current log segment; ``store.put`` is its method."""

from collections.abc import Callable, Iterable, Sequence
from typing import final, overload

from typing_extensions import Buffer

from rocketstore.status import AppendMessageStatus, PutMessageStatus

@final
class PutMessageResult:
    """Outcome of one put (immutable). Offsets are None when nothing was appended."""

    status: PutMessageStatus
    append_status: AppendMessageStatus | None
    physical_offset: int | None
    nbytes: int
    queue_offset: int | None
    store_timestamp: int
    message_count: int
    msg_id: str | None
    ok: bool
    appended: bool
    def __init__(self, status: int, append_status: int | None = None, physical_offset: int | None = None,
                 nbytes: int = 0, queue_offset: int | None = None, store_timestamp: int = 0,
                 msg_ids: Sequence[tuple[bytes, int]] = ()) -> None: ...

@final
class PutManyResult(Sequence[PutMessageResult]):
    """Objects are made on access; column access by ``physical_offsets`` etc. (array('q') copies)."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> PutMessageResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PutMessageResult]: ...

@final
class Appender:
    """One per log; any number of threads may put. Callbacks run without the appender's mutex.

    roll(needed_nbytes) -> None
        The current segment is full (its blank is already written) or there is none: attach the next one.
    extend(end_position) -> None
        The next record ends behind the allocated frontier: allocate and ``set_frontier``.
    wait(end_offset) -> int
        SYNC_FLUSH: called after the append when the message waits; returns a PutMessageStatus value.
    """

    def __init__(self, *, roll: Callable[[int], None], extend: Callable[[int], None],
                 wait: Callable[[int], int] | None = None, clock: Callable[[], int] | None = None,
                 store_host: str = "127.0.0.1:10911", broker_version: str = "5.3.3",
                 max_message_size: int = 4194304, segment_nbytes: int = 1073741824,
                 delay_ms: Sequence[int] = (), append_property_crc: bool = False,
                 unique_key_maker: Callable[[], str] | None = None) -> None:
        """The dialect comes from ``rocketstore.dialect.Dialect.for_version(broker_version)``."""

    # the log
    def attach(self, buffer: Buffer, base_offset: int, position: int, frontier: int) -> None:
        """Append to this (writable, segment-long) buffer from ``position``; pins it, releases the former."""
    def detach(self) -> None: ...
    def set_frontier(self, position: int) -> None:
        """Disk blocks exist up to here (monotonic)."""
    def set_populated(self, position: int) -> None:
        """Pages are present up to here: below it a put keeps the GIL."""
    write_offset: int        # physical offset behind the last published record
    write_position: int      # the same in the current segment
    base_offset: int
    last_store_timestamp: int

    # the topic-queue table
    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """0 when unknown."""
    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None: ...
    def remove_queue(self, topic: str, queue_id: int) -> None: ...

    # switching off
    def refuse(self, status: int | None) -> None:
        """Answer every put with this status (SERVICE_NOT_AVAILABLE ...) until ``refuse(None)``."""
    def fail(self, error: BaseException) -> None:
        """Every later put raises ``ServiceFailedError`` from this cause."""
    def close(self) -> None:
        """Release the buffer; later puts raise ``StoreClosedError``. Idempotent."""

    # counters
    put_times: int
    put_nbytes: int
    failed_times: int

    def put(self, topic: str, body: Buffer, queue_id: int = 0, tags: str | None = None,
            keys: str | Iterable[str] | None = None, *, properties: dict[str, str] | None = None,
            flag: int = 0, sys_flag: int = 0, born_timestamp: int | None = None,
            born_host: str | None = None, store_host: str | None = None, reconsume_times: int = 0,
            prepared_transaction_offset: int = 0, delay_level: int = 0, wait_store_msg_ok: bool = True,
            unique_key: str | bool | None = None) -> PutMessageResult: ...
    def put_message(self, message: object) -> PutMessageResult: ...
    def put_messages(self, batch: object) -> PutMessageResult: ...
    def put_many(self, messages: Iterable[object]) -> PutManyResult: ...
    def put_columns(self, topic: str, offsets: Buffer, data: Buffer, *, queue_id: int = 0,
                    tags: str | None = None, keys: str | None = None,
                    properties: dict[str, str] | None = None) -> PutManyResult: ...
