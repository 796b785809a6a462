"""The journal of a repair: what has been done, so that a killed one is finished or taken back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocketstore.errors import MappedFileError
from rocketstore.files.durable import (
    READ_ONLY,
    open_regular_file,
    reporting_full_disk,
    sync_descriptor,
    sync_directory,
)

JOURNAL_FILE = "journal.ndjson"
SCHEMA = "rocketstore.journal/1"


class Journal:
    """Lines of JSON in ``DIR/journal.ndjson``; each is on disk before the next step begins.

    Parameters
    ----------
    folder : Path
        The repair's folder; it exists.

    Raises
    ------
    MappedFileError
        A line cannot be read, or belongs to a newer version. An unfinished last line was never
        acted upon, and does not count.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL_FILE
        self._folder = folder
        self._whole_nbytes = 0
        self.lines = list(self._read())

    def has(self, kind: str, **members: Any) -> bool:
        """Return whether there is such a line."""
        wanted = {"kind": kind, **members}
        return any(wanted.items() <= line.items() for line in self.lines)

    def find(self, kind: str) -> dict[str, Any] | None:
        """Return the last line of a kind."""
        return next((line for line in reversed(self.lines) if line["kind"] == kind), None)

    def write(self, kind: str, **members: Any) -> None:
        """Append a line, durably. Raises ``StoreFullError`` if the disk is full."""
        line = {"kind": kind, **members}
        if not self.lines:
            line["schema"] = SCHEMA
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with reporting_full_disk(self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, self._whole_nbytes)
                while data:
                    data = data[os.write(fd, data) :]
                sync_descriptor(fd)
                self._whole_nbytes = os.fstat(fd).st_size
            finally:
                os.close(fd)
        if not self.lines:
            sync_directory(self._folder)
        self.lines.append(line)

    def _read(self) -> Iterator[dict[str, Any]]:
        if not os.path.lexists(self.path):
            return
        fd = open_regular_file(self.path, READ_ONLY, self._folder)
        with os.fdopen(fd, "rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    return
                yield self._parse(text, number)
                self._whole_nbytes += len(text)

    def _parse(self, text: bytes, number: int) -> dict[str, Any]:
        try:
            line = json.loads(text)
        except ValueError as error:
            raise MappedFileError(f"{self.path} line {number}: {error}") from error
        if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
            raise MappedFileError(f"{self.path} line {number}: an object with a kind is expected")
        if number == 1 and line.get("schema") != SCHEMA:
            raise MappedFileError(
                f"{self.path} line 1: the journal is {line.get('schema')!r}; this release reads "
                f"{SCHEMA}"
            )
        return line
