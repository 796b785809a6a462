"""Outcomes of puts: ``PutMessageResult`` and ``PutManyResult``; exported by ``commit_log``."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, overload

from rocketstore import formats
from rocketstore._reference.message import message_id
from rocketstore.status import AppendMessageStatus, PutMessageStatus


class PutMessageResult:
    """Outcome of one put (immutable). Offsets are None when nothing was appended."""

    __slots__ = ("_append", "_ids", "_nbytes", "_physical", "_queue", "_status", "_timestamp")

    def __init__(
        self,
        status: int,
        append_status: int | None = None,
        physical_offset: int | None = None,
        nbytes: int = 0,
        queue_offset: int | None = None,
        store_timestamp: int = 0,
        msg_ids: Sequence[tuple[bytes, int]] = (),
    ) -> None:
        self._status = PutMessageStatus(status)
        self._append = None if append_status is None else AppendMessageStatus(append_status)
        self._physical = physical_offset
        self._nbytes = nbytes
        self._queue = queue_offset
        self._timestamp = store_timestamp
        self._ids = tuple(msg_ids)
        for host, _ in self._ids:
            if len(host) not in (formats.HOST_V4.nbytes, formats.HOST_V6.nbytes):
                raise ValueError(f"a stored host has 8 or 20 bytes, not {len(host)}")

    @property
    def status(self) -> PutMessageStatus:
        """Outcome of the put as a whole."""
        return self._status

    @property
    def append_status(self) -> AppendMessageStatus | None:
        """Outcome of the append, None when it was not tried."""
        return self._append

    @property
    def physical_offset(self) -> int | None:
        """Log offset of the (first) record."""
        return self._physical

    @property
    def nbytes(self) -> int:
        """Bytes appended."""
        return self._nbytes

    @property
    def queue_offset(self) -> int | None:
        """Queue offset of the (first) record."""
        return self._queue

    @property
    def store_timestamp(self) -> int:
        """Store time, epoch ms; 0 when nothing was appended."""
        return self._timestamp

    @property
    def message_count(self) -> int:
        """Records appended."""
        return len(self._ids)

    @property
    def msg_id(self) -> str | None:
        """The offsetMsgId, comma-joined for a batch."""
        if not self._ids:
            return None
        return ",".join(message_id(host, offset) for host, offset in self._ids)

    @property
    def ok(self) -> bool:
        """Return whether the status is ``PUT_OK``."""
        return self._status == PutMessageStatus.PUT_OK

    @property
    def appended(self) -> bool:
        """RocketMQ's ``isOk``: the record is in the log, also when its flush timed out."""
        return self._append == AppendMessageStatus.PUT_OK

    def with_flush_status(self, status: int) -> PutMessageResult:
        """Return this outcome with the flush ``status`` that the put waited for."""
        status = PutMessageStatus(status)
        return PutMessageResult(
            status if self.appended else self._status,
            self._append,
            self._physical,
            self._nbytes,
            self._queue,
            self._timestamp,
            self._ids,
        )

    def _key(self) -> tuple[Any, ...]:
        fields = (self._status, self._append, self._physical, self._nbytes, self._queue)
        return (*fields, self._timestamp, len(self._ids), self.msg_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PutMessageResult):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if not self.appended:
            return f"PutMessageResult({self._status.name})"
        return (
            f"PutMessageResult({self._status.name}, physical_offset={self._physical}, "
            f"nbytes={self._nbytes}, queue_offset={self._queue}, "
            f"store_timestamp={self._timestamp}, message_count={len(self._ids)})"
        )


class PutManyResult(Sequence[PutMessageResult]):
    """Outcomes of many puts, in their order; offsets are -1 where nothing was appended."""

    __slots__ = ("_results", "_waits")

    def __init__(self, results: Iterable[PutMessageResult] = ()) -> None:
        self._results = list(results)
        self._waits = [False] * len(self._results)

    @classmethod
    def _of(cls, results: Iterable[PutMessageResult], waits: Iterable[bool]) -> PutManyResult:
        """Return outcomes; ``waits`` says which of them wait for the disk."""
        many = cls(results)
        many._waits = list(waits)
        return many

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> PutMessageResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[PutMessageResult]: ...
    def __getitem__(self, index: int | slice) -> PutMessageResult | list[PutMessageResult]:
        return self._results[index]

    @property
    def ok(self) -> bool:
        """Return whether every status is ``PUT_OK``."""
        return all(result.ok for result in self._results)

    @property
    def statuses(self) -> array[int]:
        """``PutMessageStatus`` values."""
        return array("b", (result.status for result in self._results))

    @property
    def physical_offsets(self) -> array[int]:
        """Log offset of each record."""
        return array("q", (_or_minus_one(r.physical_offset) for r in self._results))

    @property
    def queue_offsets(self) -> array[int]:
        """Queue offset of each record."""
        return array("q", (_or_minus_one(r.queue_offset) for r in self._results))

    @property
    def nbytes(self) -> array[int]:
        """Length of each record."""
        return array("q", (result.nbytes for result in self._results))

    @property
    def store_timestamps(self) -> array[int]:
        """Store time of each record; 0 where nothing was appended."""
        return array("q", (result.store_timestamp for result in self._results))

    def with_flush_status(self, status: int) -> PutManyResult:
        """Return these outcomes with the flush ``status`` for those that waited for it."""
        status = PutMessageStatus(status)
        pairs = zip(self._results, self._waits, strict=True)
        changed = (one.with_flush_status(status) if waits else one for one, waits in pairs)
        return PutManyResult._of(changed, self._waits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PutManyResult):
            return NotImplemented
        return self._results == other._results

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        appended = sum(result.appended for result in self._results)
        return f"PutManyResult({len(self._results)} messages, {appended} appended)"


def _or_minus_one(offset: int | None) -> int:
    return -1 if offset is None else offset
