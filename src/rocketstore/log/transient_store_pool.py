"""The transient store pool: segments are written in memory first, and copied to their files by
``commit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ServiceFailedError, StoreFullError, told
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.memory_lock import MemoryLock
from rocketstore.lock_order import LockRank
from rocketstore.status import FlushDiskType


def is_pool_effective(config: MessageStoreConfig, dialect: Dialect) -> bool:
    """Whether records go through the pool: never on a slave, and up to 4.9 only with
    ``ASYNC_FLUSH``."""
    if not config.transient_store_pool_enable or config.broker_role == "SLAVE":
        return False
    return config.flush_disk_type == FlushDiskType.ASYNC_FLUSH or dialect.pools_with_sync_flush


@dataclass(eq=False)
class _Buffer:
    """Memory of a segment's length; bytes in front of ``used`` may be other than zero."""

    mapping: Any
    used: int = 0


@dataclass(eq=False)
class _Segment:
    """A segment that is not copied to its file as a whole yet."""

    file: MappedFile
    buffer: _Buffer
    committed_position: int


class TransientStorePool:
    """Buffers that segments are written into, and what of them is in the files.

    A buffer belongs to a segment from its first byte until its last one is in the file. What is not
    committed is lost with the process, and nobody reads it.

    Parameters
    ----------
    size : int
        Buffers at the most. Each is made when it is needed first.
    nbytes : int
        Bytes of a buffer: those of a segment.
    end_offset : int
        Physical offset behind the last record: all in front of it is in the files.

    Notes
    -----
    Threading: any thread. Every step may be repeated, so that an interrupt anywhere loses no
    buffer. Source: RocketMQ ``store/TransientStorePool.java``, whose buffers all exist from the
    start and keep the bytes of their last use.
    """

    def __init__(self, size: int, nbytes: int, end_offset: int) -> None:
        self.size = size
        self._nbytes = nbytes
        self._memory_lock = MemoryLock()
        self._committed_offset = end_offset
        self._error: OSError | None = None  # guarded by: _lock
        self._buffers: list[_Buffer] = []  # guarded by: _lock
        self._segments: list[_Segment] = []  # guarded by: _lock; ascending
        self._lock = kernels.locks.OrderedLock(LockRank.POOL)

    @property
    def committed_offset(self) -> int:
        """Everything in front of this physical offset is in the files."""
        return self._committed_offset

    @property
    def available_buffer_nums(self) -> int:
        """Buffers that no segment has."""
        return self.size - len(self._segments)

    def assign(self, file: MappedFile) -> Any:
        """Return the buffer of ``file``, all zeros behind its written position; ``None`` when there
        is none left."""
        with self._lock:
            for segment in self._segments:
                if segment.file is file:
                    return segment.buffer.mapping
            buffer = self._free_buffer()
            if buffer is None:
                return None
            self._clear(buffer)
            self._segments.append(_Segment(file, buffer, file.wrote_position))
            return buffer.mapping

    def _free_buffer(self) -> _Buffer | None:
        """A buffer without a segment, clean if there is such a one, new if there is none."""
        taken = {id(segment.buffer) for segment in self._segments}
        free = [buffer for buffer in self._buffers if id(buffer) not in taken]
        if free:
            return min(free, key=lambda buffer: buffer.used)
        if len(self._buffers) >= self.size:
            return None
        buffer = _Buffer(kernels.mapping.Mapping(-1, self._nbytes, True, True))
        self._memory_lock.lock(buffer.mapping)
        self._buffers.append(buffer)
        return buffer

    @staticmethod
    def _clear(buffer: _Buffer) -> None:
        if buffer.used:
            buffer.mapping.clear(0, buffer.used)
            buffer.used = 0

    def prepare(self) -> bool:
        """Have one clean buffer ready for the next segment; True when there was something to
        do."""
        with self._lock:
            count = len(self._buffers)
            buffer = self._free_buffer()
            if buffer is None or (not buffer.used and len(self._buffers) == count):
                return False
            self._clear(buffer)
            return True

    def commit(self, end_offset: int) -> int:
        """Copy what is written in front of ``end_offset``, a record's end, to the files.

        Returns
        -------
        int
            The committed offset.

        Raises
        ------
        StoreFullError
            No room; what was committed before stays, and the next call tries again.
        OSError
            The first time anything else fails.
        ServiceFailedError
            Ever after: what of that range is in the file cannot be known.
        """
        with self._lock:
            if self._error is not None:
                raise ServiceFailedError(
                    f"writing the log failed: {told(self._error)}"
                ) from self._error
            while self._segments:
                segment = self._segments[0]
                file = segment.file
                self._copy(segment, min(end_offset - file.file_from_offset, file.file_size))
                if segment.committed_position < file.file_size:
                    break
                segment.buffer.used = file.file_size
                del self._segments[0]
            return self._committed_offset

    def _copy(self, segment: _Segment, stop: int) -> None:
        start, file = segment.committed_position, segment.file
        if stop <= start:
            return
        try:
            with memoryview(segment.buffer.mapping) as view, view[start:stop] as content:
                file.write(start, content)
        except StoreFullError:
            raise
        except OSError as error:
            self._error = error
            raise
        segment.committed_position = stop
        self._committed_offset = file.file_from_offset + stop

    def close(self) -> None:
        """Free the buffers; what is not committed is gone. The appender must be closed before."""
        with self._lock:
            for buffer in self._buffers:
                buffer.mapping.close()
            self._buffers, self._segments = [], []
            self.size = 0
