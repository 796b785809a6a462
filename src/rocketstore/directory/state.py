"""``rocketstore.state``: how far log, queues and index are known to be on disk (only a hint)."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.directory.checkpoint import signed_crc
from rocketstore.errors import ConfigError
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file, write_file

_LAYOUT = formats.STORE_STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The content of the state file.

    Attributes
    ----------
    flushed_offset, dispatched_offset, indexed_offset : int
        Durable offsets: log, queues and index are on disk up to these commit-log offsets.
    log_end_offset : int
        End of the log when the file was written.
    commit_log_file_size, consume_queue_file_size, hash_slot_num, index_num : int
        Geometry.
    clean : bool
        Whether the file was written by an orderly close after dispatch and flush were complete.
    queue_count, queue_crc, index_file_count : int
        State of queues and index when exactly the records before ``dispatched_offset`` were in the
        queues. The CRC covers each queue's name, first file and end. -1 index files: keys were
        never indexed.
    checkpoint_crc, former_checkpoint_crc : int
        CRC-32 of the checkpoint that rocketstore wrote directly after this file, and of the one
        before (0: none). With another checkpoint on disk, a broker wrote the store since then, and
        all values above are invalid.
    broker_version, timezone : str
        Dialect and time zone of the store; an empty zone is the machine's.
    """

    flushed_offset: int
    dispatched_offset: int
    indexed_offset: int
    log_end_offset: int
    commit_log_file_size: int
    consume_queue_file_size: int
    hash_slot_num: int
    index_num: int
    clean: bool
    queue_count: int
    queue_crc: int
    index_file_count: int
    checkpoint_crc: int
    former_checkpoint_crc: int = 0
    broker_version: str
    timezone: str

    def to_bytes(self) -> bytes:
        """Encode the file, with the CRC at its end."""
        values = [getattr(self, field.name, 0) for field in _LAYOUT.fields]
        by_name = dict(zip((field.name for field in _LAYOUT.fields), values, strict=True))
        by_name["magic"] = formats.STATE_MAGIC
        by_name["clean"] = int(self.clean)
        by_name["broker_version"] = self.broker_version.encode("ascii")
        by_name["timezone"] = self.timezone.encode("ascii")
        by_name["crc"] = 0
        content = _LAYOUT.struct.pack(*by_name.values())[: _LAYOUT.at("crc")]
        return content + signed_crc(content).to_bytes(4, "big", signed=True)

    @classmethod
    def from_bytes(cls, content: bytes) -> StoreState | None:
        """Decode a state file; ``None`` if it is incomplete, of another format, or impossible.

        The file is a hint: it is better to ignore it than to use a wrong one.
        """
        if len(content) != _LAYOUT.nbytes or not content.startswith(formats.STATE_MAGIC):
            return None
        names = [field.name for field in _LAYOUT.fields]
        values = dict(zip(names, _LAYOUT.struct.unpack(content), strict=True))
        if values.pop("crc") != signed_crc(content[: _LAYOUT.at("crc")]):
            return None
        del values["magic"]
        values["clean"] = values["clean"] == 1
        for name in ("broker_version", "timezone"):
            values[name] = values[name].rstrip(b"\0").decode("ascii", "replace")
        state = cls(**values)
        return state if state._is_possible() else None

    def _is_possible(self) -> bool:
        """Return whether a store can have these sizes, offsets and this version."""
        if not _can_be_made(
            self.commit_log_file_size,
            self.consume_queue_file_size,
            self.hash_slot_num,
            self.index_num,
            self.broker_version,
        ):
            return False
        places = (self.flushed_offset, self.dispatched_offset, self.indexed_offset)
        return all(0 <= place <= self.log_end_offset for place in places)

    @classmethod
    def read(cls, path: Path, root: Path) -> StoreState | None:
        """Read ``path``; ``None`` if it is missing, torn, or of another format."""
        try:
            fd = open_regular_file(path, READ_ONLY, root)
        except FileNotFoundError:
            return None
        try:
            with naming(path):
                return cls.from_bytes(os.pread(fd, _LAYOUT.nbytes + 1, 0))
        finally:
            os.close(fd)

    def belongs_to(self, checkpoint_crc: int) -> bool:
        """Return whether a checkpoint with this CRC-32 was written with this file or before it.

        Power may fail between writing the two files.
        """
        former = self.former_checkpoint_crc
        return self.checkpoint_crc == checkpoint_crc or former == checkpoint_crc != 0

    def write(self, path: Path) -> None:
        """Replace the file durably."""
        write_file(path, self.to_bytes())


@functools.lru_cache(maxsize=64)
def _can_be_made(
    log_size: int, queue_size: int, hash_slot_num: int, index_num: int, version: str
) -> bool:
    """Return whether a store of these sizes and this version could be configured."""
    try:
        MessageStoreConfig(
            mapped_file_size_commit_log=log_size,
            mapped_file_size_consume_queue=queue_size,
            max_hash_slot_num=hash_slot_num,
            max_index_num=index_num,
        )
        if version:
            Dialect.for_version(version, allow_newer=True)
    except ConfigError:
        return False
    return queue_size % formats.CONSUME_QUEUE_UNIT.nbytes == 0
