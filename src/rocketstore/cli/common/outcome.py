"""Exit codes, and how an error becomes a short message and an exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any

import typer

from rocketstore.cli.common.streams import OUTPUT_NAME, drop
from rocketstore.cli.common.text import escape
from rocketstore.errors import (
    ConfigError,
    RepairRefusedError,
    RocketStoreError,
    StoreLockedError,
    UnsafePathError,
)


class ExitCode(IntEnum):
    """What the exit status of every command means."""

    FINE = 0
    #: Findings, no hit, or a put answered with a status other than PUT_OK.
    FINDINGS = 1
    #: Invalid arguments, or settings that contradict the files.
    USAGE = 2
    #: Missing, damaged, no permission, disk full, or wrong size or kind.
    CANNOT_READ = 3
    #: In use, links that leave the store, or no safe repair.
    UNSAFE = 4
    UNEXPECTED = 70
    INTERRUPTED = 130
    TERMINATED = 143


#: The exit code of each error class; the first class that matches counts.
_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (UnsafePathError, ExitCode.UNSAFE),
    (StoreLockedError, ExitCode.UNSAFE),
    (RepairRefusedError, ExitCode.UNSAFE),
    (ConfigError, ExitCode.USAGE),
    (RocketStoreError, ExitCode.CANNOT_READ),
    (OSError, ExitCode.CANNOT_READ),
    (MemoryError, ExitCode.CANNOT_READ),
)


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a command that ends with ``error``."""
    fitting = (code for kind, code in _CODES if isinstance(error, kind))
    return next(fitting, ExitCode.UNEXPECTED)


DEBUG_VARIABLE = "ROCKETSTORE_DEBUG"


def wants_traceback() -> bool:
    """Return whether errors show a traceback (``--debug`` or ROCKETSTORE_DEBUG)."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def complain(text: str, *, keep: str = "") -> None:
    """Write one message for the user to stderr; characters in ``keep`` are not escaped."""
    typer.echo(f"rocketstore: {escape(text, keep=keep)}", err=True)


def fail_by_lines(code: ExitCode, text: str) -> typer.Exit:
    """Write a message for each line of ``text`` to stderr and return the exit to raise."""
    for line in text.split("\n"):
        complain(line)
    return typer.Exit(int(code))


def fail(code: ExitCode, text: str, *, keep: str = "") -> typer.Exit:
    """Write ``text`` to stderr and return the exit to raise."""
    complain(text, keep=keep)
    return typer.Exit(int(code))


def reporting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command so that errors become a message and exit code; a closed pipe exits with 0."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with exit_codes():
            return command(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Translate every exception of a command into an exit code."""
    try:
        try:
            yield
        except typer.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (typer.Exit, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        raise fail(ExitCode.INTERRUPTED, "interrupted") from None
    except BrokenPipeError:
        drop(sys.stdout)
        raise typer.Exit(int(ExitCode.FINE)) from None
    except Exception as error:  # last resort: every error must be reported
        if getattr(error, "filename", None) == OUTPUT_NAME:
            drop(sys.stdout)
        raise _explain(exit_code_of(error), error) from error


@contextlib.contextmanager
def answering(done: str) -> Iterator[None]:
    """Write, in the block, the answer of a command that changed something.

    If the answer cannot be written, the message begins with ``done``: the caller must know before
    a retry.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop(sys.stdout)
        raise _explain(
            exit_code_of(error), error, f"{done}, but the answer could not be written: "
        ) from error


def words_of(error: BaseException) -> str:
    """Return an error as one sentence that begins with the file's name, without errno."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, FileNotFoundError) and _is_folder_gone():
        return "the current folder was deleted, so relative paths cannot be resolved"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _explain(code: ExitCode, error: Exception, head: str = "") -> typer.Exit:
    if wants_traceback():
        import traceback

        typer.echo(escape("".join(traceback.format_exception(error)), keep="\n"), err=True)
    text = words_of(error)
    if code == ExitCode.UNEXPECTED:
        text = f"unexpected {type(error).__name__}: {text} (--debug shows where)"
    if isinstance(error, ConfigError):
        return fail_by_lines(code, head + text)
    return fail(code, head + text)


def check_found(count: int, conditions: Iterable[object], *, quiet: bool) -> None:
    """End the command with 1 if no message met its conditions; without any, none need be there."""
    if count or all(one is None or one == [] for one in conditions):
        return
    if not quiet:
        complain("no message meets these conditions")
    raise typer.Exit(int(ExitCode.FINDINGS))
