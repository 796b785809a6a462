"""Read the log on several threads, a lot of records each, for ``verify``."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rocketstore.files.forward_pages import ForwardPages, release_pages
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan, RecordBatch, find_near_record
from rocketstore.status import RecordStatus

_Prepared = TypeVar("_Prepared")
_Prepared_co = TypeVar("_Prepared_co", covariant=True)

#: Bytes of a lot; the first ones are small, as what is read ahead of damage is read in vain.
_FIRST_NBYTES = 256 << 10
_MOST_NBYTES = 8 << 20
#: A lot ends after so many records, wherever it should end.
_MOST_RECORDS = 1 << 17
#: Records in lots that are ready or being read, about: enough for the time in which gathered
#: records are compared.
_AHEAD_RECORDS = 1 << 16
#: Lots that are ready or being read.
_MOST_WAITING = 24
#: More threads would only need more memory.
_MOST_THREADS = 8


class Preparer(Protocol[_Prepared_co]):
    """Derives from batches what needs the log's bytes. Each thread has its own."""

    def prepare(self, batch: RecordBatch) -> _Prepared_co:
        """Return what is derived from a batch; batches come in the order of the log."""

    def begin_anew(self) -> None:
        """Forget all batches: what was derived from some of them is not used."""


class _Lot(NamedTuple, Generic[_Prepared]):
    """The batches of a lot, and where the scan stopped."""

    batches: list[tuple[RecordBatch, _Prepared]]
    offset: int


class LogReader(Generic[_Prepared]):
    """Yields the batches of the log in order, each with what was derived from it.

    A lot ends where a good record begins; if the scan of the lot does not end exactly there, what
    was read of the following lots is dropped.

    Parameters
    ----------
    log : CommitLog
    scan : callable
        ``scan(start, stop)`` returns the scan of a range.
    preparer : callable
        Makes a thread's preparer.
    pages : ForwardPages or None
        For mappings that nothing else reads: makes pages present, and releases them.
    jobs : int
        Threads besides the caller's; 1: none.

    Attributes
    ----------
    offset : int
        Where the scan is.
    status : RecordStatus
        Why it ended, as for ``LogScan``.
    """

    def __init__(
        self,
        log: CommitLog,
        scan: Callable[[int, int], LogScan],
        preparer: Callable[[], Preparer[_Prepared]],
        pages: ForwardPages | None,
        jobs: int,
    ) -> None:
        self.offset = 0
        self.status = RecordStatus.END
        self._log = log
        self._scan = scan
        self._pages = pages
        self._threads = min(jobs, _MOST_THREADS) if jobs > 1 else 0
        self._own = preparer()
        self._preparers = deque(preparer() for _ in range(self._threads))
        #: Batches that were taken, whose rows are used again.
        self._taken: deque[RecordBatch] = deque()

    def read(self, start: int, stop: int) -> Generator[tuple[RecordBatch, _Prepared]]:
        """Yield batch by batch from ``start``; a batch is valid until the next one is taken.

        Close the generator before the log is closed.
        """
        self.offset, self.status = start, RecordStatus.END
        if not self._threads:
            yield from self._read_here(stop, stop - start)
            return
        with ThreadPoolExecutor(self._threads, "rocketstore-ahead") as pool:
            while self.offset < stop and self.status == RecordStatus.END:
                with contextlib.closing(self._read_lots(pool, stop)) as batches:
                    yield from batches
                if self.offset < stop:
                    yield from self._read_here(stop, _FIRST_NBYTES)

    def _read_here(self, stop: int, nbytes: int) -> Iterator[tuple[RecordBatch, _Prepared]]:
        """Read at least ``nbytes`` on this thread, or up to ``stop`` or damage."""
        first = self.offset
        self._move_pages(first, stop)
        scan = self._scan(first, stop)
        for batch in scan:
            self._move_pages(batch.window.base_offset + batch.row(0)["position"], stop)
            yield batch, self._own.prepare(batch)
            self.offset = scan.offset
            if scan.offset - first >= nbytes:
                return
        self.offset, self.status = scan.offset, scan.status

    def _move_pages(self, offset: int, stop: int) -> None:
        """Make the pages from ``offset`` on present, and release those before it."""
        file = self._log.queue.find_mapped_file_by_offset(offset)
        if self._pages is not None and file is not None:
            start = file.file_from_offset
            self._pages.move(file, offset - start, stop - start)

    def _read_lots(
        self, pool: ThreadPoolExecutor, stop: int
    ) -> Generator[tuple[RecordBatch, _Prepared]]:
        """Read on the threads, as long as each lot ends where the next one begins."""
        waiting: deque[tuple[int, Future[_Lot[_Prepared]]]] = deque()
        bounds = self._bounds(stop)

        def begin(most: int) -> None:
            for start, end in itertools.islice(bounds, max(most - len(waiting), 0)):
                waiting.append((end, pool.submit(self._read_lot, start, end)))

        try:
            begin(self._threads + 1)
            while waiting:
                end, future = waiting.popleft()
                lot = future.result()
                if lot.offset == end:
                    count = sum(batch.count for batch, _ in lot.batches)
                    ahead = _AHEAD_RECORDS // max(count, 1)
                    begin(min(max(ahead, self._threads + 1), _MOST_WAITING))
                for batch, prepared in lot.batches:
                    yield batch, prepared
                    self._taken.append(batch)
                self.offset = lot.offset
                if lot.offset != end:
                    break
        finally:
            for _, future in waiting:
                future.cancel()
            for _, future in waiting:
                if not future.cancelled():
                    future.exception()
            for preparer in self._preparers if waiting else ():
                preparer.begin_anew()

    def _bounds(self, stop: int) -> Iterator[tuple[int, int]]:
        """Yield start and end of each lot; no lot has records of two segments."""
        start, nbytes, size = self.offset, _FIRST_NBYTES, self._log.segment_size
        while start < stop:
            last = min(start - start % size + size, stop)
            near = None
            place = start + nbytes
            while near is None and place < last:
                near = find_near_record(self._log, place)
                place += nbytes
            end = last if near is None else min(near, last)
            yield start, end
            start, nbytes = end, min(2 * nbytes, _MOST_NBYTES)

    def _read_lot(self, start: int, end: int) -> _Lot[_Prepared]:
        preparer = self._preparers.popleft()
        batches: list[tuple[RecordBatch, Any]] = []
        count = 0
        try:
            with self._present(start, end):
                scan = self._scan(start, end)
                for batch in scan:
                    batches.append((batch, preparer.prepare(batch)))
                    scan.leave_rows(self._taken.popleft() if self._taken else None)
                    count += batch.count
                    if count >= _MOST_RECORDS:
                        break
            return _Lot(batches, scan.offset)
        finally:
            self._preparers.append(preparer)

    @contextlib.contextmanager
    def _present(self, start: int, end: int) -> Iterator[None]:
        """Make the pages of a lot present meanwhile, and release them then."""
        file = self._log.queue.find_mapped_file_by_offset(start)
        if file is None:
            yield
            return
        first, stop = start - file.file_from_offset, end - file.file_from_offset
        pages = None if self._pages is None else ForwardPages()
        if pages is not None:
            pages.move(file, first, stop)
        try:
            yield
        finally:
            if pages is not None:
                pages.release()
            else:
                release_pages(file, stop, first)
