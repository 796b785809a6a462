"""What a store directory is: its paths, the sizes its files show, and the RocketMQ line behind
it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rocketstore import formats, kernels
from rocketstore.config import (
    DEFAULT_HASH_SLOT_NUM,
    DEFAULT_INDEX_NUM,
    MessageStoreConfig,
)
from rocketstore.config_files import TOPICS_FILE, config_path, topic_attributes
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.durable_file import kind_name, no_folder, refuse_link_out
from rocketstore.errors import ConfigError, MappedFileError, UnsafePathError
from rocketstore.index_service import GeometryChoice, choose_geometry, index_paths
from rocketstore.lost_log import refuse_lost_log
from rocketstore.mapped_file import MappedFile
from rocketstore.mapped_file_queue import DirectoryListing, list_directory
from rocketstore.misnamed_segments import hidden_segments
from rocketstore.queue_table import (
    QUEUE_TYPE_ATTRIBUTE,
    QueueTypes,
    queue_types,
    topics_below,
)
from rocketstore.segment_size import UnitPlaces, log_file_size
from rocketstore.store_checkpoint import StoreCheckpoint, read_bytes, signed_crc
from rocketstore.store_kinds import refuse_dledger
from rocketstore.store_lock import is_held
from rocketstore.store_sizes import QueueFileSizes
from rocketstore.store_state import StoreState

#: Between the folders of a broker's storePathCommitLog that names several (5.0 and later).
_FOLDER_LIST_SEPARATOR = ","


@dataclass(frozen=True)
class StorePaths:
    """Paths of a store below ``root``.

    Raises ``UnsafePathError`` (from ``check``) when a folder is a link that leaves the root.
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
        """Return whether a process may be writing the store: it holds the lock, or ``abort`` is
        there where the system does not tell who holds one."""
        held = is_held(self.root / formats.LOCK_FILE)
        return os.path.lexists(self.abort) if held is None else held

    @classmethod
    def of(cls, root: Path, config: MessageStoreConfig) -> StorePaths:
        """Paths under ``root``, the log where ``config`` says."""
        log = config.store_path_commit_log
        if log:
            _refuse_several_folders(log)
        return cls(
            root=root,
            commit_log=Path(log) if log else root / formats.COMMIT_LOG_DIR,
            consume_queue=root / formats.CONSUME_QUEUE_DIR,
            batch_consume_queue=root / formats.BATCH_QUEUE_DIR,
            consume_queue_ext=root / formats.CONSUME_QUEUE_EXT_DIR,
            index=root / formats.INDEX_DIR,
            checkpoint=root / formats.CHECKPOINT_FILE,
            abort=root / formats.ABORT_FILE,
            state=root / formats.STATE_FILE,
        )

    def absolute(self) -> StorePaths:
        """The same, whatever the process's folder will be: who writes asks again and again whether
        its files stand under their names."""
        names = (field.name for field in dataclasses.fields(self))
        return StorePaths(**{name: Path(os.path.abspath(getattr(self, name))) for name in names})

    def folders_that_are_none(self) -> list[str]:
        """Say what stands in the place of folders that can be made again from the log."""
        folders = (self.consume_queue, self.consume_queue_ext, self.batch_consume_queue, self.index)
        kinds = [(folder, no_folder(folder)) for folder in folders]
        return [
            f"{folder} is {kind}, not a folder; what belongs into it is made from the log"
            for folder, kind in kinds
            if kind
        ]

    @property
    def log_root(self) -> Path:
        """The folder that links among the log's segments must not leave."""
        inside = self.commit_log.parent == self.root
        return self.root if inside else self.commit_log

    def refuse_named_nothing(self) -> None:
        """Raise ``MappedFileError`` when ``store_path_commit_log`` names a folder that is not
        there."""
        if self.commit_log == self.root / formats.COMMIT_LOG_DIR or self.commit_log.is_dir():
            return
        raise MappedFileError(
            f"there is no folder {self.commit_log}, which store_path_commit_log (--commit-log) "
            "names; is its disk not mounted? Mode 'a' makes it for a store without a message"
        )

    def check(self, *, tolerant: bool) -> None:
        """Refuse folders that are links out of the root (give ``store_path_commit_log``
        instead), or to nothing, or no folders; ``tolerant``: only the log must be there."""
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
        """What to do about a folder that is a link which is not followed."""
        if folder != self.commit_log:
            return ""
        target = Path(os.path.realpath(folder))
        if target.is_dir():
            return f"; if the log lies there, say so: --commit-log {target} (store_path_commit_log)"
        where = "" if target.is_relative_to(os.path.realpath(self.root)) else ", and no such folder"
        return (
            f"{where}; is its disk not mounted? Where the log lies elsewhere, name its folder: "
            "--commit-log (store_path_commit_log)"
        )


