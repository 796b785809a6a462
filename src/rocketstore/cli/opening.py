"""Opening a store for a command: read-only, with progress, with a word about what was odd."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import formats
from rocketstore.cli.outcome import ExitCode, complain, fail
from rocketstore.cli.progress import progress_bar
from rocketstore.store_kinds import is_store, store_parts

_FOLDERS = (
    formats.COMMIT_LOG_DIR,
    formats.CONSUME_QUEUE_DIR,
    formats.BATCH_QUEUE_DIR,
    formats.INDEX_DIR,
    formats.CONFIG_DIR,
)


def quieten() -> None:
    """Let only errors of the library's log through from now on."""
    logging.getLogger("rocketstore").setLevel(logging.ERROR)


def check_is_store(path: Path, *, hint: str = "") -> None:
    """End the command when the directory ``path`` is no store; opening it would show an empty one.

    What is no directory is left to opening.
    """
    if not path.is_dir() or is_store(store_parts(path)):
        return
    if is_store(store_parts(path.parent)) and path.name in _FOLDERS:
        hint = f"; it is the folder {path.name} of the store {path.parent}"
    raise fail(
        ExitCode.CANNOT_READ, f"{path} is no store: it has no folder {formats.COMMIT_LOG_DIR}{hint}"
    )


@contextlib.contextmanager
def reading(
    path: Path, *, quiet: bool, **options: Any
) -> Iterator[rocketstore.DefaultMessageStore]:
    """Open the store at ``path`` with mode ``"r"``; damage that was found is named on stderr."""
    if quiet:
        quieten()
    check_is_store(path)
    with progress_bar(quiet=quiet) as progress:
        store = rocketstore.open(path, "r", progress=progress, **options)
    with store:
        if not quiet:
            for damage in store.recovery_report.damaged:
                complain(f"{damage.path} at position {damage.position}: {damage.reason}")
        yield store
