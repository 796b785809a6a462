"""The transactions of a store that is written: appends, checks and progress."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rocketstore.errors import RocketStoreError, StoreClosedError, error_text
from rocketstore.log.unique_key import UniqueKeyMaker
from rocketstore.message import PutMessageResult
from rocketstore.status import PutMessageStatus
from rocketstore.transaction.book import CheckRules, TransactionBook
from rocketstore.transaction.check_service import TransactionCheckService
from rocketstore.transaction.checking import Callback, CheckReport, CheckRound
from rocketstore.transaction.handle import Transaction
from rocketstore.transaction_records import no_wait

if TYPE_CHECKING:
    from pathlib import Path

    from rocketstore.config import MessageStoreConfig
    from rocketstore.config_managers.live_offsets import LiveConsumerOffsets
    from rocketstore.dialect import Dialect
    from rocketstore.log.writable_commit_log import WritableCommitLog
    from rocketstore.query.store_reader import StoreReader

_log = logging.getLogger(__name__)
#: How long closing waits for a callback of ``transaction_check``.
_LONGEST_CALLBACK_S = 60.0


class Writer(Protocol):
    """What transactions need of a store that is open for writing; see ``StoreWriter``."""

    config: MessageStoreConfig
    dialect: Dialect
    log: WritableCommitLog
    clock: Callable[[], int]
    put_clock: Callable[[], int] | None
    put_wait: Callable[[int], int] | None
    failure: BaseException | None

    @property
    def consumer_offsets(self) -> LiveConsumerOffsets:
        """The offsets that groups have committed."""

    @property
    def root(self) -> Path:
        """The store's directory."""

    def wait_dispatched(self, timeout_s: float | None) -> bool:
        """Wait until what was put is in the queues."""

    def sync_log(self) -> None:
        """Bring what was put to the disk."""

    def fail(self, error: BaseException) -> None:
        """Stop accepting puts permanently."""


class Appends(Protocol):
    """How a store appends on an event loop; see ``AsyncAppends``."""

    def may_put_here(self, body: object) -> bool:
        """Return whether a message with ``body`` may be appended on the loop's thread."""

    def put_here(self, put: Callable[..., Any]) -> tuple[Any, Any]:
        """Append; return the result, and a future if it is not on disk yet."""

    async def put_away(self, put: Callable[..., Any]) -> Any:
        """Append on a worker thread; wait until it is on disk."""


