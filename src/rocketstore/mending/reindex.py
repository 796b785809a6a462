"""Rebuilds queues and index from the log, aside, and puts what differs in place."""

from __future__ import annotations

import fnmatch
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from rocketstore.arguments import Progress, StoreOptions, threads_of
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import check_platform, check_root
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import make_directories
from rocketstore.mending.differences import index_changes, queue_changes, remove_others
from rocketstore.mending.expired_units import ExpiredUnits
from rocketstore.mending.rebuilding import Rebuild
from rocketstore.mending.steps import FileChange, Step
from rocketstore.mending.switching import (
    Switch,
    forget,
    is_unfinished,
    locked,
    new_folder,
    unfinished,
)
from rocketstore.store.arguments import check_settings, merge, now_ms
from rocketstore.store.fit_for_writing import refuse_unfit
from rocketstore.survey.lost_queues import read_stated_ends

_SUFFIX = "reindex"


@dataclass
class ReindexReport:
    """What ``reindex`` built and replaced, or would replace.

    Attributes
    ----------
    path : str
    what_if : bool
        Nothing was changed.
    queues, units, keys : int
        Queues, units and index entries that the log has.
    files : list of str
        Paths, relative to the root, of the files that differed; without ``what_if`` they were
        replaced, added or taken out.
    nbytes_read : int
        Bytes of the log.
    undo : str or None
        Folder with the old files; ``None`` if nothing had to be replaced.
    resumed : bool
        An earlier call had been interrupted, and this one finished it.
    notes : list of str
    duration_s : float
    """

    path: str
    what_if: bool
    queues: int = 0
    units: int = 0
    keys: int = 0
    files: list[str] = field(default_factory=list)
    nbytes_read: int = 0
    undo: str | None = None
    resumed: bool = False
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0


