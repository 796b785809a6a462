"""``clone``: a consistent copy of a store, also beside a writer; resumed after a kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from rocketstore import formats
from rocketstore.arguments import Progress, StoreOptions
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.parts import is_store, refuse_dledger, store_parts
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import check_platform, is_there
from rocketstore.errors import SourceChangedError, StoreLockedError
from rocketstore.files.disk_room import RoomNeeded
from rocketstore.files.durable import list_folder, make_directories, sync_directory
from rocketstore.mending.journal import Journal
from rocketstore.mending.recover import INDEX_KINDS, QUEUE_KINDS
from rocketstore.mending.reindex import reindex
from rocketstore.moving.copying import Copier, can_share_blocks
from rocketstore.moving.extent import Extent, check_tail, extent_of
from rocketstore.moving.settling import is_settleable, lower_offsets, mark_unsettled, settle
from rocketstore.moving.tree import Tree, TreeFile, list_tree
from rocketstore.moving.workplace import Workplace
from rocketstore.store.arguments import check_int, check_settings, merge
from rocketstore.store.verifying import verify_files
from rocketstore.verify.report import VerifyReport

#: Appended to the destination's name while it is made.
WORK_SUFFIX = ".rocketstore-clone"
#: Parts that a copy of a store in use never takes: databases that a broker changes file by file.
_DATABASES = frozenset(("rocksdbQueue", "rocksdbStore", "popStore"))
#: Names below ``config`` that hold positions in queues and log: copied before the log's end is
#: known, so that they are not ahead of the copy.
_POSITIONS = ("offset", "timercheckpoint", "timermetrics")


@dataclass
class CloneReport:
    """What ``clone`` made.

    Attributes
    ----------
    path, destination : str
    live : bool
        The source was, or was taken to be, in use.
    state : str
        ``done``, or ``already``: an earlier call had made it.
    log_start, log_end : int
        Offsets of the copy's log; records before ``log_end`` are in it.
    files : int
        Files of the copy.
    copied_nbytes, shared_nbytes : int
        Bytes that were written, and bytes that share the blocks of the source; of this call.
    resumed : bool
        An earlier call had been interrupted.
    settled : bool
        Queues, index and checkpoint were brought to the end of the copied log. False for an exact
        copy, byte for byte, and for a damaged log, which is copied as it is.
    rebuilt : bool
        Queues and index had to be built from the log.
    verify : VerifyReport or None
        What ``verify`` says of the copy; ``None`` for ``already``.
    notes : list of str
    duration_s : float
    """

    path: str
    destination: str
    live: bool
    state: str = "done"
    log_start: int = 0
    log_end: int = 0
    files: int = 0
    copied_nbytes: int = 0
    shared_nbytes: int = 0
    resumed: bool = False
    settled: bool = False
    rebuilt: bool = False
    verify: VerifyReport | None = None
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the copy has no findings."""
        return self.verify is None or self.verify.ok


