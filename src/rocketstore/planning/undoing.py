"""Takes a repair back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.place import check_platform, check_root
from rocketstore.mending.switching import Switch, forget, locked
from rocketstore.planning.repair_report import RepairReport


def undo_repair(path: str | os.PathLike[str], undo: str | os.PathLike[str]) -> RepairReport:
    """Take a repair back: every file is as it was before, byte for byte.

    Parameters
    ----------
    path : path
        The store's root.
    undo : path
        The folder that the repair made.

    Returns
    -------
    RepairReport
        Its ``state`` is ``undone``.

    Raises
    ------
    FileNotFoundError
        ``undo`` is no folder of a repair.
    MappedFileError
        The store was written since; nothing is changed.
    StoreLockedError
        Another process writes the store.

    Notes
    -----
    After a kill the same call goes on. A folder below the store's ``quarantine`` is deleted at the
    end: it holds only what the repair had made.
    """
    root, folder = Path(path), Path(undo)
    check_platform("r+")
    check_root(root, "r+")
    switch = Switch(root, folder) if folder.is_dir() else None
    if switch is None or switch.state == "none":
        raise FileNotFoundError(f"{folder} is no folder of a repair")
    began = time.monotonic()
    with locked(root):
        switch.undo()
        if folder.resolve().parent == (root / formats.QUARANTINE_DIR).resolve():
            forget(root, folder)
    report = RepairReport(os.fspath(root), state="undone", undo=os.fspath(folder))
    report.duration_s = time.monotonic() - began
    return report
