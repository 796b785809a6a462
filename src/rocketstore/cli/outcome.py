"""Exit codes, and how errors become a short message and one of them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import typer

from rocketstore.cli.text import escape
from rocketstore.errors import RocketStoreError, StoreLockedError, UnsafePathError


class ExitCode(IntEnum):
    """What the exit status of every command means."""

    FINE = 0
    #: Findings, no hit, a put that was refused.
    FINDINGS = 1
    USAGE = 2
    CANNOT_READ = 3
    UNSAFE = 4
    UNEXPECTED = 70
    INTERRUPTED = 130


DEBUG_VARIABLE = "ROCKETSTORE_DEBUG"


def wants_traceback() -> bool:
    """Whether errors are shown with their traceback (``--debug`` or ROCKETSTORE_DEBUG)."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def complain(text: str) -> None:
    """Write one message for the user to stderr."""
    typer.echo(f"rocketstore: {escape(text)}", err=True)


def fail(code: ExitCode, text: str) -> typer.Exit:
    """Say ``text`` on stderr and return the exit to raise."""
    complain(text)
    return typer.Exit(int(code))


def reporting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command: every error becomes a message and an exit code, a closed pipe a quiet end."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with exit_codes():
            return command(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Translate whatever a command raises."""
    try:
        yield
        sys.stdout.flush()
    except (typer.Exit, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        raise fail(ExitCode.INTERRUPTED, "interrupted") from None
    except BrokenPipeError:
        _drop_stdout()
        raise typer.Exit(int(ExitCode.FINE)) from None
    except (UnsafePathError, StoreLockedError) as error:
        raise _explain(ExitCode.UNSAFE, error) from error
    except (RocketStoreError, OSError) as error:
        raise _explain(ExitCode.CANNOT_READ, error) from error
    except Exception as error:  # the edge of the process: nothing may pass it unsaid
        raise _explain(ExitCode.UNEXPECTED, error) from error


def _explain(code: ExitCode, error: Exception) -> typer.Exit:
    if wants_traceback():
        import traceback

        typer.echo(escape("".join(traceback.format_exception(error)), keep="\n"), err=True)
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    if code == ExitCode.UNEXPECTED:
        text = f"unexpected {type(error).__name__}: {text} (--debug shows where)"
    return fail(code, text)


def _drop_stdout() -> None:
    """The reader of a pipe has gone: what is still buffered must not complain at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, sys.stdout.fileno())
    finally:
        os.close(devnull)
