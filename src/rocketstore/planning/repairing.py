"""``repair``: do what a plan says, so that a kill at any moment is made good by the same call."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.examination import doctor
from rocketstore.directory.place import check_platform, check_root
from rocketstore.errors import DecodeError, MappedFileError, RepairRefusedError
from rocketstore.files.disk_room import RoomNeeded
from rocketstore.files.durable import make_directories
from rocketstore.mending.steps import content_of
from rocketstore.mending.switching import (
    Switch,
    forget,
    is_unfinished,
    locked,
    new_folder,
)
from rocketstore.planning.planning import build_in
from rocketstore.planning.repair_plan import RepairPlan, identity_of
from rocketstore.planning.repair_report import RepairReport
from rocketstore.store.arguments import now_ms

PLAN_FILE = "plan.json"
_SUFFIX = "repair"


def repair(
    path: str | os.PathLike[str],
    plan: RepairPlan | str | os.PathLike[str] | Mapping[str, Any],
    *,
    undo: str | os.PathLike[str] | None = None,
    ignore_mtime: bool = False,
    progress: Progress | None = None,
) -> RepairReport:
    """Do what a plan says: replace files, keep the old ones, and be able to take all of it back.

    First, nothing is changed: the lock is taken, and the store must be the one that the plan was
    made for, in the same state. All new files are built and synced in a folder of their own and
    compared with the plan. Then they take their places step by step.

    Parameters
    ----------
    path : path
        The store's root.
    plan : RepairPlan, path or mapping
        From ``plan``, or its file.
    undo : path, optional
        Folder for the old files; below ``quarantine`` of the store if not given.
    ignore_mtime : bool
        Modification times may differ from the plan's, as in a copy.
    progress : callable, optional
        Called as ``progress(what, done, total)``.

    Returns
    -------
    RepairReport

    Raises
    ------
    RepairRefusedError
        The store is not as the plan expects; nothing was changed.
    DecodeError
        ``plan`` is no plan.
    StoreLockedError
        Another process writes the store.
    StoreFullError, OSError
        The disk is full or fails. Before the first step nothing was changed; later the same call
        goes on.

    Notes
    -----
    After a kill at any moment the same call leads to the same bytes. ``undo_repair`` takes a
    repair back from any point.
    """
    check_platform("r+")
    root = Path(path)
    check_root(root, "r+")
    wanted = plan if isinstance(plan, RepairPlan) else RepairPlan.from_json(plan)
    job = _Repair(root, wanted, progress, ignore_mtime=ignore_mtime)
    began = time.monotonic()
    if wanted.steps:
        with locked(root):
            job.run(None if undo is None else Path(undo))
    else:
        job.report.state = "already"
    if job.report.state != "already":
        job.report.verdict = doctor(root, config=job.settings, progress=progress)
    job.report.duration_s = time.monotonic() - began
    return job.report


class _Repair:
    """One run over one store, whose lock is held."""

    def __init__(
        self, root: Path, plan: RepairPlan, progress: Progress | None, *, ignore_mtime: bool
    ) -> None:
        self._root = root
        self._plan = plan
        self._progress = progress
        self._ignore_mtime = ignore_mtime
        try:
            self.settings = MessageStoreConfig().replace(**plan.store.get("config", {}))
        except TypeError as error:
            raise DecodeError(f"this is no plan of a repair: {error}") from error
        self.report = RepairReport(os.fspath(root), plan.id)
        self.report.placeholders = list(plan.placeholders)
        self.report.lost = [*plan.already, *plan.by_repair]

    def run(self, undo: Path | None) -> None:
        """Go on with what was interrupted; else check, build and switch."""
        left = self._begun(undo)
        if left is not None:
            switch = Switch(self._root, left)
            if switch.state in ("prepared", "finished"):
                is_finished = switch.state == "finished"
                if is_finished:
                    self._refuse_unlike()
                self._finish(switch, "already" if is_finished else "resumed")
                return
            if not is_unfinished(self._root, left):
                raise RepairRefusedError(
                    f"{left} belongs to a repair that was taken back; name another folder"
                )
            forget(self._root, left)
        if undo is not None and undo.is_dir() and os.listdir(undo):
            raise RepairRefusedError(f"{undo} is not empty; name another folder for the old files")
        if self._is_done():
            self.report.state = "already"
            return
        self._refuse_other_store()
        self._refuse_unlike_before()
        self._begin(undo)

    def _begun(self, undo: Path | None) -> Path | None:
        """Return the folder of an earlier call with the same plan."""
        if undo is not None:
            folders = [undo] if undo.is_dir() and os.listdir(undo) else []
        else:
            folders = sorted((self._root / formats.QUARANTINE_DIR).glob(f"*-{_SUFFIX}*"))
        for folder in folders:
            switch = Switch(self._root, folder)
            if switch.state in ("none", "building"):
                if is_unfinished(self._root, folder):
                    return folder
                continue
            if switch.state in ("undoing", "undone"):
                if undo is not None:
                    return folder
                continue
            if RepairPlan.from_json(folder / PLAN_FILE).id == self._plan.id:
                return folder
            if switch.state == "prepared":
                raise RepairRefusedError(
                    f"{folder} holds an unfinished repair by another plan; finish it with "
                    f"{folder / PLAN_FILE}, or take it back with --undo"
                )
            if undo is not None:
                raise RepairRefusedError(f"{folder} holds a repair by another plan")
        return None

    # --- checks -------------------------------------------------------------------------------

    def _is_done(self) -> bool:
        """Return whether every file is as the plan makes it."""
        return all(
            content_of(self._root / one.path, self._root) == one.becomes
            for step in self._plan.steps
            for one in step.files
        )

    def _refuse_unlike(self) -> None:
        if not self._is_done():
            raise RepairRefusedError(
                f"the plan was done, and {self._root} was written since; make a new plan"
            )

    def _refuse_other_store(self) -> None:
        times = not self._ignore_mtime
        wanted = self._plan.store["identity" if times else "identityWithoutTimes"]
        if identity_of(self._root, times=times) != wanted:
            raise RepairRefusedError(
                f"{self._root} is not the store of the plan, or was changed since; nothing was "
                "changed; make a new plan" + (" (a copy needs --ignore-mtime)" if times else "")
            )

    def _refuse_unlike_before(self) -> None:
        for step in self._plan.steps:
            for one in step.files:
                try:
                    found = content_of(self._root / one.path, self._root)
                except MappedFileError as error:
                    raise RepairRefusedError(f"{error}; nothing was changed") from error
                if found != one.expects:
                    raise RepairRefusedError(
                        f"{self._root / one.path} is not as the plan expects; nothing was changed; "
                        "make a new plan"
                    )

    # --- building and switching ---------------------------------------------------------------

    def _begin(self, undo: Path | None) -> None:
        root = self._root
        root_time = os.stat(root).st_mtime_ns
        room = RoomNeeded("the new files of the repair")
        sizes = [one.becomes.size for step in self._plan.steps
                 for one in step.files if one.becomes is not None]  # fmt: skip
        room.add(root, sizes)
        room.refuse_lack()
        folder = new_folder(root, f"{now_ms()}-{_SUFFIX}") if undo is None else undo
        folder.mkdir(parents=True, exist_ok=True)
        switch = Switch(root, folder)
        try:
            switch.journal.write("building", rootTime=root_time, plan=self._plan.id)
            self._plan.save(folder / PLAN_FILE)
            make_directories(switch.new, folder)
            self._build(switch)
            switch.prepare([step.step() for step in self._plan.steps])
        finally:
            if not switch.is_prepared:
                forget(root, folder)
        self._finish(switch, "done")

    def _build(self, switch: Switch) -> None:
        """Build all new files; raise unless they are those of the plan."""
        plan = self._plan
        built = build_in(
            self._root, self.settings, switch.new, plan.options, made_at=plan.made_at,
            is_locked=True, progress=self._progress,
        )  # fmt: skip
        made = [(step.kind, step.files) for step in built.steps]
        if made != [(step.kind, step.files) for step in plan.steps]:
            raise RepairRefusedError(
                "what was built is not what the plan says; nothing was changed; make a new plan"
            )

    def _finish(self, switch: Switch, state: str) -> None:
        done = set(switch.finish())
        report = self.report
        report.state, report.undo = state, os.fspath(switch.folder)
        report.steps = [
            {"id": step.id, "kind": step.kind, "state": "done" if step.id in done else "already",
             "files": [one.path for one in step.files], "seconds": step.seconds}
            for step in self._plan.steps
        ]  # fmt: skip
        report.kept_nbytes = sum(_sizes(switch.old))


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, names in os.walk(folder):
        yield from (os.stat(Path(parent, name)).st_size for name in names)
