"""Staged dispatch of log records into consume-queue files and index files (one owner thread)."""

from collections.abc import Callable, Sequence
from typing import final

from typing_extensions import Buffer

@final
class Dispatcher:
    """Follows the log in batches. It pins the buffers it was given (``close()`` releases them).

    The result is as if records were dispatched one by one, each unit before its keys; batches do
    not change it. Queues have handles (int, dense from 0, one per (topic, queue id), never reused).
    Any thread may read ``next_index``, ``max_physical_offset`` and the properties; everything else
    is for one thread at a time (``RuntimeError`` if a second one is inside). After ``close()``
    every other method that changes something raises ``ValueError``."""

    @property
    def position_offset(self) -> int:
        """Physical offset up to which records are dispatched, units and keys."""
    @property
    def indexed_offset(self) -> int:
        """Records that start below this physical offset no longer need keys."""
    @property
    def indexed_keys(self) -> int:
        """Keys already put for the record that starts at ``indexed_offset``."""
    @property
    def last_store_timestamp(self) -> int:
        """Store time of the last record dispatched to a queue, 0 if none."""
    @property
    def last_record_offset(self) -> int:
        """Start of that record, -1 if none."""
    @property
    def stalled(self) -> tuple[bytes, int, int] | None:
        """(topic, queue_id, queue_offset) after NEED_QUEUE, QUEUE_GAP and NEED_EXT: the record's
        own, or those of a queue that it names."""
    @property
    def dispatched_count(self) -> int:
        """Records dispatched, without ghosts and unsafe topics."""
    @property
    def skipped_ghosts(self) -> int: ...
    @property
    def skipped_topics(self) -> int:
        """Records of unsafe topics."""
    @property
    def repeated_units(self) -> int:
        """Units skipped: queue offset below the queue's end, or record already in the queue."""
    @property
    def mended_units(self) -> int:
        """Units written while comparing: missing or different before (see ``set_compare``)."""
    @property
    def odd_names(self) -> int:
        """Records with at least one skipped name of another queue."""
    def take_odd_names(self) -> list[int]:
        """Return the physical offsets of such records since the last call, at most the first
        1024."""
    def __init__(
        self,
        *,
        index_enable: bool = True,
        index_tags: bool = True,
        delay_ms: Sequence[int] = (),
        multi_dispatch: int = 0,
        ext_file_nbytes: int = 0,
    ) -> None:
        """``multi_dispatch``: flags of ``status.MultiDispatch``; 0 puts units only into the
        records' own queues. ``ext_file_nbytes``: length of ext files; 0 puts tags codes into the
        units."""
    def set_queue(
        self,
        topic: bytes,
        queue_id: int,
        buffer: Buffer | None,
        first_index: int,
        next_index: int,
        max_physical_offset: int,
    ) -> int:
        """Register the queue's current file, or only its positions; return the handle.

        Unit ``first_index`` is at position 0 of ``buffer``. Without a buffer the next unit gives
        NEED_QUEUE, and the queue's ext buffer is also released (its offset stays). The old buffer
        is released. ``BufferError``: read-only or not contiguous. ``ValueError``: numbers out of
        range, or ``next_index`` neither in this file nor directly after it."""
    def remove_queue(self, topic: bytes, queue_id: int) -> None:
        """Remove the queue and release its buffer; do nothing if it is unknown."""
    def handle(self, topic: bytes, queue_id: int) -> int:
        """Return the handle of a queue, -1 if it is unknown."""
    def next_index(self, handle: int) -> int:
        """Return the next unit's number. ``ValueError`` for an unknown or removed handle."""
    def next_index_of(self, handle: int) -> Callable[[], int]:
        """Return a callable that returns ``next_index(handle)``."""
    def max_physical_offset(self, handle: int) -> int:
        """Return the end (offset + size) of the last record in the queue, -1 if none."""
    def set_shifted(self, handle: int) -> None:
        """From now on, append multi-dispatched records with too high a queue offset to this queue's
        end, without a QUEUE_GAP."""
    def set_ext(self, handle: int, buffer: Buffer, file_offset: int, offset: int) -> None:
        """Set the ext file for the queue's next ext unit.

        The file begins at ``file_offset`` of the queue's ext files, at position 0 of ``buffer``,
        which may be shorter than the file; the next unit goes to ``offset``. The old buffer is
        released. ``ValueError``: unknown handle, no ext files, ``offset`` outside."""
    def ext_offset(self, handle: int) -> int:
        """Offset of the queue's next ext unit, -1 before ``set_ext``."""
    def trust_ext(self, handle: int, index: int) -> None:
        """Trust the ext addresses in the queue's units below ``index``."""
    def set_compare(self, compare: bool) -> None:
        """While set, an existing unit with its record's tags code or a trusted ext address is kept,
        and a different one is rewritten. If an ext unit is needed, an existing one with the
        record's tags code and store time is kept with its bit map. After a wrong unit among trusted
        ones, ``ext_offset`` is -1 again."""
    def set_filters(
        self, bit_map_nbytes: int, filters: Sequence[tuple[bytes, bytes | None, bytes, int]]
    ) -> None:
        """Replace the filters that make the bit maps of later ext units.

        Each is (topic, program, bits, born_time). A record of the topic that was stored after the
        ``born_time`` of at least one filter gets a bit map of ``bit_map_nbytes``: the ``bits``, of
        the same length, of all filters that are older than the record and whose program is TRUE for
        its properties. Without a program a filter sets no bit. All other records get no bit map. If
        it is too long for a unit, plain tags codes are put. ``ValueError``: bits of another length,
        or bytes that are no program; nothing changes then."""
    @property
    def filter_errors(self) -> int:
        """Evaluations so far in which RocketMQ's evaluator raises."""
    @property
    def newest_ext_timestamp(self) -> int:
        """The largest store time of the records that got an ext unit, 0 if none did."""
    def set_index(
        self,
        buffer: Buffer | None,
        slots: int,
        entries: int,
        indexed_offset: int,
        indexed_keys: int | None = None,
    ) -> None:
        """Set the index file that takes the next keys; None: the next key gives NEED_INDEX.

        ``indexed_offset``: records starting below it are not indexed again. ``indexed_keys``:
        number of keys of the record starting there that are in older files. None keeps the
        dispatcher's number if ``indexed_offset`` does not change, else 0."""
    def dispatch(
        self,
        buffer: Buffer,
        position: int,
        stop: int,
        base_offset: int,
        segment_end: int,
        max_count: int = 4096,
    ) -> tuple[int, int]:
        """Dispatch records from ``position``; return (next_position, status).

        NOT and COMMIT records become units, deduplicated like ConsumeQueue.putMessagePositionInfo:
        a record ending at or below max_physical_offset, or a queue offset below the queue's end,
        counts as repeated. All but ROLLBACK records are indexed (UNIQ_KEY, KEYS items, with
        index_tags topic#T#TAGS). With ``multi_dispatch``, the queues that INNER_MULTI_DISPATCH
        names get a unit with the plain tags code after the record's own unit. A name counts if it
        can be a folder and the other list has a number at the same place; the queue id is 0 for
        %LMQ% names. ``odd_names`` counts records with a skipped name or lists of different lengths.
        With ext files a record's own unit carries the address of its ext unit. GHOST and
        UNSAFE_TOPIC records are skipped and counted, NUL_PROPERTIES dispatched. Only a ghost's body
        CRC is checked.

        Statuses: OK (max_count reached), END (stop reached), BLANK, EMPTY, INCOMPLETE, damage,
        NEED_QUEUE (no file, or a full one), NEED_EXT (the same for ext units), NEED_INDEX,
        QUEUE_GAP. After a NEED_* set the file and repeat the call; nothing is put twice, even if a
        record's keys are split over two index files. At a QUEUE_GAP the caller first fills the gap
        (fill_units, set_queue)."""
    def close(self) -> None:
        """Release all buffers; idempotent. ``next_index`` and the properties stay readable."""
