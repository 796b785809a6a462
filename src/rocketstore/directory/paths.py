"""The paths of a store below its root."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.directory.lock import is_held
from rocketstore.errors import ConfigError, MappedFileError, UnsafePathError
from rocketstore.files.durable import no_folder, refuse_link_out

#: Separates several folders in a broker's storePathCommitLog (5.0 and later).
_FOLDER_LIST_SEPARATOR = ","


@dataclass(frozen=True)
class StorePaths:
    """Paths of a store below ``root``.

    ``check`` raises ``UnsafePathError`` if a folder is a link out of the root.
    """

    root: Path
    commit_log: Path
    consume_queue: Path
    batch_consume_queue: Path
    consume_queue_ext: Path
    index: Path
    checkpoint: Path
    abort: Path
    state: Path

    def has_writer(self) -> bool:
        """Return whether a process may be writing the store: it holds the lock.

        If the system cannot report that, return whether ``abort`` exists.
        """
        held = is_held(self.root / formats.LOCK_FILE)
        return os.path.lexists(self.abort) if held is None else held

    @classmethod
    def of(cls, root: Path, config: MessageStoreConfig) -> StorePaths:
        """Return the paths below ``root``, with the log path of ``config``.

        Raises ``ConfigError`` if ``config`` is of a store elsewhere whose log is not inside it.
        """
        log = config.store_path_commit_log
        if log:
            _refuse_several_folders(log)
        return cls(
            root=root,
            commit_log=(
                _log_of(root, log, config.store_path_root_dir)
                if log
                else root / formats.COMMIT_LOG_DIR
            ),
            consume_queue=root / formats.CONSUME_QUEUE_DIR,
            batch_consume_queue=root / formats.BATCH_QUEUE_DIR,
            consume_queue_ext=root / formats.CONSUME_QUEUE_EXT_DIR,
            index=root / formats.INDEX_DIR,
            checkpoint=root / formats.CHECKPOINT_FILE,
            abort=root / formats.ABORT_FILE,
            state=root / formats.STATE_FILE,
        )

    def absolute(self) -> StorePaths:
        """Return absolute paths, which stay valid if the process changes its working directory.

        A writer checks repeatedly whether its files still have their names.
        """
        names = (field.name for field in dataclasses.fields(self))
        return StorePaths(**{name: Path(os.path.abspath(getattr(self, name))) for name in names})

    def folders_that_are_none(self) -> list[str]:
        """Describe what is in the place of folders that can be rebuilt from the log."""
        folders = (self.consume_queue, self.consume_queue_ext, self.batch_consume_queue, self.index)
        kinds = [(folder, no_folder(folder)) for folder in folders]
        return [
            f"{folder} is {kind}, not a folder; its content is derived from the log"
            for folder, kind in kinds
            if kind
        ]

    @property
    def log_root(self) -> Path:
        """The folder that links among the log's segments must not leave."""
        inside = self.commit_log.parent == self.root
        return self.root if inside else self.commit_log

    def refuse_named_nothing(self) -> None:
        """Raise ``MappedFileError`` if the folder in ``store_path_commit_log`` does not exist."""
        if self.commit_log == self.root / formats.COMMIT_LOG_DIR or self.commit_log.is_dir():
            return
        raise MappedFileError(
            f"there is no folder {self.commit_log}, which store_path_commit_log (--commit-log) "
            "names. Check that its disk is mounted; mode 'a' creates it for a store without "
            "messages"
        )

    def check(self, *, tolerant: bool) -> None:
        """Raise if a folder is a link out of the root, a dangling link, or not a folder.

        With ``tolerant`` only the log must exist. ``store_path_commit_log`` permits a log outside
        the root.
        """
        if tolerant:
            self.refuse_named_nothing()
        folders = [
            self.consume_queue,
            self.consume_queue_ext,
            self.batch_consume_queue,
            self.index,
        ]
        if self.log_root == self.root:
            folders.append(self.commit_log)
        for folder in folders:
            try:
                refuse_link_out(folder, self.root)
            except UnsafePathError as error:
                raise UnsafePathError(f"{error}{self._advice(folder)}") from None
            kind = no_folder(folder)
            if kind and not tolerant:
                raise MappedFileError(f"{folder} is {kind}, not a folder")
            if not folder.is_symlink():
                continue
            needed = folder == self.commit_log or not tolerant
            target = Path(os.path.realpath(folder))
            if needed and not target.exists():
                raise MappedFileError(
                    f"{folder} is a symbolic link to {target}, which does not exist"
                    f"{self._advice(folder)}"
                )

    def _advice(self, folder: Path) -> str:
        """Return what to do about a folder that is a link out of the root or to nothing."""
        if folder != self.commit_log:
            return ""
        target = Path(os.path.realpath(folder))
        if target.is_dir():
            return f"; if the log is there, pass --commit-log {target} (store_path_commit_log)"
        where = "" if target.is_relative_to(os.path.realpath(self.root)) else ", and no such folder"
        return (
            f"{where}. Check that its disk is mounted. If the log is elsewhere, pass its folder: "
            "--commit-log (store_path_commit_log)"
        )


def _refuse_several_folders(log: str) -> None:
    """Raise ``ConfigError`` for a list of folders, over which RocketMQ distributes a log."""
    if _FOLDER_LIST_SEPARATOR in log and not Path(log).is_dir():
        count = len(log.split(_FOLDER_LIST_SEPARATOR))
        raise ConfigError(
            f"store_path_commit_log {log!r} names several folders ({count}): rocketstore does not "
            "support a log on several disks. To read it, create links to all segments in one "
            "folder, each name once, and pass that folder"
        )


def _log_of(root: Path, log: str, configured_root: str | None) -> Path:
    """Return the log's folder of the store at ``root``.

    The configuration may be of the store that this one is a copy of: the log of that store must not
    be taken for this one's.
    """
    if not configured_root or os.path.realpath(configured_root) == os.path.realpath(root):
        return Path(log)
    inside = os.path.relpath(os.path.abspath(log), os.path.abspath(configured_root))
    if inside.split(os.sep)[0] not in (os.pardir, os.curdir) and not os.path.isabs(inside):
        return root / inside
    if not os.path.isdir(configured_root):  # moved, or of another machine
        return Path(log)
    raise ConfigError(
        f"the configuration is of the store {configured_root} (store_path_root_dir), not of "
        f"{root}, and its log is elsewhere: {log}. Pass the folder of this store's log: "
        "store_path_commit_log=DIR, on the command line --commit-log DIR",
        key="store_path_commit_log",
    )
