"""How far a job is, told to a caller."""

from __future__ import annotations

from collections.abc import Callable

#: ``progress(done, total)``, in bytes.
Progress = Callable[[int, int], None]


class Told:
    """Counts bytes and tells a caller, who never hears of fewer than before.

    Parameters
    ----------
    progress : callable or None
    total : int
        Bytes of the whole job, 1 or more where there is anything to do.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._counted = 0
        self._told = 0

    def add(self, nbytes: int) -> None:
        """Tell of some more bytes."""
        self._counted = min(self._counted + nbytes, self._total)
        self._tell(self._counted)

    def part(self, nbytes: int) -> Callable[[int, int], None] | None:
        """Return what ``run_tasks`` calls with (tasks done, all tasks) while tasks run whose
        results are added later, ``nbytes`` in all; None when nobody listens."""
        if self._progress is None:
            return None
        begun = self._counted
        return lambda done, tasks: self._tell(min(begun + nbytes * done // tasks, self._total))

    def end(self) -> None:
        """Tell that all is done."""
        self._tell(self._total)

    def _tell(self, done: int) -> None:
        if self._progress is not None and done >= self._told:
            self._told = done
            self._progress(done, self._total)
