"""``checkpoint``: RocketMQ's file of the times and offsets up to which data is on disk."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from rocketstore import formats
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file, write_file


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """The content of a checkpoint; values are 0 if the file is missing or too short.

    Attributes
    ----------
    physic_timestamp, logics_timestamp, index_timestamp : int
        Store times (epoch ms) up to which log, queues and full index files were flushed.
    master_flushed_offset, confirm_physical_offset, logics_physical_offset : int
        Commit-log offsets, written by newer RocketMQ versions.

    Notes
    -----
    Format: ``formats.CHECKPOINT``. Source: RocketMQ ``store/StoreCheckpoint.java``.
    """

    physic_timestamp: int = 0
    logics_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def read(cls, path: Path, root: Path) -> StoreCheckpoint:
        """Read ``path``; missing bytes read as zeros."""
        return cls.from_bytes(read_small_file(path, root))

    @classmethod
    def from_bytes(cls, content: bytes) -> StoreCheckpoint:
        """Decode the first bytes of a checkpoint file."""
        nbytes = formats.CHECKPOINT.nbytes
        return cls(*formats.CHECKPOINT.struct.unpack(content[:nbytes].ljust(nbytes, b"\0")))

    def to_bytes(self) -> bytes:
        """Encode the whole file."""
        content = formats.CHECKPOINT.struct.pack(
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        )
        return content.ljust(formats.CHECKPOINT_FILE_NBYTES, b"\0")

    def write(self, path: Path) -> int:
        """Replace the file durably; return the CRC-32 of its content (signed 32 bits)."""
        content = self.to_bytes()
        write_file(path, content)
        return signed_crc(content)

    def replace(self, **changes: int) -> StoreCheckpoint:
        """Return a copy with changed values."""
        return replace(self, **changes)


def signed_crc(content: bytes) -> int:
    """Return the CRC-32 of ``content`` as a signed 32-bit number."""
    crc = zlib.crc32(content)
    return crc - (1 << 32) if crc >> 31 else crc


def read_small_file(path: Path, root: Path) -> bytes:
    """Return the file's content (at most its normal length), empty if it is missing."""
    try:
        fd = open_regular_file(path, READ_ONLY, root)
    except FileNotFoundError:
        return b""
    try:
        with naming(path):
            return os.pread(fd, formats.CHECKPOINT_FILE_NBYTES, 0)
    finally:
        os.close(fd)
