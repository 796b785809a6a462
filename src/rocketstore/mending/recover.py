"""Repairs queues, index and checkpoint without adding a message, on explicit request."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from rocketstore import formats
from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.lock import StoreLock
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import check_platform, check_root
from rocketstore.directory.state import StoreState
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import sync_directory
from rocketstore.recovery.report import RecoveryReport
from rocketstore.recovery.truncate import quarantine_path
from rocketstore.store.arguments import check_settings, merge, now_ms
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.fit_for_writing import refuse_unfit
from rocketstore.store.marks import queues_crc
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import Finding, VerifyReport

#: Kinds of findings that are repaired by rebuilding queues or index.
QUEUE_KINDS = frozenset(("queue-file", "unit", "missing-unit"))
INDEX_KINDS = frozenset(("index-file", "index-header", "index-chain", "index-entry", "missing-key"))
#: These, and the kinds that any opening for writing repairs.
MENDED_KINDS = QUEUE_KINDS | INDEX_KINDS | {"missing-folder", "checkpoint"}
#: Kinds that are reported but cannot be repaired.
_LOST_KINDS = frozenset(("lost-queue",))


@dataclass
class RecoverReport:
    """What ``recover`` found and repaired, or would repair.

    Attributes
    ----------
    path : str
    what_if : bool
        Nothing was changed.
    recovery : RecoveryReport
        Of the opening for writing; with ``what_if`` of the check of the log.
    findings : list of Finding
        The first 1,000 findings about queues, index and checkpoint.
    finding_counts : dict
        The number of findings by kind.
    left : dict
        The number of problems left by kind; with ``what_if`` only those that cannot be repaired.
    behind_nbytes : int
        Bytes of the log that were not yet dispatched.
    moved : list of str
        Paths of the files moved into quarantine.
    duration_s : float
    """

    path: str
    what_if: bool
    recovery: RecoveryReport
    findings: list[Finding] = field(default_factory=list)
    finding_counts: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    behind_nbytes: int = 0
    moved: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def was_needed(self) -> bool:
        """Whether anything had to be repaired; state file and checkpoint are always rewritten."""
        unclean = not self.recovery.clean or bool(self.recovery.cut)
        return unclean or bool(self.finding_counts) or self.behind_nbytes > 0


def recover(
    path: str | os.PathLike[str],
    *,
    what_if: bool = False,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> RecoverReport:
    """Make queues, index and checkpoint of a store match its log, without adding a message.

    Opens the store for writing and closes it cleanly. This truncates a torn tail, adds missing
    units and keys from the log, and syncs everything. Then all queues and the index are compared
    with the log, which opening a long log does not do. Queues or index that still differ are
    rebuilt completely.

    Parameters
    ----------
    path : path
        The store's root.
    what_if : bool
        Only report what would be done; take no lock and change nothing.
    config : MessageStoreConfig, optional
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    RecoverReport

    Raises
    ------
    StoreLockedError
        Another process writes the store.
    CorruptionError, MappedFileError
        The log is corrupt, or files of it are missing: use ``salvage``.
    ConfigError, UnsafePathError, StoreFullError
        As ``open`` raises them.

    Notes
    -----
    After a kill at any moment, the next opening completes the repair.
    """
    settings = merge(config, options)
    check_platform("r+")
    check_settings(settings)
    root = Path(path)
    check_root(root, "r+")
    paths = StorePaths.of(root, settings)
    refuse_unfit(paths, settings)
    began = time.monotonic()
    with open_store(root, "r", config=settings, derive="none") as store:
        report = RecoverReport(str(root), what_if, store.recovery_report)
        report.behind_nbytes = store.dispatch_behind_nbytes
    if report.recovery.damaged:
        raise report.recovery.damaged[0].refusal()
    found = verify_files(root, settings, level="structure", progress=progress)
    for one in found.findings:
        if one.kind == "log-file":
            raise MappedFileError(f"{one.path} has {one.reason}; run salvage")
    report.findings = [one for one in found.findings if one.kind in MENDED_KINDS | _LOST_KINDS]
    report.finding_counts = _mendable(found)
    if not what_if:
        _mend(paths, settings, progress, report)
    report.left |= {kind: n for kind, n in found.finding_counts.items() if kind in _LOST_KINDS}
    report.duration_s = time.monotonic() - began
    return report


def _mend(
    paths: StorePaths, config: MessageStoreConfig, progress: Progress | None, report: RecoverReport
) -> None:
    """Open for writing and close; then rebuild queues or index completely if they still differ."""
    report.recovery = _open_and_close(paths, config, progress)
    if not report.finding_counts:
        return
    left = _mendable(verify_files(paths.root, config, level="structure", progress=progress))
    if left.keys() & (QUEUE_KINDS | INDEX_KINDS):
        report.moved += _forget_derived(paths, left)
        again = _open_and_close(paths, config, progress)
        report.recovery.notes += [n for n in again.notes if n not in report.recovery.notes]
        report.recovery.rebuilt_units += again.rebuilt_units
        left = _mendable(verify_files(paths.root, config, level="structure", progress=progress))
    report.left = left


def _open_and_close(
    paths: StorePaths, config: MessageStoreConfig, progress: Progress | None
) -> RecoveryReport:
    with open_store(paths.root, "r+", config=config, start=False, progress=progress) as store:
        return store.recovery_report


def _mendable(report: VerifyReport) -> dict[str, int]:
    return {kind: n for kind, n in report.finding_counts.items() if kind in MENDED_KINDS}


def _forget_derived(paths: StorePaths, left: Mapping[str, int]) -> list[str]:
    """Make the next opening rebuild queues or index; return the folders moved aside.

    Resets their offsets in the state file, which keeps the durable offset and all sizes.
    """
    lock = StoreLock(paths.root)
    try:
        state = StoreState.read(paths.state, paths.root)
        assert state is not None  # closing wrote it
        if left.keys() & QUEUE_KINDS:
            empty = queues_crc(())
            state = dataclasses.replace(
                state, dispatched_offset=0, queue_count=0, queue_crc=empty, clean=False
            )
        if left.keys() & INDEX_KINDS:
            state = dataclasses.replace(state, indexed_offset=0, index_file_count=0, clean=False)
        state.write(paths.state)
        if not left.keys() & INDEX_KINDS or not paths.index.is_dir() or paths.index.is_symlink():
            return []
        target = quarantine_path(paths.root, f"{now_ms()}-{formats.INDEX_DIR}")
        os.rename(paths.index, target)
        sync_directory(target.parent)
        sync_directory(paths.root)
        return [str(target)]
    finally:
        lock.release()
