"""Progress of half and op topic in ``consumerOffset.json``, as a broker keeps it."""

from __future__ import annotations

import os

from rocketstore import formats
from rocketstore.config_managers.live_offsets import LiveConsumerOffsets
from rocketstore.config_managers.managers import ConsumerOffsetManager
from rocketstore.transaction.log_reading import Progress, TransactionLog
from rocketstore.transaction.op_messages import offsets_in


def read_progress(root: str | os.PathLike[str]) -> Progress:
    """Return what is committed for the group CID_RMQ_SYS_TRANS.

    Raises ``CorruptionError`` if the file and its backup are damaged.
    """
    manager = ConsumerOffsetManager(root)
    manager.load()
    group = formats.GROUP_TRANSACTION
    return Progress(
        manager.query_offset(group, formats.TOPIC_HALF, 0),
        manager.query_offset(group, formats.TOPIC_OP, 0),
    )


def write_progress(offsets: LiveConsumerOffsets, progress: Progress) -> None:
    """Commit the offsets durably; the file's other entries stay."""
    group = formats.GROUP_TRANSACTION
    offsets.commit_offset(group, formats.TOPIC_HALF, 0, progress.half)
    offsets.commit_offset(group, formats.TOPIC_OP, 0, progress.op)
    offsets.persist()


def op_progress(log: TransactionLog, start: int, half: int) -> int:
    """Return the first op message from ``start`` on that names a half message not before ``half``.

    A broker reads the op messages from there on.
    """
    first, end = log.bounds(formats.TOPIC_OP)
    start = max(start, first, 0)
    for message in log.records(formats.TOPIC_OP, start):
        if any(offset >= half for offset in offsets_in(message.body)):
            return message.queue_offset
    return end
