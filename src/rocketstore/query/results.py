"""Results of reading calls: statuses, offsets and messages."""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from typing import Any, NamedTuple

from rocketstore import kernels
from rocketstore.message import StoredMessage
from rocketstore.status import GetMessageStatus

#: Highest possible time, epoch ms.
MAX_TIMESTAMP = 2**63 - 1


def _reduce(messages: Sequence[StoredMessage]) -> tuple[Any, ...]:
    """Selected messages lie in a store's mapping; copied to another process they are a list."""
    return list, (list(messages),)


copyreg.pickle(kernels.reading.MessageList, _reduce)


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
