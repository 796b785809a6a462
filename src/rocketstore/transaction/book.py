"""The transactions of an open store."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstore import formats, kernels
from rocketstore.config_managers.live_offsets import LiveConsumerOffsets
from rocketstore.dialect import Dialect
from rocketstore.errors import TransactionNotFoundError
from rocketstore.lock_order import ReentrantLock
from rocketstore.message import PutMessageResult, StoredMessage, decode_message_id
from rocketstore.query.store_reader import StoreReader
from rocketstore.status import TransactionState
from rocketstore.transaction.handle import Transaction
from rocketstore.transaction.log_reading import (
    Half,
    Progress,
    TransactionLog,
    Undecided,
    half_of,
    identity_of,
    is_lost,
    result_of,
)
from rocketstore.transaction.op_messages import OpBatch
from rocketstore.transaction.progress import op_progress, read_progress, write_progress
from rocketstore.transaction_records import no_wait

#: What deciding in mode "r" raises.
_READ_ONLY = 'the store is open with mode "r"'


@dataclass(frozen=True, slots=True)
class CheckRules:
    """When a transaction is asked about, and how often."""

    time_out_ms: int
    check_max: int
    includes_end: bool

    @classmethod
    def of(cls, time_out_ms: int, check_max: int, dialect: Dialect) -> CheckRules:
        """Return the rules of a store."""
        return cls(time_out_ms, check_max, dialect.immunity_includes_end)


class TransactionBook:
    """The undecided transactions of a store, and what its log says of the others.

    Parameters
    ----------
    root : Path
    reader : StoreReader
    rules : CheckRules
    clock : callable
        Epoch ms.

    Attributes
    ----------
    ledger : kernels.transactions.Ledger or ReadOnlyLedger
    log : TransactionLog

    Notes
    -----
    Threading: any thread.
    """

    def __init__(
        self,
        root: Path,
        reader: StoreReader,
        rules: CheckRules,
        clock: Callable[[], int],
        *,
        op_nbytes: int,
        catch_up: Callable[[], object] = lambda: None,
        offsets: LiveConsumerOffsets | None = None,
    ) -> None:
        self.root = root
        self.rules = rules
        self.clock = clock
        self.op_nbytes = op_nbytes
        self._offsets = offsets
        self.log = TransactionLog(reader, catch_up)
        self.ledger: Any = ReadOnlyLedger()
        self.ledger.book = self
        self._async: Callable[..., Any] | None = None
        self._log_end: Callable[[], int] = lambda: 0
        self._progress = Progress()
        self.hides_halves = False
        #: Held by a round of checks.
        self.round_lock = ReentrantLock()

    @property
    def is_in_round(self) -> bool:
        """Whether the calling thread runs a round of checks."""
        return bool(self.round_lock._is_owned())  # type: ignore[attr-defined]

    def load(self, **ledger: Any) -> None:
        """Read what is undecided; with arguments of ``Ledger``, for a store that is written."""
        stored = read_progress(self.root)
        self._progress = self.log.trusted(stored)
        #: Whether the file's progress would hide half messages once the queue is that long.
        self.hides_halves = self._progress != stored
        found = self.log.undecided(self._progress)
        if ledger:
            wait, batches = ledger.get("wait"), ledger.pop("batches")
            self._async = ledger.pop("call_async")
            self._log_end = ledger.pop("log_end")
            new = kernels.transactions.Ledger(kind=Transaction, op_nbytes=self.op_nbytes, **ledger)
            if batches and wait is not None:
                new.batch = OpBatch(self._write_batch, lambda: new.waiting)
            new.book = self
            self.ledger = new
        for half in found.halves:
            self.ledger.add(*half[:8], self.ledger.group_number(half.group))
        if ledger:
            self._write_owed(found)

    def _write_owed(self, found: Undecided) -> None:
        """Name in op messages what lacks one."""
        owed = list(found.owed)
        for key, queue_offsets in found.renew.items():
            row = self.ledger.row(key)
            copy = self.ledger.put_copy(key, max(row[6], 1), no_wait)
            if copy is not None and copy.appended:
                owed += queue_offsets
        if owed:
            self.ledger.owe(owed)
            end = self.ledger.write_ops(None)
            if end:
                self.ledger.wait_for(end, None)

    def _write_batch(self, queue_offsets: list[int]) -> int:
        """Append the op messages of a batch; return the log's end after them."""
        self.ledger.owe(queue_offsets)
        return int(self.ledger.write_ops(no_wait))

    # --- finding ------------------------------------------------------------------------------

    def transaction_at(self, key: int, offset: int) -> Transaction:
        """Return an undecided transaction by its key."""
        return Transaction(self.ledger, key, offset)

    def undecided(self, group: str | None, topic: str | None) -> Iterator[Transaction]:
        """Yield what is undecided, oldest first."""
        columns = self.ledger.columns()
        groups = self.ledger.groups
        for key, offset, number in zip(
            columns["key"], columns["offset"], columns["group"], strict=True
        ):
            if group is not None and groups[number] != group:
                continue
            found = self.transaction_at(key, offset)
            if topic is None or found.topic == topic:
                yield found

    def every(self) -> Iterator[Transaction]:
        """Yield all transactions whose half messages are in the log, oldest first."""
        from rocketstore.transaction.history import History

        self.log.catch_up()
        columns = self.ledger.columns()
        keys = dict(zip(columns["queue_offset"], columns["key"], strict=True))
        keys.update(zip(columns["key"], columns["key"], strict=True))
        for half, decision in History(self.log, self._progress).read():
            key = keys.get(half.queue_offset)
            found = self.transaction_at(half.queue_offset if key is None else key, half.offset)
            if key is None:
                record = decision.record
                is_commit = decision.state == TransactionState.COMMIT and record is not None
                found.settle(decision.state, result_of(record) if is_commit and record else None)
            yield found

    def find(self, reference: int | str | StoredMessage) -> Transaction:
        """Return the transaction of a half message.

        Raises ``TransactionNotFoundError`` if there is none, ``TypeError`` for another type.
        """
        if isinstance(reference, bool) or not isinstance(reference, int | str | StoredMessage):
            raise TypeError(
                f"a reference must be a log offset, a message id, a unique key or a message, "
                f"not {type(reference).__name__}"
            )
        self.log.catch_up()
        message = self._look_up(reference)
        is_half = message is not None and message.topic == formats.TOPIC_HALF
        if message is None or not is_half or message.queue_id != 0 or is_lost(message):
            raise TransactionNotFoundError(f"no half message is found by {reference!r}")
        half = half_of(message)
        key = self.ledger.key_of(half.queue_offset)
        if key is None:
            key = self._key_of_copy(half)
        if key is None:
            return self.transaction_at(half.queue_offset, half.offset)
        return self.transaction_at(key, half.offset)

    def _look_up(self, reference: int | str | StoredMessage) -> StoredMessage | None:
        if isinstance(reference, StoredMessage):
            own = self.log.record(reference.physical_offset)  # it may be one of another store
            is_own = own is not None and identity_of(own) == identity_of(reference)
            return own if is_own else None
        if isinstance(reference, int):
            return self.log.record(reference)
        found = self.log.by_key(reference)
        if found is not None:
            return found
        try:
            _, offset = decode_message_id(reference)
        except ValueError:
            return None
        return self.log.record(offset)

    def _key_of_copy(self, half: Half) -> int | None:
        """Return the key of the transaction of which ``half`` is one of several copies."""
        if not half.has_key:
            found = self.ledger.key_of(self.log.copies(half)[-1].queue_offset)
            return None if found is None else int(found)
        columns = self.ledger.columns()
        for key, offset, born in zip(
            columns["key"], columns["offset"], columns["born_timestamp"], strict=True
        ):
            if born == half.born_timestamp:
                message = self.log.record(offset)
                if message is not None and identity_of(message) == half.identity:
                    return int(key)
        return None

    def decision_of(self, offset: int) -> tuple[int, PutMessageResult | None, int]:
        """Return how the transaction of the half message at a log offset was decided.

        The last value is the log's end, up to which the decision is in the log.
        """
        end = self._log_end()
        message = self.log.record(offset)
        if message is None:
            raise TransactionNotFoundError(self.log.missing(offset))
        decision = self.log.decision(half_of(message))
        record = decision.record
        if decision.state == TransactionState.COMMIT and record is not None:
            return decision.state, result_of(record), end
        return decision.state, None, end

    # --- deciding -----------------------------------------------------------------------------

    async def decide_async(
        self, transaction: Transaction, wanted: TransactionState
    ) -> PutMessageResult | None:
        """Decide on an event loop."""
        if self._async is None:
            raise io.UnsupportedOperation(_READ_ONLY)
        call = transaction.commit if wanted == TransactionState.COMMIT else transaction.rollback
        result = await self._async(transaction, call)
        return result  # type: ignore[no-any-return]

    # --- progress -----------------------------------------------------------------------------

    def half_progress(self) -> int:
        """Return the queue offset of the first half message that a broker has to look at."""
        _, end = self.log.bounds(formats.TOPIC_HALF)  # first: what begins later is after it
        if self.ledger.beginning:
            return max(self._progress.half, 0)  # one before the end may not be in the table yet
        least = self.ledger.min_queue_offset
        return end if least < 0 else min(least, end)

    def next_progress(self) -> Progress:
        """Return the progress after what is decided now."""
        _, ops = self.log.bounds(formats.TOPIC_OP)  # first: these name no later half messages
        half = max(self.half_progress(), 0)
        if half == self.log.bounds(formats.TOPIC_HALF)[1]:
            return Progress(half, ops)  # nothing is undecided
        return Progress(half, op_progress(self.log, self._progress.op, half))

    def save_progress(self, progress: Progress) -> None:
        """Write the progress, if it is another one. What it stands for is on disk."""
        is_new = progress != self._progress and progress != Progress(0, 0)
        if is_new or self.hides_halves:
            assert self._offsets is not None, "only a store that is written saves progress"
            write_progress(self._offsets, progress)
            self._progress = progress
            self.hides_halves = False


