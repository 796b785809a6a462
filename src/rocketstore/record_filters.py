"""Record filters of a pass over the log, checked and normalized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
MAX_BATCH_ROWS = 1 << 20
#: Repairing malformed text may triple its length; 32-bit offsets must still reach its end.
MAX_BATCH_BYTES = 1 << 29


@runtime_checkable
class CompiledFilter(Protocol):
    """A ``Sql92Filter``, as kernels see it."""

    @property
    def program(self) -> bytes:
        """The program, see ``sql92_program``."""
        ...

    def count_errors(self, count: int) -> None:
        """Add evaluations that raised."""
        ...


@dataclass(frozen=True, slots=True)
class RecordFilters:
    """Normalized filters: texts are UTF-8, bounds inclusive; ``None`` matches everything.

    Attributes
    ----------
    topics, tags, keys : frozenset of bytes or None
    queue_ids : dict of bytes to sorted tuple of int, or None
        Only these queues of these topics.
    ranges : dict of bytes to tuple of (queue id, first offset, last offset)
        Sorted by queue; queues not named are not limited.
    first_time, last_time : int
        Store times in epoch ms.
    filter : CompiledFilter or None
        An SQL92 filter; records that pass all others are evaluated.
    """

    topics: frozenset[bytes] | None
    tags: frozenset[bytes] | None
    keys: frozenset[bytes] | None
    queue_ids: dict[bytes, tuple[int, ...]] | None
    ranges: dict[bytes, tuple[tuple[int, int, int], ...]]
    first_time: int
    last_time: int
    filter: CompiledFilter | None


def record_filters(
    topics: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    queue_ids: Mapping[str, Iterable[int]] | None = None,
    begin: int | None = None,
    end: int | None = None,
    start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
    filter: CompiledFilter | None = None,
) -> RecordFilters:
    """Check the filters of a pass over the log.

    Raises
    ------
    TypeError, ValueError
        For values of the wrong kind, and numbers that do not fit their fields.
    """
    if filter is not None and not isinstance(filter, CompiledFilter):
        raise TypeError(f"filter must be a Sql92Filter here, not {type(filter).__name__}")
    first_time, last_time = _bounds("begin and end", begin, end)
    by_topic: dict[bytes, list[tuple[int, int, int]]] = {}
    for queue, limits in (start_offsets or {}).items():
        topic, queue_id = _pair(queue, "a queue of start_offsets", "topic and queue id")
        first, last = _pair(limits, "a value of start_offsets", "first and last offset")
        bounds = _bounds("start_offsets", first, last)
        by_topic.setdefault(_utf8(topic, "start_offsets"), []).append(
            (_int32(queue_id, "start_offsets"), *bounds)
        )
    return RecordFilters(
        topics=_texts(topics, "topics"),
        tags=_texts(tags, "tags"),
        keys=_texts(keys, "keys"),
        queue_ids=None
        if queue_ids is None
        else {
            _utf8(topic, "queue_ids"): tuple(sorted({_int32(i, "queue_ids") for i in numbers}))
            for topic, numbers in queue_ids.items()
        },
        ranges={topic: tuple(sorted(ranges)) for topic, ranges in by_topic.items()},
        first_time=first_time,
        last_time=last_time,
        filter=filter,
    )


def check_batch_limits(batch_rows: int, batch_bytes: int) -> None:
    """Raise ``ValueError`` if a limit of a batch of messages is out of range."""
    for name, value, most in (
        ("batch_rows", batch_rows, MAX_BATCH_ROWS),
        ("batch_bytes", batch_bytes, MAX_BATCH_BYTES),
    ):
        if not 1 <= _int64(value, name) <= most:
            raise ValueError(f"{name} must be from 1 to {most}, not {value}")


def _texts(values: Iterable[str] | None, name: str) -> frozenset[bytes] | None:
    if values is None:
        return None
    if isinstance(values, str | bytes):
        raise TypeError(f"{name} must be a sequence of str, not {type(values).__name__}")
    return frozenset(_utf8(value, name) for value in values)


def _utf8(value: Any, name: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} must name str, not {type(value).__name__}")
    # No stored text contains an unpaired surrogate, so these bytes never match.
    return value.encode(errors="surrogatepass")


def _int64(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise ValueError(f"{name} {value} does not fit 64 bits")
    return value


def _int32(value: Any, name: str) -> int:
    if not -(2**31) <= _int64(value, name) < 2**31:
        raise ValueError(f"{name}: queue id {value} does not fit 32 bits")
    return int(value)


def _bounds(name: str, first: int | None, end: int | None) -> tuple[int, int]:
    """Return the inclusive bounds of ``first <= value < end``."""
    low = _INT64_MIN if first is None else _int64(first, name)
    last = _INT64_MAX if end is None else _int64(end, name) - 1
    return (low, last) if low <= last else (0, -1)


def _pair(value: Any, name: str, parts: str) -> tuple[Any, Any]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise TypeError(f"{name} must be {parts}, not {value!r}")
    return value[0], value[1]
