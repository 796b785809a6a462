"""The undecided transactions of one log, and the appends that begin, decide and copy them.

A *half message* is a record of the half topic; ``key`` is the queue offset of the first one that is
known of a transaction, and names it. Copies of it count checks. A transaction is decided once its
committed message is in the log, or, rolled back, once an op message names its newest half message.
Both bodies append the same bytes.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from typing_extensions import Buffer

from rocketstore._native.put_result import PutMessageResult

#: Columns of the table of undecided transactions: ``key``; of the newest half message
#: ``queue_offset, offset, nbytes, store_timestamp, born_timestamp, checks``; ``immunity_ms`` (-1:
#: none of its own), ``group`` (a number, see ``Ledger.groups``) and ``is_asked`` (0 or 1: a
#: callback of this process was asked).
COLUMNS: tuple[str, ...]

def immunity_ms(text: str | None) -> int:
    """Return the milliseconds of CHECK_IMMUNITY_TIME_IN_SECONDS; -1 without a valid one."""

class Transaction:
    """A transaction. A subclass replaces ``_resolve``."""

    def __init__(self, ledger: Any, key: int, offset: int) -> None:
        """``ledger`` has ``decide`` and ``wait_for``; ``offset`` is the half message's in the
        log."""
    @property
    def ledger(self) -> Any: ...
    @property
    def key(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def result(self) -> PutMessageResult | None:
        """The outcome of storing the half message; ``None`` if this object did not begin it."""
    @property
    def known(self) -> tuple[int, PutMessageResult | None]:
        """State (``TransactionState``) and outcome of the commit, as this object knows them."""
    def settle(self, state: int, outcome: PutMessageResult | None, end: int = 0) -> None:
        """Take a decision that was made through another object and is in the log up to ``end``."""
    def commit(self, *, _wait: Callable[[int], int] | None = None) -> PutMessageResult:
        """Store the message on its own topic, and note the decision; return the outcome.

        A transaction that is committed returns the first outcome again, with the status of this
        call's wait. One that is rolled back or discarded raises ``TransactionStateError``. If the
        message is refused, the outcome says so and the transaction stays undecided, as it does with
        a ``TransactionError``: the half message is damaged, or names no topic and queue that take
        it. With SYNC_FLUSH the decision is on disk when the call
        returns, or the outcome's status is FLUSH_DISK_TIMEOUT. ``_wait`` replaces that wait."""
    def rollback(self, *, _wait: Callable[[int], int] | None = None) -> None:
        """Note that the message is not to be stored; again does nothing.

        A committed or discarded transaction raises ``TransactionStateError``; ``TransactionError``
        if the decision cannot be stored."""

@final
class Ledger:
    """The undecided transactions of one log; any number of threads may call."""

    batch: Any
    """Has ``join``, ``offsets`` and ``write``, see ``OpBatch``; ``None``: one op message for each
    decision."""
    book: Any
    """For the use of ``kind``."""
    def __init__(
        self,
        appender: Any,
        *,
        kind: type[Any],
        read: Callable[[int, int], Any],
        wait: Callable[[int], int] | None = None,
        unique_key_maker: Callable[[], str] | None = None,
        broker_version: str = "5.3.3",
        op_nbytes: int = 4096,
    ) -> None:
        """``kind``: subclass of ``Transaction`` that ``begin`` returns. ``read(offset, nbytes)``
        returns the bytes of a record. ``wait(end_offset)`` waits for the disk, as of ``Appender``.
        ``op_nbytes`` limits the body of an op message that names several half messages."""
    def __len__(self) -> int: ...
    @property
    def groups(self) -> list[str]:
        """Producer groups; their place is the number in the column ``group``."""
    def group_number(self, group: str) -> int:
        """Return the number of a producer group, a new one if needed."""
    def add(
        self,
        key: int,
        queue_offset: int,
        offset: int,
        nbytes: int,
        store_timestamp: int,
        born_timestamp: int,
        checks: int,
        immunity_ms: int,
        group: int,
        /,
    ) -> None:
        """Add a transaction by its columns, but the last."""
    @property
    def beginning(self) -> int:
        """Calls of ``begin`` whose half message may be in the log, but not yet in the table."""
    def has(self, key: int) -> bool:
        """Return whether the transaction is undecided."""
    def row(self, key: int) -> tuple[int, ...] | None:
        """Return the columns of one transaction; ``None`` if it is decided."""
    def columns(self) -> dict[str, array[int]]:
        """Return a copy of the table by columns of 64 bits, ascending by ``key``."""
    def key_of(self, queue_offset: int) -> int | None:
        """Return the key of the transaction whose first or newest half message it is."""
    def note_asked(self, key: int) -> None:
        """Set ``is_asked``."""
    def remove(self, key: int) -> bool:
        """Remove a transaction; return whether it was there."""
    @property
    def min_queue_offset(self) -> int:
        """Least queue offset of a newest half message; -1 without undecided transactions."""
    def forget(self, key: int) -> bool:
        """Remove a transaction that no thread decides, after waiting for one that does; return
        whether it was there. ``ReentrantCallError`` if this thread decides it."""
    def owe(self, queue_offsets: Iterable[int]) -> None:
        """Name these decided half messages in the next op message."""
    def disown(self, queue_offset: int) -> bool:
        """Take one of them back; return whether no op message names it. Wait for a thread that
        writes op messages."""
    @property
    def owed(self) -> list[int]:
        """Queue offsets of decided half messages that no op message names yet."""
    def write_ops(self, wait: Callable[[int], int] | None) -> int:
        """Append op messages for what is owed; return the log's end after them, 0 without any.

        Stop at one that is refused: the rest stays owed."""
    @property
    def waiting(self) -> int:
        """Threads that wait for the disk after a decision."""
    def wait_for(self, end: int, wait: Callable[[int], int] | None) -> int:
        """Wait until the log is on disk up to ``end`` as a put would; return its status."""
    def begin(
        self,
        topic: str,
        body: Buffer,
        *,
        group: str,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        delay_level: int = 0,
        wait_store_msg_ok: bool = True,
        unique_key: str | bool | None = True,
        _wait: Callable[[int], int] | None = None,
    ) -> Any:
        """Append the half message of a new transaction; return an object of ``kind``.

        ``ValueError`` with a delay level, ``TransactionError`` if the record is refused."""
    def decide(
        self, transaction: Any, wanted: int, wait: Callable[[int], int] | None
    ) -> tuple[bool, PutMessageResult | None]:
        """Decide (COMMIT or ROLLBACK) and settle a transaction.

        Return whether it was undecided, and the outcome of a commit that was refused. Of several
        calls at once one decides; the others wait for it. ``ReentrantCallError`` if this thread
        was interrupted while it decided the same transaction."""
    def put_copy(
        self, key: int, checks: int, wait: Callable[[int], int] | None
    ) -> PutMessageResult | None:
        """Append a copy of the half message with this count of checks, and make it the newest.

        Without a unique key it names ``key``, see ``RecordMaker.put_copy``. Return ``None`` if the
        transaction is decided; ``TransactionError`` if its half message is damaged."""
    def put_discarded(self, key: int, wait: Callable[[int], int] | None) -> PutMessageResult | None:
        """Append the half message to the topic of discarded ones, and remove the transaction.

        Return ``None`` if it is decided."""
