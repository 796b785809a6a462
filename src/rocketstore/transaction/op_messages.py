"""Op messages: which half messages are decided, and batches of them."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable

from rocketstore import formats
from rocketstore.lock_order import held_lock

#: A thread that left an offset writes it itself if none did for so long.
_LONGEST_WAIT_S = 0.25
_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")


def offsets_in(body: bytes) -> list[int]:
    """Return the queue offsets of half messages that an op message names.

    Both forms are read: one number (up to 5.0), and numbers with a comma each. What is no number
    is ignored.
    """
    parts = body.split(formats.OP_SEPARATOR.encode())
    return [int(part) for part in parts if _NUMBER.fullmatch(part)]


class OpBatch:
    """Op messages of decisions that wait for the same sync: one for all of them.

    While a thread waits for a sync, other threads leave the queue offsets of their half messages
    here. The first thread whose wait ends writes them, so that the next sync makes all of them
    durable. A decision does not wait for more than that.

    Parameters
    ----------
    append : callable
        ``append(queue_offsets)`` appends op messages; returns the log's end after them.
    waiting : callable
        Returns how many threads wait for the disk; each of them calls ``write`` after its wait.

    Notes
    -----
    Threading: any number of threads.
    """

    def __init__(self, append: Callable[[list[int]], int], waiting: Callable[[], int]) -> None:
        self._append = append
        self._waiting = waiting
        self._lock = threading.Lock()
        self._current = _Batch()  # guarded by: _lock

    @property
    def offsets(self) -> list[int]:
        """What was left and is not written yet."""
        return self._current.offsets

    def join(self, queue_offset: int) -> int:
        """Leave an offset to a batch; return the log's end after its op message.

        Raises what writing the batch raised. After an interrupt the offset is in the log, or owed.
        """
        with self._lock:
            batch = self._current
            batch.offsets.append(queue_offset)
        try:
            if not self._waiting():  # the others left meanwhile
                self.write()
            # A handler that interrupted the only thread that waits would wait for itself.
            while not batch.is_done:
                if batch.written.acquire(timeout=_LONGEST_WAIT_S):
                    batch.written.release()
                else:
                    self.write()
        except BaseException:
            self._end(batch)
            raise
        if batch.error is not None:
            raise batch.error
        return batch.end

    def _end(self, batch: _Batch) -> None:
        """Write a batch, or wait for the thread that writes it: it may not be left half done."""
        with contextlib.suppress(Exception):  # kept as the batch's error
            self.write()
        while not batch.is_done:
            if batch.written.acquire(timeout=_LONGEST_WAIT_S):
                batch.written.release()

    def write(self) -> None:
        """Write what was left, if anything."""
        batch: _Batch | None = None
        try:
            with self._lock:
                if not self._current.offsets:
                    return
                batch, self._current = self._current, _Batch()
            batch.end = self._append(batch.offsets)
        except BaseException as error:
            if batch is not None:
                batch.error = error
            raise
        finally:
            if batch is not None:
                batch.is_done = True
                batch.written.release()


class _Batch:
    """Queue offsets for one op message; ``written`` is held until it is in the log.

    ``is_done`` also then: an interrupted thread may keep ``written``.
    """

    __slots__ = ("end", "error", "is_done", "offsets", "written")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.end = 0
        self.error: BaseException | None = None
        self.is_done = False
        self.written = held_lock()
