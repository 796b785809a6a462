"""ConsumeQueueExt: additional data of a queue's units, at addresses stored in the units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats, kernels
from rocketstore.files.durable import is_zeros
from rocketstore.files.mapped_file import MappedFile, MemoryFile
from rocketstore.files.mapped_file_queue import MappedFileQueue, overlay_file

if TYPE_CHECKING:
    import numpy

    from rocketstore.filter.bloom_filter import GroupBits

EXT_UNIT_NBYTES = formats.CONSUME_QUEUE_EXT_UNIT.nbytes
_UNIT = formats.CONSUME_QUEUE_EXT_UNIT.struct
#: Blocks are reserved this far ahead of the newest unit.
_ALLOCATE_AHEAD_NBYTES = 64 * 1024
#: Bytes of ext files read at a time.
_READ_NBYTES = 1 << 20


class CqExtUnit(NamedTuple):
    """One ext unit.

    Attributes
    ----------
    tags_code : int
        Hash of the message's tag, or its delivery time.
    store_timestamp : int
        Epoch ms.
    bit_map : bytes
        The filters that the message matches; empty if unknown.
    """

    tags_code: int
    store_timestamp: int
    bit_map: bytes

    @property
    def nbytes(self) -> int:
        """Length in the file."""
        return EXT_UNIT_NBYTES + len(self.bit_map)


def is_ext_address(tags_code: int) -> bool:
    """Return whether a unit's tags code is the address of an ext unit."""
    return tags_code <= formats.MAX_EXT_ADDRESS