def _refuse_several_folders(log: str) -> None:
    """RocketMQ spreads a log over the folders of a list; such a list is no folder's name."""
    if _FOLDER_LIST_SEPARATOR in log and not Path(log).is_dir():
        count = len(log.split(_FOLDER_LIST_SEPARATOR))
        raise ConfigError(
            f"store_path_commit_log {log!r} names several folders ({count}): a log that RocketMQ "
            "spreads over several disks can be neither read nor written here. Put links to all "
            "segments into one folder, each name once, and name that folder, to read it"
        )


@dataclass
class StoreFacts:
    """What the files say, before anything is opened for reading messages.

    Attributes
    ----------
    paths : StorePaths
    listing : DirectoryListing
        The log's directory.
    commit_log_file_size, consume_queue_file_size, batch_queue_file_size : int
        Bytes.
    ext_file_size : int
        Bytes of a consume-queue-ext file, 0 when none are kept.
    queue_types : QueueTypes
        Which topics have batch queues.
    index : GeometryChoice
    dialect : Dialect
    dialect_reason : str
        Why this dialect.
    checkpoint : StoreCheckpoint
    checkpoint_crc : int
        Of the file's content, to compare with the state file's.
    state : StoreState or None
    aborted : bool
        ``abort`` is there: the last writer did not stop in good order.
    notes : list of str
        Doubts, in words.
    """

    paths: StorePaths
    listing: DirectoryListing
    commit_log_file_size: int
    consume_queue_file_size: int
    batch_queue_file_size: int
    ext_file_size: int
    queue_types: QueueTypes
    index: GeometryChoice
    dialect: Dialect
    dialect_reason: str
    checkpoint: StoreCheckpoint
    checkpoint_crc: int
    state: StoreState | None
    aborted: bool
    notes: list[str] = field(default_factory=list)

    @property
    def valid_state(self) -> StoreState | None:
        """The state file as far as it can be trusted: nobody else wrote the checkpoint since."""
        state = self.state
        if state is None or not state.belongs_to(self.checkpoint_crc):
            return None
        return state

    def are_told_by(self, state: StoreState) -> bool:
        """Whether sizes and dialect in ``state`` are those of the files that will be made."""
        return (
            state.commit_log_file_size == self.commit_log_file_size
            and state.consume_queue_file_size == self.consume_queue_file_size
            and (state.hash_slot_num, state.index_num) == self.index.pair
            and state.broker_version == self.dialect.name
        )


def examine(
    paths: StorePaths, config: MessageStoreConfig, *, tolerate_unreadable: bool = False
) -> StoreFacts:
    """Read a directory's facts; nothing is changed.

    Raises
    ------
    ConfigError
        When a configured size contradicts the files.
    MappedFileError, UnsafePathError
        As ``list_directory``; ``MappedFileError`` also when ``abort`` is no file, and when the log
        is missing (see ``refuse_lost_log``).
    """
    paths.check(tolerant=tolerate_unreadable)
    refuse_dledger(paths.root, paths.commit_log)
    notes: list[str] = []
    tolerant = tolerate_unreadable
    state = _read_hint(StoreState.read, paths.state, paths.root, notes, tolerant=tolerant)
    if state is None and not notes and os.path.isfile(paths.state):
        notes.append(
            f"{paths.state} is no whole state file of this version: it is ignored, and the store "
            "is opened as one that a broker left"
        )
    found = _read_hint(read_bytes, paths.checkpoint, paths.root, notes, tolerant=tolerant)
    content = found or b""
    checkpoint = StoreCheckpoint.from_bytes(content)
    listing = list_directory(
        paths.commit_log, paths.log_root, tolerate_unreadable=tolerant, tolerate_odd=tolerant
    )
    refuse_lost_log(paths, listing, checkpoint, state)
    hints = [(state.hash_slot_num, state.index_num)] if state else []
    given = None
    if config.max_hash_slot_num is not None and config.max_index_num is not None:
        given = (config.max_hash_slot_num, config.max_index_num)
    index = choose_geometry(
        paths.index,
        paths.root,
        given,
        hints,
        (DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM),
        tolerant=tolerate_unreadable,
    )
    notes += index.doubts
    log_size = log_file_size(
        listing,
        paths.log_root,
        config,
        state,
        notes,
        UnitPlaces.below(paths.consume_queue, paths.root),
    )
    _set_beyond_aside(listing, log_size)
    notes += hidden_segments(listing, log_size, paths.log_root)
    sizes = QueueFileSizes(paths.root, config, state, notes, tolerant=tolerate_unreadable)
    notes += paths.folders_that_are_none()
    facts = StoreFacts(
        paths=paths,
        listing=listing,
        commit_log_file_size=log_size,
        consume_queue_file_size=sizes.of_queues(paths.consume_queue),
        batch_queue_file_size=sizes.of_batch_queues(paths.batch_consume_queue),
        ext_file_size=sizes.of_ext(paths.consume_queue_ext),
        queue_types=_queue_types(paths, config, notes, tolerant=tolerate_unreadable),
        index=index,
        dialect=Dialect((0, 0, 0)),
        dialect_reason="",
        checkpoint=checkpoint,
        checkpoint_crc=signed_crc(content),
        state=state,
        aborted=_is_aborted(paths.abort, notes, tolerant=tolerate_unreadable),
        notes=notes,
    )
    facts.dialect, facts.dialect_reason = choose_dialect(paths, config, facts)
    return facts


