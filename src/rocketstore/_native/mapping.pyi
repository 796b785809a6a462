"""Mapped files: bytes in memory, nothing of paths. Bodies: ``_native/mapping``,
``_reference/mapping``."""

from typing import final

from typing_extensions import Buffer

@final
class Mapping(Buffer):
    """A shared mapping of the first ``nbytes`` bytes of an open file.

    Supports the buffer protocol (``uint8``, shape (nbytes,)); read-only unless ``writable``. Every
    buffer taken from it counts as an export. The descriptor is not kept. ``close()`` only marks it
    closed: new exports raise ``ValueError``, the pages are unmapped with the last export.
    ``private`` writes stay in this process's memory; ``fd`` -1 is memory of its own (writable and
    private). The reference body counts only ``view()`` in ``exports``. Threads: all methods may
    run in parallel; all that take a range but ``advise`` release the GIL.
    """

    nbytes: int
    writable: bool
    closed: bool
    exports: int
    def __init__(self, fd: int, nbytes: int, writable: bool = False, private: bool = False) -> None:
        """Raises ``OSError`` from mmap, ``ValueError`` for nbytes <= 0 or past the end of the
        file."""
    def advise(self, advice: str, position: int = 0, length: int | None = None) -> bool:
        """madvise with ``normal|random|sequential|willneed|dontneed``; False where unsupported, and
        for ``dontneed`` on private memory, which would be lost."""
    def sync(self, position: int, length: int) -> None:
        """msync(MS_SYNC) the pages that hold the range (rounded to pages). Raises ``OSError``, the
        same one at every later call."""
    def populate(self, position: int, length: int) -> bool:
        """Make the range's pages present and writable (MADV_POPULATE_WRITE); False if
        unsupported."""
    def populate_for_reading(self, position: int, length: int) -> bool:
        """Make the range's pages present (MADV_POPULATE_READ), which costs less than touching them
        one by one; False if unsupported, and when a page cannot be read, which touching it tells.
        """
    def lock(self, position: int, length: int) -> None:
        """Keep the range's pages in memory, each from when it is there (mlock2 with
        MLOCK_ONFAULT, else mlock). Raises ``OSError`` where so much may not be locked,
        ``ValueError`` for a read-only mapping."""
    def unlock(self, position: int, length: int) -> None:
        """munlock. Raises as ``lock``."""
    def clear(self, position: int, length: int) -> None:
        """Write zeros over the range. ``ValueError`` for a read-only mapping."""
    def view(self) -> memoryview:
        """All bytes; ``ValueError`` once closed."""
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def allocate(fd: int, position: int, length: int) -> bool:
    """Reserve disk blocks without changing the size (fallocate KEEP_SIZE). False where unsupported
    (EOPNOTSUPP, ENOSYS); other failures raise ``OSError`` (ENOSPC, EFBIG ...)."""

def is_named(path: bytes, device: int, inode: int, nbytes: int) -> bool:
    """Whether ``path`` names the file of this device and inode, and it has so many bytes or more.

    False also where nobody can tell.
    """

def mapped_nbytes() -> int:
    """Bytes this body has mapped at this moment in this process (for leak tests)."""
