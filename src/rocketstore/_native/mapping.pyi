"""Mapped files: bytes in memory, without paths. Bodies: ``_native/mapping``,
``_reference/mapping``."""

from typing import final

from typing_extensions import Buffer

@final
class Mapping(Buffer):
    """A shared mapping of the first ``nbytes`` bytes of an open file.

    Supports the buffer protocol (``uint8``, shape (nbytes,)); read-only unless ``writable``. Every
    buffer taken from it counts as an export. The descriptor is not kept. ``close()`` only marks it
    closed: new exports raise ``ValueError``; the last export unmaps the pages. ``private`` writes
    stay in this process's memory; ``fd`` -1 is anonymous memory (writable and private). The
    reference body counts only ``view()`` in ``exports``. Threads: all methods may run in parallel;
    all that take a range, except ``advise``, release the GIL.
    """

    nbytes: int
    writable: bool
    closed: bool
    exports: int
    def __init__(self, fd: int, nbytes: int, writable: bool = False, private: bool = False) -> None:
        """Raise ``OSError`` from mmap, ``ValueError`` for nbytes <= 0 or past the end of the
        file."""
    def advise(self, advice: str, position: int = 0, length: int | None = None) -> bool:
        """Call madvise with ``normal|random|sequential|willneed|dontneed``. Return False if it is
        unsupported, and for ``dontneed`` on private memory, which would be lost."""
    def sync(self, position: int, length: int) -> None:
        """Call msync(MS_SYNC) on the pages of the range. Raise ``OSError``, the same one at every
        later call."""
    def refuse_syncs(self, error: int) -> None:
        """Let every later ``sync`` raise this errno: the pages were synced elsewhere, and that
        failed."""
    def populate(self, position: int, length: int) -> bool:
        """Make the range's pages present and writable (MADV_POPULATE_WRITE); return False if
        unsupported."""
    def populate_for_reading(self, position: int, length: int) -> bool:
        """Make the range's pages present (MADV_POPULATE_READ), which is cheaper than touching them
        one by one. Return False if it is unsupported or a page cannot be read; touching that page
        raises the error."""
    def lock(self, position: int, length: int) -> None:
        """Keep the range's pages in memory once they are present (mlock2 with MLOCK_ONFAULT, else
        mlock). Raise ``OSError`` if the limit for locked memory is exceeded, ``ValueError`` for a
        read-only mapping."""
    def unlock(self, position: int, length: int) -> None:
        """Undo ``lock`` (munlock). Raises as ``lock``."""
    def clear(self, position: int, length: int) -> None:
        """Write zeros over the range. ``ValueError`` for a read-only mapping."""
    def view(self) -> memoryview:
        """Return all bytes; raise ``ValueError`` once closed."""
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def allocate(fd: int, position: int, length: int) -> bool:
    """Reserve disk blocks without changing the size (fallocate KEEP_SIZE). Return False if
    unsupported (EOPNOTSUPP, ENOSYS); other failures raise ``OSError`` (ENOSPC, EFBIG ...)."""

def zero_range(fd: int, position: int, length: int) -> bool:
    """Make a range zero that keeps its blocks: the file system then holds no data there, so that a
    search for data ignores it (fallocate ZERO_RANGE). Blocks that it lacks are reserved.

    Return False if unsupported, as always in the reference body; other failures raise
    ``OSError``."""

def is_named(path: bytes, device: int, inode: int, nbytes: int) -> bool:
    """Return whether ``path`` names this device and inode, with at least ``nbytes`` bytes.

    Also False if this cannot be determined.
    """

def mapped_nbytes() -> int:
    """Return the bytes this body has mapped now in this process (for leak tests)."""
