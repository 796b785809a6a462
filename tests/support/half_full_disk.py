"""Stores under test see a disk with room: how full the real one is must not decide what expires."""

from __future__ import annotations

from pathlib import Path

from rocketstore.files import disk_space
from rocketstore.files.disk_space import DiskSpace

_ask = disk_space.disk_space


def half_full(path: Path) -> DiskSpace:
    """The disk of ``path`` with its real size, half of it in use; errors are the real ones."""
    total = _ask(path).total_nbytes
    return DiskSpace(total, total // 2, total - total // 2)


def pretend() -> None:
    """Let all stores of this process see half-full disks."""
    disk_space.disk_space = half_full
