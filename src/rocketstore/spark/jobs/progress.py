"""How far a job is, told to a caller."""

from __future__ import annotations

from collections.abc import Callable

#: ``progress(done, total)``, in bytes.
Progress = Callable[[int, int], None]


class Told:
    """Counts bytes and tells a caller.

    Parameters
    ----------
    progress : callable or None
    total : int
        Bytes of the whole job, 1 or more where there is anything to do.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, nbytes: int) -> None:
        """Tell of some more bytes."""
        self._done = min(self._done + nbytes, self._total)
        self._tell()

    def end(self) -> None:
        """Tell that all is done."""
        self._done = self._total
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total)
