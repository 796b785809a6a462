"""Read a log with progress, and with an offset to continue from after an interrupt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocketstore.arguments import OnCorruption, Progress, Records
from rocketstore.message import StoredMessage
from rocketstore.query.conditions import Conditions
from rocketstore.query.queue_records import is_packed
from rocketstore.store.default_message_store import DefaultMessageStore

if TYPE_CHECKING:
    from rocketstore.filter.sql92.sql92_filter import Sql92Filter

_RECORDS_BETWEEN_REPORTS = 2000


class LogWalk:
    """Iterates over the messages in a range of the log that meet the conditions.

    Parameters
    ----------
    store : DefaultMessageStore
    conditions : Conditions
    start, stop : int, optional
        Physical offsets, as ``scan`` takes them.
    limit : int, optional
        Maximum number of messages.
    on_corruption : {"fail", "skip", "stop"}
    records : {"log", "queues"}
    where : Sql92Filter, optional
        Evaluated by a kernel, before the other conditions on messages.
    progress : callable, optional

    Attributes
    ----------
    position : int
        A walk that starts here continues after the last message that the caller processed.
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        conditions: Conditions,
        *,
        start: int | None = None,
        stop: int | None = None,
        limit: int | None = None,
        on_corruption: OnCorruption = "fail",
        records: Records = "log",
        where: Sql92Filter | None = None,
        progress: Progress | None = None,
    ) -> None:
        first = max(store.min_physical_offset, 0)
        end = store.max_physical_offset
        self._begin = self.position = first if start is None else max(start, first)
        self._total = (end if stop is None else min(stop, end)) - self._begin
        self._limit = limit
        self._progress = progress
        self._conditions = conditions
        if where is None:
            self._messages = store.scan(
                start=start, stop=stop, on_corruption=on_corruption, records=records
            )
        else:
            self._messages = self._selected(
                store, start, stop, on_corruption, records=records, filter=where,
                topics=conditions.topics, begin=conditions.begin, end=conditions.end,
            )  # fmt: skip
        self._is_packed = is_packed if records == "queues" else lambda flags: False

    def _selected(
        self,
        store: DefaultMessageStore,
        start: int | None,
        stop: int | None,
        on_corruption: OnCorruption,
        **limits: Any,
    ) -> Iterator[StoredMessage]:
        """Yield the messages that pass; move the position past those that do not."""
        scan = store.reader.selected(start, stop, on_corruption, **limits)
        for messages in scan.steps():
            yield from messages
            self.position = max(self.position, scan.position)
            self._report()
        store.reader.finish_scan(scan.stop, stop, on_corruption)

    def _report(self) -> None:
        if self._progress is not None:
            self._progress("reading the log", self.position - self._begin, self._total)

    def __iter__(self) -> Iterator[StoredMessage]:
        match = self._conditions.match
        until_report = count = 0
        for message in self._messages:
            self.position = message.physical_offset
            matched = match(message)
            if matched:
                yield message
            if not self._is_packed(message.sys_flag):  # else more of its batch may follow
                self.position += message.store_size
            if matched:
                count += 1
                if count == self._limit:
                    return
            if self._progress is not None:
                until_report -= 1
                if until_report < 0:
                    self._report()
                    until_report = _RECORDS_BETWEEN_REPORTS
