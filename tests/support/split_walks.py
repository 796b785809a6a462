"""Reading stores by splits in tests: a plain pass, and what all splits of a plan give together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketstore import formats, kernels
from rocketstore.sources import LogFiles, Split, plan_splits
from rocketstore.sources.walk import walk
from rocketstore.status import RecordStatus

_ROW = formats.PARSED_RECORD


class Records:
    """A pass that keeps (physical offset, bytes) of every record; ``room``: full after so many."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.room = room
        self.waiting = 0
        self._row = bytearray(_ROW.nbytes)

    def drain(self) -> None:
        """Make room."""
        self.waiting = 0

    def consume(
        self,
        window: memoryview,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``rocketstore.sources.walk.Pass``."""
        while base_offset + position < limit:
            if self.waiting >= self.room:
                return RecordStatus.FULL, position
            count, following, status = kernels.message.scan_records(
                window, position, stop, base_offset, segment_end, flags, self._row
            )
            if count == 0:
                return status, position
            if _ROW.struct.unpack(self._row)[_STATUS] != RecordStatus.GHOST:
                record = bytes(window[position:following])
                self.taken.append((base_offset + position, record))
                self.waiting += 1
            position = following
        return RecordStatus.END, position


_STATUS = [field.name for field in _ROW.fields].index("status")


class Reading:
    """What a plan's splits gave: records in order, damaged ranges as they were reported."""

    def __init__(self, splits: Iterable[Split], *, room: int = 1 << 30, **options: Any) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.damage: list[tuple[int, int | None, RecordStatus]] = []
        for split in splits:
            taken = Records(room)
            for _ in walk(split, taken, on_damage=self._note, **options):
                taken.drain()
            self.records += taken.taken

    def _note(self, first: int, following: int | None, status: RecordStatus) -> None:
        self.damage.append((first, following, status))

    @property
    def offsets(self) -> list[int]:
        """Physical offsets of the records."""
        return [offset for offset, _ in self.records]


def read_log(log: LogFiles, *, room: int = 1 << 30, **options: Any) -> Reading:
    """Plan and read; ``options`` are those of ``plan_splits`` and of ``walk``."""
    names = ("on_corruption", "check_crc", "storage_options")
    walking = {name: options.pop(name) for name in names if name in options}
    return Reading(plan_splits(log, **options), room=room, **walking)


def split_at(splits: list[Split], places: Iterable[int]) -> list[Split]:
    """Divide splits at physical offsets."""
    from dataclasses import replace

    for place in places:
        pieces = []
        for split in splits:
            at = place - split.base_offset
            if split.start < at < split.stop:
                pieces.append(replace(split, stop=at))
                pieces.append(replace(split, start=at, aligned=False))
            else:
                pieces.append(split)
        splits = pieces
    return splits
