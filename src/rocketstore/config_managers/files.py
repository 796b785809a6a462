"""The broker's tables below ``config``: read with their ``.bak``, written so that one is always
whole."""

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
    """A table holds a value of the wrong kind; the text begins with where, as in ``$.a.b``."""


class ConfigFile(NamedTuple):
    """What was read.

    Attributes
    ----------
    content : Any
        What ``decode`` made of it, ``None`` when neither file exists.
    path : Path or None
        The file it comes from: the one asked for, or its ``.bak``.
    problem : CorruptionError or None
        Why it is the ``.bak``, when the file itself is there.
    """

    content: Any
    path: Path | None
    problem: CorruptionError | None


def config_path(root: str | os.PathLike[str], name: str) -> Path:
    """Where the table ``name`` of the store ``root`` lies."""
    return Path(root) / formats.CONFIG_DIR / name


def read_config_file(
    path: Path, root: Path, decode: Callable[[dict[str, Any]], Any] = lambda document: document
) -> ConfigFile:
    """Read a table as RocketMQ does: the file, else, when it is missing or bad, its ``.bak``.

    Nothing is changed; time and memory are bounded whatever the files hold.

    Parameters
    ----------
    path, root : Path
    decode : callable
        Makes of the object read what is wanted; raises ``ContentError``.

    Raises
    ------
    CorruptionError
        When there is a file, and no good one: path and position of the first fault, with that of
        the ``.bak``.
    MappedFileError, UnsafePathError, PermissionError
        When one is no regular file, a link out of ``root``, or may not be read.

    Notes
    -----
    Source: RocketMQ ``common/ConfigManager.java`` ``load``. RocketMQ takes a bad file without
    ``.bak`` for an empty table; here that is an error.
    """
    backup = path.with_name(path.name + BACKUP_SUFFIX)
    problem: CorruptionError | None = None
    for candidate in (path, backup):
        try:
            content = read_bytes(candidate, root)
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


def read_bytes(path: Path, root: Path) -> bytes | None:
    """Return a table's bytes, ``None`` when it is missing.

    Raises
    ------
    CorruptionError
        It is larger than any table that is read here.
    MappedFileError, UnsafePathError, PermissionError
        It is no regular file, a link out of ``root``, or may not be read.
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
        raise CorruptionError(path, 0, "the file holds no object")
    return document


def write_config_file(path: Path, root: Path, document: dict[str, Any]) -> None:
    """Replace a table durably; the one before it becomes its ``.bak``.

    At every moment, also after a power cut, one of the two is whole. A file that cannot be read
    never becomes the ``.bak``; it is kept below ``quarantine``.

    Raises
    ------
    StoreFullError
        When the disk has no room; the file is as it was.
    ValueError
        When it could not be read again: more than ``json_dialect.MAX_NBYTES``.
    UnsafePathError, MappedFileError
        When the folder is a link out of ``root``, or the file is no regular one.
    """
    make_directories(path.parent, root)
    text = json_dialect.dumps(document).encode("ascii")
    if len(text) > json_dialect.MAX_NBYTES:
        raise ValueError(f"{path} would have {len(text)} bytes")
    try:
        content = read_bytes(path, root)
        if content is not None:
            _document(path, content)
    except CorruptionError as error:
        _keep_aside(path, root, error)
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
    _log.warning("%s; it is kept as %s", error, target)


# --- what a store itself needs ----------------------------------------------------------------


def topic_attributes(
    root: Path, notes: list[str] | None = None, *, tolerant: bool = True
) -> dict[str, dict[str, str]]:
    """Return the attributes of the topics that have any, from ``config/topics.json``.

    Parameters
    ----------
    root : Path
        The store's root.
    notes : list of str, optional
        Takes what is wrong with the file, and that its ``.bak`` was read instead.
    tolerant : bool
        With ``notes``: note that nothing could be read, and go on as if no topic had attributes. A
        writer must not: it would make the wrong kind of queue.

    Returns
    -------
    dict
        As ``{"T": {"queue.type": "BatchCQ"}}``.

    Raises
    ------
    CorruptionError
        When neither file can be read, and that is not to be noted.
    MappedFileError, UnsafePathError, PermissionError
        As ``read_config_file``.
    """
    path = config_path(root, TOPICS_FILE)
    try:
        found = read_config_file(path, root, _attributes)
    except CorruptionError as error:
        if notes is None or not tolerant:
            raise
        notes.append(f"{error}; topics are taken to have no attributes")
        return {}
    if found.problem is not None and notes is not None:
        notes.append(f"{found.problem}; {path.name}{BACKUP_SUFFIX} is read instead")
    return found.content or {}


def _attributes(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    table = document.get("topicConfigTable")
    table = {} if table is None else table
    if not isinstance(table, dict):
        raise ContentError("$.topicConfigTable: no object")
    found = {}
    for topic, entry in table.items():
        if not isinstance(entry, dict):
            raise ContentError(f"$.topicConfigTable.{topic}: no object")
        attributes = entry.get("attributes")
        attributes = {} if attributes is None else attributes
        texts = isinstance(attributes, dict) and all(
            isinstance(value, str) for value in attributes.values()
        )
        if not texts:
            raise ContentError(f"$.topicConfigTable.{topic}.attributes: no object of texts")
        if attributes:
            found[topic] = attributes
    return found
