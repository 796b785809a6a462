"""A user whom permissions bind, and folders that such a user reaches: tests may run as root, and
``TMPDIR`` may be a private folder."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534


def become_nobody() -> None:
    """Give up root's rights for good; any other user is bound as it is."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _others_reach(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def _place() -> Path:
    """Where temporary folders lie that ``become_nobody`` still reaches."""
    places = [Path(name) for name in (tempfile.gettempdir(), "/dev/shm", "/var/tmp", "/tmp")]
    if os.geteuid() != 0:
        return places[0]
    for place in places:
        if place.is_dir() and _others_reach(place):
            return place
    pytest.skip(f"impossible on this machine: another user reaches none of {places}")


@contextlib.contextmanager
def reachable_folder() -> Iterator[Path]:
    """A temporary folder that another user reaches, removed at the end whatever its modes."""
    folder = Path(tempfile.mkdtemp(dir=_place()))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for path in (folder, *folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(folder)


def give_away(root: Path) -> None:
    """Make ``root`` and all below it that user's own; without root it is already."""
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


def as_nobody(ask: Callable[[Path], Any], root: Path, whole: Path) -> Any:
    """What ``ask`` answers about ``root`` in a process whom permissions bind.

    It is asked about ``whole`` first, so that all is imported that another user might not read.
    The answer is a literal; an error comes back as ``"Name: text"``.
    """
    ask(whole)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            become_nobody()
            text = repr(ask(root))
        except BaseException as error:  # noqa: BLE001 - sent to the parent
            text = repr(f"{type(error).__name__}: {error}")
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        text = answers.read().decode()
    os.waitpid(child, 0)
    return ast.literal_eval(text)
