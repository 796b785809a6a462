"""The golden stores: unpack one, and iterate what was done to it and what it answered."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAMES = tuple(sorted(path.parent.name for path in HERE.glob("*/about.json")))


@dataclass(frozen=True)
class Geometry:
    """File sizes a golden store was written with."""

    commit_log_nbytes: int
    consume_queue_nbytes: int
    slots: int
    entries: int


@dataclass(frozen=True)
class Step:
    """One operation or question, and what RocketMQ answered."""

    ask: dict[str, Any]
    answer: dict[str, Any]

    @property
    def op(self) -> str:
        """What was asked for: ``put``, ``get``, ``query`` and so on."""
        return str(self.ask["op"])


def names(*prefixes: str) -> list[str]:
    """Return the names that start with one of ``prefixes``; no such store is a ``LookupError``."""
    found = [name for name in NAMES if name.startswith(prefixes)]
    if not found:
        raise LookupError(f"no golden store begins with {prefixes}")
    return found


def about(name: str) -> dict[str, Any]:
    """Return ``about.json``: version, configuration, and the SHA-256 of every file."""
    return json.loads((HERE / name / "about.json").read_text(encoding="utf-8"))


def geometry(name: str) -> Geometry:
    """Return the file sizes and the index geometry of the store ``name``."""
    config = about(name)["config"]
    return Geometry(
        commit_log_nbytes=int(config["mappedFileSizeCommitLog"]),
        consume_queue_nbytes=int(config["mappedFileSizeConsumeQueue"]),
        slots=int(config["maxHashSlotNum"]),
        entries=int(config["maxIndexNum"]),
    )


def unpack(name: str, directory: Path) -> Path:
    """Unpack the store ``name`` below ``directory``, modification times too; return its root."""
    with tarfile.open(HERE / name / "store.tar.xz", "r:xz") as archive:
        # Python before 3.11.4 has no filters.
        archive.extractall(
            directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    return directory / "store"


def _steps(path: Path) -> Iterator[Step]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Step(row["ask"], row["answer"])


def writes(name: str) -> Iterator[Step]:
    """Yield the operations that made the store (the ``broker-*`` stores have none recorded)."""
    return _steps(HERE / name / "writes.ndjson.xz")


def questions(name: str) -> Iterator[Step]:
    """Yield the questions put to the same RocketMQ version afterwards."""
    return _steps(HERE / name / "expected.ndjson.xz")