def _set_beyond_aside(listing: DirectoryListing, size: int) -> None:
    """A segment that would end behind the last possible offset is none."""
    beyond = [path for offset, path, _ in listing.files if offset > 2**63 - 1 - size]
    listing.foreign += beyond
    listing.files = [row for row in listing.files if row[1] not in beyond]


def _is_aborted(path: Path, notes: list[str], *, tolerant: bool) -> bool:
    """Whether ``abort`` is there, whatever it holds. Raises ``MappedFileError`` when it cannot be
    replaced, unless ``tolerant``."""
    if not os.path.lexists(path):
        return False
    if not path.is_symlink() and not path.is_file():
        problem = f"{path} is {kind_name(os.lstat(path).st_mode)}, not a regular file"
        if not tolerant:
            raise MappedFileError(problem)
        notes.append(f"{problem}; the last stop is taken for unclean")
    return True


_Hint = TypeVar("_Hint")


def _read_hint(
    read: Callable[[Path, Path], _Hint],
    path: Path,
    root: Path,
    notes: list[str],
    *,
    tolerant: bool,
) -> _Hint | None:
    """Read a small file that a reader can do without; with ``tolerant`` it is noted, and taken for
    missing, when it is no regular file or may not be read. Links out of the root are refused."""
    try:
        if path.is_symlink() and not path.exists():
            refuse_link_out(path, root)
            raise MappedFileError(f"{path} is a symbolic link that leads to nothing")
        return read(path, root)
    except (MappedFileError, OSError) as error:
        if not tolerant:
            raise
        notes.append(f"{_told(path, error)}; it is taken for missing")
        return None


def _told(path: Path, error: Exception) -> str:
    """An error in words that name the file."""
    return f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _queue_types(
    paths: StorePaths, config: MessageStoreConfig, notes: list[str], *, tolerant: bool
) -> QueueTypes:
    """What the broker's table says wins against what the caller says, and files against both."""
    try:
        table = topic_attributes(paths.root, notes, tolerant=tolerant)
    except (MappedFileError, OSError) as error:
        if not tolerant:
            raise
        table = {}
        problem = _told(config_path(paths.root, TOPICS_FILE), error)
        notes.append(f"{problem}; topics are taken to have no attributes")
    declared = {
        topic: attributes[QUEUE_TYPE_ATTRIBUTE]
        for source in (config.topic_attributes, table)
        for topic, attributes in source.items()
        if QUEUE_TYPE_ATTRIBUTE in attributes
    }
    folders, batch = topics_below(paths.batch_consume_queue, paths.root, tolerant=tolerant)
    if not folders and not declared:
        return QueueTypes(frozenset(), [])
    _, simple = topics_below(
        paths.consume_queue, paths.root, tolerant=tolerant, among=frozenset({*folders, *declared})
    )
    return queue_types(declared, simple, batch, folders)


# --- which RocketMQ wrote it ------------------------------------------------------------------


