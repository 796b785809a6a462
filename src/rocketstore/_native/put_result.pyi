"""Outcomes of puts; exported by ``commit_log``."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import final, overload

from rocketstore.status import AppendMessageStatus, PutMessageStatus

@final
class PutMessageResult:
    """Outcome of one put (immutable). Offsets are None when nothing was appended."""

    def __init__(
        self,
        status: int,
        append_status: int | None = None,
        physical_offset: int | None = None,
        nbytes: int = 0,
        queue_offset: int | None = None,
        store_timestamp: int = 0,
        msg_ids: Sequence[tuple[bytes, int]] = (),
    ) -> None: ...
    @property
    def status(self) -> PutMessageStatus: ...
    @property
    def append_status(self) -> AppendMessageStatus | None: ...
    @property
    def physical_offset(self) -> int | None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def queue_offset(self) -> int | None: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def message_count(self) -> int: ...
    @property
    def msg_id(self) -> str | None:
        """The offsetMsgId, comma-joined for a batch."""
    @property
    def ok(self) -> bool:
        """Return whether the status is ``PUT_OK``."""
    @property
    def appended(self) -> bool:
        """RocketMQ's ``isOk``: the record is in the log, also when its flush timed out."""
    def with_flush_status(self, status: int) -> PutMessageResult:
        """Return this outcome with the flush ``status`` that the put waited for; unchanged if
        nothing was appended."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class PutManyResult(Sequence[PutMessageResult]):
    """Outcomes of many puts. Result objects are made on access; columns hold -1 (``nbytes``,
    ``store_timestamps``: 0) where nothing was appended."""

    def __init__(self, results: Iterable[PutMessageResult] = ()) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> PutMessageResult: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[PutMessageResult]: ...
    def __iter__(self) -> Iterator[PutMessageResult]: ...
    def __reversed__(self) -> Iterator[PutMessageResult]: ...
    def __contains__(self, value: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int: ...
    def count(self, value: object) -> int: ...
    def with_flush_status(self, status: int) -> PutManyResult:
        """Return these outcomes with the flush ``status`` for those that waited for it (none that
        are given to the constructor)."""
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def ok(self) -> bool:
        """Return whether every status is ``PUT_OK``."""
    @property
    def statuses(self) -> array[int]: ...
    @property
    def physical_offsets(self) -> array[int]: ...
    @property
    def queue_offsets(self) -> array[int]: ...
    @property
    def nbytes(self) -> array[int]: ...
    @property
    def store_timestamps(self) -> array[int]: ...
