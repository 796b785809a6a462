"""Staged dispatch of log records into consume-queue files and index files (one owner thread)."""

from collections.abc import Buffer, Sequence

class Dispatcher:
    """Follows the log in batches. It pins the buffers it was given (``close()`` releases them).

    Queues are known by handle (int, dense from 0, one per (topic, queue id)). ``next_index`` and
    ``max_physical_offset`` may be read from any thread; everything else belongs to one thread at a time
    (``RuntimeError`` when a second one is inside ``dispatch``)."""

    position_offset: int       # physical offset up to which everything was dispatched
    indexed_offset: int        # same for keys: records that start below it need no key any more
    last_store_timestamp: int  # of the last record that went into a queue
    last_record_offset: int    # start of that record
    stalled: tuple[bytes, int, int] | None   # (topic, queue_id, queue_offset) behind NEED_QUEUE / QUEUE_GAP
    dispatched_count: int
    skipped_ghosts: int
    skipped_topics: int        # records of unsafe topics
    repeated_units: int        # queue offset below the queue's end, or record already in the queue
    def __init__(self, *, index_enable: bool = True, index_tags: bool = True, delay_ms: Sequence[int] = ()) -> None: ...
    def set_queue(self, topic: bytes, queue_id: int, buffer: Buffer | None, first_index: int,
                  next_index: int, max_physical_offset: int) -> int:
        """Register the queue's current file (unit ``first_index`` lies at position 0 of ``buffer``), or
        only its positions (buffer None: the next unit answers NEED_QUEUE). Returns the handle. Replacing
        a buffer releases the old one."""
    def remove_queue(self, topic: bytes, queue_id: int) -> None: ...
    def handle(self, topic: bytes, queue_id: int) -> int:
        """-1 when unknown."""
    def next_index(self, handle: int) -> int: ...
    def max_physical_offset(self, handle: int) -> int:
        """End (offset + size) of the last record in the queue, -1 for none."""
    def set_index(self, buffer: Buffer | None, slots: int, entries: int, indexed_offset: int) -> None:
        """``indexed_offset``: records starting below it are not indexed again."""
    def dispatch(self, buffer: Buffer, position: int, stop: int, base_offset: int, segment_end: int,
                 max_count: int = 4096) -> tuple[int, int]:
        """Dispatch records from ``position``: NOT and COMMIT records become units (dedupe as
        ConsumeQueue.putMessagePositionInfo: a record ending at or below max_physical_offset or a queue
        offset below the queue's end counts as repeated; a queue offset 0 unit is appended wherever the
        queue ends only if the queue is empty, otherwise it counts as repeated), all but ROLLBACK records
        are indexed (UNIQ_KEY, KEYS items, with index_tags topic#T#TAGS). GHOST and UNSAFE_TOPIC
        records are skipped and counted, NUL_PROPERTIES dispatched. No CRC is checked.
        Returns (next_position, status): OK (max_count), END (stop reached), BLANK, EMPTY, INCOMPLETE,
        damage, NEED_QUEUE, NEED_INDEX, QUEUE_GAP. After a NEED_* the same call is repeated once the
        file was set; nothing is put twice, also when a record's keys split over two index files.
        FULL queue file: NEED_QUEUE. QUEUE_GAP: the caller fills the gap (fill_units + set_queue) first."""
    def close(self) -> None: ...
