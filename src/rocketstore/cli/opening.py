"""Opening a store for a command: read-only, with progress, with a word about what was odd."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.cli.outcome import complain
from rocketstore.cli.progress import progress_bar


def quieten() -> None:
    """Let only errors of the library's log through from now on."""
    logging.getLogger("rocketstore").setLevel(logging.ERROR)


@contextlib.contextmanager
def reading(
    path: Path, *, quiet: bool, **options: Any
) -> Iterator[rocketstore.DefaultMessageStore]:
    """Open the store at ``path`` with mode ``"r"``; damage that was found is named on stderr."""
    if quiet:
        quieten()
    with progress_bar(quiet=quiet) as progress:
        store = rocketstore.open(path, "r", progress=progress, **options)
    with store:
        if not quiet:
            for damage in store.recovery_report.damaged:
                complain(f"{damage.path} at position {damage.position}: {damage.reason}")
        yield store
