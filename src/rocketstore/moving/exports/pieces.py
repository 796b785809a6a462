"""The pieces of a log that an export reads: where each begins, and what is missing before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from rocketstore.errors import SourceChangedError
from rocketstore.moving.exports.manifest import Totals
from rocketstore.sources.files import read_at
from rocketstore.sources.policy import lost_error
from rocketstore.sources.segments import LogFiles, LostStretch, Segment
from rocketstore.sources.splits import Split, plan_splits
from rocketstore.sources.walk import log_end

#: Bytes of log that make one file.
PIECE_NBYTES = 256 << 20
#: Bytes before the exported end; their hash identifies the log.
_ANCHOR_NBYTES = 4096


class Piece(NamedTuple):
    """A range of the log.

    Attributes
    ----------
    start, stop : int
        Physical offsets.
    split : Split or None
        What to read of it; ``None``: nothing.
    lost : list of LostStretch
        What is missing in it.
    """

    start: int
    stop: int
    split: Split | None
    lost: list[LostStretch]


class Pieces:
    """A log in pieces; the same range always gives the same ones.

    Attributes
    ----------
    log : LogFiles
    end : int
        Physical offset of the log's end, now.
    """

    def __init__(self, log: LogFiles) -> None:
        self.log = log
        self.end = log_end(log) if log.segments else 0

    def bounds(self, start: int | None, stop: int | None) -> tuple[int, int]:
        """Return the range to export for what was asked."""
        first = self.log.min_offset if start is None else start
        last = self.end if stop is None else min(stop, self.end)
        return first, max(first, last)

    def check_source(self, totals: Totals) -> None:
        """Raise ``SourceChangedError`` unless the log has what was exported from it."""
        if totals.run is None:
            return
        end = max(totals.end, totals.run["log"][1])
        if self.end < end:
            raise SourceChangedError(
                f"{self.log.root} ends at log offset {self.end}, before {end}, up to which it was "
                "exported; is it another store?"
            )
        anchor = totals.anchor
        if anchor is None:
            return
        segment = self._segment_at(anchor["start"])
        if segment is None:
            return  # deleted since; what lies after it is compared next time
        nbytes = anchor["stop"] - anchor["start"]
        found = read_at(segment.uri, anchor["start"] - segment.base_offset, nbytes)
        if hashlib.sha256(found).hexdigest() != anchor["sha256"]:
            raise SourceChangedError(
                f"{segment.uri} has other bytes before log offset {anchor['stop']} than were "
                "exported; is it another store?"
            )

    def anchor(self, piece: Piece, stop: int) -> dict[str, Any] | None:
        """Return the hash of the log's bytes before ``stop``, by which the store is known again."""
        split = piece.split
        if split is None:
            return None
        return self.anchor_before(min(stop, split.base_offset + split.stop))

    def anchor_before(self, stop: int) -> dict[str, Any] | None:
        """Return the hash of a segment's bytes before ``stop``; ``None`` if there is none."""
        segment = self._segment_at(stop - 1)
        if segment is None:
            return None
        start = max(segment.base_offset, stop - _ANCHOR_NBYTES)
        content = read_at(segment.uri, start - segment.base_offset, stop - start)
        return {
            "start": start,
            "stop": start + len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }

    def _segment_at(self, offset: int) -> Segment | None:
        return next(
            (one for one in self.log.segments
             if one.base_offset <= offset < one.base_offset + one.file_size),
            None,
        )  # fmt: skip

    def plan(self, run: dict[str, Any], position: int, on_corruption: str) -> Iterator[Piece]:
        """Yield the pieces of a run from ``position`` on.

        Raises
        ------
        CorruptMessageError
            With ``"fail"``, if a part is missing.
        SourceChangedError
            The files are others than when the run began.
        """
        start, stop = run["log"]
        splits = plan_splits(
            self.log,
            split_bytes=PIECE_NBYTES,
            begin=run["begin"],
            end=run["end"],
            start=start,
            stop=stop,
            aligned_start=run["startsAtRecord"],
        )
        lost = self._lost(position, stop, whole=run["aligned"] and stop == self.end)
        if lost and on_corruption == "fail":
            raise lost_error(self.log, lost[0])
        if lost and on_corruption == "stop":
            stop = min(stop, max(position, lost[0].start))
            splits = [one for one in splits if one.base_offset + one.start < stop]
        following = [one for one in splits if one.base_offset + one.start >= position]
        done = splits[: len(splits) - len(following)]
        if done and done[-1].base_offset + done[-1].stop > position:
            raise SourceChangedError(
                f"{self.log.root} is no longer divided at log offset {position}, up to which it "
                "was exported; export it to a new folder"
            )
        edges = [one.base_offset + one.start for one in following[1:]]
        to_read: list[Split | None] = [*following] or [None]
        for split, first, last in zip(to_read, [position, *edges], [*edges, stop], strict=True):
            if first < last or any(one.start >= first for one in lost):
                is_last = last == stop
                yield Piece(
                    first, last, split,
                    [one for one in lost
                     if one.start >= first and (one.start < last or is_last)],
                )  # fmt: skip

    def _lost(self, position: int, stop: int, *, whole: bool) -> list[LostStretch]:
        """Return what cannot be read from ``position`` on, ascending."""
        log = self.log
        lost = [
            one if one.start >= position else replace(one, start=position)
            for one in log.lost
            if one.stop > position and (one.start < stop or (whole and one.stop > stop))
        ]
        if not log.segments:
            return lost
        first = min(log.min_offset, stop)
        if position < first:
            reason = "the segments were deleted before they were exported"
            lost.insert(0, LostStretch(position, first, self._uri_at(position), reason))
        if whole and self.end < log.durable_offset and not any(one.stop > self.end for one in lost):
            reason = "this was on disk once, and no record is left"
            uri = self._uri_at(self.end)
            lost.append(LostStretch(self.end, log.durable_offset, uri, reason))
        return lost

    def _uri_at(self, offset: int) -> str:
        return self.log.uri_of(offset - offset % self.log.segment_size)
