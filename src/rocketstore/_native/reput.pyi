"""Staged dispatch of log records into consume-queue files and index files (one owner thread)."""

from collections.abc import Sequence

from typing_extensions import Buffer

class Dispatcher:
    """Follows the log in batches. It pins the buffers it was given (``close()`` releases them).

    The outcome is that of one record after the other, its unit before its keys, whatever is batched inside.
    Queues are known by handle (int, dense from 0, one per (topic, queue id), never used twice). ``next_index``
    and ``max_physical_offset`` may be read from any thread; everything else belongs to one thread at a time
    (``RuntimeError`` when a second one is inside ``dispatch``). After ``close()`` every other method that
    changes something raises ``ValueError``."""

    position_offset: int       # physical offset up to which the last dispatch got, units and keys
    indexed_offset: int        # same for keys: records that start below it need no key any more
    indexed_keys: int          # keys already put of the record that starts at indexed_offset
    last_store_timestamp: int  # of the last record that went into a queue (0: none yet)
    last_record_offset: int    # start of that record (-1: none yet)
    stalled: tuple[bytes, int, int] | None   # (topic, queue_id, queue_offset) behind NEED_QUEUE / QUEUE_GAP
    dispatched_count: int      # records done, without ghosts and unsafe topics
    skipped_ghosts: int
    skipped_topics: int        # records of unsafe topics
    repeated_units: int        # queue offset below the queue's end, or record already in the queue
    def __init__(self, *, index_enable: bool = True, index_tags: bool = True, delay_ms: Sequence[int] = ()) -> None: ...
    def set_queue(self, topic: bytes, queue_id: int, buffer: Buffer | None, first_index: int,
                  next_index: int, max_physical_offset: int) -> int:
        """Register the queue's current file (unit ``first_index`` lies at position 0 of ``buffer``), or
        only its positions (buffer None: the next unit answers NEED_QUEUE). Returns the handle. Replacing
        a buffer releases the old one. ``ValueError``: a buffer that is read-only or not contiguous,
        numbers out of range, ``next_index`` not in this file or directly behind it."""
    def remove_queue(self, topic: bytes, queue_id: int) -> None:
        """Forget the queue and release its buffer; nothing happens when it is unknown."""
    def handle(self, topic: bytes, queue_id: int) -> int:
        """-1 when unknown."""
    def next_index(self, handle: int) -> int:
        """``ValueError`` for a handle that is unknown or removed."""
    def max_physical_offset(self, handle: int) -> int:
        """End (offset + size) of the last record in the queue, -1 for none."""
    def set_index(self, buffer: Buffer | None, slots: int, entries: int, indexed_offset: int,
                  indexed_keys: int | None = None) -> None:
        """``indexed_offset``: records starting below it are not indexed again. ``indexed_keys``: how many
        keys of the record starting there are in older files; None keeps what the dispatcher knows when
        ``indexed_offset`` stays as it is, else 0."""
    def dispatch(self, buffer: Buffer, position: int, stop: int, base_offset: int, segment_end: int,
                 max_count: int = 4096) -> tuple[int, int]:
        """Dispatch records from ``position``: NOT and COMMIT records become units (dedupe as
        ConsumeQueue.putMessagePositionInfo: a record ending at or below max_physical_offset or a queue
        offset below the queue's end counts as repeated), all but ROLLBACK records
        are indexed (UNIQ_KEY, KEYS items, with index_tags topic#T#TAGS). GHOST and UNSAFE_TOPIC
        records are skipped and counted, NUL_PROPERTIES dispatched. No CRC is checked.
        Returns (next_position, status): OK (max_count reached), END (stop reached), BLANK, EMPTY, INCOMPLETE,
        damage, NEED_QUEUE, NEED_INDEX, QUEUE_GAP. After a NEED_* the same call is repeated once the
        file was set; nothing is put twice, also when a record's keys split over two index files.
        FULL queue file: NEED_QUEUE. QUEUE_GAP: the caller fills the gap (fill_units + set_queue) first."""
    def close(self) -> None:
        """Release all buffers; idempotent. ``next_index`` and ``max_physical_offset`` still answer."""