class ReadOnlyLedger:
    """The undecided transactions of a store that is only read."""

    def __init__(self) -> None:
        self.book: Any = None
        self.groups: list[str] = []
        self.beginning = 0
        self._rows: dict[int, tuple[int, ...]] = {}
        self._by_newest: dict[int, int] = {}

    def group_number(self, group: str) -> int:
        """Return the number of a producer group."""
        if group not in self.groups:
            self.groups.append(group)
        return self.groups.index(group)

    def add(self, *values: int) -> None:
        """Add a transaction; see ``Ledger.add``."""
        self._rows[values[0]] = (*values, 0)
        self._by_newest[values[1]] = values[0]

    def has(self, key: int) -> bool:
        """Return whether the transaction is undecided."""
        return key in self._rows

    def row(self, key: int) -> tuple[int, ...] | None:
        """Return the columns of one transaction."""
        return self._rows.get(key)

    def key_of(self, queue_offset: int) -> int | None:
        """Return the key of the transaction whose first or newest half message it is."""
        if queue_offset in self._rows:
            return queue_offset
        return self._by_newest.get(queue_offset)

    def columns(self) -> dict[str, list[int]]:
        """Return the table by columns."""
        rows = [self._rows[key] for key in sorted(self._rows)]
        names = kernels.transactions.COLUMNS
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    @property
    def min_queue_offset(self) -> int:
        """Least queue offset of a newest half message; -1 without undecided transactions."""
        return min((row[1] for row in self._rows.values()), default=-1)

    def decide(self, transaction: Any, wanted: int, wait: Any) -> Any:
        """Refuse."""
        raise io.UnsupportedOperation(_READ_ONLY)
