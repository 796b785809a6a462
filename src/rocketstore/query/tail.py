"""Follow a log that another process writes, across new segments, deletions and truncations."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rocketstore import formats
from rocketstore.errors import CorruptionError, CorruptMessageError, MappedFileError
from rocketstore.log.commit_log import modification_time
from rocketstore.log.scan import LogScan
from rocketstore.message import StoredMessage
from rocketstore.query.store_reader import NoRecordError
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
    select : mapping, optional
        Limits of ``kernels.passes_select.SelectPass``: only the records that pass are delivered.
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
        select: Mapping[str, Any] | None = None,
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
        if start is not None and start > max(store.min_physical_offset, 0):
            store.reader.check_scan_start(start)
        self.position = end if start is None else start
        self._store = store
        #: The parts when the position was last compared with the log's bounds.
        self._reader = store.reader
        self._select = select
        self._on_corruption = on_corruption
        self._on_event = on_event if on_event is not None else lambda text: None
        self._wait = wait
        #: Where the oldest remembered record begins, or one that was not selected before it.
        self._before = self.position
        self._history: deque[_Seen] = deque(maxlen=_REMEMBERED)
        self._newest: StoredMessage | None = None
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
            before = self.position
            for message in self.poll():
                yield message
                idle_since = time.monotonic()
            if self.position != before:  # records that were not selected
                idle_since = time.monotonic()
            rest = self.pause_s(interval_s, timeout_s, idle_since)
            if rest is None:
                return
            if not self._ended:
                self._wait(rest)

    def pause_s(
        self, interval_s: float, timeout_s: float | None, idle_since: float
    ) -> float | None:
        """Return for how long to pause after a poll that found nothing; ``None`` to end.

        ``idle_since`` is by ``time.monotonic``, as the end of the last poll that found something.
        """
        if timeout_s is None:
            return interval_s
        rest = min(interval_s, idle_since + timeout_s - time.monotonic())
        if rest > 0:
            return rest
        return min(interval_s, _DOUBT_S) if self._is_in_doubt() else None

    def must_refresh(self) -> bool:
        """Move the log's end past new records; return whether a poll will refresh the store.

        Mode ``"r"`` only; otherwise return False.
        """
        return self._store.mode == "r" and (self._files_changed() or self._is_torn())

    def poll(self) -> Iterator[StoredMessage]:
        """Iterate over the records that are new now, if any."""
        if self.look():
            yield from self.deliver()

    def look(self) -> bool:
        """Do the first half of ``poll``: look for changes; return whether to call ``deliver``."""
        try:
            self._look_again()
        except (CorruptionError, MappedFileError, FileNotFoundError) as error:
            self._meet(error)
            return False
        return True

    def deliver(self) -> Iterator[StoredMessage]:
        """Do the second half of ``poll``: iterate over the records up to the log's end."""
        try:
            skipping = self._on_corruption == "skip" and self._tried_enough()
            deliver = self._deliver if self._select is None else self._deliver_selected
            yield from deliver("skip" if skipping else "fail")
            if skipping and self._trouble[0] == self.position:
                self._trouble = (self.position, PATIENCE + 1)  # nothing follows: it is certain
        except NoRecordError as error:  # the log was truncated since the look
            self._meet(error.damage)
        except (CorruptionError, MappedFileError, FileNotFoundError) as error:
            self._meet(error)

    def _meet(self, error: Exception) -> None:
        """Raise an error that was confirmed, or end if that is wanted."""
        if self._be_patient(error):
            return
        if self._on_corruption == "stop" and isinstance(error, CorruptMessageError):
            self._ended = True
            return
        raise error

    def _deliver(self, on_corruption: OnCorruption) -> Iterator[StoredMessage]:
        for message in self._store.scan(start=self.position, on_corruption=on_corruption):
            seen = _seen(message)
            if seen.offset > self.position:
                self._skip_deleted()
            yield message
            self._pass(seen, message)

    def _deliver_selected(self, on_corruption: OnCorruption) -> Iterator[StoredMessage]:
        assert self._select is not None
        reader = self._store.reader
        scan = reader.selected(self.position, None, on_corruption, **self._select)
        for messages in scan.steps():
            newest = scan.newest()
            first = messages[0] if messages else newest
            if first is not None and first.physical_offset > self.position:
                self._skip_deleted()
            for message in messages:
                seen = _seen(message)
                yield message
                self._pass(seen, message)
            if newest is not None and newest.physical_offset >= self.position:
                self._pass(_seen(newest), newest)
        reader.finish_scan(scan.stop, None, on_corruption)

    def _pass(self, seen: _Seen, message: StoredMessage) -> None:
        """Move the position past a record, and remember it."""
        if len(self._history) == _REMEMBERED:
            self._before = self._history[0].offset + self._history[0].size
        self.position = seen.offset + seen.size
        self._history.append(seen)
        self._newest = message

    # --- checking for changes -----------------------------------------------------------------

    def _look_again(self) -> None:
        """Move the log's end past new records; refresh the store if that is not enough."""
        if self._store.mode != "r":
            self._skip_deleted()
            return
        if self.must_refresh():
            path = self._store.path
            if not os.path.isdir(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._torn_looks = 0
            self._store.refresh()
        elif self._store.reader is self._reader:
            return
        self._reader = self._store.reader
        self._find_place()

    def _files_changed(self) -> bool:
        """Return whether files were added or deleted, or the newest record was replaced."""
        log = self._store.reader.log
        if self._trouble[0] == self.position:
            return True
        if log.queue.last() is None and any(
            _may_have_begun(directory, self._store.path) for directory in log.queue.directories
        ):
            return True
        if modification_time(*log.queue.directories) != log.directory_time:
            return True
        end = log.max_offset
        at_start = log.window(end, end + 1) is None and end % log.segment_size == 0
        following = end if at_start else log.roll_next_file(end)
        name = formats.offset_to_file_name(following)
        if log.queue.find_mapped_file_by_offset(following) is None and any(
            os.path.exists(directory / name) for directory in log.queue.directories
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
            log.grow_end(walk.offset)
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
            at = "at" if self._select is None else "at or after"
            self._on_event(
                f"the log was truncated {at} offset {place}, before records that were already "
                "read; the records after it are new"
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
        if oldest is None:
            return min(end, self.position)
        # Of records that were not selected, one in a step is remembered: others may lie before it.
        return min(end, oldest if self._select is None else max(first, self._before))

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


def _may_have_begun(directory: Path, root: Path) -> bool:
    """Return whether an empty log may have a segment now, or its store vanished.

    A segment that was empty gets its size without a change of the directory.
    """
    try:
        return bool(os.listdir(directory))
    except FileNotFoundError:
        return not os.path.isdir(root)


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
