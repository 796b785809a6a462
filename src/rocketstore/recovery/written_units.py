"""What the units in queue files say about the log before the queues are recovered.

Units are looked at by ``pread``: through a mapping the system would read megabytes around each, and
make pages of zeros for holes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.raw import data_ranges
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.scan import LogScan
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from rocketstore.queues.consume_queue import ConsumeQueue

_UNIT = formats.CONSUME_QUEUE_UNIT
#: Queues whose units are searched for a record near an offset, and what is near enough.
_MOST_QUEUES = 16
_NEAR_NBYTES = 1024 * 1024


def written_units(queue: ConsumeQueue) -> tuple[int, int]:
    """Return the range of queue offsets of the units in the files, fillers included."""
    for file in reversed(queue.queue.files_in_row()):
        with file.reading() as read:
            used = _used_count(file, read)
        if used:
            first = queue.queue.files[0].file_from_offset // _UNIT.nbytes
            return first, file.file_from_offset // _UNIT.nbytes + used
    return 0, 0


def _used_count(file: MappedFile, read: Callable[[int, int], bytes]) -> int:
    """Return the number of units in a file, fillers included."""
    data_end = max((stop for _, stop in data_ranges(file, 0)), default=0)
    count = -(-data_end // _UNIT.nbytes)  # after it are only holes and reserved blocks
    return bisect.bisect_left(range(count), True, key=lambda number: _unit(read, number)[1] <= 0)


def _unit(read: Callable[[int, int], bytes], number: int) -> tuple[int, int]:
    """Return physical offset and size of a unit as stored; zeros past the file's last unit."""
    content = read(number * _UNIT.nbytes, _UNIT.nbytes)
    if len(content) < _UNIT.nbytes:
        return 0, 0
    place, size, _ = _UNIT.struct.unpack(content)
    return place, size


def record_start(log: CommitLog, queues: Iterable[ConsumeQueue], start: int, target: int) -> int:
    """Return the offset of a record between ``start`` and ``target``, as near ``target`` as needed.

    It is the record of a unit: it passes the strict check, and its topic, queue and queue offset
    are the unit's. Bytes of a body that look like a record are not the record of any unit. Without
    such a record, ``start`` is returned.
    """
    plain = (queue for queue in queues if not isinstance(queue, BatchConsumeQueue))
    for queue, _ in zip(plain, range(_MOST_QUEUES), strict=False):
        number, place, size = _last_unit_before(queue, target)
        if start < place <= target and _is_record(log, queue, number, place, size):
            start = place
        if target - start < _NEAR_NBYTES:
            break
    return start


def _last_unit_before(queue: ConsumeQueue, target: int) -> tuple[int, int, int]:
    """Return queue offset, physical offset and size of a queue's last unit up to ``target``.

    The physical offset is -1 without one.
    """
    files = queue.queue.files_in_row()
    last = bisect.bisect_right(files, target, key=_first_place)
    for file in reversed(files[:last]):
        with file.reading() as read:
            units = range(_used_count(file, read))
            at = bisect.bisect_right(units, target, key=lambda number: _unit(read, number)[0]) - 1
            if at >= 0:
                return file.file_from_offset // _UNIT.nbytes + at, *_unit(read, at)
    return 0, -1, 0


def _first_place(file: MappedFile) -> int:
    with file.reading() as read:
        return _unit(read, 0)[0]


def _is_record(log: CommitLog, queue: ConsumeQueue, number: int, place: int, size: int) -> bool:
    """Return whether the record of a unit is good, and is the unit's. The log's end is not known
    yet."""
    for batch in LogScan(log, place, place + size, log.record_flags, capacity=1):
        if batch.last()["status"] != RecordStatus.OK:
            return False
        message = batch.window.message(batch.last()["position"])
        found = (message.topic, message.queue_id, message.queue_offset, message.store_size)
        return found == (queue.topic, queue.queue_id, number, size)
    return False
