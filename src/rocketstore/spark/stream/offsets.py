"""The offsets of a stream over a log, as Spark's checkpoint holds them.

An offset is one physical offset for the whole store, always the first byte of a record or the end
of the last one. It orders everything, restarts exactly, and needs no consume queue. The offsets
also carry the query's initial choices for single queues. A restart with other options therefore
reads the same queues.

==============  ====================================================================================
key             meaning
==============  ====================================================================================
``v``           1
``phy``         physical offset, in bytes from the start of the log
``queues``      topic → queue id → first queue offset to read; other queues are read whole
``latest``      ``{"phy": n, "queues": topic → queue ids}``: those queues are read from physical
                offset ``n`` on; omitted once ``phy`` has reached it
``initial``     true in the answer of ``initialOffset``, which is never in a checkpoint
``first``       in the end of a query's first batch: the offset at which it began. Spark asks for
                the initial offset again if it repeats the first batch, and "latest" has moved by
                then
==============  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rocketstore.errors import DecodeError

VERSION = 1
#: No record has this queue offset: a queue that starts here is not read.
NEVER = 2**63 - 1
#: RocketMQ's and Kafka's words for the ends of a queue in ``startingOffsets``.
LATEST = -1
EARLIEST = -2
_KEYS = {"v", "phy", "queues", "latest", "initial", "first"}


@dataclass(frozen=True, slots=True)
class Latest:
    """Queues that are read from one physical offset on: the log's end when the query began."""

    physical_offset: int
    queues: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position of a stream; see the table above.

    Parameters
    ----------
    physical_offset : int
        Bytes from the start of the log.
    queues : mapping of str to mapping of int to int
        First queue offset to read, by topic and queue id.
    latest : Latest, optional
    first : StreamOffset, optional
        In the end of a first batch: where that batch began.
    initial : bool
        Returned by ``initialOffset``.
    """

    physical_offset: int
    queues: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    latest: Latest | None = None
    first: StreamOffset | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the offset for Spark; equal offsets give equal dicts with keys in one order."""
        found: dict[str, Any] = {"v": VERSION, "phy": self.physical_offset}
        if self.queues:
            found["queues"] = {
                topic: {str(queue_id): first for queue_id, first in sorted(queues.items())}
                for topic, queues in sorted(self.queues.items())
            }
        if self.latest is not None:
            found["latest"] = {
                "phy": self.latest.physical_offset,
                "queues": {t: sorted(ids) for t, ids in sorted(self.latest.queues.items())},
            }
        if self.initial:
            found["initial"] = True
        if self.first is not None:
            found["first"] = self.first.to_json()
        return found

    @classmethod
    def from_json(cls, found: object) -> StreamOffset:
        """Parse an offset of a checkpoint.

        Raises
        ------
        DecodeError
            If it is not an offset of this source, or was written by a newer version.
        """
        fields = _mapping(found, found)
        if fields.get("v") != VERSION:
            raise DecodeError(
                f"the checkpoint's offset {found!r} is not one of this version of rocketstore "
                f"(v is not {VERSION}); continue the query with the version that began it"
            )
        if unknown := set(fields) - _KEYS:
            raise DecodeError(f"the checkpoint's offset {found!r} has unknown keys {unknown}")
        latest = fields.get("latest")
        if latest is not None:
            latest = Latest(
                _number(_mapping(latest, found).get("phy"), found),
                {
                    topic: [_number(queue_id, found) for queue_id in _sequence(ids, found)]
                    for topic, ids in _mapping(latest.get("queues"), found).items()
                },
            )
        first = fields.get("first")
        return cls(
            _number(fields.get("phy"), found),
            {
                topic: {
                    _number(queue_id, found): _number(offset, found)
                    for queue_id, offset in _mapping(queues, found).items()
                }
                for topic, queues in _mapping(fields.get("queues", {}), found).items()
            },
            latest,
            None if first is None else cls.from_json(first),
            fields.get("initial") is True,
        )

    def advanced(self, physical_offset: int) -> StreamOffset:
        """Return the end of a batch that begins here and ends at ``physical_offset``."""
        latest = self.latest
        if latest is not None and physical_offset >= latest.physical_offset:
            latest = None
        return StreamOffset(
            physical_offset,
            self.queues,
            latest,
            replace(self, initial=False) if self.initial else None,
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Physical offsets ``start`` to ``stop`` of one batch.

    ``queues`` has the queues not read from their beginning: (topic, queue id) → first queue offset.
    """

    start: int
    stop: int
    queues: Mapping[tuple[str, int], int]


def batch_ranges(start: StreamOffset, end: StreamOffset) -> Iterator[Range]:
    """Yield the ranges that a batch from ``start`` to ``end`` reads, in log order.

    The first batch of a query begins where its end says, not at ``start``. Spark requests a new
    initial offset when it repeats that batch after a restart.
    """
    if start.initial and end.first is not None:
        start = end.first
    at, stop = start.physical_offset, end.physical_offset
    queues = {(t, q): first for t, found in start.queues.items() for q, first in found.items()}
    if start.latest is not None and at < start.latest.physical_offset:
        border = min(stop, start.latest.physical_offset)
        silent = {(t, q): NEVER for t, ids in start.latest.queues.items() for q in ids}
        if at < border:
            yield Range(at, border, {**queues, **silent})
        at = border
    if at < stop:
        yield Range(at, stop, queues)


def starting_queues(
    offsets: Mapping[str, Mapping[int, int]], end: int
) -> tuple[dict[str, dict[int, int]], Latest | None]:
    """Split ``startingOffsets`` into queues that start at a number and those that start at the
    log's end, physical offset ``end``."""
    numbers: dict[str, dict[int, int]] = {}
    latest: dict[str, list[int]] = {}
    for topic, queues in offsets.items():
        for queue_id, first in queues.items():
            if first == LATEST:
                latest.setdefault(topic, []).append(queue_id)
            elif first != EARLIEST:
                numbers.setdefault(topic, {})[queue_id] = first
    return numbers, Latest(end, latest) if latest else None


def _mapping(value: object, whole: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DecodeError(f"{whole!r} is not an offset of a rocketstore stream")
    return value


def _sequence(value: object, whole: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise DecodeError(f"{whole!r} is not an offset of a rocketstore stream")
    return value


def _number(value: object, whole: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise DecodeError(f"{whole!r} is not an offset of a rocketstore stream")
    return value
