"""Twelve messages in memory, with queue and index, as the kernel objects of readers see them."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from rocketstore import formats
from rocketstore.filter import TagFilter
from rocketstore.query.results import GetMessageResult, QueryMessageResult
from rocketstore.status import GetMessageStatus, RecordFlags
from support.appenders import Log
from support.kernel_bodies import Bodies

FOUND = GetMessageStatus.FOUND
UNMATCHED = GetMessageStatus.NO_MATCHED_MESSAGE
UNIT = formats.CONSUME_QUEUE_UNIT.nbytes
SLOTS, ENTRIES = 50, 1000
COUNT = 12
#: Limits of a pull in the order of ``BatchLimits``, which are never reached.
FREE = (2**30, 2**30, 2**30, 2**20, 2**20, 2**40)
#: What a plain pull asks of a queue beside its place.
PLAIN_QUEUE = {"ext": None, "pull_looks_no_further": False}


class Files:
    """Twelve messages of one queue in two segments, with their queue and index files."""

    def __init__(self, kernels: Bodies) -> None:
        self.kernels = kernels
        log = Log(kernels, segment_nbytes=1024)
        self.puts = [
            log.appender.put("T", b"body %d" % n, 0, keys=f"k{n % 5}") for n in range(COUNT)
        ]
        self.segments = log.segments
        self.offsets = [put.physical_offset for put in self.puts]
        self.units = SimpleNamespace(mapped=bytearray(100 * UNIT), was_used=False)
        kernels.consume_queue.put_units(
            self.units.mapped, 0, array("q", self.offsets),
            array("i", [put.nbytes for put in self.puts]), array("q", [0] * COUNT),
        )  # fmt: skip
        kind = type("Queue", (kernels.reading.QueuePlace,), PLAIN_QUEUE)
        self.queue = kind(b"T", 0)
        self.queue.recovered_index = COUNT
        self.queue.recent = (self.units, 0, 100)
        self.index = bytearray(formats.index_file_nbytes(SLOTS, ENTRIES))
        kernels.index_file.init_header(self.index, 0, 0)
        for n, one in enumerate(self.puts):
            kernels.index_file.put_key(
                self.index, SLOTS, ENTRIES, f"T#k{n % 5}".encode(), one.physical_offset,
                one.store_timestamp,
            )  # fmt: skip
        self.place = kernels.reading.IndexPlace(SimpleNamespace(mapped=self.index), SLOTS, ENTRIES)
        self.index_service = SimpleNamespace(files=(self.place,), gaps=())
        self.windows = kernels.reading.Windows(1024)
        self.log = SimpleNamespace(
            windows=self.windows, damage={}, max_offset=2048, queue=SimpleNamespace(files_end=2048)
        )
        for number in range(len(self.segments)):
            self.windows.add(self.window(number))

    def window(self, number: int) -> Any:
        """The window of a segment."""
        base = number * 1024
        return self.kernels.reading.Window(
            self.segments[number], base, base + 1024, 1024, RecordFlags.CHECK_BODY_CRC, 0
        )

    def store(self, limits: tuple[int, ...] = FREE, queues: dict[Any, Any] | None = None) -> Any:
        """An open store of these files."""
        known = {("T", 0): self.queue} if queues is None else queues
        reader = self.kernels.reading.ReaderPlace(
            log=self.log, queues=known, index=self.index_service, limits=limits,
            max_hits=64, tag_filter=TagFilter, found=FOUND, unmatched=UNMATCHED,
            answers=(GetMessageResult, QueryMessageResult),
        )  # fmt: skip
        return SimpleNamespace(_closed=False, _reader=reader)
