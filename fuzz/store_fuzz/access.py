"""Files without read permission, even if the fuzzer runs as root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

#: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: they let root read files regardless of their mode.
_CAPABILITIES = 1 << 1 | 1 << 2
_VERSION_3 = 0x20080522


def obey_modes() -> None:
    """Make file modes apply to this process from now on, even if it runs as root.

    Its other rights stay. Raises ``OSError`` if root cannot give up these rights.
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
    """Make a file readable for its owner within the context."""
    mode = os.lstat(path).st_mode & 0o7777
    if mode & 0o400:
        yield
        return
    os.chmod(path, mode | 0o400)
    try:
        yield
    finally:
        os.chmod(path, mode)
