"""The Spark session of the commands, its progress and its errors."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from rocketstore import errors
from rocketstore.errors import RocketStoreError
from rocketstore.spark.base.local import java_environment, local_session, stopping, variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: An error of this library in the traceback of a failed task.
_OURS = re.compile(r"^(?:rocketstore\.errors\.)(\w+): (.+)$", re.MULTILINE)
_SYSTEM = re.compile(
    r"^(?:FileNotFoundError|FileExistsError|PermissionError|NotADirectoryError|OSError): (.+)$",
    re.MULTILINE,
)


@contextlib.contextmanager
def spark_session(
    master: str | None, conf: Sequence[str] | None, *, quiet: bool
) -> Iterator[SparkSession]:
    """Yield a session; draw its progress on stderr, and translate its errors.

    Parameters
    ----------
    master : str, optional
        A Spark master, or ``sc://host`` for Spark Connect. None: the master of ``spark-submit``,
        or all cores of this machine.
    conf : sequence of str, optional
        Spark settings as ``NAME=VALUE``.
    quiet : bool
        Draw no progress.
    """
    settings = dict(_pair(text) for text in conf or ())
    with (
        translated(),
        stopping(lambda: _open(master, settings)) as session,
        _progress(session, quiet=quiet),
    ):
        if quiet and not (master or "").startswith("sc://"):
            # The command's one-sentence error replaces a failed task's stack trace.
            session.sparkContext.setLogLevel("OFF")
        yield session


def _open(master: str | None, settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" in os.environ and master is None:
        return SparkSession.builder.config(map={**settings}).getOrCreate()
    if master is None:
        return local_session("rocketstore spark", None, **settings)
    builder = SparkSession.builder.config(map={**settings})
    if master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    with variables(java_environment()):
        return builder.appName("rocketstore spark").master(master).getOrCreate()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"{text!r} is not a setting: give NAME=VALUE")
    return name.strip(), value


def pairs(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Return ``NAME=VALUE`` options as a dict; None without any. Raises ``typer.BadParameter``."""
    return dict(_pair(text) for text in texts) if texts else None


# --- errors -----------------------------------------------------------------------------------


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Replace Spark's exception with the error of this library that caused it, or a sentence."""
    try:
        yield
    except (RocketStoreError, OSError, typer.Exit, typer.BadParameter, KeyboardInterrupt):
        raise
    except Exception as error:
        mine = _ours(error)
        if mine is None:
            raise
        raise mine from error


def _ours(error: Exception) -> Exception | None:
    text = str(error)
    found = _last(_OURS, text)
    if found is not None:
        kind = getattr(errors, found[1], RocketStoreError)
        # Other classes take arguments that the text does not contain.
        plain = kind if kind in (errors.UnsafePathError, errors.StoreLockedError) else None
        return (plain or RocketStoreError)(found[2])
    found = _last(_SYSTEM, text)
    if found is not None:
        return RocketStoreError(found[1])
    kind = type(error).__name__
    if kind in ("AnalysisException", "ParseException"):
        return typer.BadParameter(f"Spark: {text.strip().splitlines()[0]}")
    if isinstance(error, ValueError):
        return typer.BadParameter(text)
    if type(error).__module__.split(".")[0] in ("pyspark", "py4j") and text.strip():
        return RocketStoreError(f"Spark: {text.strip().splitlines()[0]}")
    return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(reversed(list(pattern.finditer(text))), None)


# --- progress ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(session: SparkSession, *, quiet: bool) -> Iterator[None]:
    """Draw the number of finished tasks on a terminal while the block runs."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rocketstore.spark.base.watching import watched

    with drawn_stages() as draw, watched(session, draw):
        yield


@contextlib.contextmanager
def drawn_stages() -> Iterator[Callable[[Sequence[tuple[int, int, int]]], None]]:
    """Yield a function that draws a bar on stderr for each (stage, finished tasks, all tasks)."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    shown: dict[int, TaskID] = {}

    def draw(stages: Sequence[tuple[int, int, int]]) -> None:
        for stage, done, total in stages:
            if stage not in shown:
                shown[stage] = bars.add_task(f"stage {stage}", total=total)
            bars.update(shown[stage], completed=done, total=total)

    with bars:
        yield draw
