"""What campaigns share: a place for their stores, lines of progress, and their counts at the
end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TELL_EVERY_S = 15.0


def expect_damage() -> None:
    """Keep what opening a damaged store warns of off the screen: here it is what is asked for."""
    logging.getLogger("rocketstore").setLevel(logging.ERROR)


class Ticker:
    """Tells on standard error how far a campaign is.

    Parameters
    ----------
    what : str
        What is counted, in the plural.
    total : int
    """

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._began = self._told = time.monotonic()

    def report(self, done: int, broken: int = 0) -> None:
        """``done`` of the total are done; printed every quarter of a minute."""
        now = time.monotonic()
        if now - self._told < TELL_EVERY_S or not done:
            return
        self._told = now
        left_min = (now - self._began) / done * max(self._total - done, 0) / 60
        text = f"{done:,} of {self._total:,} {self._what}, {broken} broken, {left_min:.0f} min left"
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A folder in memory where there is such a place: what is tried there needs no real disk."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=f"rocketstore-{name}-", dir=place) as path:
        yield Path(path)


def finish(summary: dict[str, Any], report: Path | None) -> int:
    """Print ``summary`` as JSON, write it to ``report`` too; return the exit status."""
    print(json.dumps(summary))
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if summary["broken"] else 0
