"""Replaces a store's files by new ones step by step: resumed after a kill, and taken back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.directory.lock import StoreLock
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import (
    READ_ONLY,
    make_directories,
    open_regular_file,
    refuse_link_out,
    sync_descriptor,
    sync_directory,
    write_file,
)
from rocketstore.mending.journal import JOURNAL_FILE, Journal
from rocketstore.mending.steps import Content, FileChange, Step, content_of, refuse_change
from rocketstore.recovery.truncate import quarantine_path

STEPS_FILE = "steps.json"
_README = """This folder belongs to a repair of a RocketMQ store by rocketstore.

old/            the files that were replaced, as they were
new/            files that are not in the store yet, or were taken out again
steps.json      what is replaced by what
journal.ndjson  what has been done

The command that made it finishes it if it was interrupted. To take it back:

    rocketstore repair STORE --undo THIS-FOLDER

Delete the folder once the store works.
"""


class Switch:
    """One repair in its folder: ``prepare``, then ``finish``; ``undo`` from any point.

    The caller holds the store's lock. New files stand in ``folder/new`` under the path that they
    will have below the root.

    Parameters
    ----------
    root : Path
        The store's root.
    folder : Path
        On the store's file system, or on another one.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder
        self.journal = Journal(folder)
        self.new, self.old = folder / "new", folder / "old"

    @property
    def is_prepared(self) -> bool:
        """Whether all new files are there, and steps can be done."""
        return self.journal.has("prepared")

    @property
    def state(self) -> str:
        """``none``, ``building``, ``prepared``, ``finished``, ``undoing`` or ``undone``."""
        for kind, state in (
            ("undone", "undone"),
            ("undo", "undoing"),
            ("finished", "finished"),
            ("prepared", "prepared"),
        ):
            if self.journal.has(kind):
                return state
        return "building" if self.journal.lines else "none"

    # --- preparing ----------------------------------------------------------------------------

    def prepare(self, steps: Sequence[Step]) -> None:
        """Check every new file against its step, sync them, and write down that all are there.

        Raises ``MappedFileError`` if a new file is not what its step says.
        """
        for step in steps:
            for change in step.files:
                if change.becomes is not None:
                    path = self.new / change.path
                    refuse_change(path, change.becomes, content_of(path, self.folder))
                    _sync(path, self.folder)
        for parent, _, _ in os.walk(self.new, topdown=False):
            sync_directory(Path(parent))
        content = json.dumps({"steps": [step.to_json() for step in steps]}, indent=1)
        write_file(self.folder / STEPS_FILE, content.encode())
        write_file(self.folder / "README.txt", _README.encode())
        self.journal.write("prepared", folders=self._folder_times(steps))

    def _folder_times(self, steps: Sequence[Step]) -> dict[str, int | None]:
        """Return the modification time of every folder that changes; ``None`` if it is missing."""
        begun = self.journal.find("building")
        times: dict[str, int | None] = {} if begun is None else {"": begun["rootTime"]}
        for step in steps:
            for change in step.files:
                parts = change.path.split("/")[:-1]
                for count in range(1, len(parts) + 1):
                    name = "/".join(parts[:count])
                    place = self.root / name
                    times[name] = place.stat().st_mtime_ns if place.is_dir() else None
        return times

    def steps(self) -> list[Step]:
        """Return the steps that were prepared."""
        path = self.folder / STEPS_FILE
        fd = open_regular_file(path, READ_ONLY, self.folder)
        with os.fdopen(fd, "rb") as file:
            try:
                return [Step.from_json(step) for step in json.load(file)["steps"]]
            except (ValueError, KeyError, TypeError) as error:
                raise MappedFileError(f"{path}: {error}") from error

    # --- doing --------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """Do all steps that are left; return the ids of those.

        Raises
        ------
        MappedFileError
            A file is neither as before nor as after its step.
        StoreFullError, OSError
            The repair stops; the same call goes on later.
        """
        left = [step for step in self.steps() if not self.journal.has("done", step=step.id)]
        for step in left:
            for change in step.files:
                self._refuse_other(change)
        for step in left:
            self.journal.write("begin", step=step.id)
            for change in step.files:
                self._switch(change, self.new, self.old, change.expects, change.becomes)
            self._sync_folders(step)
            self.journal.write("done", step=step.id)
        if not self.journal.has("finished"):
            for step in self.steps():
                for change in step.files:
                    path = self.root / change.path
                    refuse_change(path, change.becomes, content_of(path, self.root))
            self.journal.write("finished")
        return [step.id for step in left]

    def _refuse_other(self, change: FileChange) -> None:
        """Raise unless the file is as before the change, or as after it, or in between."""
        found = content_of(self.root / change.path, self.root)
        if found == change.becomes or (found is None and self._is_kept(change)):
            return
        refuse_change(self.root / change.path, change.expects, found)

    def _is_kept(self, change: FileChange) -> bool:
        return os.path.lexists(self.old / change.path)

    def _switch(
        self,
        change: FileChange,
        source: Path,
        target: Path,
        before: Content | None,
        after: Content | None,
    ) -> None:
        """Move the file from ``before`` to ``target``, and the one from ``source`` to its place.

        What was done by an earlier attempt is found by the bytes.
        """
        place, kept, made = self.root / change.path, target / change.path, source / change.path
        refuse_link_out(place, self.root)
        found = content_of(place, self.root)
        if found == after and (after is None or not os.path.lexists(made)):
            return
        if before is not None and found is not None:
            refuse_change(place, before, found)
            make_directories(kept.parent, self.folder)
            _move(place, kept)
        if after is not None:
            make_directories(place.parent, self.root)
            _move(made, place)

    def _sync_folders(self, step: Step) -> None:
        for change in step.files:
            for top in (self.root, self.old, self.new):
                parent = (top / change.path).parent
                if parent.is_dir():
                    sync_directory(parent)

    # --- taking back --------------------------------------------------------------------------

    def undo(self) -> None:
        """Put every old file back, and take the new ones and their folders out.

        Raises
        ------
        MappedFileError
            The store was written since: a file is no longer what the repair made of it.
        """
        if not self.is_prepared or self.state == "undone":
            return
        begun = [step for step in self.steps() if self.journal.has("begin", step=step.id)]
        for step in begun:
            for change in step.files:
                self._refuse_written(change)
        if not self.journal.has("undo"):
            self.journal.write("undo")
        for step in reversed(begun):
            for change in step.files:
                self._switch(change, self.old, self.new, change.becomes, change.expects)
            self._sync_folders(step)
        self._restore_folders()
        self.journal.write("undone")

    def _refuse_written(self, change: FileChange) -> None:
        place = self.root / change.path
        found = content_of(place, self.root)
        if found not in (change.expects, change.becomes) and found is not None:
            raise MappedFileError(
                f"{place} was written since the repair; it cannot be taken back. The old file is "
                f"{self.old / change.path}"
            )

    def _restore_folders(self) -> None:
        prepared = self.journal.find("prepared")
        times: dict[str, Any] = {} if prepared is None else prepared["folders"]
        for name, time in sorted(times.items(), key=lambda item: -len(item[0])):
            place = self.root / name
            if time is None:
                with contextlib.suppress(FileNotFoundError):
                    place.rmdir()
                    sync_directory(place.parent)
        for name, time in times.items():
            if time is not None:
                set_modified(self.root / name, time)


def _sync(path: Path, root: Path) -> None:
    fd = open_regular_file(path, READ_ONLY, root)
    try:
        sync_descriptor(fd)
    finally:
        os.close(fd)


def _move(source: Path, target: Path) -> None:
    """Rename, or copy durably to another file system; never replace a file."""
    if os.path.lexists(target):
        raise MappedFileError(f"{target} exists already; nothing is replaced")
    if os.stat(source).st_dev == os.stat(target.parent).st_dev:
        os.rename(source, target)
        return
    write_file(target, _pieces(source))
    shutil.copystat(source, target)
    with contextlib.suppress(PermissionError):
        about = os.stat(source)
        os.chown(target, about.st_uid, about.st_gid)
    sync_directory(target.parent)
    source.unlink()


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the store's lock; making and deleting its file leaves the root's time as it is.

    Raises ``StoreLockedError`` if another process writes the store.
    """
    time_ns = os.stat(root).st_mtime_ns
    lock = StoreLock(root)
    try:
        set_modified(root, time_ns)
        yield
    finally:
        time_ns = os.stat(root).st_mtime_ns
        lock.release()
        set_modified(root, time_ns)


