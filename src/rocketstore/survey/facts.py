"""Detect a store's facts from its files: paths, sizes, and the RocketMQ version that wrote it."""

from __future__ import annotations

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
from rocketstore.config_managers.files import TOPICS_FILE, config_path, topic_attributes
from rocketstore.dialect import DEFAULT_VERSION, Dialect
from rocketstore.directory.checkpoint import StoreCheckpoint, read_small_file, signed_crc
from rocketstore.directory.parts import refuse_dledger
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.state import StoreState
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import kind_name, refuse_link_out
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.mapped_file_queue import DirectoryListing
from rocketstore.index.geometry import GeometryChoice, choose_geometry, index_paths
from rocketstore.log.hidden_segments import hidden_segments
from rocketstore.queues.queue_types import (
    QUEUE_TYPE_ATTRIBUTE,
    QueueTypes,
    queue_types,
    topics_below,
)
from rocketstore.survey.lost_log import refuse_lost_log
from rocketstore.survey.queue_file_sizes import QueueFileSizes
from rocketstore.survey.segment_size import UnitPlaces, log_file_size


@dataclass
class StoreFacts:
    """Facts detected from the files before the store is opened.

    Attributes
    ----------
    paths : StorePaths
    listing : DirectoryListing
        The log's directory.
    commit_log_file_size, consume_queue_file_size, batch_queue_file_size : int
        Bytes.
    ext_file_size : int
        Bytes of a consume-queue-ext file, 0 if the store has none.
    queue_types : QueueTypes
        Which topics have batch queues.
    index : GeometryChoice
    dialect : Dialect
    dialect_reason : str
        Why this dialect was chosen.
    checkpoint : StoreCheckpoint
    checkpoint_crc : int
        CRC of the checkpoint's content, to compare with the one in the state file.
    state : StoreState or None
    aborted : bool
        ``abort`` exists: the last writer did not stop in order.
    notes : list of str
        Doubtful findings, in words.
    queue_listings : dict of Path to DirectoryListing
        The folders of queues that were listed; who loads the queues takes them out.
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
    queue_listings: dict[Path, DirectoryListing] = field(default_factory=dict)

    @property
    def valid_state(self) -> StoreState | None:
        """Return the state file, or ``None`` if another program wrote the checkpoint since."""
        state = self.state
        if state is None or not state.belongs_to(self.checkpoint_crc):
            return None
        return state

    def are_stated_in(self, state: StoreState) -> bool:
        """Return whether ``state`` has the sizes and the dialect that new files will get."""
        return (
            state.commit_log_file_size == self.commit_log_file_size
            and state.consume_queue_file_size == self.consume_queue_file_size
            and (state.hash_slot_num, state.index_num) == self.index.pair
            and state.broker_version == self.dialect.name
        )


def examine(
    paths: StorePaths, config: MessageStoreConfig, *, tolerate_unreadable: bool = False
) -> StoreFacts:
    """Detect a directory's facts; change nothing.

    Raises
    ------
    ConfigError
        When a configured size contradicts the files.
    MappedFileError, UnsafePathError
        As ``list_directory``; ``MappedFileError`` also when ``abort`` is not a regular file, or
        when the log is missing (see ``refuse_lost_log``).
    """
    paths.check(tolerant=tolerate_unreadable)
    refuse_dledger(paths.root, *paths.log_folders)
    notes: list[str] = []
    tolerant = tolerate_unreadable
    state = _read_hint(StoreState.read, paths.state, paths.root, notes, tolerant=tolerant)
    if state is None and not notes and os.path.isfile(paths.state):
        notes.append(
            f"{paths.state} is not a complete state file of this version: it is ignored, and the "
            "store is opened like a broker's"
        )
    found = _read_hint(read_small_file, paths.checkpoint, paths.root, notes, tolerant=tolerant)
    content = found or b""
    checkpoint = StoreCheckpoint.from_bytes(content)
    listing = paths.list_log(tolerate_unreadable=tolerant, tolerate_odd=tolerant)
    refuse_lost_log(paths, listing, checkpoint, state)
    index = _geometry(paths, config, state, tolerant=tolerant)
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
        queue_listings=sizes.listings,
    )
    facts.dialect, facts.dialect_reason = choose_dialect(paths, config, facts)
    return facts


def _geometry(
    paths: StorePaths, config: MessageStoreConfig, state: StoreState | None, *, tolerant: bool
) -> GeometryChoice:
    given = None
    if config.max_hash_slot_num is not None and config.max_index_num is not None:
        given = (config.max_hash_slot_num, config.max_index_num)
    return choose_geometry(
        paths.index,
        paths.root,
        given,
        [(state.hash_slot_num, state.index_num)] if state else [],
        (DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM),
        tolerant=tolerant,
    )


def _set_beyond_aside(listing: DirectoryListing, size: int) -> None:
    """Treat files that would end past the highest offset as foreign, not as segments."""
    beyond = [path for offset, path, _ in listing.files if offset > 2**63 - 1 - size]
    listing.foreign += beyond
    listing.files = [row for row in listing.files if row[1] not in beyond]


def _is_aborted(path: Path, notes: list[str], *, tolerant: bool) -> bool:
    """Return whether ``abort`` exists, whatever it holds.

    Raises ``MappedFileError`` if it cannot be replaced, unless ``tolerant``.
    """
    if not os.path.lexists(path):
        return False
    if not path.is_symlink() and not path.is_file():
        problem = f"{path} is {kind_name(os.lstat(path).st_mode)}, not a regular file"
        if not tolerant:
            raise MappedFileError(problem)
        notes.append(f"{problem}; the last stop is treated as unclean")
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
    """Read a small file that a reader can do without.

    If it is not a regular file or cannot be read, raise; with ``tolerant`` note it, and treat it
    as missing. Links out of the root are refused.
    """
    try:
        if path.is_symlink() and not path.exists():
            refuse_link_out(path, root)
            raise MappedFileError(f"{path} is a dangling symbolic link")
        return read(path, root)
    except (MappedFileError, OSError) as error:
        if not tolerant:
            raise
        notes.append(f"{_with_path(path, error)}; it is treated as missing")
        return None


def _with_path(path: Path, error: Exception) -> str:
    """Return an error's text with the file's name."""
    return f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _queue_types(
    paths: StorePaths, config: MessageStoreConfig, notes: list[str], *, tolerant: bool
) -> QueueTypes:
    """Return the queue types; the broker's table overrides the caller, the files override both."""
    try:
        table = topic_attributes(paths.root, notes, tolerant=tolerant)
    except (MappedFileError, OSError) as error:
        if not tolerant:
            raise
        table = {}
        problem = _with_path(config_path(paths.root, TOPICS_FILE), error)
        notes.append(f"{problem}; topics are treated as having no attributes")
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
    """Return the dialect and why: configured, from the state file, detected, or the newest."""
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
        return "5.5.0", "rocksdbstore exists, which 5.4 and later create"
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
        return "5.3.3", "a separator follows the last property, as 5.2 to 5.3 write it"
    if newer:
        return "5.1.4", "files of 5.x, and no separator after the last property (before 5.2)"
    if tail.trailing_separator is None:
        return DEFAULT_VERSION, "the files do not show the version; the newest is assumed"
    return "4.9.8", "no sign of 5.x, and no separator after the last property (4.9.1 and later)"


@dataclass
class _RecordSigns:
    trailing_separator: bool | None = None
    newer: bool = False
    tag_keys: list[bytes] = field(default_factory=list)


def _record_signs(paths: StorePaths, facts: StoreFacts) -> _RecordSigns:
    """Read the first records of each of the last 16 segments."""
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
    """Return whether an index file has an entry for one of the ``topic#T#TAGS`` keys."""
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
