"""The folders of queues below ``consumequeue``, and their valid names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore import formats
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import list_folder, refuse_link_out


def queue_directories(
    directory: Path, root: Path, skipped: list[Path], *, tolerant: bool = False
) -> Iterator[tuple[Path, Path]]:
    """Yield (topic folder, queue folder) of a ``consumequeue`` folder.

    Other entries are added to ``skipped``.

    Raises
    ------
    UnsafePathError
        A folder is a link out of ``root``.
    MappedFileError
        A link with a valid name does not lead to a folder, or leads to another queue's folder.
        With ``tolerant`` the first is added to ``skipped``, the second is yielded.
    PermissionError
        A folder is not readable; with ``tolerant`` it is added to ``skipped``.
    """
    try:
        topic_directories = _entries(directory)
    except PermissionError:
        if not tolerant:
            raise
        skipped.append(directory)
        return
    if topic_directories and tolerant and not os.access(directory, os.X_OK):
        skipped.append(directory)  # its names can be listed, but not opened
        return
    found: list[Path] = []
    has_links = False
    for topic_directory in topic_directories:
        if not is_topic_name(topic_directory.name) or not topic_directory.is_dir():
            if not tolerant and is_topic_name(topic_directory.name):
                _refuse_link_to_no_folder(topic_directory, root)
            skipped.append(topic_directory)
            continue
        has_links |= refuse_link_out(topic_directory, root)
        try:
            entries = _entries(topic_directory)
        except PermissionError:
            if not tolerant:
                raise
            skipped.append(topic_directory)
            continue
        if entries and tolerant and not os.access(topic_directory, os.X_OK):
            skipped.append(topic_directory)
            continue
        for queue_directory in entries:
            if is_queue_id(queue_directory.name) and queue_directory.is_dir():
                has_links |= refuse_link_out(queue_directory, root)
                found.append(queue_directory)
                yield topic_directory, queue_directory
            else:
                if not tolerant and is_queue_id(queue_directory.name):
                    _refuse_link_to_no_folder(queue_directory, root)
                skipped.append(queue_directory)
    if has_links and not tolerant:
        _refuse_shared(found)


def _refuse_shared(folders: list[Path]) -> None:
    """Raise ``MappedFileError`` if two queues share a folder and would overwrite each other."""
    seen: dict[tuple[int, int], Path] = {}
    for folder in folders:
        about = os.stat(folder)
        other = seen.setdefault((about.st_dev, about.st_ino), folder)
        if other is not folder:
            raise MappedFileError(f"{folder} and {other} are one folder, by a symbolic link")


def _refuse_link_to_no_folder(path: Path, root: Path) -> None:
    """Raise ``MappedFileError`` for a link that does not lead to a folder.

    A queue may need a folder of that name, and links are never replaced.
    """
    if path.is_symlink():
        refuse_link_out(path, root)
        raise MappedFileError(f"{path} is a symbolic link that does not lead to a folder")


def _entries(directory: Path) -> list[Path]:
    return [directory / name for name in list_folder(directory)]


def is_queue_id(name: str) -> bool:
    """Return whether a folder name is a queue id as RocketMQ writes it: 0 .. 2**31 - 1 without
    leading zeros."""
    if not (name.isascii() and name.isdigit()) or (len(name) > 1 and name[0] == "0"):
        return False
    return int(name) < 2**31


def is_topic_name(name: str) -> bool:
    """Return whether a folder name can be a topic: UTF-8 text without control characters, not
    ``.`` or ``..``."""
    if name in (".", "..") or any(ord(c) < 0x20 or ord(c) == 0x7F for c in name):
        return False
    return not any(0xD800 <= ord(c) < 0xE000 for c in name)


def is_folder_name(name: str) -> bool:
    """Return whether the folder of a queue can have this name."""
    nbytes = len(name.encode("utf-8", "surrogatepass"))
    fits = 0 < nbytes <= formats.MAX_FOLDER_NAME_NBYTES
    return fits and "/" not in name and "\ufffd" not in name and is_topic_name(name)
