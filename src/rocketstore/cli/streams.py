"""The standard streams of the command: closed ones, full ones, and ones whose reader has gone."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import IO, Any

#: What an error of standard output bears as the name of its file.
OUTPUT_NAME = "standard output"
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_closed_streams() -> None:
    """Let every standard stream that is closed be the null device.

    Daemons and cron close them. Python has ``None`` in their places then, and the first files that
    are opened get their descriptors: what is written to standard output would go into a store.
    Call this before any file is opened.
    """
    for descriptor, name, mode in _STREAMS:
        if not _is_open(descriptor):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)  # an equal one stays; children inherit it
            os.set_inheritable(descriptor, True)
            if null != descriptor:
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, _text(open(os.devnull, mode + "b")))  # noqa: SIM115 - to the end


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _text(file: IO[bytes]) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class _Output(io.FileIO):
    """Standard output; its errors bear its name, so that nobody takes them for a store's."""

    def write(self, data: Any, /) -> int:
        """Write some of ``data``."""
        return _named(lambda: super(_Output, self).write(data))


def _named(write: Callable[[], int]) -> int:
    try:
        return write()
    except OSError as error:
        error.filename = OUTPUT_NAME
        raise


def name_errors_of_output() -> None:
    """Let errors of standard output say that they are its, and all text be UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    old = sys.stdout
    if not isinstance(old, io.TextIOWrapper) or not _is_descriptor(old, 1):
        return  # a test's or a notebook's
    old.flush()
    raw = _Output(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=old.line_buffering,
    )


def _is_descriptor(stream: io.TextIOWrapper, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):
        return False


def settle_stderr() -> None:
    """Have what messages are left written out, so that they do not fail at the exit.

    Where nobody can be told, nobody is; the exit code says the rest.
    """
    try:
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)


def drop(stream: IO[str]) -> None:
    """Send what is still buffered for ``stream`` to the null device: it must not fail at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)
