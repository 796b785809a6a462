"""Bringing queues, index and checkpoint of a copy to the end of its log."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rocketstore import formats
from rocketstore.arguments import Progress
from rocketstore.config import MessageStoreConfig
from rocketstore.config_managers.managers import (
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
)
from rocketstore.directory.checkpoint import StoreCheckpoint, read_small_file, signed_crc
from rocketstore.directory.parts import rocksdb_queues
from rocketstore.directory.state import StoreState
from rocketstore.errors import MappedFileError
from rocketstore.files.durable import list_folder, write_file
from rocketstore.moving.extent import Extent
from rocketstore.store.default_message_store import open as open_store
from rocketstore.store.marks import queues_crc


def is_settleable(source: Path, extent: Extent) -> str:
    """Return why a copy cannot be opened for writing, or an empty string."""
    if extent.damaged:
        return "the log is damaged; run doctor on the copy"
    if rocksdb_queues(source) is not None:
        return "the store's queues are in RocksDB"
    return ""


def mark_unsettled(source: Path, place: Path, extent: Extent) -> None:
    """Make the copy look like a store after a crash at the end of its log.

    Checkpoint and state file claim nothing past the end; files of the index that begin there are
    deleted.
    """
    if (place / formats.ABORT_FILE).exists():
        return  # an earlier call did all this
    index = place / formats.INDEX_DIR
    for name in list_folder(index):
        path = index / name
        header = path.read_bytes()[: formats.INDEX_HEADER.nbytes] if path.is_file() else b""
        if len(header) < formats.INDEX_HEADER.nbytes:
            continue
        names = (one.name for one in formats.INDEX_HEADER.fields)
        values = dict(zip(names, formats.INDEX_HEADER.struct.unpack(header), strict=True))
        if values["begin_physical_offset"] >= extent.end and values["index_count"] > 1:
            path.unlink()
    content = read_small_file(source / formats.CHECKPOINT_FILE, source)
    checkpoint = _checkpoint(StoreCheckpoint.from_bytes(content), extent)
    state = StoreState.read(source / formats.STATE_FILE, source)
    if state is not None and state.belongs_to(signed_crc(content)):
        dataclasses.replace(
            state, flushed_offset=min(state.flushed_offset, extent.end), dispatched_offset=0,
            indexed_offset=0, clean=False,
            log_end_offset=extent.end, queue_count=0, queue_crc=queues_crc(()), index_file_count=0,
            checkpoint_crc=signed_crc(checkpoint.to_bytes()), former_checkpoint_crc=0,
        ).write(place / formats.STATE_FILE)  # fmt: skip
    checkpoint.write(place / formats.CHECKPOINT_FILE)
    write_file(place / formats.ABORT_FILE, b"")


def _checkpoint(old: StoreCheckpoint, extent: Extent) -> StoreCheckpoint:
    def within(offset: int) -> int:
        return offset if offset < extent.end else 0

    return StoreCheckpoint(
        physic_timestamp=min(old.physic_timestamp, extent.newest),
        logics_timestamp=min(old.logics_timestamp, extent.newest),
        index_timestamp=min(old.index_timestamp, extent.newest),
        master_flushed_offset=min(old.master_flushed_offset, extent.end),
        confirm_physical_offset=within(old.confirm_physical_offset),
        logics_physical_offset=within(old.logics_physical_offset),
    )


def settle(
    place: Path, config: MessageStoreConfig, extent: Extent, progress: Progress | None
) -> None:
    """Open the copy for writing and close it: units and keys past the end go, lacking ones come."""
    with open_store(place, "r+", config=config, start=False, progress=progress) as store:
        if store.max_physical_offset != extent.end:
            raise MappedFileError(
                f"the log of {place} ends at {store.max_physical_offset} instead of {extent.end}"
            )


def lower_offsets(place: Path, config: MessageStoreConfig) -> int:
    """Lower consumer and delay offsets past the end of their queue to that end; return how many.

    The tables are of a later moment than the log's end.
    """
    lowered = 0
    with open_store(place, "r", config=config) as store:
        for kind in (ConsumerOffsetManager, LmqConsumerOffsetManager):
            consumers = kind(place)
            if not consumers.load():
                continue
            before = lowered
            tables = (consumers.offset_table, consumers.pull_offset_table)
            for key, offsets in (item for table in tables for item in table.items()):
                topic = key.partition("@")[0]
                for queue_id, offset in offsets.items():
                    end = store.max_offset_in_queue(topic, queue_id)
                    if offset > end:
                        offsets[queue_id] = end
                        lowered += 1
            if lowered > before:
                consumers.has_version = _has_version(consumers)
                consumers.persist()
        delays = DelayOffsetManager(place)
        if delays.load():
            former = delays.correct_delay_offset(
                lambda queue_id: (0, store.max_offset_in_queue(formats.TOPIC_SCHEDULE, queue_id))
            )
            if former:
                delays.has_version = _has_version(delays)
                delays.persist()
            lowered += len(former)
    return lowered


def _has_version(table: ConsumerOffsetManager | DelayOffsetManager) -> bool:
    return table.loaded_path is not None and b"dataVersion" in table.loaded_path.read_bytes()