def reindex(
    path: str | os.PathLike[str],
    *,
    topics: Sequence[str] = (),
    queues: bool = True,
    index: bool = True,
    what_if: bool = False,
    undo: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> ReindexReport:
    """Build queues and index from the log again, and replace the files that differ.

    New files are built and synced in a folder of their own. Then the old ones are moved there, one
    by one, and the new ones take their places. Nothing is deleted: ``undo_repair`` takes all of it
    back. After a kill the same call goes on.

    Parameters
    ----------
    path : path
        The store's root.
    topics : sequence of str
        Replace queues of these topics only; ``*`` and ``?`` as in a shell.
    queues, index : bool
        What to replace.
    what_if : bool
        Build in a temporary folder, and only report what would be replaced.
    undo : path, optional
        Folder for the old files; below ``quarantine`` of the store if not given.
    jobs : int, optional
        Threads that sync and compare the queues that were built; default one for each processor, at
        most 4. One thread reads the log.
    config : MessageStoreConfig, optional
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    ReindexReport

    Raises
    ------
    CorruptionError, MappedFileError
        The log is damaged: use ``salvage``. Or a file was changed by another process meanwhile.
    StoreLockedError
        Another process writes the store.
    ConfigError, UnsafePathError, StoreFullError
        As ``open`` raises them; nothing is replaced then.
    io.UnsupportedOperation
        The queues are in RocksDB.

    Notes
    -----
    Bit maps of filters in ext files are not rebuilt, and filters work without. Memory: as for
    opening the store. Source: nothing of RocketMQ, which does the same at a start without queues
    and index.
    """
    settings = merge(config, options)
    check_platform("r+")
    check_settings(settings)
    root = Path(path)
    check_root(root, "r+")
    paths = StorePaths.of(root, settings)
    refuse_unfit(paths, settings)
    job = _Reindex(
        paths, settings, progress, topics, queues=queues, index=index, jobs=threads_of(jobs, 4)
    )
    began = time.monotonic()
    if what_if:
        with tempfile.TemporaryDirectory(prefix="rocketstore-") as folder:
            job.build(Path(folder))
    else:
        with locked(root):
            job.replace(None if undo is None else Path(undo))
    job.report.what_if = what_if
    job.report.duration_s = time.monotonic() - began
    return job.report


class _Reindex:
    """One run over one store."""

    def __init__(
        self,
        paths: StorePaths,
        config: MessageStoreConfig,
        progress: Progress | None,
        topics: Sequence[str],
        *,
        queues: bool,
        index: bool,
        jobs: int,
    ) -> None:
        self.report = ReindexReport(str(paths.root), what_if=False)
        self._paths = paths
        self._config = config
        self._progress = progress
        self._topics = topics
        self._jobs = jobs
        self._queues = queues
        self._index = index and config.message_index_enable and not topics

    def replace(self, undo: Path | None) -> None:
        """Finish what was interrupted, or build and replace."""
        root = self._paths.root
        left = undo if undo is not None and undo.is_dir() else unfinished(root, _SUFFIX)
        if left is not None:
            switch = Switch(root, left)
            if switch.state == "prepared":
                self._finish(switch)
                self.report.resumed = True
                return
            if undo is not None and switch.state == "finished" and self._is_done():
                self.report.undo, self.report.resumed = str(left), True
                return
            if not is_unfinished(root, left):
                raise MappedFileError(f"{left} is not empty; name another folder for the old files")
            forget(root, left)
        root_time = os.stat(root).st_mtime_ns
        folder = new_folder(root, f"{now_ms()}-{_SUFFIX}") if undo is None else undo
        folder.mkdir(parents=True, exist_ok=True)
        switch = Switch(root, folder)
        try:
            switch.journal.write("building", rootTime=root_time)
            make_directories(switch.new, folder)
            steps = self.build(switch.new)
            if steps:
                switch.prepare(steps)
        finally:
            if not switch.is_prepared:
                forget(root, folder)
        if steps:
            self._finish(switch)

    def _is_done(self) -> bool:
        """Return whether the queues and the index are as they would be built."""
        with tempfile.TemporaryDirectory(prefix="rocketstore-") as folder:
            return not self.build(Path(folder))

    def _finish(self, switch: Switch) -> None:
        switch.finish()
        self.report.undo = str(switch.folder)
        self.report.files = [change.path for step in switch.steps() for change in step.files]

    # --- building -----------------------------------------------------------------------------

    def build(self, target: Path) -> list[Step]:
        """Build all files below ``target``; leave those that differ there, and return the steps."""
        rebuild = Rebuild(self._paths, self._config, target, index=self._index, clock=now_ms)
        try:
            self.report.units = rebuild.run(self._progress, self._jobs)
            self.report.queues = len(rebuild.queues)
            self.report.nbytes_read = rebuild.end - rebuild.start
            self.report.notes += self._assumed_sizes(rebuild)
            if rebuild.index is not None:
                self.report.keys = sum(file.entry_count for file in rebuild.index.files)
            root = self._paths.root
            changes: dict[str, list[FileChange]] = {}
            if self._queues:
                changes = queue_changes(rebuild, target, root, self._wants, self._jobs)
                expired = ExpiredUnits(rebuild, target, root, read_stated_ends(root))
                for topic, found in expired.changes(self._wants).items():
                    changes.setdefault(topic, []).extend(found)
            steps = [
                Step(f"s{number}", "queue.build", f"queues of {topic}", tuple(files))
                for number, (topic, files) in enumerate(sorted(changes.items()), 1)
            ]
            if rebuild.index is not None and (files := index_changes(rebuild, target, root)):
                steps.append(Step(f"s{len(steps) + 1}", "index.build", "index", tuple(files)))
        finally:
            rebuild.close()
        self.report.files = [change.path for step in steps for change in step.files]
        remove_others(target, {change.path for step in steps for change in step.files})
        return steps

    def _assumed_sizes(self, rebuild: Rebuild) -> Iterator[str]:
        """Say which sizes are RocketMQ's defaults because no file and no option shows them."""
        config, facts = self._config, rebuild.old.facts
        has_state = facts.valid_state is not None
        parts = []
        has_queues = any(self._paths.consume_queue.glob("*/*/*")) or bool(
            config.mapped_file_size_consume_queue
        )
        has_index = any(self._paths.index.glob("*")) or bool(config.max_index_num)
        if self._queues and not has_queues and not has_state:
            size = facts.consume_queue_file_size
            parts.append(f"queue files of {size:,} bytes (mappedFileSizeConsumeQueue)")
        if self._index and not has_index and not has_state:
            slots, entries = facts.index.pair
            parts.append(
                f"index files of {slots:,} slots and {entries:,} entries (maxHashSlotNum, "
                "maxIndexNum)"
            )
        for part in parts:
            yield (
                f"no file shows the sizes, so {part} are assumed; a broker with other options may "
                "refuse to start: pass its file with --config"
            )

    def _wants(self, topic: str) -> bool:
        return not self._topics or any(fnmatch.fnmatchcase(topic, one) for one in self._topics)
