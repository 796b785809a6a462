"""A store in memory around a ``Dispatcher``: it hands out the files that dispatch asks for."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from rocketstore import formats
from rocketstore.status import KernelStatus, RecordStatus
from support.kernel_bodies import Bodies

UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
NEEDS_QUEUE = (KernelStatus.NEED_QUEUE, KernelStatus.QUEUE_GAP)
GOES_ON = (RecordStatus.OK, KernelStatus.NEED_INDEX, *NEEDS_QUEUE)
#: No test needs so many calls.
MOST_STEPS = 20_000


class MemoryStore:
    """Queue files by (topic, queue id, first index), index files in order."""

    def __init__(
        self,
        kernels: Bodies,
        *,
        units_per_file: int = 16,
        slots: int = 50,
        entries: int = 200,
        **options: Any,
    ) -> None:
        self.kernels = kernels
        self.units_per_file = units_per_file
        self.slots = slots
        self.entries = entries
        self.queue_files: dict[tuple[bytes, int, int], bytearray] = {}
        self.index_files: list[bytearray] = []
        self.statuses: list[int] = []
        self.gaps: list[tuple[bytes, int, int]] = []
        self.dispatcher = kernels.reput.Dispatcher(**options)

    @property
    def _index_kernel(self) -> ModuleType:
        return self.kernels.index_file

    def dispatch(
        self,
        log: Any,
        base_offset: int = 0,
        *,
        position: int = 0,
        stop: int | None = None,
        segment_end: int | None = None,
        max_count: int = 4096,
    ) -> tuple[int, int]:
        """Dispatch until something stops that is no request for a file."""
        stop = len(log) if stop is None else stop
        segment_end = base_offset + len(log) if segment_end is None else segment_end
        status = int(RecordStatus.OK)
        while status in GOES_ON:
            assert len(self.statuses) < MOST_STEPS, "the dispatcher gets nowhere"
            position, status = self.dispatcher.dispatch(
                log, position, stop, base_offset, segment_end, max_count
            )
            self.statuses.append(status)
            if status == KernelStatus.NEED_INDEX:
                self.add_index_file()
            elif status in NEEDS_QUEUE:
                self.serve_queue(status)
        return position, status

    def add_index_file(self) -> None:
        """Roll to a new index file, preset from the one before."""
        file = bytearray(formats.index_file_nbytes(self.slots, self.entries))
        if self.index_files:
            header = self._index_kernel.read_header(self.index_files[-1])
            self._index_kernel.init_header(file, header[1], header[3])
        self.index_files.append(file)
        self.dispatcher.set_index(file, self.slots, self.entries, self.dispatcher.indexed_offset)

    def serve_queue(self, status: int) -> None:
        """Give the stalled queue its file, with fillers for the units that no record carries."""
        topic, queue_id, queue_offset = self.dispatcher.stalled
        handle = self.dispatcher.handle(topic, queue_id)
        last_end = -1 if handle < 0 else self.dispatcher.max_physical_offset(handle)
        if status == KernelStatus.QUEUE_GAP:
            self.gaps.append((topic, queue_id, queue_offset))
        filled = queue_offset - queue_offset % self.units_per_file
        if handle >= 0 and self.dispatcher.next_index(handle) > 0:
            filled = self.dispatcher.next_index(handle)
        while filled < queue_offset:
            first, file = self._queue_file(topic, queue_id, filled)
            stop = min(queue_offset, first + self.units_per_file)
            self.kernels.consume_queue.fill_units(
                file, (filled - first) * UNIT_NBYTES, (stop - first) * UNIT_NBYTES
            )
            filled = stop
        first, file = self._queue_file(topic, queue_id, queue_offset)
        self.dispatcher.set_queue(topic, queue_id, file, first, queue_offset, last_end)

    def _queue_file(self, topic: bytes, queue_id: int, index: int) -> tuple[int, bytearray]:
        first = index - index % self.units_per_file
        key = (topic, queue_id, first)
        nbytes = self.units_per_file * UNIT_NBYTES
        return first, self.queue_files.setdefault(key, bytearray(nbytes))

    def units(self, topic: bytes, queue_id: int) -> list[tuple[int, int, int]]:
        """All units of a queue without the zeros after them."""
        starts = sorted(k[2] for k in self.queue_files if k[:2] == (topic, queue_id))
        data = b"".join(self.queue_files[topic, queue_id, first] for first in starts)
        units = list(formats.CONSUME_QUEUE_UNIT.struct.iter_unpack(data))
        while units and units[-1] == (0, 0, 0):
            units.pop()
        return units

    def entries_put(self) -> list[tuple[int, int, int, int]]:
        """All index entries, oldest first."""
        found: list[tuple[int, int, int, int]] = []
        start = formats.INDEX_HEADER.nbytes + formats.INDEX_SLOT.nbytes * self.slots
        for file in self.index_files:
            count = self._index_kernel.read_header(file)[5]
            stop = start + count * formats.INDEX_ENTRY.nbytes
            found += list(formats.INDEX_ENTRY.struct.iter_unpack(file[start:stop]))[1:]
        return found

    def state(self) -> dict[str, Any]:
        """Everything that must not depend on the body."""
        names = (
            "position_offset", "indexed_offset", "indexed_keys", "last_store_timestamp",
            "last_record_offset", "stalled", "dispatched_count", "skipped_ghosts",
            "skipped_topics", "repeated_units",
        )  # fmt: skip
        return {
            **{name: getattr(self.dispatcher, name) for name in names},
            "queue_files": {key: bytes(file) for key, file in self.queue_files.items()},
            "index_files": [bytes(file) for file in self.index_files],
            "statuses": self.statuses,
            "gaps": self.gaps,
        }


def encode_log(kernels: Bodies, records: Iterable[dict[str, Any]], base_offset: int = 0) -> bytes:
    """Encode records one after the other; each is the keywords of ``record``."""
    log = bytearray()
    for fields in records:
        log += record(kernels, base_offset + len(log), **fields)
    return bytes(log)


def record(
    kernels: Bodies,
    physical_offset: int,
    *,
    topic: str = "TopicA",
    queue_id: int = 0,
    queue_offset: int = 0,
    body: bytes = b"body",
    sys_flag: int = 0,
    store_timestamp: int = 1_700_000_000_000,
    host: str = "127.0.0.1:10911",
    version: int = 1,
    unique_key: str | None = None,
    keys: str | None = None,
    tags: str | None = None,
    delay: str | None = None,
    properties: bytes | None = None,
) -> bytes:
    """Encode one record; ``properties`` takes the place of the named ones."""
    named = {
        formats.PROPERTY_UNIQUE_KEY: unique_key,
        formats.PROPERTY_KEYS: keys,
        formats.PROPERTY_TAGS: tags,
        formats.PROPERTY_DELAY: delay,
    }
    if properties is None:
        present = {name: value for name, value in named.items() if value is not None}
        properties = kernels.message.encode_properties(present, True)
    return bytes(
        kernels.message.encode_record(
            topic, body, queue_id, queue_offset, physical_offset, 0, sys_flag, store_timestamp,
            host, store_timestamp, host, 0, 0, properties, version, False,
        )
    )  # fmt: skip
