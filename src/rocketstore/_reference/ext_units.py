"""Appending ext units to the ext files of one queue."""

from __future__ import annotations

from rocketstore import formats

_EXT_UNIT = formats.CONSUME_QUEUE_EXT_UNIT


class ExtUnits:
    """Place of the next ext unit of one queue."""

    def __init__(self) -> None:
        self.view: memoryview | None = None
        self.file_offset = 0
        self.offset = -1

    def release(self) -> None:
        if self.view is not None:
            self.view.release()
            self.view = None

    def keep(self, tags_code: int, store_timestamp: int) -> int | None:
        """Move past an existing unit with this content; return its address."""
        position = self.offset - self.file_offset
        room = 0 if self.view is None else len(self.view) - position - formats.EXT_END_NBYTES
        if self.view is None or room < _EXT_UNIT.nbytes:
            return None
        size, code, timestamp, bit_map = _EXT_UNIT.struct.unpack_from(self.view, position)
        if bit_map < 0 or size != _EXT_UNIT.nbytes + bit_map or size > room:
            return None
        if (code, timestamp) != (tags_code, store_timestamp):
            return None
        self.offset += size
        return formats.EXT_ADDRESS_BASE + self.offset - int(size)

    def put(
        self, tags_code: int, store_timestamp: int, bit_map: bytes, file_nbytes: int
    ) -> int | None:
        """Append an ext unit; return its address, or the tags code if the unit fits no file.

        Returns ``None`` if a file is needed.
        """
        nbytes = _EXT_UNIT.nbytes + len(bit_map)
        spare = formats.EXT_END_NBYTES
        if nbytes > min(formats.MAX_EXT_UNIT_NBYTES, file_nbytes - spare):
            return tags_code
        if self.view is None:
            return None
        position = self.offset - self.file_offset
        if nbytes > file_nbytes - position - spare:
            if len(self.view) - position < spare and position < file_nbytes:
                return None
            if position < file_nbytes:
                self.view[position : position + 2] = formats.EXT_END.to_bytes(2, signed=True)
            self.release()
            self.offset = self.file_offset + file_nbytes
            return None
        if nbytes + spare > len(self.view) - position:
            return None
        unit = (nbytes, tags_code, store_timestamp, len(bit_map))
        _EXT_UNIT.struct.pack_into(self.view, position, *unit)
        self.view[position + _EXT_UNIT.nbytes : position + nbytes] = bit_map
        address = formats.EXT_ADDRESS_BASE + self.offset
        self.offset += nbytes
        return address
