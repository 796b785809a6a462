"""Threads that wait for an offset of the log to be on disk.

They wait and are woken without the GIL: the thread that syncs does not take it for each of them.
"""

from typing import final

@final
class OffsetWaiters:
    """Threads that wait, each for an offset, and one that listens to them and reaches it.

    Threading: any thread may call any method, but one thread listens. In a forked child nobody
    waits, whoever waited in its parent.
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

    def ring(self) -> None:
        """End the current call of ``listen``, or the next one."""

    def listen(self, timeout_s: float) -> bool:
        """Wait for a ring, at most ``timeout_s``; reset it and return whether it rang."""
