"""``Transaction``: one half message, and what is decided about it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore import formats, kernels
from rocketstore.errors import (
    TransactionError,
    TransactionNotFoundError,
    TransactionStateError,
)
from rocketstore.message import PutMessageResult, StoredMessage
from rocketstore.message_copy import real_queue_id
from rocketstore.status import TransactionState
from rocketstore.transaction.log_reading import count_of

if TYPE_CHECKING:
    from rocketstore.transaction.log_reading import TransactionLog


class Book(Protocol):
    """What a transaction needs of the store's book of transactions."""

    @property
    def log(self) -> TransactionLog:
        """Reads half messages."""

    async def decide_async(
        self, transaction: Transaction, wanted: TransactionState
    ) -> PutMessageResult | None:
        """Decide on an event loop."""

    def decision_of(self, offset: int) -> tuple[int, PutMessageResult | None, int]:
        """Return how the transaction of the half message at a log offset was decided."""


class Transaction(kernels.transactions.Transaction):
    """A transaction: commit it or roll it back, once.

    As a context manager it commits when the block ends, and rolls back when it ends by an
    exception. A decision that the block made, or has seen in ``state``, stays as it is. One that a
    check or another object made is waited for; if it was the other one, the end of the block raises
    ``TransactionStateError``, or adds a note to the exception that ends it. ``async with`` does the
    same without blocking the event loop.

    Notes
    -----
    Threading: any thread; of two decisions at the same time one is made. Source: RocketMQ
    ``processor/EndTransactionProcessor.java``.
    """

    __slots__ = ()

    @property
    def _book(self) -> Book:
        return self.ledger.book  # type: ignore[no-any-return]

    # --- facts --------------------------------------------------------------------------------

    @property
    def state(self) -> TransactionState:
        """``UNKNOWN`` until it is decided, also through another object or by a check."""
        state, _ = self.known
        if state == TransactionState.UNKNOWN and not self.ledger.has(self.key):
            self._resolve()
            state, _ = self.known
        return TransactionState(state)

    @property
    def message(self) -> StoredMessage:
        """The half message, or its newest copy.

        Raises ``TransactionNotFoundError`` if it expired or is damaged.
        """
        row = self.ledger.row(self.key)
        offset = self.offset if row is None else row[2]
        message = self._book.log.record(offset)
        if message is None:
            raise TransactionNotFoundError(self._book.log.missing(offset))
        return message

    @property
    def transaction_id(self) -> str:
        """The unique key; the message id if there is none."""
        message = self.message
        return message.unique_key or message.msg_id

    @property
    def group(self) -> str:
        """The producer group that is asked about it."""
        return self.message.properties.get(formats.PROPERTY_PRODUCER_GROUP, "")

    @property
    def topic(self) -> str:
        """The topic that a commit stores the message on."""
        return self.message.properties.get(formats.PROPERTY_REAL_TOPIC, "")

    @property
    def queue_id(self) -> int:
        """The queue that a commit stores the message in; -1 if the half message names none."""
        queue_id = real_queue_id(self.message.properties)
        return -1 if queue_id is None else queue_id

    @property
    def checks(self) -> int:
        """How often its producer was asked about it."""
        row = self.ledger.row(self.key)
        return count_of(self.message.properties) if row is None else row[6]

    @property
    def outcome(self) -> PutMessageResult | None:
        """The result of the commit; ``None`` if it is undecided or not committed."""
        return self.known[1] if self.state == TransactionState.COMMIT else None

    def __repr__(self) -> str:
        return f"<Transaction at log offset {self.offset}: {TransactionState(self.known[0])}>"

    # --- deciding -----------------------------------------------------------------------------

    async def acommit(self) -> PutMessageResult:
        """Commit on an event loop; see ``commit``."""
        result = await self._book.decide_async(self, TransactionState.COMMIT)
        assert result is not None
        return result

    async def arollback(self) -> None:
        """Roll back on an event loop; see ``rollback``."""
        await self._book.decide_async(self, TransactionState.ROLLBACK)

    def _resolve(self) -> None:
        """Read from the log how it was decided."""
        self.settle(*self._book.decision_of(self.offset))

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.known[0] != TransactionState.UNKNOWN:
            return
        if error is None:
            _refuse_unstored(self.commit())
            return
        try:
            self.rollback()
        except TransactionStateError as other:
            error.add_note(str(other))

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.known[0] != TransactionState.UNKNOWN:
            return
        if error is None:
            _refuse_unstored(await self.acommit())
            return
        try:
            await self.arollback()
        except TransactionStateError as other:
            error.add_note(str(other))


def _refuse_unstored(result: Any) -> None:
    """Raise if a commit at the end of a block was refused: the block cannot return its status."""
    if not result.appended:
        raise TransactionError(f"the commit was refused ({result.status}); it is undecided still")
