"""Corrupt ranges of a log, and what recovery truncated."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rocketstore.errors import CorruptMessageError, MappedFileError, RocketStoreError


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A stretch of the log that is no record. Offsets are physical; ``stop`` is the next good
    record; ``claimed_start`` is where a segment under a wrong name belongs. ``is_another_log``: the
    whole log is another store's."""

    path: str
    position: int
    start: int
    stop: int
    reason: str
    claimed_start: int | None = None
    is_another_log: bool = False

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"

    def error(self) -> CorruptMessageError:
        """The error that reading it raises."""
        return CorruptMessageError(self.path, self.position, self.reason)

    def refusal(self) -> RocketStoreError:
        """The error that opening for writing raises."""
        if self.is_another_log:
            return MappedFileError(self.reason)
        if os.path.lexists(self.path):
            return self.error()
        return MappedFileError(
            f"{self.path}: {self.reason}. Put it back, or call salvage (rocketstore salvage): it "
            "fills what is lost"
        )


@dataclass(frozen=True, slots=True)
class CutRange:
    """Bytes that recovery dropped from the log's end."""

    path: str
    position: int
    start: int
    nbytes: int
    reason: str
    quarantined: str | None

    def __str__(self) -> str:
        kept = "" if self.quarantined is None else f"; complete records are in {self.quarantined}"
        return (
            f"{self.path} at position {self.position}: {self.nbytes} bytes were cut off, "
            f"{self.reason}{kept}"
        )
