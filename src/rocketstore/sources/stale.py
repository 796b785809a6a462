"""Distinguishes corruption in the last segment from a log's end that is followed by stale records.

Stale records were written past the end before a crash.
"""

from __future__ import annotations

import dataclasses
from collections import deque

from rocketstore.files.mapped_file_queue import DirectoryListing, MappedFileQueue
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.continuity import BeforeRange, QueueEnds, continues_log
from rocketstore.log.scan import LogScan, RecordBatch
from rocketstore.sources.files import folder_of_links, local_path
from rocketstore.sources.splits import Split
from rocketstore.status import RecordStatus

#: Batches before the position from which the queues' ends are known.
_RECENT_BATCHES = 8


def is_stale(split: Split, position: int, resumed: int, flags: int) -> bool:
    """Return whether the good records at ``resumed`` are older than those before ``position``.

    After a power failure RocketMQ continues writing at the first torn record. Records past it stay
    until they are overwritten. The durable offset of a state file decides. Without one, the store
    times and queue offsets on both sides decide, as when a store is opened.

    Parameters
    ----------
    split : Split
        In the log's last segment.
    position, resumed : int
        Positions in the file of the corruption and of the next good record.
    flags : int
        ``RecordFlags`` of the strict check.

    Returns
    -------
    bool
        False if that cannot be decided, as in remote files.
    """
    path = local_path(split.uri)
    if path is None:
        return False
    if split.durable_stop > 0:
        return position >= split.durable_stop
    base = split.base_offset
    queue = MappedFileQueue(path.parent, split.segment_size, folder_of_links(path), writable=False)
    queue.load(DirectoryListing([(base, path, split.file_size)]))
    log = CommitLog(queue, base + split.file_size, flags)
    recent: deque[RecordBatch] = deque(maxlen=_RECENT_BATCHES)
    try:
        scan = LogScan(log, base, base + position, flags)
        for batch in scan:
            recent.append(dataclasses.replace(batch, rows=bytearray(batch.filled)))
        if not recent or scan.status != RecordStatus.END:
            return False
        ends = QueueEnds()
        for batch in recent:
            ends.take(batch)
        last_timestamp = int(recent[-1].columns["store_timestamp"][-1])
        limit = base + split.file_size
        known = BeforeRange(ends, last_timestamp, 0, resumed - position)
        return not continues_log(log, base + resumed, limit, known)
    finally:
        recent.clear()
        log.close()
