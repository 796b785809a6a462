"""What an export of one piece of the log lacks, as lines of the manifest."""

from __future__ import annotations

from typing import Any

from rocketstore.log.commit_log import describe
from rocketstore.moving.exports.pieces import Piece
from rocketstore.status import RecordStatus

#: Lines of each kind for one piece; the last one stands for all further ones.
_MOST = 10_000


class Findings:
    """Collects what is lost, and bodies that stay as stored.

    Attributes
    ----------
    first_lost : int or None
        Physical offset of the first lost range.
    """

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self._lost: list[dict[str, Any]] = []
        self._undecompressed: list[dict[str, Any]] = []
        self.first_lost: int | None = None
        for one in piece.lost:
            self._add_lost(one.start, one.stop, one.uri, 0, one.reason)

    def note_damage(self, first: int, following: int | None, status: RecordStatus) -> None:
        """Note a corrupt range; called by ``walk``."""
        split = self._piece.split
        assert split is not None
        stop = following
        if stop is None:
            stop = split.base_offset + split.range_stop
            if split.tail:
                stop = max(first, min(stop, split.base_offset + split.durable_stop))
        position = first - split.base_offset
        self._add_lost(first, stop, split.uri, position, describe(status, first))

    def _add_lost(self, start: int, stop: int, path: str, position: int, reason: str) -> None:
        self.first_lost = start if self.first_lost is None else min(self.first_lost, start)
        if len(self._lost) == _MOST:
            last = self._lost[-1]
            last["more"] += 1
            last["log"][1] = max(stop, last["log"][1])
            return
        self._lost.append(
            {"kind": "lost", "log": [start, stop], "path": path, "position": position,
             "reason": reason, "more": 0}
        )  # fmt: skip

    def note_undecompressed(self, offset: int, reason: str) -> None:
        """Note a body that stays as stored."""
        if len(self._undecompressed) == _MOST:
            self._undecompressed[-1]["more"] += 1
            return
        self._undecompressed.append(
            {"kind": "undecompressed", "offset": offset, "reason": reason, "more": 0}
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines for the manifest."""
        return sorted(self._lost, key=lambda line: line["log"][0]) + self._undecompressed
