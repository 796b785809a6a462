"""Log segments as readers see them, the messages they select from them, where queues lie, and plain
calls of a store.

A plain call finds whole and good records in segments and files that were read before. The native
body reads without the GIL and guarded, and leaves anything else (damage, an expired record, a
segment that is not known, a file that is not mapped or was shortened ...) to the method that the
call decorates. The reference leaves everything to it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, final, overload

from typing_extensions import Buffer

from rocketstore._native.message import StoredMessage

_Method = TypeVar("_Method", bound=Callable[..., Any])

class QueuePlace:
    """Where the units of a queue are: its bounds and the file that was read last.

    ``min_index`` is the queue offset of the first unit whose message is still in the log;
    ``recovered_index`` the one after the last unit while nothing is dispatched, and ``next_index``
    a callable that returns it otherwise. ``recent`` is the file that was read last (any object with
    ``mapped``, its buffer or ``None``, and ``was_used``, which a pull sets), with the queue offsets
    of its first unit and after its last; ``None`` for none. Threading: any thread."""

    min_index: int
    recovered_index: int
    next_index: Callable[[], int] | None
    recent: tuple[Any, int, int] | None

    def __init__(self, topic: bytes, queue_id: int) -> None: ...
    @property
    def topic_bytes(self) -> bytes: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def max_index(self) -> int:
        """Queue offset of the next message."""

class IndexPlace:
    """Where an index file is: ``file`` (any object with ``mapped``, its buffer or ``None``) and its
    geometry."""

    def __init__(self, file: Any, slots: int, entries: int) -> None: ...
    @property
    def file(self) -> Any: ...
    @property
    def slots(self) -> int: ...
    @property
    def entries(self) -> int: ...

class Window:
    """A segment's readable bytes, pinned: ``buffer`` begins at physical offset ``base_offset`` and
    is readable up to position ``stop``; the segment ends at physical offset ``segment_end``.
    ``flags`` are the ``RecordFlags`` of the strict check; the log begins at ``min_offset``.
    ``ValueError``: the numbers do not fit the buffer. Threading: any thread."""

    def __init__(
        self,
        buffer: Buffer,
        base_offset: int,
        segment_end: int,
        stop: int,
        flags: int,
        min_offset: int,
    ) -> None: ...
    @property
    def buffer(self) -> Any: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def segment_end(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    def gone(self, position: int) -> Exception:
        """Build the error for a record that was checked and no longer exists; a subclass may
        override it."""

    def message(self, position: int) -> StoredMessage:
        """Return the record at ``position``, which the caller has checked. Raises ``gone``."""

class Windows:
    """The segments that were read, by physical offset; each has ``segment_nbytes`` bytes.
    Threading: any thread."""

    def __init__(self, segment_nbytes: int) -> None: ...
    @property
    def segment_nbytes(self) -> int: ...
    def add(self, window: Window) -> None:
        """Keep a window instead of the segment's former one."""

    def discard(self, base_offset: int) -> None:
        """Forget the segment that begins at ``base_offset``."""

    def clear(self) -> None:
        """Forget all segments."""

    def get(self, physical_offset: int) -> Any:
        """Return the ``Window`` in which an offset can be read; ``None`` if none is known."""

@final
class MessageList(Sequence[StoredMessage]):
    """Selected messages; each ``StoredMessage`` is created on access. Access raises the window's
    ``gone`` if another process has overwritten the message since."""

    def add(self, window: Window, rows: bytearray, count: int) -> None:
        """Append ``count`` rows of ``formats.SELECTED_MESSAGE`` whose records lie in ``window``."""

    def extend(self, other: MessageList) -> None:
        """Append the messages of another list."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[StoredMessage]: ...
    @overload
    def __getitem__(self, index: int, /) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[StoredMessage]: ...

class ReaderPlace:
    """Where a store's reader, which derives from it, finds what plain calls need.

    ``log`` has ``windows`` (a ``Windows``), ``damage`` (a dict), ``queue.files_end`` and
    ``max_offset``; ``queues`` has a ``QueuePlace`` by (topic, queue id), each with ``ext`` and
    ``pull_looks_no_further``; ``index`` has ``files``, a tuple of ``IndexPlace``, and ``gaps``.
    ``limits`` are those of a pull in the order of ``BatchLimits``, ``max_hits`` that of a query.
    Filters of the type ``tag_filter`` select by ``tags_codes`` alone, unless they are ``exact``.
    Filters of the type ``sql_filter`` (``None``: not used yet) are ``CompiledFilter``s, for queues
    without ``ext``. ``found`` is the status of a pull that
    found messages, ``unmatched`` of one whose filter matches none that it examined; ``answers`` are
    the types of its result and of a query's, named tuples.
    ``found_times`` and ``missed_times`` count pulls by their answers, ``transferred_times`` the
    messages that they returned; ``longest_ms`` is the longest pull of a sample, one of 256.
    Threading: any thread."""

    sql_filter: type | None
    found_times: int
    missed_times: int
    transferred_times: int
    longest_ms: int

    def __init__(
        self,
        *,
        log: Any,
        queues: dict[tuple[str, int], Any],
        index: Any,
        limits: tuple[int, ...],
        max_hits: int,
        tag_filter: type,
        found: int,
        unmatched: int,
        answers: tuple[type, type],
    ) -> None: ...
    @property
    def log(self) -> Any: ...
    @property
    def index(self) -> Any: ...
    def narrow(
        self, queue: QueuePlace, low: int, high: int, timestamp: int, upper: bool
    ) -> tuple[int, int]:
        """Narrow a binary search in ``low`` .. ``high`` for the first queue offset whose store time
        is at least ``timestamp``, or later than it if ``upper``, as far as steps are plain."""

# Each decorates a method of a store: an object with ``_reader``, a ``ReaderPlace``, and
# ``_closed``. In a closed store, and in a forked child, no call is plain.

def get_message(method: _Method) -> _Method:
    """Answer pulls without a filter, and with one that selects by tags codes or a program alone. A
    str as filter is first given to the store's ``filter``."""

def query_message(method: _Method) -> _Method:
    """Answer queries in ASCII with at most 64 hits."""

def find(method: _Method) -> _Method:
    """Answer searches for a topic and a key alone, in ASCII, with at most 64 hits by hash."""

def look_message_by_offset(method: _Method) -> _Method:
    """Answer look-ups that find a record."""

def look_message_by_id(method: _Method) -> _Method:
    """Answer look-ups that find a record."""
