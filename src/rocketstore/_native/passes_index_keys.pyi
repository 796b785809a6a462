"""The keys of the log's records, as index entries are made of them: gathered in one pass over
windows of the log, and compared with entries."""

from typing import final

from typing_extensions import Buffer

#: No record has more keys.
MAX_RECORD_KEYS: int

@final
class IndexKeysPass:
    """Gathers, in the order of the log, one (hash, physical offset, store time) for each key of
    each record: the unique key, each key of KEYS, and with ``index_tags`` the tags (5.4 and
    later); none of ROLLBACK records, ghosts and records whose topic names no directory.

    Parameters
    ----------
    index_tags : bool
        Also one key for the tags.
    mark_tags : bool
        Set the sign bit of a tag key's hash.
    counts_only : bool
        Count keys, keep none.
    capacity : int
        Keys to be gathered before they must be taken: at least ``MAX_RECORD_KEYS``, as a record's
        keys are not divided; with ``counts_only`` 1, and then a record's keys may go beyond.
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
        """Take the records that lie in ``window[position:stop]`` and begin in front of the
        physical offset ``limit``; byte 0 of the window lies at ``base_offset``. Returns (status,
        position): END, INCOMPLETE, BLANK, EMPTY, FULL (64: take the keys and call again from
        there) or what is wrong there. ``flags``: ``RecordFlags``. ``ValueError`` when the
        positions do not lie in the window."""

    def take(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the keys gathered and forget them: hashes (int32), physical offsets and store
        times (int64), views that are good until the next ``consume``. ``ValueError`` with
        ``counts_only``."""

    def take_count(self) -> int:
        """Return the number of keys gathered and forget them."""

    @property
    def count(self) -> int:
        """Keys gathered since the last ``take``."""

    @property
    def records(self) -> int:
        """Records passed in all, those without keys included."""

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
    """Step through index entries (20 bytes each, as they lie in the file; from number ``entry`` of
    the buffer) and keys (from ``key``) as long as hash, physical offset and seconds since
    ``begin_timestamp`` agree. A key with a marked hash may have no entry, where the next one is of
    a later record. Returns (entry, key) where they part, or one of them ends. ``ValueError`` for
    numbers outside the arrays, and arrays of unequal length."""
