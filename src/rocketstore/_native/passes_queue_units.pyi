"""Queue units of the log's records, gathered window by window."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class QueueUnitsPass:
    """A pass that gathers the units of all queues, in runs.

    Parameters
    ----------
    delay_ms : sequence of int
        Delay levels, for the tags code of delayed records.
    multi_dispatch : int
        ``MultiDispatch`` flags: which queues besides its own a record goes into.
    queues : sequence of (topic, queue id) or None
        Only these queues (``None``: all); the topics are bytes.
    with_times : bool
        Every unit is followed by its record's store time (8 bytes, big-endian).
    max_nbytes, max_runs : int
        ``consume`` answers FULL once so much is gathered.

    Attributes
    ----------
    inner_batch_offset : int
        Physical offset of the first record that is an inner batch, -1 when there was none. Such
        records get a plain unit here.

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
        """Take the records of ``window[position:stop]`` that begin in front of ``limit`` (a
        physical offset). Returns (``RecordStatus``, position of the next look): END, FULL (call
        ``take`` and go on from there), or what stands there."""

    def take(self) -> list[tuple[bytes, int, int, int, int, int, bytes]]:
        """Return the runs gathered since the last call, and forget them: (topic, queue id, 0 for
        the queue's own records, 1 where records of other topics name it and 2 where those of its
        own do, first queue offset, physical offset of the first record, end of the last one, packed
        units). The queue offsets of a run count up one by one, its records are one behind the
        other; runs are in the order of their first records."""
