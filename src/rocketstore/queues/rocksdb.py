"""Stores whose consume queues are in RocksDB: refused for writing, made from the log for reading.

RocksDB's own files are never read. Every unit that they hold is in the log too, so mode ``"r"``
makes the queues anew in memory.
"""

from __future__ import annotations

from typing import Any

from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.queue_table import QueueTable

#: So much of neighbouring memory files is read as one piece at a time.
_JOINED_NBYTES = (1 << 20) - (1 << 20) % UNIT_NBYTES


class BoundlessConsumeQueue(ConsumeQueue):
    """A queue without file ends: where a file of units ends is nothing a reader notices.

    Up to 5.4 RocketMQ asks RocksDB for as many units as messages are wanted, and looks at no more
    of them in a pull, whether they match or not.
    """

    def units_from(self, index: int) -> tuple[Any, int, int] | None:
        """Return (buffer, position, stop) of units from ``index`` on; near the end of a file, the
        beginning of what follows is in the same buffer."""
        found = super().units_from(index)
        pieces: list[bytes] = []
        nbytes = 0
        piece = found
        while piece is not None and nbytes < _JOINED_NBYTES:
            buffer, position, stop = piece
            if not pieces and stop - position >= _JOINED_NBYTES:
                break
            pieces.append(
                bytes(memoryview(buffer)[position : min(stop, position + _JOINED_NBYTES)])
            )
            nbytes += len(pieces[-1])
            piece = super().units_from(index + nbytes // UNIT_NBYTES)
        self.recent = None  # readers that keep to one file would end there
        if len(pieces) < 2:
            return found
        return b"".join(pieces), 0, nbytes


class BoundlessQueueTable(QueueTable):
    """The queues of a store whose files hold none."""

    #: See ``ConsumeQueue.pull_looks_no_further``.
    pull_looks_no_further = False

    def load(self) -> None:
        """Nothing is there to load."""

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = super()._new(topic, queue_id)
        if type(queue) is not ConsumeQueue:
            return queue
        made = BoundlessConsumeQueue(topic, queue_id, queue.queue, in_memory=True)
        made.pull_looks_no_further = self.pull_looks_no_further
        return made
