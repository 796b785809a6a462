"""Staged dispatch of log records into consume-queue files and index files (one owner thread)."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

@final
class Dispatcher:
    """Follows the log in batches. It pins the buffers it was given (``close()`` releases them).

    The outcome is that of one record after the other, its unit before its keys, whatever is batched
    inside. Queues are known by handle (int, dense from 0, one per (topic, queue id), never used
    twice). ``next_index``, ``max_physical_offset`` and the properties may be read from any thread;
    everything else belongs to one thread at a time (``RuntimeError`` when a second one is inside).
    After ``close()`` every other method that changes something raises ``ValueError``."""

    @property
    def position_offset(self) -> int:
        """Physical offset up to which the last dispatch got, units and keys."""
    @property
    def indexed_offset(self) -> int:
        """Records that start below this physical offset need no key any more."""
    @property
    def indexed_keys(self) -> int:
        """Keys already put of the record that starts at ``indexed_offset``."""
    @property
    def last_store_timestamp(self) -> int:
        """Of the last record that went into a queue, 0 for none yet."""
    @property
    def last_record_offset(self) -> int:
        """Start of that record, -1 for none yet."""
    @property
    def stalled(self) -> tuple[bytes, int, int] | None:
        """(topic, queue_id, queue_offset) behind NEED_QUEUE, QUEUE_GAP and NEED_EXT: the record's
        own, or those of a queue that it names."""
    @property
    def dispatched_count(self) -> int:
        """Records done, without ghosts and unsafe topics."""
    @property
    def skipped_ghosts(self) -> int: ...
    @property
    def skipped_topics(self) -> int:
        """Records of unsafe topics."""
    @property
    def repeated_units(self) -> int:
        """Queue offset below the queue's end, or record already in the queue."""
    @property
    def mended_units(self) -> int:
        """Units that were put while comparing: missing before, or others (see ``set_compare``)."""
    @property
    def odd_names(self) -> int:
        """Records some of whose names of other queues were passed over."""
    def take_odd_names(self) -> list[int]:
        """Physical offsets of such records since the last call, the first 1024 of them."""
    def __init__(
        self,
        *,
        index_enable: bool = True,
        index_tags: bool = True,
        delay_ms: Sequence[int] = (),
        multi_dispatch: int = 0,
        ext_file_nbytes: int = 0,
    ) -> None:
        """``multi_dispatch``: flags of ``status.MultiDispatch``; 0 puts units into the records' own
        queues only. ``ext_file_nbytes``: length of ext files; 0 puts tags codes into the units."""
    def set_queue(
        self,
        topic: bytes,
        queue_id: int,
        buffer: Buffer | None,
        first_index: int,
        next_index: int,
        max_physical_offset: int,
    ) -> int:
        """Register the queue's current file, or only its positions; returns the handle.

        Unit ``first_index`` lies at position 0 of ``buffer``; without one the next unit answers
        NEED_QUEUE, and the queue's ext buffer is released as well (its offset stays). The buffer
        set before is released. ``BufferError``: read-only or not contiguous.
        ``ValueError``: numbers out of range, or ``next_index`` neither in this file nor directly
        behind it."""
    def remove_queue(self, topic: bytes, queue_id: int) -> None:
        """Forget the queue and release its buffer; nothing happens when it is unknown."""
    def handle(self, topic: bytes, queue_id: int) -> int:
        """-1 when unknown."""
    def next_index(self, handle: int) -> int:
        """``ValueError`` for a handle that is unknown or removed."""
    def max_physical_offset(self, handle: int) -> int:
        """End (offset + size) of the last record in the queue, -1 for none."""
    def set_shifted(self, handle: int) -> None:
        """Let multi-dispatched records with too high a queue offset go to this queue's end from now
        on, without a QUEUE_GAP."""
    def set_ext(self, handle: int, buffer: Buffer, file_offset: int, offset: int) -> None:
        """Set the ext file that takes the queue's next ext unit.

        The file begins at ``file_offset`` of the queue's ext files, at position 0 of ``buffer``,
        which may be shorter than the file; the next unit goes to ``offset``. The buffer set before
        is released. ``ValueError``: unknown handle, no ext files, ``offset`` outside."""
    def ext_offset(self, handle: int) -> int:
        """Offset of the queue's next ext unit, -1 before ``set_ext``."""
    def trust_ext(self, handle: int, index: int) -> None:
        """Tell that ext addresses in the queue's units below ``index`` are good."""
    def set_compare(self, compare: bool) -> None:
        """While set, a unit that is there already, with its record's tags code or a trusted ext
        address, is not written again, and one that says something else is mended. Where an ext unit
        has to be put, one with the record's tags code and store time is kept with its bit map;
        behind a unit among trusted ones that says something else, ``ext_offset`` is -1 again."""
    def set_bit_map(self, bit_map: bytes | None) -> None:
        """Bit map of all ext units put from now on; one too long for a unit puts plain tags
        codes."""
    def set_index(
        self,
        buffer: Buffer | None,
        slots: int,
        entries: int,
        indexed_offset: int,
        indexed_keys: int | None = None,
    ) -> None:
        """Set the index file that takes the next keys; None: the next key answers NEED_INDEX.

        ``indexed_offset``: records starting below it are not indexed again. ``indexed_keys``: how
        many keys of the record starting there are in older files; None keeps what the dispatcher
        knows when ``indexed_offset`` stays as it is, else 0."""
    def dispatch(
        self,
        buffer: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        max_count: int = 4096,
    ) -> tuple[int, int]:
        """Dispatch records from ``position``; returns (next_position, status).

        NOT and COMMIT records become units, deduped as ConsumeQueue.putMessagePositionInfo does: a
        record ending at or below max_physical_offset, or a queue offset below the queue's end,
        counts as repeated. All but ROLLBACK records are indexed (UNIQ_KEY, KEYS items, with
        index_tags topic#T#TAGS). With ``multi_dispatch``, the queues that INNER_MULTI_DISPATCH
        names (those that can be folders, with a number at the same place of the other list; queue
        id 0 for %LMQ% names) get a unit with the plain tags code behind the record's own; where a
        name is passed over, or the lists are of different lengths, ``odd_names`` counts it. With
        ext files a record's own unit carries the address of its ext unit. GHOST and UNSAFE_TOPIC
        records are skipped and counted, NUL_PROPERTIES dispatched. No CRC is checked, but a ghost's
        body CRC.

        Statuses: OK (max_count reached), END (stop reached), BLANK, EMPTY, INCOMPLETE, damage,
        NEED_QUEUE (no file, or a full one), NEED_EXT (the same for ext units), NEED_INDEX,
        QUEUE_GAP. After a NEED_* the same call is repeated once the file was set; nothing is put
        twice, also when a record's keys split over two index files. At a QUEUE_GAP the caller fills
        the gap first (fill_units, set_queue)."""
    def close(self) -> None:
        """Release all buffers; idempotent. ``next_index`` and the properties still answer."""
