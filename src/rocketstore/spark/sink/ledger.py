"""The ledger of the sink: which batches are in the log, and which one is being appended.

Each application (a ``txnAppId``, a streaming query, a single write) has one small JSON file below
``.rocketstore-spark/ledger`` in the store's root. Updates replace the whole file, sync it, and need
the store's lock. Nothing here needs Spark.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.errors import DecodeError
from rocketstore.files.durable import make_directories, sync_directory, write_file
from rocketstore.spark.sink.stage import StagedFile

#: Version of the file format.
VERSION = 1
LEDGER_DIR = "ledger"
STAGE_DIR = "stage"
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Part:
    """A range of the log that one commit appended to.

    Attributes
    ----------
    start : int
        Physical offset of the log's end when the commit began.
    row : int
        First row of the batch to append there.
    stop : int or None
        Offset from which on no row of the batch lies, until the next part; None: unknown.
    """

    start: int
    row: int
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that is being appended.

    Attributes
    ----------
    version : int
    files : tuple of StagedFile
        In the order of their rows in the log.
    parts : tuple of Part
        More than one if the commit was interrupted and retried.
    """

    version: int
    files: tuple[StagedFile, ...]
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Return the number of messages in the batch."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one application.

    Attributes
    ----------
    app : str
    done : int or None
        The last version in the log; all lower ones are in it too.
    intent : Intent or None
    stage : str or None
        Folder of the stage that belongs to ``intent`` or, without one, to ``done``; may be deleted.
    once : bool
        A write without a transaction, which is never retried.
    """

    app: str
    done: int | None = None
    intent: Intent | None = None
    stage: str | None = None
    once: bool = False


class Ledger:
    """The ledger of the store at ``root``.

    Notes
    -----
    Threading: reading is safe at any time; changes need the store's lock.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / formats.SPARK_DIR / LEDGER_DIR

    def _path(self, app: str) -> Path:
        name = hashlib.sha256(app.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        return self.directory / f"{name}{_SUFFIX}"

    def read(self, app: str) -> Entry:
        """Return the entry of ``app``; an empty one if it never wrote.

        Raises
        ------
        DecodeError
            If its file is not a ledger.
        """
        found = self._read(self._path(app))
        if found is None:
            return Entry(app)
        if found.app != app:
            raise DecodeError(f"{self._path(app)} is the ledger of {found.app!r}, not of {app!r}")
        return found

    def entries(self) -> Iterator[Entry]:
        """Yield every application's entry."""
        if not self.directory.is_dir():
            return
        for path in sorted(self.directory.iterdir()):
            if path.suffix == _SUFFIX:
                entry = self._read(path)
                if entry is not None:
                    yield entry

    def write(self, entry: Entry) -> None:
        """Replace the entry durably."""
        make_directories(self.directory, self.root)
        write_file(self._path(entry.app), json.dumps(_to_plain(entry, self.root)).encode())

    def remove(self, app: str) -> None:
        """Delete the entry of ``app``."""
        self._path(app).unlink(missing_ok=True)
        sync_directory(self.directory)

    def is_pending(self, stage: str) -> bool:
        """Return whether an intent needs the files of this stage."""
        return any(entry.intent is not None and entry.stage == stage for entry in self.entries())

    def close_parts(self, but: str, end: int) -> None:
        """Note that unfinished batches of other applications have no rows after ``end``."""
        for entry in self.entries():
            intent = entry.intent
            if intent is None or entry.app == but or intent.parts[-1].stop is not None:
                continue
            parts = (*intent.parts[:-1], replace(intent.parts[-1], stop=end))
            self.write(replace(entry, intent=replace(intent, parts=parts)))

    def _read(self, path: Path) -> Entry | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _from_plain(json.loads(content), self.root)
        except (ValueError, TypeError, KeyError) as error:
            raise DecodeError(f"{path} is not a ledger of the Spark sink: {error!r}") from None


def _noted(path: str, root: Path) -> str:
    """Return a path inside the store relative to its root.

    A store may be moved, and a copy of it must not use the original's stage.
    """
    return os.path.relpath(path, root) if Path(path).is_relative_to(root) else path


def _to_plain(entry: Entry, root: Path) -> dict[str, Any]:
    intent = entry.intent
    return {
        "v": VERSION,
        "app": entry.app,
        "done": entry.done,
        "stage": None if entry.stage is None else _noted(entry.stage, root),
        "once": entry.once,
        "intent": None
        if intent is None
        else {
            "version": intent.version,
            "files": [[_noted(f.path, root), f.partition, f.rows, f.pieces] for f in intent.files],
            "parts": [[part.start, part.row, part.stop] for part in intent.parts],
        },
    }


def _from_plain(values: dict[str, Any], root: Path) -> Entry:
    if values["v"] != VERSION:
        raise ValueError(f"version {values['v']}")
    plain = values["intent"]
    intent = None
    if plain is not None:
        files = tuple(
            StagedFile(
                str(root / path), partition, rows, tuple((nbytes, crc) for nbytes, crc in pieces)
            )
            for path, partition, rows, pieces in plain["files"]
        )
        parts = tuple(Part(start, row, stop) for start, row, stop in plain["parts"])
        if not parts:
            raise ValueError("an intent without parts")
        intent = Intent(plain["version"], files, parts)
    stage = values["stage"]
    if stage is not None:
        stage = str(root / stage)
    return Entry(values["app"], values["done"], intent, stage, values["once"])
