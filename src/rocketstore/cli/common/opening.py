"""Open a store for a command: read-only, with progress, warnings on stderr."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.cli.common.outcome import ExitCode, fail
from rocketstore.cli.common.progress import progress_bar
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import is_store, store_parts
from rocketstore.directory.place import is_there
from rocketstore.errors import RocketStoreError
from rocketstore.looking.log_source import open_log
from rocketstore.store.default_message_store import DefaultMessageStore
from rocketstore.store.default_message_store import open as open_store

_FOLDERS = (
    formats.COMMIT_LOG_DIR,
    formats.CONSUME_QUEUE_DIR,
    formats.BATCH_QUEUE_DIR,
    formats.INDEX_DIR,
    formats.CONFIG_DIR,
)


#: Depth of a topic's queue folder below the root; entries of a folder that are examined.
_DEPTH = 4
_MOST_ENTRIES = 1000


def quieten() -> None:
    """Suppress the library's log messages below errors."""
    logging.getLogger("rocketstore").setLevel(logging.ERROR)


def check_is_store(path: Path, *, hint: str = "", config: MessageStoreConfig | None = None) -> None:
    """End the command if the directory ``path`` is not a store; opening it would show an empty one.

    Opening reports a path that is not a directory, or a log that ``config`` places elsewhere.
    """
    if not is_there(path):
        raise fail(ExitCode.CANNOT_READ, f"there is no store {path}")
    if not path.is_dir() or is_store(store_parts(path)):
        return
    if config is not None and config.store_path_commit_log:
        return
    hint = _where_the_store_is(path) or hint
    raise fail(
        ExitCode.CANNOT_READ,
        f"{path} is not a store: it has no folder {formats.COMMIT_LOG_DIR}{hint}",
    )


def has_segments(where: Path, config: MessageStoreConfig | None = None) -> bool:
    """Return whether a path is one segment or a folder of segments, without a store around it."""
    if config is not None and config.store_path_commit_log:
        return False
    try:
        if where.is_dir() and is_store(store_parts(where)):
            return False
        return bool(open_log(where).segments)
    except (OSError, RocketStoreError):
        return False


def check_has(path: Path, config: MessageStoreConfig, needed: str) -> None:
    """End the command if ``path`` is a log alone, naming what it needs beside the log."""
    if not has_segments(path, config):
        return
    what = "one segment" if path.is_file() else "a log"
    hint = _where_the_store_is(path) if path.is_dir() else ""
    hint = hint if hint.startswith("; it is the folder") else ""
    raise fail(
        ExitCode.CANNOT_READ,
        f"{path} is {what} alone, without {needed}: pass the store's directory{hint}",
    )


def _where_the_store_is(path: Path) -> str:
    """Return a hint at a store above or below ``path``, or an empty string."""
    place = path.resolve()
    for folder, root in zip((place, *place.parents), place.parents[:_DEPTH], strict=False):
        if folder.name in _FOLDERS and _is_store(root):
            inside = "it is the folder" if folder == place else "it is inside the folder"
            return f"; {inside} {folder.name} of the store {root}"
    entries: list[Path] = []
    with contextlib.suppress(OSError):
        entries = sorted(path.iterdir())[:_MOST_ENTRIES]
    if any(formats.file_name_to_offset(entry.name) is not None for entry in entries):
        return (
            "; it has segments of a log, which doctor, du, volume, grep, trace, capacity and prove "
            "read as they are; other commands take the directory that holds them as "
            f"{formats.COMMIT_LOG_DIR}"
        )
    below = [entry for entry in entries if _is_store(entry)]
    if not below:
        return ""
    named = ", ".join(str(entry) for entry in below[:3])
    return f"; there is a store in {named}" + (" and others" if len(below) > 3 else "")


def _is_store(path: Path) -> bool:
    """Return whether a path is accessible and a store."""
    try:
        return path.is_dir() and is_store(store_parts(path))
    except OSError:
        return False


@contextlib.contextmanager
def reading(
    path: Path, *, quiet: bool, config: MessageStoreConfig | None = None, **options: Any
) -> Iterator[DefaultMessageStore]:
    """Open the store at ``path`` with mode ``"r"``; log damage to stderr."""
    if quiet:
        quieten()
    check_is_store(path, config=config)
    with progress_bar(quiet=quiet) as progress:
        store = open_store(path, "r", config=config, progress=progress, **options)
    with store:
        yield store
