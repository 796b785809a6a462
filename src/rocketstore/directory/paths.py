"""The paths of a store below its root."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.directory.lock import is_held
from rocketstore.errors import ConfigError, MappedFileError, UnsafePathError
from rocketstore.files.durable import no_folder, refuse_link_out
from rocketstore.files.mapped_file_queue import DirectoryListing, list_directories

#: Separates several folders in a broker's storePathCommitLog.
_SEPARATOR = ","
#: The first version that divides it.
_SEVERAL_SINCE = (4, 9, 2)


@dataclass(frozen=True)
class StorePaths:
    """Paths of a store below ``root``.

    ``commit_log`` is the log's folder, the first one if there are several; ``more_logs`` are the
    others. ``check`` raises ``UnsafePathError`` if a folder is a link out of the root.
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
    more_logs: tuple[Path, ...] = ()

    def has_writer(self) -> bool:
        """Return whether a process may be writing the store: it holds the lock.

        If the system cannot report that, return whether ``abort`` exists.
        """
        held = is_held(self.root / formats.LOCK_FILE)
        return os.path.lexists(self.abort) if held is None else held

    @classmethod
    def of(cls, root: Path, config: MessageStoreConfig) -> StorePaths:
        """Return the paths below ``root``, with the log's folders of ``config``.

        Raises ``ConfigError`` if ``config`` is of a store elsewhere whose log is not inside it.
        """
        logs = [_log_of(root, log, config.store_path_root_dir) for log in configured_logs(config)]
        return cls(
            root=root,
            commit_log=logs[0] if logs else root / formats.COMMIT_LOG_DIR,
            more_logs=tuple(logs[1:]),
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
        names = {field.name for field in dataclasses.fields(self)} - {"more_logs"}
        found = {name: Path(os.path.abspath(getattr(self, name))) for name in names}
        more = tuple(Path(os.path.abspath(folder)) for folder in self.more_logs)
        return StorePaths(**found, more_logs=more)

    def folders_that_are_none(self) -> list[str]:
        """Describe what is in the place of folders that can be rebuilt from the log."""
        folders = (self.consume_queue, self.consume_queue_ext, self.batch_consume_queue, self.index)
        kinds = [(folder, no_folder(folder)) for folder in folders]
        return [
            f"{folder} is {kind}, not a folder; its content is derived from the log"
            for folder, kind in kinds
            if kind
        ]

    def list_log(
        self, *, tolerate_unreadable: bool = False, tolerate_odd: bool = False
    ) -> DirectoryListing:
        """List the log's segments; raises as ``list_directories``."""
        return list_directories(
            self.log_folders,
            self.log_root,
            tolerate_unreadable=tolerate_unreadable,
            tolerate_odd=tolerate_odd,
        )

    @property
    def log_folders(self) -> tuple[Path, ...]:
        """All folders with segments of the log."""
        return (self.commit_log, *self.more_logs)

    @property
    def is_log_elsewhere(self) -> bool:
        """Whether a folder of the log is not below the root."""
        root = os.path.abspath(self.root)
        return not all(
            Path(os.path.abspath(folder)).is_relative_to(root) for folder in self.log_folders
        )

    def refuse_several_logs(self, why: str = "can be read, but not be written") -> None:
        """Raise ``ConfigError`` for a log in several folders; ``why``: what is said about it."""
        if not self.more_logs:
            return
        count = len(self.log_folders)
        raise ConfigError(
            f"a log in several folders {why}. Copy the store with its log in one folder: "
            f"rocketstore clone. The log is in {count} folders: "
            f"{', '.join(map(str, self.log_folders))}",
            key="store_path_commit_log",
        )

    @property
    def log_root(self) -> Path:
        """The folder that links among the log's segments must not leave."""
        inside = self.commit_log.parent == self.root
        return self.root if inside else self.commit_log

    def refuse_named_nothing(self) -> None:
        """Raise ``MappedFileError`` if a folder in ``store_path_commit_log`` does not exist."""
        for folder in self.log_folders:
            if folder == self.root / formats.COMMIT_LOG_DIR or folder.is_dir():
                continue
            end = "" if self.more_logs else (
                "; mode 'a' creates it for a store without messages"
            )  # fmt: skip
            raise MappedFileError(
                f"there is no folder {folder}, which store_path_commit_log (--commit-log) names. "
                f"Check that its disk is mounted{end}"
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


def configured_logs(config: MessageStoreConfig) -> tuple[str, ...]:
    """Return the log's folders that ``config`` names, as a broker divides them; empty if none.

    A folder whose own name has commas is one folder; so it is for a broker before 4.9.2.
    """
    log = config.store_path_commit_log
    if not log:
        return ()
    if _SEPARATOR not in log or Path(log).is_dir():
        return (log,)
    version = config.broker_version
    if version is not None:
        dialect = Dialect.for_version(version, allow_newer=True)
        if dialect.version < _SEVERAL_SINCE:
            return (log,)
    names = log.strip().split(_SEPARATOR)
    names += (config.read_only_commit_log_store_paths or "").strip().split(_SEPARATOR)
    return tuple(dict.fromkeys(name for name in names if name)) or (log,)


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
