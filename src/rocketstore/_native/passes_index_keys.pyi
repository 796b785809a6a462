"""The index keys of the log's records: gathered in one pass over windows of the log, and compared
with index entries."""

from typing import final

from typing_extensions import Buffer

#: No record has more keys.
MAX_RECORD_KEYS: int

@final
class IndexKeysPass:
    """Gather one (hash, physical offset, store time) for each key of each record, in log order.

    Keys are the unique key, each key of KEYS and, with ``index_tags``, the tags (5.4 and later).
    ROLLBACK records, ghosts and records whose topic names no directory have none.

    Parameters
    ----------
    index_tags : bool
        Also one key for the tags.
    mark_tags : bool
        Set the sign bit of a tag key's hash.
    counts_only : bool
        Count keys without keeping them.
    capacity : int
        Room for keys until ``take``: at least ``MAX_RECORD_KEYS``, since a record's keys are not
        split. With ``counts_only`` at least 1, and the keys of a record may exceed it.
        ``ValueError`` otherwise.

    Notes
    -----
    Threading: one thread at a time (``RuntimeError``); consuming runs without the GIL.
    """

    def __init__(
        self,
        *,
        index_tags: bool = True,
        mark_tags: bool = False,
        counts_only: bool = False,
        capacity: int = 65536,
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
        """Process the records in ``window[position:stop]`` that begin before the physical offset
        ``limit``; byte 0 of the window is at ``base_offset``. Return (status, position): END,
        INCOMPLETE, BLANK, EMPTY, FULL (64: take the keys and continue from there) or the status of
        a corrupt record there. ``flags``: ``RecordFlags``. ``ValueError`` if the positions are not
        in the window."""

    def consume_rows(self, buffer: Buffer, rows: Buffer, first: int = 0, /) -> int:
        """Process the records that ``scan_records`` described by ``rows``, with their properties
        parsed, from row ``first`` on; ``buffer`` is the window that was scanned. A record that
        was overwritten since has no keys. Return the number of rows, or that of a row without room
        for its keys: take the keys and continue there. ``ValueError`` if a row's topic or keys are
        not in the buffer; the rows before it are taken."""

    def take(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the keys gathered and clear them: hashes (int32), physical offsets and store times
        (int64), as views that are valid until the next ``consume``. ``ValueError`` with
        ``counts_only``."""

    def take_count(self) -> int:
        """Return the number of keys gathered and reset it."""

    @property
    def count(self) -> int:
        """Keys gathered since the last ``take``."""

    @property
    def records(self) -> int:
        """Records passed in total, including those without keys."""

    @property
    def next_offset(self) -> int:
        """Physical offset where the last ``consume`` stopped; -1 before the first."""

def match_entries(
    entries: Buffer,
    entry: int,
    hashes: Buffer,
    offsets: Buffer,
    timestamps: Buffer,
    key: int,
    begin_timestamp: int,
    /,
) -> tuple[int, int]:
    """Step through index entries (20 bytes each, as in the file, from number ``entry`` of the
    buffer) and keys (from ``key``) while hash, physical offset and seconds since
    ``begin_timestamp`` agree. A key with a marked hash may have no entry if the next entry belongs
    to a later record. Return (entry, key) where they differ or one of them ends. ``ValueError`` for
    numbers outside the arrays, and arrays of unequal length."""
