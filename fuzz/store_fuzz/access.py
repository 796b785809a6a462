"""Files that may not be read, also when the fuzzer runs as root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

#: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what lets root read whatever the mode of a file says.
_CAPABILITIES = 1 << 1 | 1 << 2
_VERSION_3 = 0x20080522


def obey_modes() -> None:
    """From here on this process may read what a file's mode allows its owner, as others may.

    Its other rights stay. Raises ``OSError`` where root cannot give up its own.
    """
    if os.geteuid() != 0 or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    for call in (libc.capget, libc.capset):
        if call(header, sets) != 0:
            raise OSError(ctypes.get_errno(), "the rights of root cannot be given up")
        sets[0] &= ~_CAPABILITIES


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Let its owner read a file for a moment."""
    mode = os.lstat(path).st_mode & 0o7777
    if mode & 0o400:
        yield
        return
    os.chmod(path, mode | 0o400)
    try:
        yield
    finally:
        os.chmod(path, mode)
