"""Dispatching a long log at once, with memory that does not grow with the log."""

from __future__ import annotations

from collections.abc import Callable

from rocketstore.dispatch.dispatcher import CommitLogDispatcher
from rocketstore.files.forward_pages import release_pages
from rocketstore.status import RecordStatus

#: Bytes of the log that are dispatched at once, and after which its pages are released.
_STEP_NBYTES = 64 << 20
#: Bytes of the log after which pages of queues and index are released.
_KEPT_NBYTES = 256 << 20
#: Records that are dispatched at first, and at most, at once.
_FIRST_COUNT, _MOST_COUNT = 1024, 1 << 20


def catch_up(
    dispatcher: CommitLogDispatcher,
    stop_offset: int,
    progress: Callable[[int], None] | None = None,
) -> RecordStatus:
    """Dispatch up to ``stop_offset``, in steps, as ``CommitLogDispatcher.dispatch_until`` does.

    Pages of log, queues and index that were read or written are released meanwhile.
    ``progress(offset)`` is called after each step. Raises what ``dispatch_until`` raises.
    """
    passed = released = dispatcher.reput_offset
    count, status = _FIRST_COUNT, RecordStatus.OK
    while status == RecordStatus.OK and dispatcher.reput_offset < stop_offset:
        first = dispatcher.reput_offset
        status = dispatcher.dispatch_until(stop_offset, max_records=count)
        at = dispatcher.reput_offset
        if progress is not None:
            progress(at)
        count = max(1, min(_STEP_NBYTES // max(1, (at - first) // count), _MOST_COUNT))
        if at - passed >= _STEP_NBYTES:
            _release_log(dispatcher, passed, at)
            passed = at
        if at - released >= _KEPT_NBYTES:
            _release_files(dispatcher)
            released = at
    return RecordStatus.END if status == RecordStatus.OK else status


def _release_log(dispatcher: CommitLogDispatcher, first: int, stop: int) -> None:
    log = dispatcher.log
    for offset in range(first - first % log.segment_size, stop, log.segment_size):
        file = log.queue.find_mapped_file_by_offset(offset)
        if file is not None:
            release_pages(file, min(stop - offset, log.segment_size), max(first - offset, 0))


def _release_files(dispatcher: CommitLogDispatcher) -> None:
    """Release the pages of queues and index."""
    for queue in dispatcher.queues:
        for file in queue.queue.files:
            release_pages(file)
    for index_file in () if dispatcher.index is None else dispatcher.index.files:
        release_pages(index_file.file)
