"""Queue units of the log's records, gathered window by window."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class QueueUnitsPass:
    """Gather the units of all queues, in runs.

    Parameters
    ----------
    delay_ms : sequence of int
        Delay levels, for the tags code of delayed records.
    multi_dispatch : int
        ``MultiDispatch`` flags: to which queues besides its own a record is dispatched.
    queues : sequence of (topic, queue id) or None
        Only these queues (``None``: all); the topics are bytes.
    with_times : bool
        Every unit is followed by its record's store time (8 bytes, big-endian).
    max_nbytes, max_runs : int
        ``consume`` returns FULL once so much is gathered.

    Attributes
    ----------
    inner_batch_offset : int
        Physical offset of the first inner-batch record, -1 if there was none. Such records get
        a plain unit here.

    Notes
    -----
    PREPARED and ROLLBACK records, ghosts, and records whose topic names no directory have no unit.
    Threading: one thread at a time; ``consume`` runs without the GIL.
    """

    def __init__(
        self,
        *,
        delay_ms: Sequence[int] = (),
        multi_dispatch: int = 0,
        queues: Sequence[tuple[bytes, int]] | None = None,
        with_times: bool = False,
        max_nbytes: int = 16777216,
        max_runs: int = 65536,
    ) -> None: ...
    @property
    def inner_batch_offset(self) -> int: ...
    def consume(
        self,
        window: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        limit: int,
        flags: int,
        /,
    ) -> tuple[int, int]:
        """Process the records of ``window[position:stop]`` that begin before ``limit`` (a physical
        offset). Return (``RecordStatus``, position to continue from): END, FULL (call ``take`` and
        continue), or the status of the place there."""

    def take(self) -> list[tuple[bytes, int, int, int, int, int, bytes]]:
        """Return the runs gathered since the last call and clear them: (topic, queue id, kind,
        first queue offset, physical offset of the first record, end of the last one, packed units).
        The kind is 0 for the queue's own records, 1 for records of other topics that name it, 2 for
        records of its own topic that name it. In a run, queue offsets ascend by one and records are
        contiguous. Runs are in the order of their first records."""