class ConsumeQueueExt:
    """The ext units of one (topic, queue id).

    Parameters
    ----------
    queue : MappedFileQueue
        Its files, loaded.
    in_memory : bool
        Write new units to private copies and memory files; do not change the disk.

    Attributes
    ----------
    recovered_offset : int
        Offset after the last good unit on disk that the queue refers to.

    Notes
    -----
    Threading: readers need no lock; ``room_for_append``, ``truncate`` and ``flush`` belong to the
    dispatching thread. Source: RocketMQ ``store/ConsumeQueueExt.java``.
    """

    def __init__(self, queue: MappedFileQueue, *, in_memory: bool = False) -> None:
        self.queue = queue
        self.recovered_offset = 0
        self.flushed_offset = 0
        self._in_memory = in_memory
        self._next_offset: Callable[[], int] | None = None
        self._overlay: dict[int, MappedFile | MemoryFile] = {}

    @property
    def max_offset(self) -> int:
        """Offset of the next unit."""
        if self._next_offset is not None:
            offset = self._next_offset()
            if offset >= 0:
                return offset
        return self.recovered_offset

    def list_again(self) -> None:
        """Add files that another process has created since the last listing."""
        self.queue.load_new()

    def follow(self, next_offset: Callable[[], int]) -> None:
        """Use the dispatcher's ``next_offset`` as the end; -1 means that it is unknown."""
        self._next_offset = next_offset

    # --- reading ------------------------------------------------------------------------------

    def _file_at(self, offset: int) -> MappedFile | MemoryFile | None:
        file = self._overlay.get(offset - offset % self.queue.file_size)
        return file if file is not None else self.queue.find_mapped_file_by_offset(offset)

    def _read(self, offset: int, nbytes: int) -> bytes:
        """Read bytes at ``offset``; fewer at the file's end, empty without a file."""
        file = self._file_at(offset)
        if file is None:
            return b""
        position = offset - file.file_from_offset
        nbytes = min(nbytes, file.file_size - position)
        if isinstance(file, MemoryFile) or file.private:
            return bytes(memoryview(file.mapping)[position : position + nbytes])
        return file.read(position, nbytes)

    def unit(self, address: int) -> CqExtUnit | None:
        """Return the unit at ``address``; ``None`` if it is not good, or if the store's writer
        deleted the file."""
        try:
            return self._unit(address)
        except FileNotFoundError:
            return None

    def _unit(self, address: int) -> CqExtUnit | None:
        offset = address - formats.EXT_ADDRESS_BASE
        if not 0 <= offset < 2**63 - EXT_UNIT_NBYTES:
            return None
        head = self._read(offset, EXT_UNIT_NBYTES)
        if len(head) < EXT_UNIT_NBYTES:
            return None
        size, tags_code, store_timestamp, bit_map_size = _UNIT.unpack(head)
        if bit_map_size < 0 or size != EXT_UNIT_NBYTES + bit_map_size:
            return None
        bit_map = self._read(offset + EXT_UNIT_NBYTES, bit_map_size) if bit_map_size else b""
        return (
            CqExtUnit(tags_code, store_timestamp, bit_map) if len(bit_map) == bit_map_size else None
        )

    def heads(
        self, addresses: numpy.ndarray[Any, Any], *, tolerant: bool = False
    ) -> numpy.ndarray[Any, Any]:
        """Return the heads of the units at ``addresses`` (int64, shape (n,)), in their order.

        Returns
        -------
        structured array of ``formats.CONSUME_QUEUE_EXT_UNIT``, shape (n,)
            ``size`` is 0 for addresses without a good unit.

        Raises
        ------
        FileNotFoundError
            If a file was deleted; with ``tolerant``, it counts as having no good unit.
        """
        import numpy

        layout = formats.CONSUME_QUEUE_EXT_UNIT
        rows = self._rows(addresses, layout.nbytes, tolerant=tolerant)
        found = rows.view(layout.dtype).reshape(-1)
        sizes, bit_maps = found["size"].astype("i4"), found["bit_map_size"].astype("i4")
        good = (bit_maps >= 0) & (sizes == EXT_UNIT_NBYTES + bit_maps)
        found["size"] = numpy.where(good, found["size"], 0)
        return found

    def _rows(
        self, addresses: numpy.ndarray[Any, Any], nbytes: int, *, tolerant: bool
    ) -> numpy.ndarray[Any, Any]:
        """Return ``nbytes`` bytes at each of ``addresses``: uint8, shape (n, nbytes).

        Zeros where they do not lie within one file; with ``tolerant``, also where it was deleted.
        """
        import numpy

        found = numpy.zeros((len(addresses), nbytes), "u1")
        offsets = addresses.astype("i8") ^ numpy.int64(formats.EXT_ADDRESS_BASE)
        order = numpy.argsort(offsets, kind="stable")
        offsets = offsets[order]
        done = int(numpy.searchsorted(offsets, 0))
        while done < len(offsets):
            start = int(offsets[done])
            stop = int(numpy.searchsorted(offsets, start + _READ_NBYTES))
            try:
                content = self._read(start, int(offsets[stop - 1]) - start + nbytes)
            except FileNotFoundError:
                if not tolerant:
                    raise
                content = b""
            places = offsets[done:stop] - start
            inside = places + nbytes <= len(content)
            window = numpy.frombuffer(content, "u1")
            found[order[done:stop][inside]] = window[places[inside][:, None] + numpy.arange(nbytes)]
            # The file may end before the range does: read the next file in the next turn.
            count = int((~inside).argmax()) if not inside.all() else len(inside)
            done += max(count, 1)
        return found

    def without_excluded(self, units: Any, position: int, stop: int, bits: GroupBits) -> bytearray:
        """Return a copy of queue units for a selection that accepts no tags code.

        Units whose bit map excludes the message have a tags code; all others an address, which
        matches every filter. A unit whose ext unit is not good, or has no bit map of the group's
        size, is not excluded.
        """
        import numpy

        layout = formats.CONSUME_QUEUE_UNIT
        count = (stop - position) // layout.nbytes
        places, sizes, codes = (numpy.zeros(count, kind) for kind in ("i8", "i4", "i8"))
        kernels.consume_queue.read_units(units, position, stop, places, sizes, codes)
        is_address = codes <= formats.MAX_EXT_ADDRESS
        excluded = numpy.zeros(count, "?")
        excluded[is_address] = self._excluded(codes[is_address], bits)
        is_plain = ~is_address & (sizes > 0) & (sizes != formats.FILLER_UNIT_SIZE)
        codes[is_plain] = formats.EXT_ADDRESS_BASE
        codes[excluded] = 0
        copy = numpy.empty(count, layout.dtype)
        copy["physical_offset"], copy["size"], copy["tags_code"] = places, sizes, codes
        return bytearray(copy.tobytes())

    def _excluded(
        self, addresses: numpy.ndarray[Any, Any], bits: GroupBits
    ) -> numpy.ndarray[Any, Any]:
        """Return whether the bit maps at ``addresses`` exclude their messages: bool, shape (n,)."""
        import numpy

        if not bits.is_usable or not len(addresses):
            return numpy.zeros(len(addresses), "?")
        layout, width = formats.CONSUME_QUEUE_EXT_UNIT, bits.bit_count // 8
        rows = self._rows(addresses, layout.nbytes + width, tolerant=True)
        heads = numpy.ascontiguousarray(rows[:, : layout.nbytes]).view(layout.dtype).reshape(-1)
        times = heads["store_timestamp"].astype("i8")
        excluded = numpy.zeros(len(addresses), "?")
        for bit in bits.positions:
            excluded |= rows[:, layout.nbytes + bit // 8] >> bit % 8 & 1 == 0
        excluded &= (times > bits.born_time) & (times <= bits.until)
        excluded &= heads["bit_map_size"] == width
        excluded &= heads["size"] == layout.nbytes + width
        return excluded

    def resolve(self, units: Any, position: int, stop: int) -> bytearray:
        """Return a copy of queue units with the tags codes of their ext units.

        A unit without a good ext unit keeps the address, which matches every filter.
        """
        import numpy

        copy = bytearray(memoryview(units)[position:stop])
        columns = numpy.frombuffer(copy, formats.CONSUME_QUEUE_UNIT.dtype)
        codes = columns["tags_code"].astype("i8")
        which = numpy.flatnonzero(codes <= formats.MAX_EXT_ADDRESS)
        if len(which):
            heads = self.heads(codes[which], tolerant=True)
            good = heads["size"] > 0
            codes[which[good]] = heads["tags_code"][good]
            columns["tags_code"] = codes
        return copy

    # --- loading ------------------------------------------------------------------------------

    def first_bad(self, codes: numpy.ndarray[Any, Any]) -> int:
        """Return the number of the first bad address in ``codes`` (int64, in queue order).

        An address is bad without a good unit, or if it is not greater than the one before. If all
        are good, return the length. ``recovered_offset`` moves to the end of the last good unit.
        """
        import numpy

        which = numpy.flatnonzero(codes <= formats.MAX_EXT_ADDRESS)
        if not len(which):
            return len(codes)
        heads = self.heads(codes[which])
        offsets = codes[which] ^ numpy.int64(formats.EXT_ADDRESS_BASE)
        ends = offsets + heads["size"].astype("i8")
        good = heads["size"] > 0
        good &= offsets >= numpy.concatenate(([self.recovered_offset], ends[:-1]))
        # A unit and its end mark must be in the same file.
        size = self.queue.file_size
        good &= offsets % size + heads["size"] <= size - formats.EXT_END_NBYTES
        bad = len(which) if good.all() else int((~good).argmax())
        if bad:
            self.recovered_offset = int(ends[bad - 1])
        return int(which[bad]) if bad < len(which) else len(codes)

    def truncate(self) -> None:
        """Truncate after the last good unit: write zeros in its file, delete later files."""
        from rocketstore.files.raw import data_ranges

        end = self.recovered_offset
        self.flushed_offset = min(self.flushed_offset, end)
        self.queue.destroy_after(end, keep_first=end > 0)
        last = self.queue.last()
        if last is None:
            return
        position = end - last.file_from_offset
        for start, stop in data_ranges(last, position):
            if not is_zeros(last.read(start, stop - start)):
                memoryview(last.mapping)[start:stop] = bytes(stop - start)
                last.flushed_position = start
                last.flush(stop)
        last.wrote_position = last.flushed_position = position

    # --- appending ----------------------------------------------------------------------------

    def room_for_append(self, offset: int) -> tuple[Any, int]:
        """Return (buffer, offset of its first byte) for the unit at ``offset``.

        The buffer ends where the file has no disk blocks.

        Raises ``StoreFullError`` if the disk is full.
        """
        size = self.queue.file_size
        start = offset - offset % size
        if self._in_memory:
            return self._memory_file(start).mapping, start
        file = self.queue.find_mapped_file_by_offset(offset)
        if file is None:
            file = self.queue.create_file(start, allocated=_ALLOCATE_AHEAD_NBYTES)
        position = offset - start
        need = position + formats.MAX_EXT_UNIT_NBYTES + formats.EXT_END_NBYTES
        if min(need, size) > file.allocated_position:
            file.allocate(need + _ALLOCATE_AHEAD_NBYTES, used=position)
        if file.allocated_position >= size:
            return file.mapping, start
        return memoryview(file.mapping)[: file.allocated_position], start

    def _memory_file(self, start: int) -> MappedFile | MemoryFile:
        file = self._overlay.get(start)
        if file is None:
            file = self._overlay[start] = overlay_file(self.queue, start)
        return file

    def flush(self, end: int) -> None:
        """Sync everything before offset ``end``. Raises ``OSError``; the error is final."""
        for file in self.queue.files:
            if file.end_offset <= self.flushed_offset:
                continue
            if file.file_from_offset >= end:
                break
            # The end mark of a full file follows its last unit.
            position = min(end - file.file_from_offset, file.file_size)
            file.flushed_position = max(0, self.flushed_offset - file.file_from_offset)
            file.flush(position)
            file.wrote_position = position
        self.flushed_offset = max(self.flushed_offset, end)

    def close(self) -> None:
        """Close all files."""
        for file in self._overlay.values():
            file.close()
        self.queue.close()

    def __repr__(self) -> str:
        return f"ConsumeQueueExt({str(self.queue.directory)!r}, {self.max_offset})"