class StoreTransactions:
    """The transactions of a store that is written: their book, and the service that checks them.

    Notes
    -----
    Threading: any thread. What is undecided is read when the object is made.
    """

    def __init__(
        self,
        writer: Writer,
        reader: StoreReader,
        appends: Callable[[], Appends],
        *,
        start: bool,
    ) -> None:
        self._writer = writer
        self._appends = appends
        self._starts = start
        self._is_slave = writer.config.broker_role == "SLAVE"  # its master asks
        self._service: TransactionCheckService | None = None
        #: Whether the store is closing; see ``stop``.
        self._stopping = False
        config, log = writer.config, writer.log
        self.book = TransactionBook(
            writer.root,
            reader,
            _rules(writer.config, writer.dialect),
            writer.clock,
            op_nbytes=max(1, config.transaction_op_msg_max_size),
            catch_up=lambda: writer.wait_dispatched(None),
            offsets=writer.consumer_offsets,
        )
        writer.wait_dispatched(None)
        self.book.load(
            appender=log.appender,
            read=self._read,
            wait=writer.put_wait,
            unique_key_maker=UniqueKeyMaker(config.store_host, writer.put_clock, config.zone),
            broker_version=writer.dialect.name,
            batches=writer.dialect.op_lists and config.transaction_op_batch_interval > 0,
            call_async=self._decide_async,
            log_end=lambda: log.appender.write_offset,
        )
        self.begin = self.book.ledger.begin
        if self.book.hides_halves:
            self.save_progress()  # before the first half message that it would hide

    def _read(self, offset: int, nbytes: int) -> Any:
        """Return the bytes of a record, which may be in memory only."""
        log = self._writer.log
        if offset + nbytes > log.max_offset:
            log.commit()
        return log.view(offset).raw

    async def begin_async(self, topic: str, body: Any, options: dict[str, Any]) -> Transaction:
        """Begin on an event loop."""
        begun: list[Transaction] = []

        def put(*, _wait: Callable[[int], int] | None = None) -> Any:
            begun.append(self.begin(topic, body, _wait=_wait, **options))
            return begun[0].result

        await self._append_async(put, body)
        return begun[0]

    async def _decide_async(self, transaction: Transaction, call: Callable[..., Any]) -> Any:
        """Decide on an event loop: ``call`` is the transaction's commit or rollback."""

        def decide(*, _wait: Callable[[int], int] | None = None) -> Any:
            outcome = call(_wait=_wait)
            return _STORED if outcome is None else outcome

        row = self.book.ledger.row(transaction.key)
        nbytes = 0 if row is None else row[3]
        outcome = await self._append_async(decide, bytes(nbytes))
        return None if outcome is _STORED else outcome

    async def _append_async(self, put: Callable[..., Any], body: Any) -> Any:
        """Append on the loop's thread if there is room; wait until it is on disk."""
        appends = self._appends()
        if not appends.may_put_here(body):
            return await appends.put_away(put)
        result, waiting = appends.put_here(put)
        return result if waiting is None else await waiting

    def check_by(self, group: str, callback: Callback | None) -> None:
        """Register a callback; start the service with the first one."""
        if self._stopping:
            raise StoreClosedError("the store is closing")
        if self._service is None:
            if callback is None:
                return
            writer = self._writer
            interval = writer.config.transaction_check_interval
            if interval is None:
                interval = writer.dialect.transaction_check_interval_ms
            self._service = TransactionCheckService(
                self.book, interval / 1000, self.save_progress, writer.fail
            )
            self._service.register(group, callback)
            if self._starts and not self._is_slave:
                self._service.start()
            return
        self._service.register(group, callback)

    @property
    def service(self) -> TransactionCheckService | None:
        """The service of the checks, for tests that step it."""
        return self._service

    def save_progress(self) -> None:
        """Write the progress of half and op topic, after what it stands for is on disk.

        First name what an op message could not be stored for when it was decided.
        """
        self.book.ledger.write_ops(no_wait)
        self._writer.wait_dispatched(None)
        progress = self.book.next_progress()
        self._writer.sync_log()
        self.book.save_progress(progress)

    def check(
        self, callback: Callback, *, group: str | None, force: bool, max_count: int | None
    ) -> CheckReport:
        """Run a round of checks on this thread; see ``DefaultMessageStore.transaction_check``."""
        if self._is_slave:
            return CheckReport()
        report = CheckRound(
            self.book, callback, group=group, force=force, max_count=max_count,
            stopping=lambda: self._stopping,
        ).run()  # fmt: skip
        if not self._stopping:
            self.save_progress()
        return report

    def stop(self) -> None:
        """End the checks: wait for the callbacks that run, call no other one. Idempotent.

        The store must be open still, so that callbacks can use it, and answers are stored.
        """
        self._stopping = True
        if self._service is not None:
            self._service.shutdown()
        if self.book.is_in_round:
            return  # called by a callback
        lock = self.book.round_lock
        if lock.acquire(timeout=_LONGEST_CALLBACK_S):
            lock.release()
        else:
            _log.warning("a transaction check still runs while the store is closed")

    def close(self) -> None:
        """Write the progress, after ``stop``. What is undecided stays undecided."""
        if self._writer.failure is None:
            try:
                self.save_progress()
            except (RocketStoreError, OSError) as error:
                _log.warning("the progress of transactions was not written: %s", error_text(error))


#: Stands for the outcome of a rollback, which stores no message.
_STORED = PutMessageResult(PutMessageStatus.PUT_OK)


def _rules(config: MessageStoreConfig, dialect: Dialect) -> CheckRules:
    return CheckRules.of(config.transaction_time_out, config.transaction_check_max, dialect)


def read_only_book(
    root: Path, reader: StoreReader, config: MessageStoreConfig, clock: Callable[[], int]
) -> TransactionBook:
    """Return the transactions of a store as its files show them."""
    book = TransactionBook(root, reader, _rules(config, reader.dialect), clock, op_nbytes=1)
    book.load()
    return book
