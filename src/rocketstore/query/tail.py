"""Following a log that others write: new records as they come, past rolls, deletions and cuts."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rocketstore import formats
from rocketstore.errors import CorruptionError, CorruptMessageError, MappedFileError
from rocketstore.log.scan import LogScan
from rocketstore.message import StoredMessage
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from pathlib import Path

    from rocketstore.arguments import Mode, OnCorruption
    from rocketstore.query.store_reader import StoreReader

#: Looks at a place that seems damaged, or at files that vanish, before it is taken for real: a
#: record that is being written, or a file that is just being made, looks the same for a moment.
PATIENCE = 4
#: Seconds between such looks when the time to wait is over.
_DOUBT_S = 0.05
#: Records remembered, so that the place is found where a log was cut and written anew.
_REMEMBERED = 4096
_WORD_NBYTES = 8

TailEvent = Callable[[str], None]


class _Seen(NamedTuple):
    """What tells a delivered record from another one at the same place."""

    offset: int
    size: int
    store_timestamp: int
    body_crc: int
    queue_offset: int


class StoreToFollow(Protocol):
    """What following a log asks of its store."""

    path: Path
    mode: Mode

    @property
    def reader(self) -> StoreReader:
        """The opened parts."""

    @property
    def min_physical_offset(self) -> int:
        """Offset of the log's first byte, -1 for an empty log."""

    @property
    def max_physical_offset(self) -> int:
        """Offset behind the log's last record."""

    def refresh(self) -> None:
        """Mode ``"r"``: look at the directory again."""

    def scan(self, *, start: int | None, on_corruption: OnCorruption) -> Iterator[StoredMessage]:
        """Iterate over records in log order."""

    def look_message_by_offset(self, physical_offset: int) -> StoredMessage | None:
        """Return the record that starts at an offset, ``None`` when none does."""


