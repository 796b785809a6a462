"""Log segments as readers see them, and the messages that they select from them.

Contract: ``_native/reading.pyi``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rocketstore import formats
from rocketstore._reference import consume_queue, index_file
from rocketstore._reference.arguments import readable
from rocketstore._reference.message import StoredMessage, check_record
from rocketstore._reference.record_check import record_buffer
from rocketstore.status import KernelStatus, RecordStatus

if TYPE_CHECKING:
    from typing_extensions import Buffer

_UNIT = formats.CONSUME_QUEUE_UNIT
_ROW = formats.SELECTED_MESSAGE
_COMPLETE = (RecordStatus.OK, RecordStatus.NUL_PROPERTIES, RecordStatus.UNSAFE_TOPIC)
#: Most hits of a query; for more the caller looks itself.
_MOST_HITS = 64
_PLAIN_ENDS = (KernelStatus.OK, KernelStatus.LIMIT, RecordStatus.END)


_Answer = TypeVar("_Answer", bound=tuple[Any, ...])


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

    def record(self, physical_offset: int) -> StoredMessage | None:
        """Return the record at an offset; None if it is not plain."""
        window = self.get(physical_offset)
        if window is None:
            return None
        position = physical_offset - window.base_offset
        status, _ = check_record(
            window.buffer, position, window.stop, window.base_offset, window.segment_end,
            window.flags,
        )  # fmt: skip
        if status not in _COMPLETE:
            return None
        try:
            return StoredMessage(window.buffer, position, window.base_offset, window.segment_end)
        except ValueError:
            return None  # another process has overwritten it since

    def get_message(
        self,
        answer: type[_Answer],
        status: int,
        queue: QueuePlace,
        offset: int,
        max_count: int,
        max_nbytes: int,
        disk_below: int,
        max_disk_count: int,
        max_disk_nbytes: int,
    ) -> _Answer | None:
        """Return offsets and messages of a pull; None if it is not plain."""
        end, recent = queue.max_index, queue.recent
        if recent is None or not queue.min_index <= offset < end or max_count <= 0:
            return None
        file, first, file_stop = recent
        stop = min(end, file_stop)
        units = file.mapped
        if units is None or not first <= offset < stop:
            return None
        file.was_used = True
        start = (offset - first) * _UNIT.nbytes
        stop_at = (stop - first) * _UNIT.nbytes
        view = readable(units)
        if stop_at > len(view):
            return None
        window = self.get(_UNIT.struct.unpack_from(view, start)[0])
        if window is None:
            return None
        rows = bytearray(min(max_count, stop - offset) * _ROW.nbytes)
        reached, count, _, ended, _ = consume_queue.select_messages(
            units, start, stop_at, offset,
            window.buffer, window.stop, window.base_offset, window.segment_end, window.min_offset,
            queue.topic_bytes, queue.queue_id, None,
            max_count, max_nbytes, disk_below, max_disk_count, max_disk_nbytes,
            0, 0, window.flags, rows,
        )  # fmt: skip
        if not count or ended not in _PLAIN_ENDS:
            return None
        messages = MessageList()
        messages.add(window, rows, count)
        following = offset + (reached - start) // _UNIT.nbytes
        return tuple.__new__(answer, (status, following, queue.min_index, end, messages))

    def query_message(
        self,
        answer: type[_Answer],
        files: tuple[IndexPlace, ...],
        topic: str,
        key: str,
        max_count: int,
        begin: int,
        end: int,
    ) -> _Answer | None:
        """Return messages and the index's end for a key; None if that is not plain."""
        is_plain = all(type(text) is str and text.isascii() for text in (topic, key))
        if not is_plain or not 0 < max_count <= _MOST_HITS:
            return None
        text = f"{topic}#{key}".encode()
        hits: list[int] = []
        index_end: tuple[int, int] | None = None
        for place in reversed(files):
            buffer = place.file.mapped
            if buffer is None or len(readable(buffer)) < formats.index_file_nbytes(
                place.slots, place.entries
            ):
                return None
            first, last, _, last_offset, *_ = index_file.read_header(buffer)
            index_end = index_end or (last, last_offset)
            if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
                found, status = index_file.select_offsets(
                    buffer, place.slots, place.entries, text, max_count - len(hits), begin, end
                )
                if status != KernelStatus.OK:
                    return None
                hits += found
            if first < begin or len(hits) >= max_count:
                break
        messages = []
        for offset in sorted(hits):
            message = self.record(offset) if offset >= 0 else None
            if message is None:
                return None
            messages.append(message)
        found_end = index_end if hits and index_end else (0, 0)
        return tuple.__new__(answer, (messages, *found_end))


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
