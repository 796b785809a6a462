"""Files of the broker's tables below ``config``: read with their ``.bak``, replaced atomically."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore.config_managers import json_dialect
from rocketstore.errors import CorruptionError
from rocketstore.files.durable import (
    READ_ONLY,
    make_directories,
    open_regular_file,
    refuse_link_out,
    sync_directory,
    write_file,
)

TOPICS_FILE = "topics.json"
SUBSCRIPTION_GROUPS_FILE = "subscriptionGroup.json"
CONSUMER_OFFSETS_FILE = "consumerOffset.json"
LMQ_CONSUMER_OFFSETS_FILE = "lmqConsumerOffset.json"
DELAY_OFFSETS_FILE = "delayOffset.json"
CONSUMER_FILTERS_FILE = "consumerFilter.json"
BACKUP_SUFFIX = ".bak"

_log = logging.getLogger(__name__)


class ContentError(ValueError):
    """A table holds a value of the wrong type; the text begins with its path, as in ``$.a.b``."""


class ConfigFile(NamedTuple):
    """The result of reading a table.

    Attributes
    ----------
    content : Any
        Result of ``decode``, ``None`` if neither file exists.
    path : Path or None
        The file that was read: the requested one, or its ``.bak``.
    problem : CorruptionError or None
        Why the ``.bak`` was read although the file exists.
    """

    content: Any
    path: Path | None
    problem: CorruptionError | None


def config_path(root: str | os.PathLike[str], name: str) -> Path:
    """Return the path of the table ``name`` of the store ``root``."""
    return Path(root) / formats.CONFIG_DIR / name


def read_config_file(
    path: Path, root: Path, decode: Callable[[dict[str, Any]], Any] = lambda document: document
) -> ConfigFile:
    """Read a table as RocketMQ does: the file, or its ``.bak`` if the file is missing or corrupt.

    Nothing on disk changes. Time and memory are bounded for any content.

    Parameters
    ----------
    path, root : Path
    decode : callable
        Converts the object that was read; raises ``ContentError``.

    Raises
    ------
    CorruptionError
        If a file exists, but none is good. It has path and position of the first fault; its text
        also names the fault of the ``.bak``.
    MappedFileError, UnsafePathError, PermissionError
        If a file is not regular, is a link out of ``root``, or is not readable.

    Notes
    -----
    Source: RocketMQ ``common/ConfigManager.java`` ``load``. RocketMQ treats a corrupt file without
    ``.bak`` as an empty table; here that is an error.
    """
    backup = path.with_name(path.name + BACKUP_SUFFIX)
    problem: CorruptionError | None = None
    for candidate in (path, backup):
        try:
            content = read_table(candidate, root)
            if content is not None:
                return ConfigFile(decode(_document(candidate, content)), candidate, problem)
        except (CorruptionError, ContentError) as error:
            found = _as_corruption(candidate, error)
            if problem is not None:
                raise CorruptionError(
                    problem.path, problem.position, f"{problem.reason}; and {found}"
                ) from error
            problem = found
    if problem is None:
        return ConfigFile(None, None, None)
    if problem.path == os.fspath(path):
        reason = f"{problem.reason}; and there is no {backup.name}"
        raise CorruptionError(problem.path, problem.position, reason)
    raise problem


def _as_corruption(path: Path, error: CorruptionError | ContentError) -> CorruptionError:
    return error if isinstance(error, CorruptionError) else CorruptionError(path, 0, str(error))


def read_table(path: Path, root: Path) -> bytes | None:
    """Return a table's bytes, ``None`` if it is missing.

    Raises
    ------
    CorruptionError
        The file is larger than ``json_dialect.MAX_NBYTES``.
    MappedFileError, UnsafePathError, PermissionError
        The file is not regular, is a link out of ``root``, or is not readable.
    """
    try:
        refuse_link_out(path.parent, root)
        fd = open_regular_file(path, READ_ONLY, root)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        nbytes = os.fstat(fd).st_size
        if nbytes > json_dialect.MAX_NBYTES:
            reason = f"{nbytes} bytes are more than {json_dialect.MAX_NBYTES}"
            raise CorruptionError(path, json_dialect.MAX_NBYTES, reason)
        parts = []
        while part := os.read(fd, nbytes + 1):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def _document(path: Path, content: bytes) -> dict[str, Any]:
    try:
        document = json_dialect.loads(content)
    except json_dialect.JsonDialectError as error:
        raise CorruptionError(path, error.position, error.reason) from error
    if not isinstance(document, dict):
        raise CorruptionError(path, 0, "the file does not hold an object")
    return document


def write_config_file(
    path: Path,
    root: Path,
    document: dict[str, Any],
    decode: Callable[[dict[str, Any]], Any] = lambda document: document,
) -> None:
    """Replace a table durably; the previous file becomes its ``.bak``.

    At every moment, even after a power failure, one of the two is complete. A corrupt file, or one
    that ``decode`` refuses by ``ContentError``, never becomes the ``.bak``; it is moved to
    ``quarantine``.

    Raises
    ------
    StoreFullError
        If the disk is full; the file is unchanged.
    ValueError
        If the text has more than ``json_dialect.MAX_NBYTES`` and so could not be read.
    UnsafePathError, MappedFileError
        If the folder is a link out of ``root``, or the file is not regular.
    """
    make_directories(path.parent, root)
    text = json_dialect.dumps(document).encode("ascii")
    if len(text) > json_dialect.MAX_NBYTES:
        raise ValueError(f"{path} would have {len(text)} bytes")
    try:
        content = read_table(path, root)
        if content is not None:
            decode(_document(path, content))
    except (CorruptionError, ContentError) as error:
        _keep_aside(path, root, _as_corruption(path, error))
        content = None
    if content is not None:
        write_file(path.with_name(path.name + BACKUP_SUFFIX), content)
    write_file(path, text)


def _keep_aside(path: Path, root: Path, error: CorruptionError) -> None:
    directory = root / formats.QUARANTINE_DIR
    make_directories(directory, root)
    target = directory / f"{formats.CONFIG_DIR}-{path.name}"
    number = 0
    while os.path.lexists(target):
        number += 1
        target = directory / f"{formats.CONFIG_DIR}-{path.name}-{number}"
    os.replace(path, target)
    sync_directory(directory)
    sync_directory(path.parent)
    _log.warning("%s; the file was moved to %s", error, target)


# --- tables that a store itself needs ---------------------------------------------------------


def topic_attributes(
    root: Path, notes: list[str] | None = None, *, tolerant: bool = True
) -> dict[str, dict[str, str]]:
    """Return the attributes of the topics that have any, from ``config/topics.json``.

    Parameters
    ----------
    root : Path
        The store's root.
    notes : list of str, optional
        Receives a note if the file is corrupt, and if its ``.bak`` was read instead.
    tolerant : bool
        With ``notes``: if neither file can be read, add a note and return no attributes. A writer
        must pass False: it would create queues of the wrong type.

    Returns
    -------
    dict
        For example ``{"T": {"queue.type": "BatchCQ"}}``.

    Raises
    ------
    CorruptionError
        If neither file can be read, unless ``notes`` and ``tolerant`` are given.
    MappedFileError, UnsafePathError, PermissionError
        As ``read_config_file``.
    """
    path = config_path(root, TOPICS_FILE)
    try:
        found = read_config_file(path, root, _attributes)
    except CorruptionError as error:
        if notes is None or not tolerant:
            raise
        notes.append(f"{error}; all topics are treated as having no attributes")
        return {}
    if found.problem is not None and notes is not None:
        notes.append(f"{found.problem}; {path.name}{BACKUP_SUFFIX} is read instead")
    return found.content or {}


def _attributes(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    table = document.get("topicConfigTable")
    table = {} if table is None else table
    if not isinstance(table, dict):
        raise ContentError("$.topicConfigTable: not an object")
    found = {}
    for topic, entry in table.items():
        if not isinstance(entry, dict):
            raise ContentError(f"$.topicConfigTable.{topic}: not an object")
        attributes = entry.get("attributes")
        attributes = {} if attributes is None else attributes
        texts = isinstance(attributes, dict) and all(
            isinstance(value, str) for value in attributes.values()
        )
        if not texts:
            raise ContentError(f"$.topicConfigTable.{topic}.attributes: not an object of strings")
        if attributes:
            found[topic] = attributes
    return found
