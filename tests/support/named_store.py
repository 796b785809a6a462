"""A ``MemoryStore`` that hands out ext files too, and lets light queues shift."""

from __future__ import annotations

from typing import Any

from rocketstore.status import KernelStatus
from support.kernel_bodies import Bodies
from support.reput_store import GOES_ON, MemoryStore


class NamedStore(MemoryStore):
    """Hands out ext files too, and lets light queues shift."""

    def __init__(self, kernels: Bodies, **options: Any) -> None:
        super().__init__(kernels, **options)
        self.ext_files: dict[tuple[int, int], bytearray] = {}
        self.ext_nbytes = options.get("ext_file_nbytes", 0)

    def dispatch_all(self, log: bytes) -> int:
        position, status = 0, 0
        while status in (*GOES_ON, KernelStatus.NEED_EXT):
            position, status = self.dispatch_once(log, position, 7)
        return status

    def dispatch_once(self, log: bytes, position: int, max_count: int) -> tuple[int, int]:
        """Call the dispatcher once and give it the file that it asks for."""
        position, status = self.dispatcher.dispatch(log, position, len(log), 0, len(log), max_count)
        self.statuses.append(status)
        assert len(self.statuses) < 5000
        if status == KernelStatus.NEED_INDEX:
            self.add_index_file()
        elif status == KernelStatus.NEED_EXT:
            self.serve_ext()
        elif status == KernelStatus.NEED_QUEUE:
            self.serve_queue(status)
        elif status == KernelStatus.QUEUE_GAP:
            self.serve_gap()
        return position, status

    def dispatch_one(self, log: bytes, position: int) -> int:
        """Dispatch the record at ``position``; return the next one's."""
        following = position
        while following == position:
            following, _ = self.dispatch_once(log, position, 1)
        return following

    def serve_gap(self) -> None:
        topic, queue_id, _ = self.dispatcher.stalled
        handle = self.dispatcher.handle(topic, queue_id)
        if topic.startswith(b"%LMQ%") and self.dispatcher.next_index(handle) > 0:
            self.dispatcher.set_shifted(handle)
        else:
            self.serve_queue(KernelStatus.QUEUE_GAP)

    def serve_ext(self) -> None:
        topic, queue_id, _ = self.dispatcher.stalled
        handle = self.dispatcher.handle(topic, queue_id)
        offset = max(self.dispatcher.ext_offset(handle), 0)
        start = offset - offset % self.ext_nbytes
        file = self.ext_files.setdefault((handle, start), bytearray(self.ext_nbytes))
        self.dispatcher.set_ext(handle, file, start, offset)

    def all_units(self) -> dict[tuple[bytes, int], list[tuple[int, int, int]]]:
        return {key[:2]: self.units(*key[:2]) for key in self.queue_files}

    def everything(self) -> dict[str, Any]:
        files = {key: bytes(file) for key, file in self.ext_files.items()}
        return {**self.state(), "ext": files, "mended": self.dispatcher.mended_units}
