"""Threads that wait for an offset of the log to be on disk.

They wait and are woken without the GIL: the thread that syncs does not take it for each of them.
"""

from types import TracebackType
from typing import final

from typing_extensions import Buffer

from rocketstore._native.commit_log import Appender

@final
class OffsetWaiters:
    """Threads that wait, each for an offset, and one that listens to them and reaches it.

    ``with`` it, ``follow`` does not sync and returns at once.

    Threading: any thread may call any method, but one thread listens. In a forked child no thread
    waits.
    """

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """Return the number of waiting threads."""

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Ring, and wait until ``offset`` is reached or ``fail`` is called; return False if neither
        was in time.

        Raises whatever the handler of a signal raises, such as ``KeyboardInterrupt``.
        """

    def reach(self, offset: int) -> None:
        """State what was reached, and wake the threads that wait for it or for less."""

    def fail(self) -> None:
        """Wake every thread; from now on none waits."""

    @property
    def reached(self) -> int:
        """What was reached last; 0 at first."""

    def ring(self) -> None:
        """End the current call of ``listen`` or ``follow``, or the next one."""

    def listen(self, timeout_s: float) -> bool:
        """Wait for a ring, at most ``timeout_s``; reset it and return whether it rang."""

    def follow(
        self,
        appender: Appender,
        segment: Buffer,
        base_offset: int,
        flushed: int,
        fd: int,
        names: tuple[tuple[bytes, int, int, int], ...],
        timeout_s: float,
    ) -> tuple[bool, int, int, int]:
        """Listen, sync what ``appender`` put to ``segment`` and state it by ``reach``, again and
        again, without the GIL.

        Parameters
        ----------
        segment : buffer
            The mapping of the segment that is being written.
        base_offset, flushed : int
            The physical offset of its first byte, and up to which it is on disk.
        fd : int
            A descriptor of its file, from which a byte is read after each sync; -1 for none.
        names : tuple of (path, device, inode, nbytes)
            At most two files that must have their names and at least this size after each sync;
            otherwise the sync is not stated.
        timeout_s : float
            The longest pause without a ring.

        Returns
        -------
        tuple
            Whether there may be something else to do, such as another segment, a failure or a lost
            name; ``flushed``; the store time of the newest record below it, 0 if there was no sync;
            and the errno of a sync that failed, else 0. Such a failure is final.

        It returns early, and may return without any sync: the caller then syncs in its own way.
        """

    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    @property
    def is_held(self) -> bool:
        """Whether a thread is in its ``with`` block."""

    def ask_back(self) -> int:
        """Make ``follow`` return after the next sync that ends; return what was reached so far."""
