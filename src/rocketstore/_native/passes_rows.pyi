"""Judges the rows of ``scan_records``: a summary of a batch, the order of queue
offsets, and the numbers of queues."""

from typing import final

from typing_extensions import Buffer

def summarize(
    buffer: Buffer, rows: Buffer, before: int, /
) -> tuple[int, int, int, int, int, int, bool, bool, bool, int]:
    """Summarize ``rows`` (of ``formats.PARSED_RECORD``), which ``scan_records`` filled from
    ``buffer``.

    Return, first of the good rows (OK and UNSAFE_TOPIC): their count, the newest store time, the
    last one and the one before it (0 without one), the physical end of the last record, and that of
    the last record stored before ``before`` (-1 without one). Then, of all rows: whether some
    status is not OK, whether some record is of the schedule topic or has the flag of an inner
    batch, whether some record names other queues (if its properties were parsed), and whether
    property CRCs were valid (1), invalid (2), both (3), or not judged (0).

    Raises
    ------
    ValueError
        ``rows`` are not whole rows, or a topic lies outside ``buffer``.
    """

def gather(
    rows: Buffer, numbers: Buffer, queued: Buffer, sizes: Buffer, places: Buffer, /
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]:
    """Gather the rows whose entry in ``numbers`` (int32) is not negative, and count all.

    Of each gathered row, in their order: four int64 into ``queued`` (queue offset, physical offset,
    tags code, store time), its size into ``sizes`` and its number into ``places`` (int32). All have
    room for every row, and native byte order.

    Return how many were gathered; of the rows that are no ghosts their number, bytes, newest store
    time, first and last store time (0 without a row), and how many are stored before the previous
    one; of all rows the ghosts, those with NUL properties, with unsafe topics, with a judged
    property CRC, of transactions rolled back, with bodies of at most one byte; and the gathered
    ones that name other queues.

    Raises
    ------
    ValueError
        An argument has not exactly the room for all rows.
    """

@final
class QueueOffsets:
    """The next queue offset of each queue, of the rows seen so far.

    Notes
    -----
    Only rows with a unit in their queue count, as in ``QueueUnitsPass``. Threading: one thread at a
    time; ``follow`` runs without the GIL.
    """

    def __init__(self) -> None: ...
    def follow(self, buffer: Buffer, rows: Buffer, /) -> bool:
        """Take the rows of a batch if each is the next of its queue, or the queue's first.

        Otherwise, and if a row has the flag of an inner batch or the greatest queue offset, or its
        record was overwritten, return False: the caller checks the records one by one. The ends
        are then those of before. The arguments, and ``ValueError``, as in ``summarize``."""

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next queue offsets by topic and queue id."""

@final
class QueueNumbers:
    """Numbers the queues of rows, in order of appearance.

    Notes
    -----
    Threading: one thread at a time; ``number`` runs without the GIL.
    """

    def __init__(self) -> None: ...
    def number(self, buffer: Buffer, rows: Buffer, numbers: Buffer, /) -> None:
        """Write the queue's number of each row into ``numbers`` (int32, one for each row): -1 for a
        row without a unit in a queue, and for one whose record was overwritten. The other arguments
        as in ``summarize``.

        Raises
        ------
        ValueError
            As ``summarize``, and for ``numbers`` of another length.
        """

    def queues(self, first: int = 0, /) -> list[tuple[bytes, int]]:
        """Return the topic and queue id of the queues from number ``first`` on."""
