"""Results of reading calls: lists of messages created on access, statuses and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

from rocketstore import formats
from rocketstore.log.commit_log import LogWindow
from rocketstore.message import StoredMessage
from rocketstore.status import GetMessageStatus

#: Highest possible time, epoch ms.
MAX_TIMESTAMP = 2**63 - 1
_ROW = formats.SELECTED_MESSAGE


class MessageList(Sequence[StoredMessage]):
    """Selected messages; each ``StoredMessage`` is created on access.

    Access raises ``CorruptMessageError`` if another process has overwritten the message since.
    """

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: list[tuple[LogWindow, bytearray, int]] = []
        self._count = 0

    def add(self, window: LogWindow, rows: bytearray, count: int) -> None:
        """Append ``count`` rows of ``formats.SELECTED_MESSAGE`` whose records lie in ``window``."""
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
        if not 0 <= index < self._count:
            raise IndexError("message index out of range")
        for window, rows, count in self._parts:
            if index < count:
                position = _ROW.struct.unpack_from(rows, index * _ROW.nbytes)[0]
                try:
                    return StoredMessage(
                        window.buffer, position, window.base_offset, window.segment_end
                    )
                except ValueError as error:
                    raise window.gone(position) from error
            index -= count
        raise IndexError("message index out of range")

    def __repr__(self) -> str:
        return f"<{self._count} messages>"


class GetMessageResult(NamedTuple):
    """Result of ``get_message``.

    ``next_begin_offset`` is where the next pull begins; ``min_offset`` and ``max_offset`` bound the
    queue; ``messages`` are in queue order.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage]

    def __repr__(self) -> str:
        return (
            f"GetMessageResult({self.status.name}, next_begin_offset={self.next_begin_offset}, "
            f"min_offset={self.min_offset}, max_offset={self.max_offset}, "
            f"messages={len(self.messages)})"
        )


class QueryMessageResult(NamedTuple):
    """Result of ``query_message``: messages by ascending offset, and where the index ends."""

    messages: list[StoredMessage]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int
