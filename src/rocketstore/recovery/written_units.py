"""What the units in queue files say about the log before the queues are recovered."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rocketstore import formats
from rocketstore.files.mapped_file import MappedFile
from rocketstore.files.raw import data_ranges
from rocketstore.log.commit_log import CommitLog
from rocketstore.queues.batch_consume_queue import BatchConsumeQueue
from rocketstore.status import RecordStatus

if TYPE_CHECKING:
    from rocketstore.queues.consume_queue import ConsumeQueue

_UNIT_NBYTES = formats.CONSUME_QUEUE_UNIT.nbytes
#: Queues whose units are searched for a record near an offset.
_MOST_QUEUES = 16


def written_units(queue: ConsumeQueue) -> tuple[int, int]:
    """Return the range of queue offsets of the units in the files, fillers included."""
    for file in reversed(queue.queue.files_in_row()):
        base = file.file_from_offset // _UNIT_NBYTES
        # Nothing is searched in holes: the file system would make pages of zeros for each look.
        count = min(-(-_data_end(file) // _UNIT_NBYTES), queue.units_per_file)
        used = bisect.bisect_left(
            range(base, base + count), True, key=lambda index: queue.raw_unit(index)[1] <= 0
        )
        if used:
            first = queue.queue.files[0].file_from_offset // _UNIT_NBYTES
            return first, base + used
    return 0, 0


def _data_end(file: MappedFile) -> int:
    """Return the position after which a file has only holes or reserved blocks."""
    return max((stop for _, stop in data_ranges(file, 0)), default=0)


def record_start(log: CommitLog, queues: Iterable[ConsumeQueue], start: int, target: int) -> int:
    """Return the offset of a record between ``start`` and ``target``, near ``target``.

    It is the record of a unit: it passes the strict check, and its topic, queue and queue offset
    are the unit's. Bytes of a body that look like a record are not the record of any unit. Without
    such a record, ``start`` is returned.
    """
    plain = (queue for queue in queues if not isinstance(queue, BatchConsumeQueue))
    for queue, _ in zip(plain, range(_MOST_QUEUES), strict=False):
        first, stop = written_units(queue)
        units = range(first, stop)
        number = first + bisect.bisect_right(units, target, key=queue.start_of) - 1
        if number < first:
            continue
        place, size, _ = queue.raw_unit(number)
        if start < place <= target and _is_record(log, queue, number, place, size):
            start = place
    return start


def _is_record(log: CommitLog, queue: ConsumeQueue, number: int, place: int, size: int) -> bool:
    status, message = log.record_at(place)
    if status != RecordStatus.OK or message is None:
        return False
    found = (message.topic, message.queue_id, message.queue_offset, message.store_size)
    return found == (queue.topic, queue.queue_id, number, size)
