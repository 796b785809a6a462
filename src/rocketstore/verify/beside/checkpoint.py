"""Check what the checkpoint's times and offsets mean to a broker that has to recover.

After an unclean stop, RocketMQ starts recovery at the newest log file whose first record is old
enough. That is three seconds before the lower one of the log's and the queues' time. Source:
``store/StoreCheckpoint.java``, ``store/CommitLog.java`` ``recoverAbnormally``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketstore import formats
from rocketstore.directory.checkpoint import StoreCheckpoint, read_small_file
from rocketstore.errors import MappedFileError, UnsafePathError
from rocketstore.verify.beside.judgement import Judgement

_TIMES = ("physic_timestamp", "logics_timestamp", "index_timestamp")
#: A broker writes its checkpoint every few seconds, and at an orderly stop.
_PAST_MS = 600_000
_OFFSETS = ("master_flushed_offset", "confirm_physical_offset")


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """The checkpoint as it was before the log was read.

    Attributes
    ----------
    path : Path
    nbytes : int or None
        Its length; ``None`` if it is missing or unreadable.
    content : StoreCheckpoint
    aborted : bool
        ``abort`` exists: the next start recovers by these times.
    """

    path: Path
    nbytes: int | None
    content: StoreCheckpoint
    aborted: bool

    @classmethod
    def read(cls, path: Path, abort: Path, root: Path) -> CheckpointFile:
        """Read the checkpoint; treat an unreadable one as missing."""
        aborted = os.path.lexists(abort)
        try:
            content = read_small_file(path, root)
            mode = os.stat(path)
        except (OSError, MappedFileError, UnsafePathError):
            return cls(path, None, StoreCheckpoint(), aborted)
        nbytes = mode.st_size if stat.S_ISREG(mode.st_mode) else None
        return cls(path, nbytes, StoreCheckpoint.from_bytes(content), aborted)

    def judge(
        self, newest: int, log_start: int, log_end: int, is_record: Callable[[int], bool] | None
    ) -> Iterator[Judgement]:
        """Compare it with the log.

        Parameters
        ----------
        newest : int
            Latest store time of the log's records; 0 without records, then nothing is judged.
        log_start, log_end : int
            The log's bounds.
        is_record : callable or None
            Return whether a record starts at a log offset; ``None``: not checked.
        """
        if newest <= 0:
            return
        if not os.path.lexists(self.path):
            reason = f"there is no checkpoint; {self._when()} a broker checks the whole log"
            yield self._note(0, reason)
            return
        if self.nbytes is None:
            return  # StoreAccess reports why it is unreadable
        if self.nbytes < formats.CHECKPOINT_FILE_NBYTES:
            yield self._finding(
                self.nbytes,
                f"{self.nbytes} bytes instead of {formats.CHECKPOINT_FILE_NBYTES}; missing bytes "
                f"count as 0: {self._when()} a broker checks the whole log",
                "checkpoint.size",
            )
        if self.nbytes > formats.CHECKPOINT_FILE_NBYTES:
            yield self._note(
                formats.CHECKPOINT_FILE_NBYTES,
                f"{self.nbytes} bytes, of which {formats.CHECKPOINT_FILE_NBYTES} are read",
            )
        yield from self._judge_times(newest)
        yield from self._judge_offsets(log_start, log_end, is_record)

    def _judge_times(self, newest: int) -> Iterator[Judgement]:
        times = {name: getattr(self.content, name) for name in _TIMES}
        for name, value in times.items():
            if value < 0:
                reason = f"is {value}, and counts as 0 for a broker"
                yield self._at(name, reason, code="checkpoint.future")
            elif value > newest:
                yield self._at(
                    name,
                    f"is {value}, {_span(value - newest)} past the newest record's store time "
                    f"{newest}; {self._future_means(name)}",
                    code="checkpoint.future",
                )
        physic = times["physic_timestamp"]
        if 0 < physic < newest - _PAST_MS:
            reason = (
                f"is {_span(newest - physic)} before the newest record's store time {newest}; "
                f"{self._when()} a broker checks more of the log"
            )
            yield self._at("physic_timestamp", reason, is_finding=False, code="checkpoint.past")
        lowest = min(times["physic_timestamp"], times["logics_timestamp"])
        whole = self.nbytes is not None and self.nbytes >= formats.CHECKPOINT_FILE_NBYTES
        if lowest <= 0 and whole:
            yield self._note(
                0,
                "the time up to which log and queues are known to be on disk is 0; "
                f"{self._when()} a broker checks the whole log from its first file on",
            )

    def _future_means(self, name: str) -> str:
        if name == "index_timestamp":
            return (
                f"{self._when()} a broker keeps an index file whose last entries may never have "
                "reached the disk"
            )
        return (
            f"{self._when()} a broker recovers the newest log file only, so missing queue units "
            "and keys of records in older files are never written"
        )

    def _judge_offsets(
        self, log_start: int, log_end: int, is_record: Callable[[int], bool] | None
    ) -> Iterator[Judgement]:
        for name in _OFFSETS:
            value = getattr(self.content, name)
            if value < 0 or value > log_end:
                yield self._at(
                    name, f"is {value}, outside the log, which ends at {log_end}", is_finding=False
                )
        place = self.content.logics_physical_offset
        if place < 0:
            reason = f"is {place}, outside the log"
            yield self._at("logics_physical_offset", reason, code="checkpoint.offset")
        elif place and place >= log_start and is_record is not None and not is_record(place):
            yield self._at(
                "logics_physical_offset",
                f"is {place}, where no record starts; RocketMQ 5.5 begins to dispatch there",
                code="checkpoint.offset",
            )

    def _when(self) -> str:
        return "at its next start" if self.aborted else "after an unclean stop"

    def _at(self, name: str, reason: str, *, is_finding: bool = True, code: str = "") -> Judgement:
        position = formats.CHECKPOINT.at(name)
        text = f"{name} {reason}"
        return Judgement("checkpoint", str(self.path), position, text, is_finding, code)

    def _finding(self, position: int, reason: str, code: str) -> Judgement:
        return Judgement("checkpoint", str(self.path), position, reason, code=code)

    def _note(self, position: int, reason: str) -> Judgement:
        return Judgement("checkpoint", str(self.path), position, reason, is_finding=False)


def _span(milliseconds: int) -> str:
    """Format a duration in words."""
    for size, name in ((86_400_000 * 365, "years"), (86_400_000, "days"), (3_600_000, "hours")):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size:,} {name}"
    return f"{milliseconds / 1000:,.1f} s"
