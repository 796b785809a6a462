"""Log segments as readers see them, the messages they select from them, and where queues lie.

Native bodies read without the GIL and guarded; a mapped file that was shortened is not plain."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, final, overload

from typing_extensions import Buffer

from rocketstore._native.message import StoredMessage

_Answer = TypeVar("_Answer", bound=tuple[Any, ...])

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

    ``record`` and ``get_message`` answer only what is plain. They return ``None`` for anything else
    (damage, an expired record, an unknown segment, a file that is not mapped ...); the caller then
    looks closer. Threading: any thread."""

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

    def record(self, physical_offset: int) -> StoredMessage | None:
        """Return the record at ``physical_offset`` after the strict check; ``None`` if there is no
        whole and good one in a known segment."""

    def get_message(
        self,
        answer: type[_Answer],
        status: int,
        queue: QueuePlace,
        offset: int,
        max_count: int,
        max_nbytes: int,
        disk_below: int,
        max_disk_count: int,
        max_disk_nbytes: int,
    ) -> _Answer | None:
        """Select messages of ``queue`` from queue offset ``offset`` on, as ``select_messages``.

        Returns (status, next offset, min offset, max offset, messages) if there is a message and
        the pull ended because of a limit or at the end of the file or queue, else ``None``.
        ``answer`` is the type of the result: ``tuple``, or a named tuple with such fields."""

    def query_message(
        self,
        answer: type[_Answer],
        files: tuple[IndexPlace, ...],
        topic: str,
        key: str,
        max_count: int,
        begin: int,
        end: int,
    ) -> _Answer | None:
        """Find messages by the hash of ``topic#key`` as RocketMQ does, in ``files`` (oldest first)
        from the newest one on, at most ``max_count``, with times in whole seconds.

        Returns (messages by ascending offset, end time and end offset of the newest file) as an
        ``answer``, a type as in ``get_message``; zeros without a hit. ``None`` if a text is not
        ASCII, ``max_count`` is not in 1 .. 64, a chain is broken, or a record is not plain."""

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
