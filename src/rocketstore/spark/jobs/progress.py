"""Report the progress of a job to its caller."""

from __future__ import annotations

from collections.abc import Callable

#: ``progress(done, total)``, in bytes.
Progress = Callable[[int, int], None]


class ProgressBar:
    """Counts bytes and reports them; the reported number never decreases.

    Parameters
    ----------
    progress : callable or None
    total : int
        Bytes of the whole job; at least 1 if there is anything to do.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._counted = 0
        self._reported = 0

    def add(self, nbytes: int) -> None:
        """Report that ``nbytes`` more bytes are done."""
        self._counted = min(self._counted + nbytes, self._total)
        self._report(self._counted)

    def part(self, nbytes: int) -> Callable[[int, int], None] | None:
        """Return a callback for ``run_tasks``, called with (tasks done, all tasks).

        It covers tasks whose results, ``nbytes`` in all, are added later. None without a progress
        function.
        """
        if self._progress is None:
            return None
        begun = self._counted
        return lambda done, tasks: self._report(min(begun + nbytes * done // tasks, self._total))

    def end(self) -> None:
        """Report that everything is done."""
        self._report(self._total)

    def _report(self, done: int) -> None:
        if self._progress is not None and done >= self._reported:
            self._reported = done
            self._progress(done, self._total)
