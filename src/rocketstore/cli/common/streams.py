"""Make standard streams safe: closed ones, full disks, and pipes whose reader has gone."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any, TextIO

#: File name that an error of standard output carries.
OUTPUT_NAME = "standard output"
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_closed_streams() -> None:
    """Replace every closed standard stream with the null device.

    Daemons and cron close them. Python sets them to ``None``, and the first files that are opened
    get their descriptors: output would be written into a store. Call this before opening any file.
    """
    for descriptor, name, mode in _STREAMS:
        if not _is_open(descriptor):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)  # no-op if equal; children inherit the descriptor
            os.set_inheritable(descriptor, True)
            if null != descriptor:
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, _text(open(os.devnull, mode + "b")))  # noqa: SIM115 - until exit


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _text(file: IO[bytes]) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class _Output(io.TextIOWrapper):
    """Standard output whose errors carry its name, to distinguish them from a store's errors.

    C code alone writes the bytes below it. An interrupt inside a Python method could come after
    the write but before the buffer is updated, and the bytes would be written twice.
    """

    def write(self, text: str, /) -> int:
        """Write ``text``, or buffer it until a flush."""
        try:
            return super().write(text)
        except OSError as error:
            error.filename = OUTPUT_NAME
            raise

    def flush(self) -> None:
        """Write the buffer."""
        try:
            super().flush()
        except OSError as error:
            error.filename = OUTPUT_NAME
            raise


class _Messages(io.FileIO):
    """Standard error that ignores write errors; the exit code still reports the outcome."""

    def write(self, data: Any, /) -> int:
        """Write some of ``data``."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Make errors of stdout carry its name, ignore errors of stderr, and write UTF-8 to both."""
    sys.stdout = _replaced(sys.stdout, 1, io.FileIO, _Output)
    sys.stderr = _replaced(sys.stderr, 2, _Messages, io.TextIOWrapper)


def _replaced(
    old: TextIO, descriptor: int, kind: type[io.FileIO], text: type[io.TextIOWrapper]
) -> TextIO:
    if not isinstance(old, io.TextIOWrapper):
        return old  # a test's or a notebook's
    old.reconfigure(encoding="utf-8", errors="backslashreplace")
    if old.fileno() != descriptor:
        return old
    old.flush()
    raw = io.BufferedWriter(kind(descriptor, "w", closefd=False))
    return text(raw, encoding="utf-8", errors="backslashreplace", line_buffering=old.line_buffering)


class HeldInterrupt:
    """Delays Ctrl-C while a row is written, so that each row is written once and completely.

    A context manager. Outside the main thread, which receives all interrupts, it does nothing. A
    second Ctrl-C interrupts even a blocked write, for example into a pipe that is not read.
    """

    def __init__(self) -> None:
        self._writing = False
        self._came = False
        self._old: Any = None

    def __enter__(self) -> HeldInterrupt:
        if threading.current_thread() is threading.main_thread():
            self._old = signal.getsignal(signal.SIGINT)
            if callable(self._old):
                signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._old):
            signal.signal(signal.SIGINT, self._old)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._writing and not self._came:
            self._came = True
            return
        self._old(number, frame)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delay an interrupt until the block ends."""
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
        if self._came:
            self._came = False
            raise KeyboardInterrupt


def drop(stream: IO[str]) -> None:
    """Send the buffer of ``stream`` to the null device, so that it cannot fail at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)
