"""The standard streams of the command: closed ones, full ones, and ones whose reader has gone."""

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


class _Output(io.TextIOWrapper):
    """Standard output; its errors bear its name, so that nobody takes them for a store's.

    The bytes below it are written by C code alone: an interrupt inside a method in Python would
    come after they were written and before the buffer knows it, and they would be written twice.
    """

    def write(self, text: str, /) -> int:
        """Write ``text``, or hold it until a flush."""
        try:
            return super().write(text)
        except OSError as error:
            error.filename = OUTPUT_NAME
            raise

    def flush(self) -> None:
        """Write what is held."""
        try:
            super().flush()
        except OSError as error:
            error.filename = OUTPUT_NAME
            raise


class _Messages(io.FileIO):
    """Standard error; where nobody can be told, nobody is, and the exit code says the rest."""

    def write(self, data: Any, /) -> int:
        """Write some of ``data``."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Let errors of standard output say that they are its, those of standard error pass, and all
    text be UTF-8."""
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
    """Holds Ctrl-C back while a row is written, so that rows are written whole, and once.

    A context manager; in another thread than the main one, which no interrupt reaches, it does
    nothing. A second Ctrl-C ends the writing too, as when nobody reads the output.
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
        """Hold an interrupt back until the block is done."""
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
        if self._came:
            self._came = False
            raise KeyboardInterrupt


def drop(stream: IO[str]) -> None:
    """Send what is still buffered for ``stream`` to the null device: it must not fail at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)
