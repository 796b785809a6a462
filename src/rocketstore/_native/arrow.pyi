"""Records of the log as Arrow record batches, through the Arrow PyCapsule interface.

The native body needs no Arrow library; the reference builds its batches with pyarrow. The
columns are those of ``rocketstore.display.columns.COLUMNS``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import final

from typing_extensions import Buffer

from rocketstore.display.columns import ExportsArray, ExportsSchema
from rocketstore.record_filters import CompiledFilter

@final
class BatchDecoder:
    """Fill record batches with records from windows of the log.

    Parameters
    ----------
    columns : sequence of str
        Names in ``COLUMNS``, in the order of the batches.
    topics, tags : iterable of str, optional
        Exact topics, exact tags; a record without tags does not match.
    keys : iterable of str, optional
        Matches the unique key and each of the space-separated keys.
    queue_ids : mapping of str to iterable of int, optional
        Only these queues of these topics.
    begin, end : int, optional
        Store times in epoch ms, ``begin <= time < end``.
    start_offsets : mapping of (str, int) to (int or None, int or None), optional
        Only queue offsets ``first <= offset < last`` of the named queues.
    filter : CompiledFilter, optional
        An SQL92 filter, evaluated last; its errors are counted with ``filter.count_errors``.
    batch_rows : int
        Most rows of a batch, 1 to 2**20.
    batch_bytes : int
        Most bytes of texts, bodies, raw records and properties (as stored) in a batch, 1 to
        2**29; a batch of one row may be longer. A host and a message id count 64.

    Raises
    ------
    ValueError, TypeError
        For unknown columns and filters of the wrong kind.

    Notes
    -----
    Timestamps are UTC in microseconds; a timestamp that does not fit 64 bits is clamped.
    Malformed UTF-8 is replaced as in Java. If a property name repeats, the first occurrence sets
    the place and the last one the value. Threading: one thread at a time.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topics: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        queue_ids: Mapping[str, Iterable[int]] | None = None,
        begin: int | None = None,
        end: int | None = None,
        start_offsets: Mapping[tuple[str, int], tuple[int | None, int | None]] | None = None,
        filter: CompiledFilter | None = None,
        batch_rows: int = 8192,
        batch_bytes: int = 4194304,
    ) -> None: ...
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
        """Add the records from ``position`` on; return (status, position to continue from).

        END: ``stop`` is reached, or the next record begins at or after the physical offset
        ``limit``. FULL: take the batch and call again. BLANK, EMPTY, INCOMPLETE, damage, FAULT: the
        status of the place at the returned position. Ghosts are skipped. ``flags`` are those of
        ``record.check_record``; the window is not kept.
        """

    @property
    def rows(self) -> int:
        """Rows not yet taken."""

    @property
    def schema(self) -> ExportsSchema:
        """The schema of the batches."""

    def take(self) -> ExportsArray:
        """Return the rows not yet taken as a record batch, and begin a new one."""

def export_stream(schema: ExportsSchema, batches: Iterator[ExportsArray], /) -> object:
    """Return a decoder's batches as a C stream (PyCapsule ``arrow_array_stream``).

    ``schema`` is the decoder's. An exception from the iterator ends the stream; the stream's error
    is its type and message.
    """