class LogTail:
    """Delivers every record behind a place once, in log order.

    Parameters
    ----------
    store : StoreToFollow
        A ``DefaultMessageStore``.
        In mode ``"r"`` the end of its log moves on over what is written into files that are open;
        where files come, go or change it is refreshed. A store that is open for writing is only
        looked at.
    start : int, optional
        Physical offset of the first record to deliver; the default is the log's end now.
    on_corruption : {"fail", "skip", "stop"}
        What happens at a damaged place, once it has been looked at several times.
    on_event : callable, optional
        Told in a sentence of records deleted before they were read, and of a log that was cut.
    wait : callable
        Sleeps for so many seconds; replaced by tests.

    Attributes
    ----------
    position : int
        Physical offset of the next record: where to go on another time.

    Notes
    -----
    Threading: one thread at a time. A reader cannot know what is synced: records it delivered may
    be undone by a power cut or by the writer's recovery. Then what follows is delivered from the
    place of the cut on, and ``on_event`` says so.
    """

    def __init__(
        self,
        store: StoreToFollow,
        *,
        start: int | None = None,
        on_corruption: OnCorruption = "fail",
        on_event: TailEvent | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        end = store.max_physical_offset
        if start is not None and start > end:
            log = store.reader.log
            if not log.is_lost(start):
                raise ValueError(f"the log ends at offset {end}, in front of {start}")
            if on_corruption == "fail":
                raise log.corruption(start, RecordStatus.EMPTY)
            start = end
        self.position = end if start is None else start
        self._store = store
        self._on_corruption = on_corruption
        self._on_event = on_event if on_event is not None else lambda text: None
        self._wait = wait
        self._history: deque[_Seen] = deque(maxlen=_REMEMBERED)
        self._newest: StoredMessage | None = None
        self._directory_state = -1
        self._torn_looks = 0
        self._trouble = (-1, 0)
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether damage ended it (``on_corruption="stop"``)."""
        return self._ended

    def follow(self, interval_s: float, timeout_s: float | None = None) -> Iterator[StoredMessage]:
        """Iterate for ever, or until ``timeout_s`` seconds have passed without a new record.

        A place that seems damaged is looked at until that is certain, also past the time.
        """
        idle_since = time.monotonic()
        while not self._ended:
            for message in self.poll():
                yield message
                idle_since = time.monotonic()
            rest = interval_s
            if timeout_s is not None:
                rest = min(rest, idle_since + timeout_s - time.monotonic())
                if rest <= 0:
                    if not self._is_in_doubt():
                        return
                    rest = min(interval_s, _DOUBT_S)
            if not self._ended:
                self._wait(rest)

    def poll(self) -> Iterator[StoredMessage]:
        """Iterate over the records that are new by now; none when there is nothing new."""
        try:
            self._look_again()
            skipping = self._on_corruption == "skip" and self._tried_enough()
            yield from self._deliver("skip" if skipping else "fail")
            if skipping and self._trouble[0] == self.position:
                self._trouble = (self.position, PATIENCE + 1)  # nothing follows: no doubt is left
        except (CorruptionError, MappedFileError, FileNotFoundError) as error:
            if not self._be_patient(error):
                if self._on_corruption == "stop" and isinstance(error, CorruptMessageError):
                    self._ended = True
                    return
                raise

    def _deliver(self, on_corruption: OnCorruption) -> Iterator[StoredMessage]:
        for message in self._store.scan(start=self.position, on_corruption=on_corruption):
            seen = _seen(message)
            if seen.offset > self.position:
                self._pass_over_deleted()
            yield message
            self.position = seen.offset + seen.size
            self._history.append(seen)
            self._newest = message

    # --- looking ------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Move the log's end over what is new; refresh where that is not enough."""
        if self._store.mode != "r":
            self._pass_over_deleted()
            return
        if not self._files_changed() and not self._is_torn():
            return
        if not os.path.isdir(self._store.path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._store.path))
        self._torn_looks = 0
        self._directory_state = self._state_of_directory()
        self._store.refresh()
        self._find_place()

    def _state_of_directory(self) -> int:
        """Changes when a file of the log is made, renamed or deleted; -1 without a directory."""
        try:
            return os.stat(self._store.reader.log.queue.directory).st_mtime_ns
        except FileNotFoundError:
            return -1

    def _files_changed(self) -> bool:
        """Whether files came or went, or the newest record has become another one."""
        log = self._store.reader.log
        if self._trouble[0] == self.position or log.queue.last() is None:
            return True
        if self._state_of_directory() != self._directory_state:
            return True
        end = log.max_offset
        at_start = log.window(end, end + 1) is None and end % log.segment_size == 0
        following = end if at_start else log.roll_next_file(end)
        if log.queue.find_mapped_file_by_offset(following) is None and os.path.exists(
            log.queue.directory / formats.offset_to_file_name(following)
        ):
            return True
        try:
            return self._newest is not None and _seen(self._newest) != self._history[-1]
        except (OSError, ValueError):
            return True  # the file was shortened, or what lies there is no record any more

    def _is_torn(self) -> bool:
        """Move the log's end over whole records that follow it in files that are open.

        True when something stands there that has been no record for several looks: a refresh tells
        whether it is damage. Costs no more than a few reads of memory when there is nothing new.
        """
        log = self._store.reader.log
        end, last = log.max_offset, log.queue.last()
        window = log.window(end, end + _WORD_NBYTES)
        if window is None or last is None:
            return False
        if not any(window.file.read(end - window.base_offset, _WORD_NBYTES)):
            self._torn_looks = 0
            return False
        walk = LogScan(log, end, last.file_from_offset + last.file_size, log.record_flags)
        for _ in walk:
            pass
        if walk.offset > end:
            log.move_end(walk.offset)
            self._torn_looks = 0
            return False
        self._torn_looks += 1
        return self._torn_looks > PATIENCE

    def _find_place(self) -> None:
        """Go on where records were deleted, or where the log was cut and written anew."""
        if self._pass_over_deleted():
            return
        first = max(self._store.min_physical_offset, 0)
        end = self._store.max_physical_offset
        place = self._last_common(first, end)
        if place is not None and place != self.position:
            self._on_event(
                f"the log was cut at offset {place}, in front of records that were read already; "
                "what follows was written since"
            )
            self.position = place

    def _pass_over_deleted(self) -> bool:
        """Go on at the log's beginning when that lies behind the place, and say so."""
        first = self._store.min_physical_offset
        if self.position >= first:
            return False
        self._on_event(
            f"the log's offsets {self.position} to {first - 1} were deleted before they were read"
        )
        self.position = first
        return True

    def _last_common(self, first: int, end: int) -> int | None:
        """The end of the newest delivered record that is still there; ``None`` without one to
        compare."""
        oldest: int | None = None
        while self._history:
            seen = self._history[-1]
            if seen.offset < first:
                break
            if seen.offset + seen.size <= end and self._still_there(seen):
                return seen.offset + seen.size
            oldest = seen.offset
            self._history.pop()
            self._newest = None
        if oldest is None and self.position <= end:
            return None
        return min(end, self.position if oldest is None else oldest)

    def _still_there(self, seen: _Seen) -> bool:
        try:
            message = self._store.look_message_by_offset(seen.offset)
        except CorruptMessageError:
            return False
        return message is not None and _seen(message) == seen

    # --- patience -----------------------------------------------------------------------------

    def _is_in_doubt(self) -> bool:
        """Whether what stands at the place seems damaged and was not looked at often enough."""
        place, times = self._trouble
        return place == self.position and 0 < times <= PATIENCE

    def _tried_enough(self) -> bool:
        place, times = self._trouble
        return place == self.position and times >= PATIENCE

    def _be_patient(self, error: Exception) -> bool:
        """Count a failure at this place; whether to look again before it is believed."""
        place, times = self._trouble
        times = times + 1 if place == self.position else 1
        self._trouble = (self.position, times)
        if times <= PATIENCE:
            return True
        return self._on_corruption == "skip" and isinstance(error, CorruptMessageError)


def _seen(message: StoredMessage) -> _Seen:
    return _Seen(
        message.physical_offset,
        message.store_size,
        message.store_timestamp,
        message.body_crc,
        message.queue_offset,
    )


def start_of_newest(store: StoreToFollow, count: int, topics: Collection[str] | None = None) -> int:
    """Physical offset from which on there are ``count`` dispatched messages, where there are.

    ``topics`` counts only their messages. Without so many it is the log's start.
    """
    first = max(store.min_physical_offset, 0)
    offsets: set[int] = set()  # the messages of an inner batch share one
    for queue in store.reader.queues:
        if topics is not None and queue.topic not in topics:
            continue
        end = queue.max_index
        for index in range(max(queue.min_index, end - count), end):
            unit = queue.unit(index)
            if unit is not None and unit[0] >= first:
                offsets.add(unit[0])
    for offset in sorted(offsets, reverse=True)[count - 1 :]:
        if _starts_record(store, offset):
            return offset
    return first


def _starts_record(store: StoreToFollow, offset: int) -> bool:
    """Whether a scan can begin there; a unit may point into damage."""
    try:
        store.reader.check_scan_start(offset)
    except ValueError:
        return False
    return offset < store.max_physical_offset
