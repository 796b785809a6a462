"""Repeats ``verify`` while a writer runs, to drop findings about files that it was just writing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rocketstore.log.commit_log import RecordGoneError

if TYPE_CHECKING:
    from rocketstore.directory.paths import StorePaths
    from rocketstore.verify.report import Finding, VerifyReport

#: Most checks of a changing store, including the first one, and the time between two.
MOST_LOOKS = 3
PAUSE_S = 0.3
#: Attempts to open a store whose files are deleted at the same time.
_OPENING_TRIES = 4
#: A file that did not change for so long is not being written; its findings count.
_SETTLED_S = 60.0
#: Kinds of findings about files that a writer creates, fills or replaces.
_GROWING = frozenset(
    {
        *("log-file", "record", "queue-file", "unit", "missing-unit"),
        *("index-file", "index-header", "index-chain", "index-entry", "missing-key"),
        *("checkpoint", "config-table", "config-offset", "missing-folder"),
        "lost-queue",
    }
)

_Seen = TypeVar("_Seen")


def look_until_settled(look: Callable[[], VerifyReport], paths: StorePaths) -> VerifyReport:
    """Return the report of ``look``.

    While a writer runs, a finding about a recently changed file counts only if up to three calls of
    ``look`` all report it.
    """
    report = opening_again(look, paths)
    for _ in range(MOST_LOOKS - 1):
        if not any(map(is_young, report.findings)) or not paths.has_writer():
            break
        time.sleep(PAUSE_S)
        before = {_place(one) for one in report.findings}
        is_listed_whole = report.finding_count == len(report.findings)
        report = opening_again(look, paths)
        if is_listed_whole:
            report.keep(lambda one, before=before: _place(one) in before)  # type: ignore[misc]
    return report


def _place(finding: Finding) -> tuple[str, str, int]:
    return finding.kind, finding.path, finding.position


def is_young(finding: Finding) -> bool:
    """Return whether a finding is about a file that a writer may be writing at the moment."""
    if finding.kind not in _GROWING:
        return False
    try:
        return time.time() - os.stat(finding.path).st_mtime < _SETTLED_S
    except OSError:
        return True  # deleted, or not yet created


def opening_again(look: Callable[[], _Seen], paths: StorePaths) -> _Seen:
    """Call ``look``; retry if the writer deleted a file or truncated the log meanwhile."""
    tries = 0
    while True:
        try:
            return look()
        except (FileNotFoundError, RecordGoneError):
            tries += 1
            if tries == _OPENING_TRIES or not paths.commit_log.is_dir():
                raise