def new_folder(root: Path, name: str) -> Path:
    """Create the default folder of a repair below the store's quarantine."""
    folder = quarantine_path(root, name)
    make_directories(folder, root)
    return folder


def unfinished(root: Path, suffix: str) -> Path | None:
    """Return the folder of a repair that was interrupted, below the store's quarantine."""
    for folder in sorted((root / formats.QUARANTINE_DIR).glob(f"*-{suffix}*")):
        if folder.is_dir() and is_unfinished(root, folder):
            return folder
    return None


def is_unfinished(root: Path, folder: Path) -> bool:
    """Return whether a repair was interrupted, maybe before it wrote down anything."""
    state = Switch(root, folder).state
    return state in ("building", "prepared") or (
        state == "none" and set(os.listdir(folder)) <= {JOURNAL_FILE}
    )


def forget(root: Path, folder: Path) -> None:
    """Delete the folder of a repair that changed nothing, or was taken back; and the quarantine if
    it is empty then. The root's modification time becomes that before the repair."""
    begun = Switch(root, folder).journal.find("building")
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        (root / formats.QUARANTINE_DIR).rmdir()
    if begun is not None:
        set_modified(root, begun["rootTime"])


def set_modified(path: Path, time_ns: int) -> None:
    """Set a folder's modification time, ns."""
    os.utime(path, ns=(os.stat(path).st_atime_ns, time_ns))
