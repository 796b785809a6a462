"""What an error says of the one that caused it, and which errors are a lack of memory."""

from __future__ import annotations

import re


def told(error: BaseException | None) -> str:
    """What another error says of ``error``: its type, and its own words where it has any."""
    words = str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


#: What CPython raises where its own code met a failed allocation and lost the ``MemoryError``: type
#: and words, none of which a caller's mistake can give.
_DISGUISES = (
    (RuntimeError, re.compile("can't allocate lock")),
    (SystemError, re.compile("error return without exception set|without setting an exception")),
    (TypeError, re.compile("os.PathLike(?: object)?, not PosixPath")),
)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, also where the interpreter calls it something else."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, SystemError) and isinstance(error.__cause__, MemoryError):
        return True  # a type's constructor overlooked it
    words = str(error)
    return any(isinstance(error, kind) and form.search(words) for kind, form in _DISGUISES)
