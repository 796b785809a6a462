"""Log segments as readers see them, the messages that they select from them, and plain calls.

Contract: ``_native/reading.pyi``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rocketstore import formats
from rocketstore._reference.call_times import elapsed_ms, sampled_ns
from rocketstore._reference.message import StoredMessage
from rocketstore._reference.record_check import record_buffer

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ROW = formats.SELECTED_MESSAGE
_Method = TypeVar("_Method", bound=Callable[..., Any])


class QueuePlace:
    """Where the units of a queue are: its bounds and the file that was read last."""

    def __init__(self, topic: bytes, queue_id: int) -> None:
        self.topic_bytes = topic
        self.queue_id = queue_id
        self.min_index = 0
        self.recovered_index = 0
        self.next_index: Callable[[], int] | None = None
        self.recent: tuple[Any, int, int] | None = None

    @property
    def max_index(self) -> int:
        """Queue offset of the next message."""
        return self.recovered_index if self.next_index is None else self.next_index()


class IndexPlace:
    """Where an index file is."""

    def __init__(self, file: Any, slots: int, entries: int) -> None:
        self.file = file
        self.slots = slots
        self.entries = entries


class Window:
    """A segment's readable bytes, pinned."""

    def __init__(
        self,
        buffer: Buffer,
        base_offset: int,
        segment_end: int,
        stop: int,
        flags: int,
        min_offset: int,
    ) -> None:
        record_buffer(buffer, 0, stop, base_offset, segment_end)
        self.buffer: Any = buffer
        self.base_offset = base_offset
        self.segment_end = segment_end
        self.stop = stop
        self.flags = int(flags)
        self.min_offset = min_offset

    def gone(self, position: int) -> Exception:
        """Build the error for a record that was checked and no longer exists."""
        return ValueError(f"the record at position {position} was overwritten")

    def message(self, position: int) -> StoredMessage:
        """Return the record at a position, which the caller has checked. Raises as ``gone``."""
        try:
            return StoredMessage(self.buffer, position, self.base_offset, self.segment_end)
        except ValueError as error:
            raise self.gone(position) from error


class Windows:
    """The segments that were read, by physical offset."""

    def __init__(self, segment_nbytes: int) -> None:
        if segment_nbytes <= 0:
            raise ValueError(f"a segment cannot have {segment_nbytes} bytes")
        self.segment_nbytes = segment_nbytes
        self._by_offset: dict[int, Window] = {}

    def add(self, window: Window) -> None:
        """Keep a window instead of the segment's former one."""
        self._by_offset[window.base_offset] = window

    def discard(self, base_offset: int) -> None:
        """Forget the segment that begins at an offset."""
        self._by_offset.pop(base_offset, None)

    def clear(self) -> None:
        """Forget all segments."""
        self._by_offset.clear()

    def get(self, physical_offset: int) -> Any:
        """Return the window in which an offset can be read; None if none is known."""
        window = self._by_offset.get(physical_offset - physical_offset % self.segment_nbytes)
        if window is None or physical_offset >= window.base_offset + window.stop:
            return None
        return window


class MessageList(Sequence[StoredMessage]):
    """Selected messages; each ``StoredMessage`` is created on access."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: list[tuple[Window, bytearray, int]] = []
        self._count = 0

    def add(self, window: Window, rows: bytearray, count: int) -> None:
        """Append ``count`` rows of ``formats.SELECTED_MESSAGE`` whose records lie in ``window``."""
        if not 0 <= count <= len(rows) // _ROW.nbytes:
            raise ValueError(f"{count} rows are not within {len(rows)} bytes")
        self._parts.append((window, rows, count))
        self._count += count

    def extend(self, other: MessageList) -> None:
        """Append the messages of another list."""
        self._parts += other._parts
        self._count += other._count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[StoredMessage]: ...
    def __getitem__(self, index: int | slice) -> StoredMessage | list[StoredMessage]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        if index < 0:
            index += self._count
        if index >= 0:
            for window, rows, count in self._parts:
                if index < count:
                    position: int = _ROW.struct.unpack_from(rows, index * _ROW.nbytes)[0]
                    return window.message(position)
                index -= count
        raise IndexError("message index out of range")

    def __repr__(self) -> str:
        return f"<{self._count} messages>"


class ReaderPlace:
    """Where a store's reader finds what plain calls need."""

    def __init__(
        self,
        *,
        log: Any,
        queues: dict[tuple[str, int], Any],
        index: Any,
        limits: tuple[int, ...],
        max_hits: int,
        tag_filter: type,
        found: int,
        unmatched: int,
        answers: tuple[type, type],
    ) -> None:
        self.sql_filter: type | None = None
        self.found_times = self.missed_times = self.transferred_times = self.longest_ms = 0
        self._found = found
        self.log = log
        self.index = index

    def narrow(
        self, queue: QueuePlace, low: int, high: int, timestamp: int, upper: bool
    ) -> tuple[int, int]:
        """Return the bounds unchanged: this body takes no step by itself."""
        return low, high


def _undecorated(method: _Method) -> _Method:
    """Return the method: this body answers no call by itself."""
    return method


def get_message(method: _Method) -> _Method:
    """Count the calls of ``method`` by their answers."""

    @functools.wraps(method)
    def get_message(self: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("wait_s") is not None:
            return method(self, *arguments, **options)  # its pulls are counted one by one
        reader = self._reader
        begin_ns = sampled_ns(reader.found_times + reader.missed_times)
        answer = method(self, *arguments, **options)
        reader = self._reader
        if begin_ns:
            reader.longest_ms = max(reader.longest_ms, elapsed_ms(begin_ns))
        if answer[0] == reader._found:
            reader.found_times += 1
            reader.transferred_times += len(answer[4])
        else:
            reader.missed_times += 1
        return answer

    return get_message  # type: ignore[return-value]


query_message = find = _undecorated
look_message_by_offset = look_message_by_id = _undecorated
