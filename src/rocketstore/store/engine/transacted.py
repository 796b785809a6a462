"""The calls of a store that begin, find and check transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketstore.status import TransactionState
from rocketstore.store.arguments import check_int
from rocketstore.store.writing import WritingStore

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rocketstore.message import StoredMessage
    from rocketstore.transaction.book import TransactionBook
    from rocketstore.transaction.checking import CheckReport
    from rocketstore.transaction.handle import Transaction
    from rocketstore.transaction.live import StoreTransactions


class TransactedStore(WritingStore):
    """The calls that begin, find and check transactions.

    The first of them reads what is undecided from half and op topic; before it, nothing is read.
    """

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
    ) -> Transaction:
        """Begin a transaction: store a half message, which no consumer sees until it is committed.

        Parameters
        ----------
        topic, body, queue_id, tags, keys, properties, flag, sys_flag
            Of the message, as in ``put``. The property CHECK_IMMUNITY_TIME_IN_SECONDS replaces
            ``transaction_time_out`` for this transaction.
        group : str
            Producer group: whose callback is asked what became of it.
        born_timestamp, born_host, store_host, wait_store_msg_ok
            As in ``put``.
        unique_key : str or bool, optional
            As in ``put``; by default a key is made, the transaction's id.

        Returns
        -------
        Transaction
            Use it as a context manager, or call ``commit`` or ``rollback``. ``result`` is the
            outcome of storing the half message.

        Raises
        ------
        ValueError
            With a delay level: RocketMQ loses delayed half messages (D-76).
        TransactionError
            The half message was refused; the text names the status.
        io.UnsupportedOperation
            Mode ``"r"``.
        StoreFullError, StoreClosedError, ServiceFailedError, TypeError
            As ``put``; nothing was stored.

        Notes
        -----
        Threading: any thread. With SYNC_FLUSH the half message is on disk when the call returns.
        Source: RocketMQ ``TransactionalMessageBridge.java``.
        """
        begin = self._writing_transactions().begin
        self.__dict__["begin"] = begin  # later calls take the kernel's way
        begun: Transaction = begin(
            topic, body, group=group, queue_id=queue_id, tags=tags, keys=keys,
            properties=properties, flag=flag, sys_flag=sys_flag, born_timestamp=born_timestamp,
            born_host=born_host, store_host=store_host, delay_level=delay_level,
            wait_store_msg_ok=wait_store_msg_ok, unique_key=unique_key,
        )  # fmt: skip
        return begun

    async def abegin(self, topic: str, body: Buffer, *, group: str, **options: Any) -> Transaction:
        """Begin a transaction on an event loop; see ``begin`` and ``aput``."""
        transactions = self._writing_transactions()
        return await transactions.begin_async(topic, body, {"group": group, **options})

    def transaction(self, reference: int | str | StoredMessage) -> Transaction:
        """Return the transaction of a half message, also of one from before a restart.

        Parameters
        ----------
        reference : int, str or StoredMessage
            Log offset, message id or unique key of the half message, or of any copy of it.

        Raises
        ------
        TransactionNotFoundError
            There is no such half message.
        """
        return self._book().find(reference)

    def transactions(
        self,
        *,
        state: TransactionState | None = TransactionState.UNKNOWN,
        group: str | None = None,
        topic: str | None = None,
    ) -> Iterator[Transaction]:
        """Iterate over transactions, oldest first, in any mode.

        Parameters
        ----------
        state : TransactionState, optional
            The undecided ones by default. Any other state, and ``None`` for all states, is read
            from the log: of the half messages that are still in it.
        group, topic : str, optional
            Only those of a producer group, or for a topic.
        """
        if state is not None and not isinstance(state, TransactionState):
            raise TypeError(f"state must be a TransactionState or None, not {state!r}")
        return self._transactions_of(self._book(), state, group, topic)

    @staticmethod
    def _transactions_of(
        book: TransactionBook,
        state: TransactionState | None,
        group: str | None,
        topic: str | None,
    ) -> Iterator[Transaction]:
        if state == TransactionState.UNKNOWN and state is not None:
            yield from book.undecided(group, topic)
            return
        for found in book.every():
            if state is not None and found.state != state:
                continue
            if group is not None and found.group != group:
                continue
            if topic is None or found.topic == topic:
                yield found

    def transaction_check(
        self,
        callback: Callable[[StoredMessage], Any],
        *,
        group: str | None = None,
        force: bool = False,
        max_count: int | None = None,
    ) -> CheckReport:
        """Ask what became of undecided transactions: one round, in the order of the half topic.

        What was asked about is last in it: its newest copy counts.

        A transaction that is not decided by its callback is counted: its half message is copied,
        with the count, so that a broker goes on counting. After ``transaction_check_max`` checks it
        is discarded, to the topic TRANS_CHECK_MAX_TIME_TOPIC. A SLAVE asks about none.

        Parameters
        ----------
        callback : callable
            ``callback(message) -> TransactionState | None`` for each half message; an exception
            is logged and counts as ``None``, not known, as does any other value. It may be async
            where no event loop runs.
        group : str, optional
            Ask only about transactions of this producer group.
        force : bool
            Ask also about those that are younger than their immunity.
        max_count : int, optional
            Ask about this many at most.

        Returns
        -------
        CheckReport

        Raises
        ------
        io.UnsupportedOperation
            Mode ``"r"``.
        TypeError
            ``callback`` cannot be called, or it is async and an event loop runs on this thread.
        ReentrantCallError
            A callback of a round called this.
        TransactionError
            Another round runs, and an event loop on this thread, which must not wait for it.
        StoreFullError, ServiceFailedError
            Storing a decision or copy failed; decisions before it are stored.

        Notes
        -----
        Threading: any thread; callbacks run on it. One round runs at a time. ``close`` ends a round
        after the present callback. With SYNC_FLUSH everything is on disk when the call returns.
        """
        from rocketstore.transaction.checking import check_callback

        check_callback(callback)
        if max_count is not None:
            check_int("max_count", max_count)
            if max_count < 0:
                raise ValueError(f"max_count is {max_count}; it must not be negative")
        return self._writing_transactions().check(
            callback, group=group, force=force, max_count=max_count
        )

    def on_transaction_check(
        self, group: str, callback: Callable[[StoredMessage], Any] | None
    ) -> None:
        """Ask ``callback`` about undecided transactions of a group, in the background.

        There is a round every ``transaction_check_interval``, the first one interval from now.
        Transactions of groups without a callback are neither asked about nor counted. ``None``
        removes the callback. An async callback runs on the event loop that called this method.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"a callback must be callable or None, not {type(callback).__name__}")
        self._writing_transactions().check_by(group, callback)

    # ------------------------------------------------------------------------------------------

    def _writing_transactions(self) -> StoreTransactions:
        writer = self._writing()
        if self._transactions is None:
            from rocketstore.transaction.live import StoreTransactions

            with self._transactions_lock:
                if self._transactions is None:
                    self._transactions = StoreTransactions(
                        writer, self._reader, lambda: self._appends(writer), start=self._start
                    )
        return self._transactions

    def _book(self) -> TransactionBook:
        reader = self._use()
        if self._writer is not None:
            return self._writing_transactions().book
        from rocketstore.transaction.live import read_only_book

        return read_only_book(self.path, reader, self._config, self._clock)
