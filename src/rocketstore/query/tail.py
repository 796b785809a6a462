"""Follow a log that another process writes, across new segments, deletions and truncations."""

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

#: Checks of apparent damage, or of vanished files, before it is accepted: a record or file that is
#: being written looks the same for a moment.
PATIENCE = 4
#: Seconds between such checks after the timeout.
_DOUBT_S = 0.05
#: Records that are remembered to find the offset at which a log was truncated and rewritten.
_REMEMBERED = 4096
_WORD_NBYTES = 8

TailEvent = Callable[[str], None]


class _Seen(NamedTuple):
    """What distinguishes a delivered record from another one at the same offset."""

    offset: int
    size: int
    store_timestamp: int
    body_crc: int
    queue_offset: int


class StoreToFollow(Protocol):
    """What ``LogTail`` needs of its store."""

    path: Path
    mode: Mode

    @property
    def reader(self) -> StoreReader:
        """Return the opened parts."""

    @property
    def min_physical_offset(self) -> int:
        """Return the offset of the log's first byte, -1 for an empty log."""

    @property
    def max_physical_offset(self) -> int:
        """Return the offset of the end of the log's last record."""

    def refresh(self) -> None:
        """Re-read the directory (mode ``"r"``)."""

    def scan(self, *, start: int | None, on_corruption: OnCorruption) -> Iterator[StoredMessage]:
        """Iterate over records in log order."""

    def look_message_by_offset(self, physical_offset: int) -> StoredMessage | None:
        """Return the record that starts at an offset, ``None`` when none does."""


class LogTail:
    """Deliver every record after a start offset once, in log order.

    Parameters
    ----------
    store : StoreToFollow
        A ``DefaultMessageStore``.
        In mode ``"r"`` the end of its log is moved past new records in open files. If files are
        added, deleted or changed, the store is refreshed. A store that is open for writing is only
        read.
    start : int, optional
        Physical offset of the first record to deliver; the default is the log's end now.
    on_corruption : {"fail", "skip", "stop"}
        What happens at a corrupt range, once repeated checks have confirmed it.
    on_event : callable, optional
        Called with a sentence when records were deleted before they were read, or when the writer
        truncated the log.
    wait : callable
        ``wait(seconds)`` sleeps; replaced by tests.

    Attributes
    ----------
    position : int
        Physical offset of the next record, where another ``LogTail`` can continue.

    Notes
    -----
    Threading: one thread at a time. A reader cannot know what is synced: a power failure or the
    writer's recovery may drop delivered records. Then delivery continues at the offset of the
    truncation, and ``on_event`` is called.
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
                raise ValueError(f"the log ends at offset {end}, before {start}")
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
        """Return whether damage ended it (``on_corruption="stop"``)."""
        return self._ended

    def follow(self, interval_s: float, timeout_s: float | None = None) -> Iterator[StoredMessage]:
        """Iterate forever, or until ``timeout_s`` seconds have passed without a new record.

        Apparent damage is checked until it is certain, even after the timeout.
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
        """Iterate over the records that are new now, if any."""
        try:
            self._look_again()
            skipping = self._on_corruption == "skip" and self._tried_enough()
            yield from self._deliver("skip" if skipping else "fail")
            if skipping and self._trouble[0] == self.position:
                self._trouble = (self.position, PATIENCE + 1)  # nothing follows: it is certain
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
                self._skip_deleted()
            yield message
            self.position = seen.offset + seen.size
            self._history.append(seen)
            self._newest = message

    # --- checking for changes -----------------------------------------------------------------

    def _look_again(self) -> None:
        """Move the log's end past new records; refresh the store if that is not enough."""
        if self._store.mode != "r":
            self._skip_deleted()
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
        """Return the directory's modification time, -1 without a directory.

        It changes when a file of the log is created, renamed or deleted.
        """
        try:
            return os.stat(self._store.reader.log.queue.directory).st_mtime_ns
        except FileNotFoundError:
            return -1

    def _files_changed(self) -> bool:
        """Return whether files were added or deleted, or the newest record was replaced."""
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
            return True  # the file was truncated, or the bytes are no longer a record

    def _is_torn(self) -> bool:
        """Move the log's end past complete records that follow it in open files.

        Return whether invalid bytes were there at several checks in a row; a refresh then decides
        whether they are damage. Without new records this costs only a few memory reads.
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
        """Move the position past deleted records, or back to where the log was truncated."""
        if self._skip_deleted():
            return
        first = max(self._store.min_physical_offset, 0)
        end = self._store.max_physical_offset
        place = self._last_common(first, end)
        if place is not None and place != self.position:
            self._on_event(
                f"the log was truncated at offset {place}, before records that were already read; "
                "the records after it are new"
            )
            self.position = place

    def _skip_deleted(self) -> bool:
        """Move the position to the log's beginning if that is later; report it, return whether."""
        first = self._store.min_physical_offset
        if self.position >= first:
            return False
        self._on_event(
            f"the log's offsets {self.position} to {first - 1} were deleted before they were read"
        )
        self.position = first
        return True

    def _last_common(self, first: int, end: int) -> int | None:
        """Return the end of the newest delivered record that still exists.

        ``None`` if there is none to compare.
        """
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
        """Return whether there is apparent damage that was not checked often enough."""
        place, times = self._trouble
        return place == self.position and 0 < times <= PATIENCE

    def _tried_enough(self) -> bool:
        place, times = self._trouble
        return place == self.position and times >= PATIENCE

    def _be_patient(self, error: Exception) -> bool:
        """Count a failure at this offset; return whether to check again before accepting it."""
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
    """Return the physical offset of the first of the newest ``count`` dispatched messages.

    ``topics`` counts only their messages. With fewer messages, return the log's start.
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
    """Return whether a scan can begin at ``offset``; a unit may point into damage."""
    try:
        store.reader.check_scan_start(offset)
    except ValueError:
        return False
    return offset < store.max_physical_offset
