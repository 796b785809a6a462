"""Stores whose consume queues are in RocksDB: read-only, with queues derived from the log.

RocksDB's own files are never read. Every unit can be derived from the log, so mode ``"r"``
rebuilds the queues in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketstore.files.mapped_file_queue import DirectoryListing
from rocketstore.queues.consume_queue import UNIT_NBYTES, ConsumeQueue
from rocketstore.queues.queue_table import QueueTable

#: Bytes of adjacent memory files that are returned as one buffer.
_JOINED_NBYTES = (1 << 20) - (1 << 20) % UNIT_NBYTES


class BoundlessConsumeQueue(ConsumeQueue):
    """A queue without visible file boundaries.

    Up to 5.4 RocketMQ reads as many units from RocksDB as messages are wanted. A pull examines no
    more of them, whether they match or not.
    """

    def units_from(self, index: int) -> tuple[Any, int, int] | None:
        """Return (buffer, position, stop) of the units from ``index`` on.

        Near the end of a file the buffer also contains the beginning of the next one.
        """
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
        self.recent = None  # readers that stay within one file would stop at its end
        if len(pieces) < 2:
            return found
        return b"".join(pieces), 0, nbytes


class BoundlessQueueTable(QueueTable):
    """The queues of a store without queue files."""

    #: See ``ConsumeQueue.pull_looks_no_further``.
    pull_looks_no_further = False

    def load(self, listings: dict[Path, DirectoryListing] | None = None) -> None:
        """Do nothing: there are no files to load."""

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = super()._new(topic, queue_id)
        if type(queue) is not ConsumeQueue:
            return queue
        made = BoundlessConsumeQueue(topic, queue_id, queue.queue, in_memory=True)
        made.pull_looks_no_further = self.pull_looks_no_further
        return made
