"""Detecting files and folders of a store that are unreadable or of the wrong kind.

Nothing is opened before its kind is known, so that a FIFO or a device never blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.lock import odd_lock
from rocketstore.directory.paths import StorePaths
from rocketstore.files.durable import READ_ONLY, kind_name, no_folder
from rocketstore.files.linked_files import shared_files

#: Levels of subfolders: topics, then queues.
_DEPTHS = {
    formats.CONSUME_QUEUE_DIR: 2,
    formats.BATCH_QUEUE_DIR: 2,
    formats.CONSUME_QUEUE_EXT_DIR: 2,
}
#: Folders whose files are not named by offsets.
_OTHERS = (formats.INDEX_DIR, formats.CONFIG_DIR)


@dataclass
class StoreAccess:
    """The parts of a store that cannot be read.

    Attributes
    ----------
    unreadable : dict of Path to str
        Unreadable files and folders, with the system's error text.
    odd : dict of Path to str
        Entries of the wrong kind in the place of a file or folder, and what they are.
    foreign : list of Path
        Entries without the name of a segment or queue file in folders of those.
    linked : list of Path
        Files of log, queues and index that are symbolic links or have hard links.
    shared : dict of Path to Path
        Those of them that are the same file as another one, and the other one.
    """

    unreadable: dict[Path, str] = field(default_factory=dict)
    odd: dict[Path, str] = field(default_factory=dict)
    foreign: list[Path] = field(default_factory=list)
    linked: list[Path] = field(default_factory=list)
    shared: dict[Path, Path] = field(default_factory=dict)
    _odd_folders: set[Path] = field(default_factory=set)
    _files: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, paths: StorePaths) -> StoreAccess:
        """Examine every file that belongs to the store, without reading any."""
        access = cls()
        for folder in _folders(paths):
            what = _in_a_folder_s_place(folder)
            if what:
                access.odd[folder] = what
                access._odd_folders.add(folder)
            else:
                access._look_below(folder, _DEPTHS.get(folder.name, 0), folder.name not in _OTHERS)
        for path in (paths.checkpoint, paths.state):
            access._look_at(path)
        # Neither is opened, except a lock file with hard links. Writers replace a link in the place
        # of abort.
        lock = paths.root / formats.LOCK_FILE
        for path, what in ((paths.abort, _in_abort_s_place(paths.abort)), (lock, odd_lock(lock))):
            if what:
                access.odd[path] = what
        if access.linked:
            access.shared = dict(shared_files(access._files))
        return access

    def odd_in_words(self, path: Path) -> str:
        """Describe what is at ``path``, one of ``odd``, and what belongs there."""
        place = "folder" if path in self._odd_folders else "file"
        return f"{self.odd[path]} in the place of a {place}"

    @property
    def closed(self) -> dict[Path, str]:
        """All entries that cannot be used: ``unreadable`` and ``odd``."""
        return {**self.unreadable, **self.odd}

    def hides(self, path: Path) -> bool:
        """Return whether ``path`` or a folder above it is unreadable."""
        return path in self.unreadable or any(
            folder in self.unreadable for folder in path.parents if self.unreadable
        )

    def hidden_segments(self, paths: StorePaths, size: int) -> Iterator[tuple[int, int, Path]]:
        """Yield start, stop and path of segments that are unreadable or not files."""
        for path in sorted(self.closed):
            start = formats.file_name_to_offset(path.name)
            if path.parent in paths.log_folders and start is not None and start % size == 0:
                yield start, start + size, path

    def _look_below(self, folder: Path, depth: int, by_offset: bool) -> None:
        """Examine the files of a folder and of its subfolders down to ``depth``."""
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.unreadable[folder] = error.strerror or str(error)
            return
        for entry in found:
            path = Path(entry.path)
            try:
                is_folder = entry.is_dir(follow_symlinks=depth > 0)
            except OSError as error:
                self.unreadable[folder] = error.strerror or str(error)
                return
            if depth and is_folder:
                self._look_below(path, depth - 1, by_offset)
                continue
            if not depth and by_offset and formats.file_name_to_offset(entry.name) is None:
                self.foreign.append(path)
            if not depth and not self._look_at(path):
                return

    def _look_at(self, path: Path) -> bool:
        """Examine one file; return False if its folder cannot be searched."""
        try:
            about = os.stat(path)
        except FileNotFoundError:
            if path.is_symlink() and _is_a_file_s_place(path):
                self.odd[path] = _dead_link(path)
            return True  # otherwise it was deleted meanwhile
        except OSError as error:
            if error.errno == errno.ELOOP:
                self.odd[path] = "a symbolic link to itself"
                return True
            self.unreadable[path.parent] = error.strerror or str(error)
            return False
        if not stat.S_ISREG(about.st_mode):
            if _is_a_file_s_place(path):
                self.odd[path] = kind_name(about.st_mode)
            return True
        if _is_written_in_place(path):
            self._files.append(path)
            if about.st_nlink > 1 or path.is_symlink():
                self.linked.append(path)
        try:
            os.close(os.open(path, READ_ONLY))
        except FileNotFoundError:
            pass
        except OSError as error:
            self.unreadable[path] = error.strerror or str(error)
        return True


def _folders(paths: StorePaths) -> list[Path]:
    return [
        *paths.log_folders,
        paths.consume_queue,
        paths.batch_consume_queue,
        paths.consume_queue_ext,
        paths.index,
        paths.root / formats.CONFIG_DIR,
    ]


def _dead_link(path: Path) -> str:
    return f"a symbolic link to {os.path.realpath(path)}, which does not exist,"


def _in_a_folder_s_place(path: Path) -> str:
    """Describe what is in the place of one of the store's folders.

    The result is empty if the folder exists, if nothing does, or if it cannot be examined.
    """
    try:
        return no_folder(path) or (_dead_link(path) if _is_dead_link(path) else "")
    except OSError:
        return ""


def _is_dead_link(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _in_abort_s_place(path: Path) -> str:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return ""
    return "" if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else kind_name(mode)


def _is_a_file_s_place(path: Path) -> bool:
    """Return whether a file of the store has this name, so that nothing else may be there."""
    if path.parent.name == formats.CONFIG_DIR:
        return path.suffix in (".json", ".bak") or path.name in ("timercheck", "timermetrics")
    if path.name in (formats.CHECKPOINT_FILE, formats.STATE_FILE):
        return True
    return _is_written_in_place(path)


def _is_written_in_place(path: Path) -> bool:
    """Return whether a file of log, queues or index has this name; writers replace all others."""
    return formats.is_index_name(path.name) or formats.file_name_to_offset(path.name) is not None
