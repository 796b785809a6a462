"""Records of the log as Arrow record batches, by the Arrow PyCapsule interface.

The native body needs no Arrow library; the reference builds its batches with pyarrow. Columns are
those of ``rocketstore.display.columns.COLUMNS``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import final

from typing_extensions import Buffer

from rocketstore.display.columns import ExportsArray, ExportsSchema

@final
class BatchDecoder:
    """Fills record batches with the records of the log windows it is given.

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
        Of the queues named, only queue offsets ``first <= offset < last``.
    batch_rows : int
        Rows of a batch at most, 1 to 2**20.
    batch_bytes : int
        Bytes of texts, bodies, raw records and properties as stored in a batch at most, 1 to 2**29;
        a batch of one row may be longer. A host and a message id count 64.

    Raises
    ------
    ValueError, TypeError
        For columns that do not exist and filters of the wrong kind.

    Notes
    -----
    Timestamps are UTC in microseconds; those whose microseconds do not fit 64 bits are the nearest
    that do. Malformed UTF-8 is replaced as Java does. Of properties of one name the last value
    stands at the place of the first. Threading: one thread at a time.
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
        """Take the records from ``position`` on; returns (status, position of the next look).

        END: at ``stop``, or the next record begins at or behind the physical offset ``limit``.
        FULL: take the batch and call again. BLANK, EMPTY, INCOMPLETE, damage, FAULT: what lies at
        the position. Ghosts are passed over. ``flags`` are those of ``record.check_record``; the
        window is not kept.
        """

    @property
    def rows(self) -> int:
        """Rows waiting."""

    @property
    def schema(self) -> ExportsSchema:
        """The schema of the batches."""

    def take(self) -> ExportsArray:
        """The waiting rows as a record batch; the decoder begins a new one."""

def export_stream(schema: ExportsSchema, batches: Iterator[ExportsArray], /) -> object:
    """A C stream (PyCapsule ``arrow_array_stream``) of a decoder's batches.

    ``schema``: the decoder's. What the iterator raises ends the stream with its type and message
    as text.
    """
