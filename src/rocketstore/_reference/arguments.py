"""Buffer and number arguments of the pure-Python kernels, checked like those of the native ones."""

from __future__ import annotations

from collections.abc import Iterator
from struct import iter_unpack, pack_into
from typing import Any, TypeAlias

#: Any object with the buffer protocol (``collections.abc.Buffer`` is newer than Python 3.11).
Buffer: TypeAlias = Any
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_SIZES = {"i": 4, "q": 8}


def readable(buffer: Buffer) -> memoryview:
    """Return the bytes of a C-contiguous buffer."""
    try:
        view = memoryview(buffer)
    except TypeError:
        kind = type(buffer).__name__
        raise TypeError(f"a bytes-like object is required, not {kind!r}") from None
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.cast("B")


def writable(buffer: Buffer) -> memoryview:
    """Return the bytes of a writable, C-contiguous buffer."""
    view = readable(buffer)
    if view.readonly:
        raise BufferError("Object is not writable.")
    return view


def wrap64(value: int) -> int:
    """Return ``value`` wrapped to 64 bits, as in Java's ``long`` arithmetic."""
    return (value + 2**63) % 2**64 - 2**63


def check_int64(*values: int) -> None:
    """Raise ``OverflowError`` for a number that is not a 64-bit integer."""
    for value in values:
        if not INT64_MIN <= value <= INT64_MAX:
            raise OverflowError("Python int too large to convert to C long")


def whole_units(view: memoryview, unit_nbytes: int, position: int, stop: int) -> int:
    """Check a range of a queue file; return ``stop`` rounded down to whole units."""
    check_int64(position, stop)
    if not 0 <= position <= stop <= len(view) or position % unit_nbytes:
        raise ValueError(
            f"units from position {position} to {stop}: not within a file of {len(view)} bytes, "
            f"or the position is not a multiple of {unit_nbytes}"
        )
    return position + (stop - position) // unit_nbytes * unit_nbytes


class Integers:
    """An array argument: a buffer of 4-byte (``i``) or 8-byte (``q``) native integers.

    Parameters
    ----------
    buffer : buffer of such integers, or of their bytes
    code : str
        ``"i"`` or ``"q"``.
    name : str
        For the error message.
    writes : bool
        The array is filled by the kernel.
    """

    def __init__(self, buffer: Buffer, code: str, name: str, *, writes: bool = False) -> None:
        nbytes = _SIZES[code]
        self._code = code
        self._bytes = writable(buffer) if writes else readable(buffer)
        if memoryview(buffer).itemsize not in (1, nbytes) or len(self._bytes) % nbytes:
            raise ValueError(f"{name} must hold integers of {nbytes} bytes")
        self._nbytes = nbytes

    def __len__(self) -> int:
        return len(self._bytes) // self._nbytes

    def __iter__(self) -> Iterator[int]:
        return (item[0] for item in iter_unpack("=" + self._code, self._bytes))

    def __setitem__(self, index: int, value: int) -> None:
        pack_into("=" + self._code, self._bytes, index * self._nbytes, value)


def check_lengths(*arrays: Integers) -> int:
    """Return the common length of the arrays; raise ``ValueError`` if they differ."""
    first = len(arrays[0])
    if any(len(array) != first for array in arrays):
        raise ValueError("arrays differ in length: " + ", ".join(str(len(a)) for a in arrays))
    return first
