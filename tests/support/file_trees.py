"""What a directory holds: names, bytes, modes and times."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


def tree_of(root: Path, *, times: bool = True) -> dict[str, Any]:
    """Return everything below ``root`` but the lock, by relative path."""
    return {
        path.relative_to(root).as_posix(): _facts(path, times=times)
        for path in (root, *sorted(root.rglob("*")))
        if path.name != "lock"
    }


def _facts(path: Path, *, times: bool) -> tuple[Any, ...]:
    about = path.stat()
    time = about.st_mtime_ns if times else 0
    if path.is_dir():
        return "folder", about.st_mode, time
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return digest, about.st_size, about.st_mode, about.st_uid, time
