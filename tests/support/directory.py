"""Reading a directory's files whole, to compare stores byte for byte."""

from __future__ import annotations

from pathlib import Path


def files_below(directory: Path) -> dict[str, bytes]:
    """Content of every file below ``directory`` by its relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
