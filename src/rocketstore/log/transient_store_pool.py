"""The transient store pool: records are written to memory, and ``commit`` copies them to files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketstore import kernels
from rocketstore.config import MessageStoreConfig
from rocketstore.dialect import Dialect
from rocketstore.errors import ServiceFailedError, StoreFullError, error_text
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.memory_lock import MemoryLock
from rocketstore.lock_order import LockRank
from rocketstore.status import FlushDiskType


def is_pool_effective(config: MessageStoreConfig, dialect: Dialect) -> bool:
    """Return whether records go through the pool.

    They never do on a slave, and up to 4.9 only with ``ASYNC_FLUSH``.
    """
    if not config.transient_store_pool_enable or config.broker_role == "SLAVE":
        return False
    return config.flush_disk_type == FlushDiskType.ASYNC_FLUSH or dialect.pools_with_sync_flush


@dataclass(eq=False)
class _Buffer:
    """Memory of a segment's size; bytes before ``used`` may be non-zero."""

    mapping: Any
    used: int = 0


@dataclass(eq=False)
class _Segment:
    """A segment that is not completely copied to its file yet."""

    file: MappedFile
    buffer: _Buffer
    committed_position: int


class TransientStorePool:
    """The buffers that segments are written to, and how much of them is in the files.

    A buffer belongs to a segment until the segment's last byte is in the file. Uncommitted records
    are not visible to readers, and are lost if the process dies.

    Parameters
    ----------
    size : int
        Maximum number of buffers. Each is created on first use.
    nbytes : int
        Bytes of a buffer and of a segment.
    end_offset : int
        Physical offset after the last record; everything before it is in the files.

    Notes
    -----
    Threading: any thread. Every step can be repeated, so an interrupt loses no buffer.
    Source: RocketMQ ``store/TransientStorePool.java``, which creates all buffers at start and does
    not clear them for reuse.
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
        """Physical offset up to which all records are in the files."""
        return self._committed_offset

    @property
    def available_buffer_nums(self) -> int:
        """Number of buffers that are not assigned to a segment."""
        return self.size - len(self._segments)

    def assign(self, file: MappedFile) -> Any:
        """Return the buffer of ``file``, zero after its written position; ``None`` if no buffer is
        free."""
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
        """Return a buffer without a segment: preferably a clean one, else a new one."""
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
        """Prepare a clean buffer for the next segment; return whether there was work to do."""
        with self._lock:
            count = len(self._buffers)
            buffer = self._free_buffer()
            if buffer is None or (not buffer.used and len(self._buffers) == count):
                return False
            self._clear(buffer)
            return True

    def commit(self, end_offset: int) -> int:
        """Copy what is written before ``end_offset``, a record's end, to the files.

        Returns
        -------
        int
            The committed offset.

        Raises
        ------
        StoreFullError
            If the disk is full; what was committed stays, and the next call retries.
        OSError
            On any other failure.
        ServiceFailedError
            On every call after such a failure: it is unknown which bytes are in the file.
        """
        with self._lock:
            if self._error is not None:
                raise ServiceFailedError(
                    f"writing the log failed: {error_text(self._error)}"
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
        """Free the buffers and lose what is not committed. Close the appender first."""
        with self._lock:
            for buffer in self._buffers:
                buffer.mapping.close()
            self._buffers, self._segments = [], []
            self.size = 0
