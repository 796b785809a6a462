"""The timer log: a unit for each message in the wheel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore import formats
from rocketstore.errors import MappedFileError, UnsafePathError, error_text
from rocketstore.files.durable import READ_ONLY, naming, open_regular_file
from rocketstore.timer.findings import TimerFindings

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]

_UNIT = formats.TIMER_UNIT
_CHUNK_NBYTES = 80_000 * _UNIT.nbytes


class TimerSegment(NamedTuple):
    """A file of the timer log: ``start`` is the position of its first byte."""

    path: Path
    start: int
    nbytes: int

    @property
    def end(self) -> int:
        """Position after its last byte."""
        return self.start + self.nbytes


class TimerUnits(NamedTuple):
    """Units of the timer log, ascending by position; arrays of int64.

    Attributes
    ----------
    positions, previous : array
        Of each unit, and of the one that it is linked to.
    bits : array
        ``TIMER_UNIT_*``.
    times : array
        Of their slots, epoch ms.
    offsets, sizes : array
        Of the messages in the commit log.
    topic_hashes : array
    """

    positions: Numbers
    previous: Numbers
    bits: Numbers
    times: Numbers
    offsets: Numbers
    sizes: Numbers
    topic_hashes: Numbers

    def take(self, wanted: Any) -> TimerUnits:
        """Return the units that an index or a mask selects."""
        return TimerUnits(*(column[wanted] for column in self))


class TimerLog:
    """The files of the timer log.

    Parameters
    ----------
    root : Path
        Of the store.
    findings : TimerFindings

    Attributes
    ----------
    directory : Path
    segments : list of TimerSegment
        Ascending.

    Notes
    -----
    Source: RocketMQ ``store/timer/TimerLog.java``.
    """

    def __init__(self, root: Path, findings: TimerFindings) -> None:
        self.directory = root / formats.TIMER_LOG_DIR
        self._root = root
        self._findings = findings
        self.segments = self._list()

    @property
    def end(self) -> int:
        """Position after the last file."""
        return self.segments[-1].end if self.segments else 0

    def place(self, position: int) -> tuple[Path, int]:
        """Return the file of a position and where in it; of one outside, the folder and it."""
        for segment in self.segments:
            if segment.start <= position < segment.end:
                return segment.path, position - segment.start
        return self.directory, max(position, 0)

    def _list(self) -> list[TimerSegment]:
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            self._findings.add("timer-log", self.directory, 0, error_text(error))
            return []
        found: list[TimerSegment] = []
        for name in names:
            start = formats.file_name_to_offset(name)
            path = self.directory / name
            if start is None or path.is_dir():
                continue
            try:
                fd = open_regular_file(path, READ_ONLY, self._root)
            except (OSError, MappedFileError, UnsafePathError) as error:
                self._findings.add("timer-log", path, 0, error_text(error))
                continue
            nbytes = os.fstat(fd).st_size
            os.close(fd)
            if found and start < found[-1].end:
                reason = f"it begins before the end {found[-1].end} of the file before it"
                self._findings.add("timer-log", path, 0, reason)
                continue
            if found and start > found[-1].end:
                reason = f"the file before it ends at {found[-1].end}: units in between are lost"
                self._findings.add("timer-log", path, 0, reason)
            if nbytes:
                found.append(TimerSegment(path, start, nbytes))
        return found

    def units(self, low: int, since: int) -> tuple[TimerUnits, int | None]:
        """Read units of the files that end after ``low``.

        Parameters
        ----------
        low : int
            Position.
        since : int
            Epoch ms: units of earlier slots are left out.

        Returns
        -------
        TimerUnits
        int or None
            Commit-log offset of the last unit, whatever its slot.
        """
        import numpy as np

        parts: list[TimerUnits] = []
        last: int | None = None
        for segment in self.segments:
            if segment.end <= low:
                continue
            for units, start in self._written(segment):
                last = int(units["physical_offset"][-1])
                part = _columns(units, start)
                parts.append(part.take(part.times >= since))
        if not parts:
            return TimerUnits(*(np.zeros(0, np.int64) for _ in TimerUnits._fields)), last
        return TimerUnits(*map(np.concatenate, zip(*parts, strict=True))), last

    def _written(self, segment: TimerSegment) -> Any:
        """Yield (units, position of the first one) of a file up to its last unit."""
        import numpy as np

        try:
            fd = open_regular_file(segment.path, READ_ONLY, self._root)
        except FileNotFoundError:
            return  # its broker deleted it: all its messages have expired
        except (OSError, MappedFileError, UnsafePathError) as error:
            self._findings.add("timer-log", segment.path, 0, error_text(error))
            return
        try:
            at = 0
            while at < segment.nbytes:
                with naming(segment.path):
                    content = os.pread(fd, min(_CHUNK_NBYTES, segment.nbytes - at), at)
                units = np.frombuffer(content, _UNIT.dtype, len(content) // _UNIT.nbytes)
                bits = units["magic"]
                good = (units["size"] == _UNIT.nbytes) & (bits & ~formats.TIMER_UNIT_BITS == 0)
                wrong = np.flatnonzero(~good)
                count = int(wrong[0]) if len(wrong) else len(units)
                if count:
                    yield units[:count], segment.start + at
                at += count * _UNIT.nbytes
                if count < len(units) or not len(units):
                    self._judge_end(segment, at, content[count * _UNIT.nbytes :])
                    return
        except OSError as error:
            self._findings.add("timer-log", segment.path, 0, error_text(error))
        finally:
            os.close(fd)

    def _judge_end(self, segment: TimerSegment, at: int, rest: bytes) -> None:
        """Report what is after a file's last unit, unless it is a blank or was never written."""
        layout = formats.TIMER_UNIT
        head = rest[: layout.at("write_time")].ljust(layout.at("write_time"), b"\0")
        size = int.from_bytes(head[:4], "big", signed=True)
        magic = int.from_bytes(head[layout.at("magic") :], "big", signed=True)
        is_last = segment == self.segments[-1]
        if magic == formats.BLANK_MAGIC and size == segment.nbytes - at:
            return
        if not any(head):
            if not is_last and segment.nbytes - at >= layout.nbytes:
                reason = "nothing was written from here to the end, although files follow"
                self._findings.add("timer-log", segment.path, at, reason)
            return
        if segment.nbytes - at >= layout.nbytes:
            reason = f"no unit begins here: its size is {size}, its magic {magic}"
            self._findings.add("timer-log", segment.path, at, reason)


def _columns(units: NDArray[Any], start: int) -> TimerUnits:
    import numpy as np

    def column(name: str) -> Numbers:
        return units[name].astype(np.int64)

    return TimerUnits(
        start + np.arange(len(units), dtype=np.int64) * _UNIT.nbytes,
        column("previous_position"),
        column("magic"),
        column("write_time") + column("delay"),
        column("physical_offset"),
        column("message_size"),
        column("topic_hash"),
    )
