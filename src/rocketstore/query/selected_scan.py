"""The messages of a log that pass filters, found by a kernel: no object is made for the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.log.commit_log import RecordGoneError
from rocketstore.message import StoredMessage
from rocketstore.query.arrow_scan import LogRead
from rocketstore.query.queue_records import QueueRecords
from rocketstore.query.results import MAX_TIMESTAMP
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from rocketstore.log.commit_log import CommitLog

#: Bytes of the log that are read between two looks at what was found.
STEP_NBYTES = 4 << 20


class SelectedScan:
    """Iterates over the messages that pass, in log order; usable once.

    Parameters
    ----------
    log : CommitLog
    start, stop : int
        Physical offsets, as of ``LogRead``.
    on_corruption : {"fail", "skip", "stop"}
    records : {"log", "queues"}
        As ``DefaultMessageStore.scan`` takes it; the messages of a batch are judged one by one.
    **limits
        Of ``kernels.passes_select.SelectPass``.

    Attributes
    ----------
    stop : int
    position : int
        Physical offset up to which the records were judged when the last step ended.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        stop: int,
        on_corruption: str,
        *,
        records: str = "log",
        **limits: Any,
    ) -> None:
        self.stop = stop
        self._log = log
        self._on_corruption = on_corruption
        self._found = _Found(kernels.passes_select.SelectPass(**limits))
        consumer = self._found if records == "log" else QueueRecords(self._found)
        self._read = LogRead(log, consumer, start, stop, on_corruption, log.record_flags)

    @property
    def position(self) -> int:
        """Return where the last step ended."""
        return self._read.offset

    def __iter__(self) -> Iterator[StoredMessage]:
        for step in self.steps():
            yield from step

    def steps(self) -> Iterator[list[StoredMessage]]:
        """Yield the messages of one step after the other, also none.

        Raises ``CorruptMessageError`` as ``scan`` does, after what was found before.
        """
        for _ in self._read:
            messages = []
            for place in self._found.take():
                try:
                    messages.append(self._message(*place))
                except RecordGoneError:
                    if self._on_corruption == "skip":
                        continue
                    yield messages
                    if self._on_corruption == "stop":
                        return
                    raise
            yield messages

    def newest(self) -> StoredMessage | None:
        """Return the last record that was judged in the last step, whether it passed or not.

        ``None`` if there was none, or another process has overwritten it since.
        """
        if self._found.newest is None:
            return None
        try:
            return self._message(*self._found.newest)
        except RecordGoneError:
            return None

    def _message(self, window: Any, base_offset: int, end: int, position: int) -> StoredMessage:
        try:
            return StoredMessage(window, position, base_offset, end)
        except ValueError as error:
            path, place, _ = self._log.place(base_offset + position)
            raise RecordGoneError.at(path, place, base_offset + position) from error


class _Found:
    """A pass that keeps where the records lie that passed; see ``sources.walk.Pass``."""

    def __init__(self, select: kernels.passes_select.SelectPass) -> None:
        self._select = select
        self._places: list[tuple[Any, int, int, int]] = []
        self.newest: tuple[Any, int, int, int] | None = None

    def take(self) -> list[tuple[Any, int, int, int]]:
        """Return window, its offset, its segment's end and the position of each record found."""
        found, self._places = self._places, []
        return found

    def consume(
        self,
        window: Any,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """See ``Pass``; FULL also after ``STEP_NBYTES``, so that what was found is handed out."""
        upto = min(limit, base_offset + position + STEP_NBYTES)
        status, reached = self._select.consume(
            window, position, stop, base_offset, segment_end, upto, flags
        )
        place = window, base_offset, segment_end
        self._places += [(*place, found) for found in self._select.take()]
        if self._select.last >= 0:
            self.newest = *place, self._select.last
        if status == RecordStatus.END and reached < stop and base_offset + reached < limit:
            status = RecordStatus.FULL
        return status, reached


def time_limits(begin: int | None, end: int | None) -> dict[str, int | None]:
    """Return store times of any size as limits of a pass: ``begin <= time < end``."""
    least = -MAX_TIMESTAMP - 1
    return {
        "begin": None if begin is None else max(least, min(begin, MAX_TIMESTAMP)),
        "end": None if end is None or end > MAX_TIMESTAMP else max(least, end),
    }
