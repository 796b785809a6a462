"""The manifest of an export: its files with offsets and hashes, and what the log had lost.

It grows line by line while the export runs, as its journal, and gets its name when the export is
complete. So it needs no memory for the number of files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rocketstore.errors import MappedFileError
from rocketstore.files.durable import (
    READ_ONLY,
    open_regular_file,
    reporting_full_disk,
    sync_descriptor,
    sync_directory,
)

#: In the export's folder; readers of datasets ignore names that begin with ``_``.
MANIFEST_FILE = "_manifest.ndjson"
SCHEMA = "rocketstore.export/1"
_MOST_FINDINGS = 1000


class Totals:
    """Sums over the lines of a manifest.

    Attributes
    ----------
    run : dict or None
        The line of the last run: what was asked.
    runs, rows, files, nbytes, lost, lost_nbytes, undecompressed : int
    start, end : int
        Physical offsets; the log between them is exported.
    is_stopped : bool
        The run ended before its end, at a corrupt range.
    anchor : dict or None
        Hash of the log's bytes before ``end``.
    findings : list of dict
        Lines of the last run about what is lost or not decompressed, at most 1000.
    finding_count : int
        All of them.
    """

    def __init__(self) -> None:
        self.run: dict[str, Any] | None = None
        self.runs = self.rows = self.files = self.nbytes = 0
        self.lost = self.lost_nbytes = self.undecompressed = 0
        self.start = self.end = 0
        self.is_stopped = False
        self.anchor: dict[str, Any] | None = None
        self.findings: list[dict[str, Any]] = []
        self.finding_count = 0

    def add(self, line: dict[str, Any]) -> None:
        """Count a line."""
        kind = line["kind"]
        if kind == "export":
            if self.run is None:
                self.start = self.end = line["log"][0]
            self.run = line
            self.runs += 1
            self.findings, self.finding_count, self.is_stopped = [], 0, False
        elif kind == "file":
            self.files += 1
            self.nbytes += line["bytes"]
        elif kind == "lost":
            self.lost += 1 + line["more"]
            self.lost_nbytes += line["log"][1] - line["log"][0]
            self._find(line)
        elif kind == "undecompressed":
            self.undecompressed += 1 + line["more"]
            self._find(line)
        elif kind == "piece":
            self.rows += line["rows"]
            self.end = line["log"][1]
            self.is_stopped = line["stopped"]
            self.anchor = line["anchor"] or self.anchor

    def _find(self, line: dict[str, Any]) -> None:
        self.finding_count += 1 + line["more"]
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(line)

    def summary(self) -> dict[str, Any]:
        """Return the manifest's last line."""
        return {
            "kind": "summary",
            "schema": SCHEMA,
            "log": [self.start, self.end],
            "runs": self.runs,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.nbytes,
            "lost": self.lost,
            "lostBytes": self.lost_nbytes,
            "undecompressed": self.undecompressed,
            "anchor": self.anchor,
        }


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the complete lines of a manifest, and the position after each.

    Raises
    ------
    MappedFileError
        A line is not one of a manifest, or of a newer release.
    """
    position = 0
    with os.fdopen(open_regular_file(path, READ_ONLY, path.parent), "rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return
            position += len(text)
            yield _parse(path, number, text), position


def _parse(path: Path, number: int, text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise MappedFileError(f"{path} line {number}: {error}") from error
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        raise MappedFileError(f"{path} line {number}: an object with a kind is expected")
    if number == 1 and (line["kind"] != "export" or line.get("schema") != SCHEMA):
        raise MappedFileError(
            f"{path} line 1: it is {line.get('schema')!r}; this release reads {SCHEMA}"
        )
    return line


class Manifest:
    """A manifest in progress.

    Parameters
    ----------
    path : Path
        The unfinished manifest. What follows its last complete piece is dropped.

    Attributes
    ----------
    totals : Totals
    last_files : list of dict
        Lines of the last piece's files: they may not have got their names yet.
    last_start : int
        Physical offset of that piece.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.totals = Totals()
        self.last_files: list[dict[str, Any]] = []
        self.last_start = 0
        self._nbytes = 0
        self._read()

    def _read(self) -> None:
        if not os.path.lexists(self.path):
            return
        waiting: list[dict[str, Any]] = []
        for line, position in read_lines(self.path):
            waiting.append(line)
            if line["kind"] in ("export", "piece"):
                for one in waiting:
                    self.totals.add(one)
                self.last_files = [one for one in waiting if one["kind"] == "file"]
                self.last_start = line["log"][0]
                waiting = []
                self._nbytes = position

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines, durably; the last one is an ``export``, a ``piece`` or the ``summary``."""
        text = "".join(
            json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
        ).encode()
        with reporting_full_disk(self.path), self._opened() as file:
            is_new = not self._nbytes
            file.truncate(self._nbytes)
            file.seek(self._nbytes)
            file.write(text)
            file.flush()
            sync_descriptor(file.fileno())
        self._nbytes += len(text)
        if is_new:
            sync_directory(self.path.parent)
        for line in lines:
            self.totals.add(line)

    def _opened(self) -> BinaryIO:
        return os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b")

    def copy(self, finished: Path) -> None:
        """Begin as a copy of a finished manifest, without its summary."""
        with reporting_full_disk(self.path), self._opened() as file:
            file.truncate(0)
            for line, _ in read_lines(finished):
                if line["kind"] != "summary":
                    file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode())
                    file.write(b"\n")
            file.flush()
            sync_descriptor(file.fileno())
        self._read()
        self.last_files = []  # they have their names

    def rename(self, path: Path) -> None:
        """Move the unfinished manifest, durably."""
        os.replace(self.path, path)
        self.path = path
        sync_directory(path.parent)

    def finish(self, final: Path) -> None:
        """Append the summary, and give the manifest its name."""
        self.write([self.totals.summary()])
        self.rename(final)
