"""What ``split`` and ``merge`` share: sources that do not change, tables, and the last steps."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.config_managers.files import (
    BACKUP_SUFFIX,
    CONSUMER_FILTERS_FILE,
    CONSUMER_OFFSETS_FILE,
    DELAY_OFFSETS_FILE,
    LMQ_CONSUMER_OFFSETS_FILE,
    TOPICS_FILE,
    read_config_file,
    read_table,
    write_config_file,
)
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.parts import is_store, refuse_dledger, store_parts
from rocketstore.directory.paths import StorePaths
from rocketstore.directory.place import is_there
from rocketstore.errors import MappedFileError, SourceChangedError, StoreLockedError
from rocketstore.files.durable import list_folder, make_directories, write_file
from rocketstore.moving.settling import lower_offsets
from rocketstore.moving.tree import list_tree
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.read_only import ReadOnlyParts
from rocketstore.store.verifying import no_clock, verify_files
from rocketstore.verify.report import VerifyReport

#: Tables with positions in files that a new store does not have.
OF_OTHER_FILES = ("timercheckpoint", "timermetrics", "transactionMetrics")
_TOPIC_OF_A_GROUP = "@"


class Source:
    """A store that is read, and does not change meanwhile."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.config = config
        self.paths = StorePaths.of(root, config)

    def check(self) -> None:
        """Raise unless it is a store that no writer has open."""
        if not is_there(self.root) or not self.root.is_dir():
            raise FileNotFoundError(2, "there is no store", str(self.root))
        refuse_dledger(self.root, *self.paths.log_folders)
        if not is_store(store_parts(self.root)) or not self.paths.commit_log.is_dir():
            raise FileNotFoundError(2, "this is not a store with a log", str(self.root))
        if self.paths.has_writer():
            raise StoreLockedError(
                f"{self.root} is open for writing; stop the writer, or make a copy first: "
                "rocketstore clone --live"
            )

    def fingerprint(self) -> str:
        """SHA-256 over names, sizes and times of all files."""
        folders = [one for one in self.paths.log_folders if not one.is_relative_to(self.root)]
        return "".join(list_tree(folder).fingerprint for folder in (self.root, *folders))

    def check_unchanged(self, fingerprint: str) -> None:
        """Raise ``SourceChangedError`` if a file was changed."""
        if self.paths.has_writer() or self.fingerprint() != fingerprint:
            raise SourceChangedError(
                f"{self.root} was changed while it was read; the same command begins again"
            )

    @contextlib.contextmanager
    def opened(self, progress: Progress | None) -> Iterator[ReadOnlyParts]:
        """Open the store as it is; raise if its log is damaged."""
        files = ReadOnlyParts(
            self.paths, self.config, derive="none", as_files=True, clock=no_clock,
            progress=progress,
        )  # fmt: skip
        try:
            if files.report.damaged:
                raise files.report.damaged[0].refusal()
            yield files
        finally:
            files.close()


def config_like(files: ReadOnlyParts, config: MessageStoreConfig) -> MessageStoreConfig:
    """Return the configuration of a new store with the sizes and the version of this one."""
    facts = files.facts
    state = facts.valid_state
    slots, entries = facts.index.pair
    return config.replace(
        store_path_root_dir=None,
        store_path_commit_log=None,
        read_only_commit_log_store_paths=None,
        mapped_file_size_commit_log=facts.commit_log_file_size,
        mapped_file_size_consume_queue=facts.consume_queue_file_size,
        mapper_file_size_batch_consume_queue=facts.batch_queue_file_size,
        enable_consume_queue_ext=bool(facts.ext_file_size),
        mapped_file_size_consume_queue_ext=facts.ext_file_size or None,
        max_hash_slot_num=slots,
        max_index_num=entries,
        broker_version=config.broker_version or facts.dialect.name,
        timezone=config.timezone or (state.timezone if state is not None else None) or None,
    )


# --- tables ---------------------------------------------------------------------------------------


def copy_tables(source: Path, place: Path, takes: Callable[[str], bool], notes: list[str]) -> None:
    """Copy the tables below ``config``, with the entries of topics that ``takes`` accepts."""
    folder = source / formats.CONFIG_DIR
    for name in sorted({one.removesuffix(BACKUP_SUFFIX) for one in list_folder(folder)}):
        path, target = folder / name, place / formats.CONFIG_DIR / name
        if path.is_dir():
            notes.append(f"{formats.CONFIG_DIR}/{name} is a folder and is left out")
        elif name in OF_OTHER_FILES:
            notes.append(f"{formats.CONFIG_DIR}/{name} belongs to files that are not copied")
        elif name in _FILTERS:
            document = read_config_file(path, source).content
            if document is not None:
                write_config_file(target, place, _FILTERS[name](document, takes))
        else:
            content = read_table(path, source)
            if content is not None:
                make_directories(target.parent, place)
                write_file(target, content)


def _members(name: str) -> Callable[[dict[str, Any], Callable[[str], bool]], dict[str, Any]]:
    def only(document: dict[str, Any], takes: Callable[[str], bool]) -> dict[str, Any]:
        table = document.get(name)
        if isinstance(table, dict):
            table = {topic: one for topic, one in table.items() if takes(str(topic))}
            document = {**document, name: table}
        return document

    return only


def _offsets(document: dict[str, Any], takes: Callable[[str], bool]) -> dict[str, Any]:
    for name in ("offsetTable", "pullOffsetTable"):
        only = _members(name)
        document = only(document, lambda key: takes(key.partition(_TOPIC_OF_A_GROUP)[0]))
    return document


def _delays(document: dict[str, Any], takes: Callable[[str], bool]) -> dict[str, Any]:
    return document if takes(formats.TOPIC_SCHEDULE) else {**document, "offsetTable": {}}


_FILTERS: dict[str, Callable[[dict[str, Any], Callable[[str], bool]], dict[str, Any]]] = {
    TOPICS_FILE: _members("topicConfigTable"),
    CONSUMER_FILTERS_FILE: _members("filterDataByTopic"),
    CONSUMER_OFFSETS_FILE: _offsets,
    LMQ_CONSUMER_OFFSETS_FILE: _offsets,
    DELAY_OFFSETS_FILE: _delays,
}


# --- the last steps ---------------------------------------------------------------------------


def build_rest(
    place: Path,
    config: MessageStoreConfig,
    end: int,
    newest: int,
    progress: Progress | None,
) -> list[str]:
    """Build queues, index and checkpoint of a log, all of them again; return notes.

    ``newest`` is the store time of its last record, epoch ms.
    """
    kept = (formats.COMMIT_LOG_DIR, formats.CONFIG_DIR)
    for name in os.listdir(place):
        path = place / name
        if name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    checkpoint = StoreCheckpoint(
        physic_timestamp=newest, logics_timestamp=newest, index_timestamp=newest
    )
    checkpoint.write(place / formats.CHECKPOINT_FILE)
    write_file(place / formats.ABORT_FILE, b"")
    with open_store(place, "r+", config=config, start=False, progress=progress) as store:
        if store.max_physical_offset != end:
            raise MappedFileError(
                f"the log of {place} ends at {store.max_physical_offset} instead of {end}"
            )
    lowered = lower_offsets(place, config)
    if not lowered:
        return []
    return [f"{lowered} consumer and delay offsets past the end of their queue were lowered to it"]


def verified(place: Path, progress: Progress | None) -> VerifyReport:
    """Verify the new store, opened as it will be: without options."""
    return verify_files(place, MessageStoreConfig(), progress=progress)