def clone(
    path: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    live: bool = False,
    at: int | None = None,
    reflink: bool = True,
    config: MessageStoreConfig | None = None,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> CloneReport:
    """Copy a store consistently; the source is only read.

    The copy is made beside ``destination``, in ``destination.rocketstore-clone``, and gets its name
    when it is complete, checked and on disk. After a kill or a full disk the same call goes on.

    Parameters
    ----------
    path : path
        The store's root.
    destination : path
        A path that does not exist, or an empty folder. Its parent exists.
    live : bool
        Copy beside a writer, up to the end that the log has when copying begins.
    at : int, optional
        Log offset; the copy has the records that end at or before it. The default is all.
    reflink : bool
        Share blocks with the source where the file system can (btrfs, xfs).
    config : MessageStoreConfig, optional
        ``store_path_commit_log`` names a log elsewhere, in one folder or several; in the copy it is
        in ``commitlog``.
    progress : callable, optional
        Called as ``progress(what, done, total)``.
    **options
        Fields of ``MessageStoreConfig``.

    Returns
    -------
    CloneReport

    Raises
    ------
    StoreLockedError
        A writer has the store open and ``live`` is false; or another call makes this copy.
    SourceChangedError
        The store was changed meanwhile, and ``live`` is false; or its log was truncated.
    FileExistsError
        ``destination`` exists and is not empty, or the unfinished copy there is of another call.
    ValueError
        The log does not have the offset ``at``.
    MappedFileError, UnsafePathError
        A link leaves the root, or something is neither file nor folder; nothing is copied.
    StoreFullError
        The disk is full.

    Notes
    -----
    A store that was closed in order is copied byte for byte, with holes and times. Otherwise the
    log is copied up to one offset, and queues, index, checkpoint and state file are brought to it
    as an opening for writing does; consumer offsets are those of the moment before. Memory: below
    300 MiB. One call at a time for one destination.
    """
    settings = merge(config, options)
    check_platform("r+")
    check_settings(settings)
    if at is not None:
        check_int("at", at)
    job = _Clone(Path(path), Path(destination), settings, progress, live=live, at=at,
                 reflink=reflink)  # fmt: skip
    began = time.monotonic()
    job.run()
    job.report.duration_s = time.monotonic() - began
    return job.report


class _Clone:
    """One call."""

    def __init__(
        self,
        source: Path,
        destination: Path,
        config: MessageStoreConfig,
        progress: Progress | None,
        *,
        live: bool,
        at: int | None,
        reflink: bool,
    ) -> None:
        self.paths = StorePaths.of(source, config)
        self.source = source
        self.destination = destination
        self._workplace = Workplace(destination, WORK_SUFFIX)
        self.work, self.place = self._workplace.work, self._workplace.place
        self.report = CloneReport(str(source), str(destination), live)
        self._config = config
        self._progress = progress
        self._live = live
        self._at = at
        self._reflink = reflink
        self._copied = self._total = 0

    # --- the whole ------------------------------------------------------------------------------

    def run(self) -> None:
        """Make the copy, or go on with it."""
        self._check_places()
        is_done = self._workplace.is_named()
        if not is_done:
            self._refuse_writer()
        self._workplace.run(lambda journal: self._run(journal, is_done=is_done))

    def _run(self, journal: Journal, *, is_done: bool) -> None:
        if is_done:
            begun = journal.find("begun")
            self.report.state = "already"
            if begun is not None:
                self.report.log_start, self.report.log_end = begun["start"], begun["end"]
            return
        tree, extent, exact = self._begin(journal)
        # A new journal replaces one that no longer fits.
        journal = Journal(self.work)
        if not journal.has("copied"):
            self._copy(journal, tree, extent, exact=exact)
            journal.write("copied")
        self._settle(extent, exact=exact)
        self._verify()
        self._restore_times(tree)
        journal.write("finished")
        assert self.report.verify is not None
        self.report.log_start, self.report.log_end = self.report.verify.log_start, extent.end
        self.report.files = sum(len(names) for _, _, names in os.walk(self.place))
        self._workplace.name_store()

    def _check_places(self) -> None:
        if not is_there(self.source) or not self.source.is_dir():
            raise FileNotFoundError(2, "there is no store", str(self.source))
        refuse_dledger(self.source, *self.paths.log_folders)
        if not is_store(store_parts(self.source)) and not self.paths.commit_log.is_dir():
            raise FileNotFoundError(2, "this is not a store", str(self.source))
        self.paths.refuse_named_nothing()
        self._workplace.check([self.source, *self.paths.log_folders])

    def _refuse_writer(self) -> None:
        if self._live or not self.paths.has_writer():
            return
        raise StoreLockedError(
            f"{self.source} is open for writing; copy it with --live (live=True), up to the end "
            "that its log has now, or stop the writer first"
        )

    # --- beginning ------------------------------------------------------------------------------

    def _begin(self, journal: Journal) -> tuple[Tree, Extent, bool]:
        """Return what to copy: as an earlier call had begun, or from now."""
        tree = self._list()
        asked = {"source": os.path.realpath(self.source), "live": self._live, "at": self._at}
        begun = journal.find("begun")
        if begun is not None:
            if {name: begun[name] for name in asked} != asked:
                raise FileExistsError(
                    17, "it is an unfinished copy of another call; delete it first", str(self.work)
                )
            extent = Extent(begun["start"], begun["end"], begun["size"], begun["damaged"],
                            begun["newest"], begun["tail"])  # fmt: skip
            if self._is_still(journal, begun, tree, extent):
                self.report.resumed = True
                return tree, extent, begun["exact"]
            self.report.notes.append("the store had changed since; the copy was begun again")
        self._workplace.begin_again([formats.LOCK_FILE])
        may_be_exact = not self._live and self._at is None
        if not may_be_exact:
            self._copy_positions(tree)
        extent = extent_of(self.source, self._config, self._at)
        # What cannot be settled is copied as it is, marks included.
        as_it_is = not os.path.lexists(self.paths.abort) or bool(is_settleable(self.source, extent))
        exact = may_be_exact and as_it_is
        tree = self._list()
        Journal(self.work).write(
            "begun", **asked, exact=exact, fingerprint=tree.fingerprint, **extent._asdict()
        )
        return tree, extent, exact

    def _is_still(
        self, journal: Journal, begun: dict[str, Any], tree: Tree, extent: Extent
    ) -> bool:
        if journal.has("copied"):
            return True
        if not self._live and begun["fingerprint"] != tree.fingerprint:
            return False
        try:
            check_tail(self.source, self._config, extent)
        except SourceChangedError:
            return False
        return True

    def _list(self) -> Tree:
        tree = list_tree(self.source)
        if self.paths.log_folders != (self.source / formats.COMMIT_LOG_DIR,):
            self._add_log_elsewhere(tree)
        if self._live:
            self._leave_databases(tree)
        return tree

    def _add_log_elsewhere(self, tree: Tree) -> None:
        name = formats.COMMIT_LOG_DIR
        inside = [
            folder.relative_to(self.source).as_posix()
            for folder in self.paths.log_folders
            if folder.is_relative_to(self.source)
        ]
        if name not in inside and any(folder.name == name for folder in tree.folders):
            log = inside[0] if inside else self.paths.commit_log
            self.report.notes.append(f"the log is in {log}; the folder {name} is left out")
        for folder in (name, *inside):
            _drop(tree, folder)
        for number, place in enumerate(self.paths.log_folders):
            part = list_tree(place)
            kept = part.folders if not number else []
            tree.folders += [one._replace(name=f"{name}/{one.name}".rstrip("/")) for one in kept]
            tree.files += [one._replace(name=f"{name}/{one.name}") for one in part.files]
            tree.links += [one._replace(name=f"{name}/{one.name}") for one in part.links]

    def _leave_databases(self, tree: Tree) -> None:
        for part in store_parts(self.source):
            if part.kind in _DATABASES:
                _drop(tree, part.name)
                note = f"{part.name} is left out: it cannot be copied beside a writer"
                if note not in self.report.notes:
                    self.report.notes.append(note)

    # --- copying --------------------------------------------------------------------------------

    def _copier(self) -> Copier:
        return Copier(self.source, reflink=self._reflink, on_bytes=self._tell)

    def _tell(self, nbytes: int) -> None:
        self._copied += nbytes
        if self._progress is not None:
            self._progress("copying", min(self._copied, self._total), self._total)

    def _copy_positions(self, tree: Tree) -> None:
        for file in tree.files:
            if _is_position(file.name):
                make_directories((self.place / file.name).parent, self.place)
                with contextlib.suppress(FileNotFoundError):
                    self._copier().copy(file, self.place / file.name, compare=False)

    def _copy(self, journal: Journal, tree: Tree, extent: Extent, *, exact: bool) -> None:
        log, others = self._sorted(tree, extent, exact=exact)
        done = {line["name"] for line in journal.lines if line["kind"] == "file"}
        self._remove_unfinished(done, keep_positions=not exact)
        self._total = sum(file.nbytes for file in (*log, *others) if file.name not in done)
        self._check_room([file for file in (*log, *others) if file.name not in done])
        for folder in tree.folders:
            make_directories(self.place / folder.name, self.place)
        copier = self._copier()
        for file in log:
            if file.name not in done:
                self._copy_segment(copier, file, extent, exact=exact)
                journal.write("file", name=file.name)
        if self._live and not extent.damaged and extent.end > extent.start:
            self._close_gaps(extent)
        for file in others:
            if not (self.place / file.name).exists():
                self._copy_other(copier, file, exact=exact)
        for link in tree.links:
            with contextlib.suppress(FileExistsError):
                os.symlink(link.target, self.place / link.name)
        self.report.copied_nbytes, self.report.shared_nbytes = (
            copier.copied_nbytes, copier.shared_nbytes,
        )  # fmt: skip
        for folder in tree.folders:
            sync_directory(self.place / folder.name)
        sync_directory(self.work)
        if not self._live and self._list().fingerprint != tree.fingerprint:
            raise SourceChangedError(
                f"{self.source} was changed while it was copied; stop the writer, or use --live "
                "(live=True); the same command then begins again"
            )
        check_tail(self.source, self._config, extent)

    def _sorted(
        self, tree: Tree, extent: Extent, *, exact: bool
    ) -> tuple[list[TreeFile], list[TreeFile]]:
        """Return the segments of the copy, ascending, and all other files."""
        log, others = [], []
        for file in tree.files:
            folder, _, name = file.name.rpartition("/")
            base = formats.file_name_to_offset(name) if folder == formats.COMMIT_LOG_DIR else None
            if base is not None:
                # Of a copy without a record, an empty segment still says where the log begins.
                if exact or base < max(extent.end, extent.start + 1):
                    log.append(file)
            elif exact or not self._is_rewritten(file.name):
                others.append(file)
        return log, others

    def _is_rewritten(self, name: str) -> bool:
        """Return whether settling makes this file, or the copy must not have it."""
        return name in (
            formats.LOCK_FILE, formats.CHECKPOINT_FILE, formats.ABORT_FILE, formats.STATE_FILE,
        )  # fmt: skip

    def _copy_segment(self, copier: Copier, file: TreeFile, extent: Extent, *, exact: bool) -> None:
        base = formats.file_name_to_offset(file.path.name)
        assert base is not None
        limit = None if exact else max(0, min(extent.end - base, file.nbytes))
        try:
            copier.copy(file, self.place / file.name, limit=limit, whole=exact)
        except FileNotFoundError:
            if not self._live:
                raise SourceChangedError(f"{file.path} was deleted while it was copied") from None

    def _close_gaps(self, extent: Extent) -> None:
        """Delete segments before one that expired before it was copied."""
        folder = self.place / formats.COMMIT_LOG_DIR
        offsets = sorted(
            offset
            for name in list_folder(folder)
            if (offset := formats.file_name_to_offset(name)) is not None
        )
        expected = -(-extent.end // extent.size) * extent.size
        while offsets and offsets[-1] == expected - extent.size:
            expected = offsets.pop()
        for offset in offsets:
            (folder / formats.offset_to_file_name(offset)).unlink()
        if expected >= extent.end:
            raise SourceChangedError(
                f"the log of {self.source} expired before it was copied; the same command begins "
                "again"
            )

    def _copy_other(self, copier: Copier, file: TreeFile, *, exact: bool) -> None:
        try:
            copier.copy(file, self.place / file.name, whole=exact, compare=exact)
        except FileNotFoundError:
            if exact:
                raise SourceChangedError(f"{file.path} was deleted while it was copied") from None
            if file.name.startswith(f"{formats.CONFIG_DIR}/"):
                self.report.notes.append(f"{file.name} was replaced while it was copied")

    def _remove_unfinished(self, done: set[str], *, keep_positions: bool) -> None:
        """Delete what an interrupted call may have copied by half."""
        for folder, _, names in os.walk(self.place):
            for one in names:
                path = Path(folder, one)
                name = path.relative_to(self.place).as_posix()
                if name not in done and not (keep_positions and _is_position(name)):
                    path.unlink()

    def _check_room(self, files: list[TreeFile]) -> None:
        sample = next((file for file in files if file.nbytes), None)
        if sample is None:
            return
        if self._reflink and can_share_blocks(sample, self.source, self.work):
            return
        room = RoomNeeded("the copy")
        room.add(self.work, [min(file.blocks_nbytes, file.nbytes) for file in files])
        room.add_marks(self.work)
        room.refuse_lack()

    # --- the end --------------------------------------------------------------------------------

    def _inner_config(self) -> MessageStoreConfig:
        return self._config.replace(
            store_path_root_dir=None,
            store_path_commit_log=None,
            read_only_commit_log_store_paths=None,
        )

    def _settle(self, extent: Extent, *, exact: bool) -> None:
        if exact:
            return
        why = is_settleable(self.source, extent)
        mark_unsettled(self.source, self.place, extent)
        if why:
            self.report.notes.append(f"queues and index are copied as they are: {why}")
            return
        settle(self.place, self._inner_config(), extent, self._progress)
        lowered = 0 if self._at is None else lower_offsets(self.place, self._inner_config())
        if lowered:
            self.report.notes.append(
                f"{lowered} consumer and delay offsets past the end of their queue were lowered to "
                "it"
            )
        self.report.settled = True

    def _verify(self) -> None:
        config = self._inner_config()
        found = verify_files(self.place, config, progress=self._progress)
        if self.report.settled and found.finding_counts.keys() & (QUEUE_KINDS | INDEX_KINDS):
            aside = self.work / "undo"
            if aside.exists():
                shutil.rmtree(aside)
            reindex(self.place, undo=aside, config=config, progress=self._progress)
            self.report.rebuilt = True
            found = verify_files(self.place, config, progress=self._progress)
        found.moved(self.place, self.destination)
        self.report.verify = found

    def _restore_times(self, tree: Tree) -> None:
        for file in tree.files:
            path = self.place / file.name
            with contextlib.suppress(FileNotFoundError):
                if file.name.startswith(f"{formats.COMMIT_LOG_DIR}/"):
                    os.utime(path, ns=(file.mtime_ns, file.mtime_ns), follow_symlinks=False)
        for folder in reversed(tree.folders):
            place = self.place / folder.name
            with contextlib.suppress(FileNotFoundError):
                if hasattr(os, "chown") and os.geteuid() == 0:
                    os.chown(place, *folder.owner)
                os.chmod(place, folder.mode & 0o7777)
                os.utime(place, ns=(folder.mtime_ns, folder.mtime_ns))


def _is_position(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    return folder == formats.CONFIG_DIR and any(word in last.lower() for word in _POSITIONS)


def _drop(tree: Tree, name: str) -> None:
    def outside(one: Any) -> bool:
        return one.name != name and not one.name.startswith(f"{name}/")

    tree.folders[:] = [one for one in tree.folders if outside(one)]
    tree.files[:] = [one for one in tree.files if outside(one)]
    tree.links[:] = [one for one in tree.links if outside(one)]
