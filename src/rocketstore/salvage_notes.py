"""What a salvage left behind, in words: placeholders, fillers, and where the old files are."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

from rocketstore.lost_messages import SalvageTraces, quarantined_files

#: Topics and files named; of more there is the number.
_MOST_NAMED = 10


def salvage_notes(root: Path, traces: SalvageTraces) -> Iterator[str]:
    """Yield notes about the store at ``root``; none where nothing was ever salvaged."""
    if traces.placeholders:
        counts = sorted(traces.placeholders.items(), key=lambda item: -item[1].count)
        named = _named([f"{topic} {one.count:,}" for topic, one in counts])
        oldest = min(one.oldest for _, one in counts)
        newest = max(one.newest for _, one in counts)
        yield (
            f"a salvage put {traces.placeholder_count:,} empty placeholders in place of lost "
            f"messages, which were stored about {_time(oldest)} to {_time(newest)}: {named}"
        )
    if traces.fillers:
        yield (
            f"a salvage filled {traces.filler_nbytes:,} lost bytes of the log with "
            f"{traces.fillers:,} records of no queue"
        )
    try:
        files = quarantined_files(root)
    except OSError as error:
        yield f"the quarantine folder could not be looked at: {error}"
        return
    if files:
        times = [one.timestamp for one in files if one.timestamp]
        when = f", put there {_time(min(times))} to {_time(max(times))}" if times else ""
        named = _named([os.path.relpath(one.path, root) for one in files])
        yield f"recovery or salvage kept what it took out of the store{when}: {named}"


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _time(timestamp: int) -> str:
    """An epoch-ms time in UTC, the number where there is none."""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp // 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
