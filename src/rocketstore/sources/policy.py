"""How reading a log in parts handles corruption: what ``fail``, ``skip`` and ``stop`` mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rocketstore.errors import CorruptMessageError
from rocketstore.sources.segments import LogFiles, LostStretch, list_log
from rocketstore.sources.splits import Split, plan_splits
from rocketstore.sources.walk import LastRecord, walk
from rocketstore.status import RecordStatus

_WHOLE = 1 << 62


def list_to_read(
    uri: str | os.PathLike[str],
    on_corruption: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> LogFiles:
    """List a log for reading with a corruption policy; see ``plan_reading``."""
    return list_log(
        uri,
        storage_options=storage_options,
        allow_holes=True,
        tolerate_unreadable=on_corruption != "fail",
    )


def plan_reading(
    log: LogFiles,
    on_corruption: str,
    *,
    check_crc: bool = True,
    start: int | None = None,
    stop: int | None = None,
    **planning: Any,
) -> list[Split]:
    """Split a log; reading the splits in order gives the same records as the store's ``scan``.

    Parameters
    ----------
    log : LogFiles
        See ``list_to_read``.
    on_corruption : {"fail", "skip", "stop"}
        ``"fail"`` raises if a segment of the range is missing or not readable; corruption within a
        segment is detected when the segment is read. ``"skip"`` plans all readable segments.
        ``"stop"`` plans up to the first corrupt place. To find it, the call reads the range up to
        there.
    check_crc, start, stop
        As for ``walk`` and ``plan_splits``.
    **planning
        See ``plan_splits``.

    Raises
    ------
    CorruptMessageError
        With ``"fail"``; names the file that is missing or too short.
    """
    first = log.first_lost(start, stop)
    if first is not None and on_corruption == "fail":
        raise lost_error(log, first)
    if on_corruption == "stop":
        end = first.start if first is not None else stop
        splits = plan_splits(log, split_bytes=_WHOLE, start=start, stop=end)
        damaged = first_damage(log, splits, check_crc=check_crc)
        stop = end if damaged is None else damaged
    return plan_splits(log, start=start, stop=stop, **planning)


def lost_error(log: LogFiles, lost: LostStretch) -> CorruptMessageError:
    """Return the error for a segment that is missing or not readable."""
    position = lost.start % log.segment_size
    return CorruptMessageError(lost.uri, position, f"log offset {lost.start}: {lost.reason}")


def first_damage(log: LogFiles, splits: list[Split], *, check_crc: bool) -> int | None:
    """Return the physical offset of the first corrupt place in splits of whole segments, or
    ``None``."""
    found: list[int] = []

    def note(first: int, _following: int | None, _status: RecordStatus) -> None:
        found.append(first)

    for split in splits:
        for _ in walk(
            split,
            LastRecord(),
            on_corruption="stop",
            check_crc=check_crc,
            storage_options=log.storage_options,
            on_damage=note,
        ):
            pass
        if found:
            return found[0]
    return None