def choose_dialect(
    paths: StorePaths, config: MessageStoreConfig, facts: StoreFacts
) -> tuple[Dialect, str]:
    """Return the dialect and why: given, the state file's, what the files show, or the newest."""
    if config.broker_version is not None:
        dialect = Dialect.for_version(config.broker_version, allow_newer=config.allow_newer)
        return dialect, "given as broker_version"
    if facts.state is not None and facts.state.broker_version:
        dialect = Dialect.for_version(facts.state.broker_version, allow_newer=True)
        return dialect, f"written in {formats.STATE_FILE}"
    if not facts.listing.files:
        return Dialect.for_version(DEFAULT_VERSION), "the default for new stores"
    version, reason = _shown_version(paths, facts)
    return Dialect.for_version(version), reason


def _shown_version(paths: StorePaths, facts: StoreFacts) -> tuple[str, str]:
    if facts.checkpoint.logics_physical_offset:
        return "5.5.0", "the checkpoint holds a logicsPhysicalOffset, which 5.5 writes"
    if (paths.root / "rocksdbstore").exists():
        return "5.5.0", "rocksdbstore exists, which 5.4 and later make"
    tail = _record_signs(paths, facts)
    newer = (
        tail.newer
        or facts.checkpoint.confirm_physical_offset
        or any(
            os.path.lexists(paths.root / name)
            for name in (
                formats.BATCH_QUEUE_DIR,
                *("compaction", "abort.bak", "timerwheel"),
            )
        )
    )
    if _has_tag_entries(paths, facts, tail.tag_keys):
        return "5.4.0", "the index holds entries for tags, which 5.4 and later write"
    if tail.trailing_separator:
        return "5.3.3", "a separator stands behind the last property, as 5.2 to 5.3 write it"
    if newer:
        return "5.1.4", "files of 5.x, and no separator behind the last property (before 5.2)"
    if tail.trailing_separator is None:
        return DEFAULT_VERSION, "nothing in the files tells; the newest line is assumed"
    return "4.9.8", "no sign of 5.x, and no separator behind the last property (4.9.1 and later)"


@dataclass
class _RecordSigns:
    trailing_separator: bool | None = None
    newer: bool = False
    tag_keys: list[bytes] = field(default_factory=list)


def _record_signs(paths: StorePaths, facts: StoreFacts) -> _RecordSigns:
    """Look at the first records of every segment (at most 16 segments of them)."""
    from rocketstore.status import RecordFlags

    signs = _RecordSigns()
    layout = formats.PARSED_RECORD
    names = [f.name for f in layout.fields]
    size = facts.commit_log_file_size
    for start, path, nbytes in facts.listing.files[-16:]:
        if nbytes != size:
            continue
        file = MappedFile(path, start, size, paths.log_root)
        rows = bytearray(256 * layout.nbytes)
        count, _, _ = kernels.message.scan_records(
            file.mapping, 0, size, start, start + size, RecordFlags.PARSE_PROPERTIES, rows, ()
        )
        for number in range(count):
            row = dict(
                zip(names, layout.struct.unpack_from(rows, number * layout.nbytes), strict=True)
            )
            _take_signs(signs, memoryview(file.mapping)[row["position"] :], row)
        file.close()
    return signs


def _take_signs(signs: _RecordSigns, record: memoryview, row: dict[str, int]) -> None:
    signs.newer |= row["magic"] == formats.MAGIC_V2
    signs.newer |= bool(row["sys_flag"] & formats.SYS_FLAG_INNER_BATCH)
    end = row["properties_at"] + row["properties_nbytes"]
    if row["properties_nbytes"] > 0 and not row["property_crc"]:
        signs.trailing_separator = record[end - 1] == formats.PROPERTY_SEPARATOR
    if row["tags_at"] >= 0 and len(signs.tag_keys) < 64:
        topic = bytes(record[row["topic_at"] : row["topic_at"] + row["topic_nbytes"]])
        tags = bytes(record[row["tags_at"] : row["tags_at"] + row["tags_nbytes"]])
        signs.tag_keys.append(topic + b"#" + formats.TAG_KEY_INFIX.encode() + tags)


def _has_tag_entries(paths: StorePaths, facts: StoreFacts, keys: list[bytes]) -> bool:
    """Whether an index file holds an entry for one of the ``topic#T#TAGS`` texts."""
    for path, nbytes in index_paths(paths.index, paths.root, [], tolerant=True)[-4:]:
        pair = facts.index.by_nbytes.get(nbytes)
        if pair is None:
            continue
        file = MappedFile(path, 0, nbytes, paths.root)
        try:
            for key in keys:
                found, _ = kernels.index_file.walk_key(file.mapping, *pair, key, 0, 2**63 - 1)
                if found:
                    return True
        finally:
            file.close()
    return False
