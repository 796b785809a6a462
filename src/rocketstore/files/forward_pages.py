"""Reading a long mapped file forwards with few of its pages in memory at a time."""

from __future__ import annotations

import mmap

from rocketstore.files.mapped_file import MappedFile, MemoryFile

#: Bytes that are made present at once, and released together.
STEP_NBYTES = 32 << 20


def release_pages(file: MappedFile | MemoryFile, stop: int | None = None, start: int = 0) -> None:
    """Release a file's pages from ``start`` to ``stop`` (its end), if it is mapped and shared.

    The pages stay in the system's cache. Correct at any time, also while others read or write.
    """
    if isinstance(file, MappedFile) and not file.private and file.mapped is not None:
        start -= start % mmap.PAGESIZE
        nbytes = (file.file_size if stop is None else min(stop, file.file_size)) - start
        if nbytes > 0:
            file.mapping.advise("dontneed", start, nbytes)


class PassedPages:
    """Releases the pages that a reader of a long file has passed.

    Unlike ``ForwardPages`` it prepares nothing, and does nothing for the first 32 MiB.
    """

    def __init__(self) -> None:
        self._file: MappedFile | MemoryFile | None = None
        self._low = 0

    def move(self, file: MappedFile | MemoryFile, first: int, position: int) -> None:
        """Tell that ``file`` was read from ``first``, or from where it was, to ``position``."""
        if file is not self._file:
            if self._file is not None:
                release_pages(self._file, start=self._low)
            self._file, self._low = file, first
        if position - self._low >= STEP_NBYTES:
            release_pages(file, position, self._low)
            self._low = position


class ForwardPages:
    """Makes the pages ahead of a reader present, and releases those that it has read.

    Pages count as a process's memory while they are mapped, so a pass over a log would count the
    whole log. Released pages stay in the system's cache; reading them again is correct, and slower.
    Private memory is left as it is.

    Notes
    -----
    Threading: one thread at a time. Not for mappings that others read at random.
    """

    def __init__(self) -> None:
        self._file: MappedFile | MemoryFile | None = None
        self._low = self._high = self._at = 0

    def move(self, file: MappedFile | MemoryFile, position: int, stop: int) -> None:
        """Prepare for reading ``file`` from ``position`` on; nothing from ``stop`` on is read.

        A reader calls this before each step; steps may go beyond what is prepared.
        """
        if file is not self._file:
            self.release()
            self._file = file
            self._low = self._high = position - position % mmap.PAGESIZE
        self._at = position
        if isinstance(file, MemoryFile) or file.private:
            return
        if position - self._low >= STEP_NBYTES:
            nbytes = (position - self._low) // mmap.PAGESIZE * mmap.PAGESIZE
            file.mapping.advise("dontneed", self._low, nbytes)
            self._low += nbytes
        stop = min(stop, file.file_size)
        if position + STEP_NBYTES // 4 >= self._high and self._high < stop:
            first = max(self._high, position - position % mmap.PAGESIZE)
            nbytes = min(STEP_NBYTES, stop - first)
            if nbytes > 0:
                file.mapping.populate_for_reading(first, nbytes)
                self._high = -(-(first + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE

    def release(self) -> None:
        """Release all pages of the file that was read last."""
        file, self._file = self._file, None
        if isinstance(file, MappedFile) and not file.private and file.mapped is not None:
            nbytes = min(max(self._high, self._at), file.file_size) - self._low
            if nbytes > 0:
                file.mapping.advise("dontneed", self._low, nbytes)
