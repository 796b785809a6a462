"""Show progress, rate and remaining time of long operations on stderr, if it is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rocketstore.arguments import Progress


@contextlib.contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Progress | None]:
    """Yield a ``progress(what, done, total)`` that draws a bar; ``None`` without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done, total=total)

    with bars:
        yield show
