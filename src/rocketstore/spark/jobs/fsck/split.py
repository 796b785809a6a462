"""Check one split for ``fsck`` in a single walk: its records, their queues and their keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rocketstore import kernels
from rocketstore.sources.splits import Split
from rocketstore.sources.walk import walk
from rocketstore.spark.jobs.fsck.index_files import judge_file
from rocketstore.spark.jobs.fsck.index_split import (
    IndexComparison,
    OutOfOrderError,
    SplitFacts,
    SplitItem,
)
from rocketstore.spark.jobs.fsck.log import QueueSums, Reading, SplitSums, join_queue
from rocketstore.spark.jobs.fsck.queues import sum_files
from rocketstore.status import RecordStatus


class SplitFound(NamedTuple):
    """A task's result for its split: the log's sums, and the index result if requested.

    ``keys`` is also ``None`` if index entries are not in the order that was assumed.
    """

    sums: SplitSums
    keys: SplitFacts | None


def work_on(item: tuple[str, Any]) -> Any:
    """Run one piece of the check by its kind (a task)."""
    kind, argument = item
    return _KINDS[kind](argument)


def look_at(item: tuple[Split, Reading, SplitItem | None]) -> SplitFound:
    """Check one split (a task)."""
    split, how, index = item
    with contextlib.closing(_Look(how, index)) as look:
        for _ in walk(
            split,
            look,
            on_corruption="skip",
            check_crc=how.check_crc,
            storage_options=how.storage_options,
            on_damage=look.note_damage,
        ):
            look.drain()
        return look.finish()


class _Look:
    """The pass of a walk, and its results."""

    def __init__(self, how: Reading, index: SplitItem | None) -> None:
        self._index = index
        self._comparison: IndexComparison | None = None
        if index is not None:
            with self._unless_guessed_wrong():
                self._comparison = IndexComparison(index)
        self._has_begun = False
        self._records: Any = kernels.passes_fsck.FsckPass(
            delay_ms=how.delay_ms,
            report_property_crc=how.check_crc,
            index_keys=index is not None,
        )
        self._found = SplitSums([], {}, [], [])

    def consume(
        self, window: memoryview, position: int, stop: int, base_offset: int, *rest: int
    ) -> tuple[int, int]:
        """See ``walk.Pass``."""
        if self._comparison is not None and not self._has_begun:
            self._comparison.begin(base_offset + position)
        self._has_begun = True
        found: tuple[int, int] = self._records.consume(window, position, stop, base_offset, *rest)
        return found

    def drain(self) -> None:
        """Take the pass's results: keys while there are any, since sums have more room."""
        if self._index is not None:
            hashes, offsets, times = self._records.take_keys()
            if len(hashes):
                self._compare(hashes, offsets, times)
                return
        self._drain_sums()

    def _compare(self, *keys: memoryview) -> None:
        if self._comparison is not None:
            with self._unless_guessed_wrong():
                self._comparison.take(*keys)

    @contextlib.contextmanager
    def _unless_guessed_wrong(self) -> Iterator[None]:
        """Drop the comparison if entries that were only assumed to be in order are not."""
        try:
            yield
        except OutOfOrderError:
            if self._index is None or not self._index.is_guess:
                raise
            self.close()
            self._comparison = None

    def _drain_sums(self) -> None:
        counts, queues, wrong = self._records.take()
        if counts["records"] or counts["ghosts"]:
            self._found.counts.append(counts)
        self._found.wrong_crcs.extend(wrong)
        for topic, queue_id, *sums in queues:
            join_queue(self._found.queues, (topic, queue_id), QueueSums(*sums))

    def note_damage(self, first: int, next_good: int | None, status: RecordStatus) -> None:
        """See ``walk``."""
        self._found.damaged.append((first, next_good, int(status)))
        if self._comparison is not None:
            self._comparison.note_damage(first, next_good)

    def finish(self) -> SplitFound:
        """Return the result."""
        self._drain_sums()
        keys = None
        if self._comparison is not None:
            with self._unless_guessed_wrong():
                keys = self._comparison.finish()
        return SplitFound(self._found, keys)

    def close(self) -> None:
        """Close the files."""
        if self._comparison is not None:
            self._comparison.close()


_KINDS: dict[str, Callable[[Any], Any]] = {
    "split": look_at,
    "index": judge_file,
    "queues": sum_files,
}
