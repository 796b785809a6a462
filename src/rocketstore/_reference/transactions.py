"""The undecided transactions of one log, and the appends that begin and decide them."""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rocketstore import formats
from rocketstore._reference import message
from rocketstore._reference import put_arguments as arguments
from rocketstore._reference.put_result import PutMessageResult
from rocketstore.dialect import Dialect
from rocketstore.errors import ReentrantCallError, TransactionError, TransactionStateError
from rocketstore.lock_order import ReentrantLock
from rocketstore.status import PutMessageStatus, TransactionState
from rocketstore.transaction_records import COLUMNS, RecordMaker, immunity_ms, no_wait

#: Pause of a call that waits until another thread has decided the same transaction.
_PAUSE_S = 0.0005
_UNKNOWN = int(TransactionState.UNKNOWN)


class _Row:
    """An undecided transaction."""

    __slots__ = (*COLUMNS, "owner")

    key: int
    queue_offset: int
    offset: int
    nbytes: int
    store_timestamp: int
    checks: int
    is_asked: int

    def __init__(self, values: Sequence[int]) -> None:
        for name, value in zip(COLUMNS, (*values, 0), strict=True):
            setattr(self, name, value)
        #: The thread that decides it, else 0.
        self.owner = 0

    def values(self) -> tuple[int, ...]:
        """Return the columns."""
        return tuple(getattr(self, name) for name in COLUMNS)


class Transaction:
    """A transaction; the store's class adds what reads the log."""

    def __init__(self, ledger: Any, key: int, offset: int) -> None:
        self._ledger = ledger
        self._key = key
        self._offset = offset
        self._state = _UNKNOWN
        self._outcome: PutMessageResult | None = None
        self._begun: PutMessageResult | None = None
        self._end = 0

    @property
    def ledger(self) -> Any:
        """The ledger that decides it."""
        return self._ledger

    @property
    def key(self) -> int:
        """Queue offset of the half message."""
        return self._key

    @property
    def offset(self) -> int:
        """Log offset of the half message."""
        return self._offset

    @property
    def result(self) -> PutMessageResult | None:
        """Outcome of storing the half message; ``None`` if another object began it."""
        return self._begun

    @property
    def known(self) -> tuple[int, PutMessageResult | None]:
        """State and outcome of the commit, as this object knows them."""
        return self._state, self._outcome

    def settle(self, state: int, outcome: PutMessageResult | None, end: int = 0) -> None:
        """Take a decision that was made through another object."""
        self._outcome, self._end, self._state = outcome, end, int(state)

    def commit(self, *, _wait: Callable[[int], int] | None = None) -> PutMessageResult | None:
        """Commit; return the outcome of storing the message."""
        return self._decide(int(TransactionState.COMMIT), _wait)

    def rollback(self, *, _wait: Callable[[int], int] | None = None) -> None:
        """Roll back."""
        self._decide(int(TransactionState.ROLLBACK), _wait)

    def _decide(self, wanted: int, wait: Callable[[int], int] | None) -> PutMessageResult | None:
        if self._state == _UNKNOWN:
            found, refused = self._ledger.decide(self, wanted, wait)
            if refused is not None:
                return refused  # type: ignore[no-any-return]
            if found:
                return self._outcome
            if self._state == _UNKNOWN:
                self._resolve()
        if self._state != wanted:
            raise TransactionStateError(
                f"the transaction was decided before: {TransactionState(self._state)}"
            )
        if self._end:
            status = self._ledger.wait_for(self._end, wait)
            if self._outcome is not None and status != self._outcome.status:
                self._outcome = self._outcome.with_flush_status(status)
        return self._outcome

    def _resolve(self) -> None:
        """Find a decision that another object made."""
        raise TransactionError("the transaction is not known here")


class Ledger:
    """The undecided transactions of one log."""

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
        self._kind = kind
        self._read = read
        self._wait = wait
        self._maker = unique_key_maker
        dialect = Dialect.for_version(broker_version, allow_newer=True)
        self._records = RecordMaker(appender, dialect, message)
        self._appender = appender
        self._op_nbytes = op_nbytes
        self.batch: Any = None
        self.book: Any = None
        self._lock = threading.Lock()
        self._rows: list[_Row] = []  # guarded by: _lock, as all below
        self._keys: list[int] = []
        self._groups: dict[str, int] = {}
        self._owed: list[int] = []
        self._waiting = self._beginning = 0
        #: Held to write op messages: without it, what is owed is not on its way to the log.
        self._ops = ReentrantLock()

    # --- the table ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def groups(self) -> list[str]:
        """Producer groups by the number in the column ``group``."""
        return list(self._groups)

    def group_number(self, group: str) -> int:
        """Return the number of a producer group."""
        with self._lock:
            return self._groups.setdefault(group, len(self._groups))

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
        """Add a transaction by its columns."""
        row = _Row(
            (key, queue_offset, offset, nbytes, store_timestamp, born_timestamp, checks,
             immunity_ms, group)
        )  # fmt: skip
        with self._lock:
            at = bisect_left(self._keys, row.key)
            known = at < len(self._keys) and self._keys[at] == row.key
            self._keys[at : at + known] = [row.key]
            self._rows[at : at + known] = [row]

    def _find(self, key: int) -> _Row | None:
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            return self._rows[at]
        return None

    @property
    def beginning(self) -> int:
        """Calls of ``begin`` whose half message may not be in the table yet."""
        return self._beginning

    def has(self, key: int) -> bool:
        """Return whether the transaction is undecided."""
        with self._lock:
            return self._find(key) is not None

    def row(self, key: int) -> tuple[int, ...] | None:
        """Return the columns of one transaction."""
        with self._lock:
            row = self._find(key)
            return None if row is None else row.values()

    def columns(self) -> dict[str, array[int]]:
        """Return a copy of the table by columns."""
        with self._lock:
            rows = [row.values() for row in self._rows]
        return {name: array("q", [row[at] for row in rows]) for at, name in enumerate(COLUMNS)}

    def key_of(self, queue_offset: int) -> int | None:
        """Return the key of the transaction whose first or newest half message it is."""
        with self._lock:
            for row in self._rows:
                if queue_offset in (row.key, row.queue_offset):
                    return row.key
        return None

    def note_asked(self, key: int) -> None:
        """Note that the transaction's producer was asked."""
        with self._lock:
            row = self._find(key)
            if row is not None:
                row.is_asked = 1

    def remove(self, key: int) -> bool:
        """Remove a transaction; return whether it was there."""
        with self._lock:
            at = bisect_left(self._keys, key)
            if at == len(self._keys) or self._keys[at] != key:
                return False
            del self._keys[at], self._rows[at]
            return True

    def forget(self, key: int) -> bool:
        """Remove a transaction that no thread decides; wait for one that does."""
        row = self._claim(key)
        return row is not None and self.remove(key)

    @property
    def min_queue_offset(self) -> int:
        """Least queue offset of a newest half message."""
        with self._lock:
            return min((row.queue_offset for row in self._rows), default=-1)

    # --- op messages --------------------------------------------------------------------------

    def owe(self, queue_offsets: Iterable[int]) -> None:
        """Name these half messages in the next op message."""
        with self._lock:
            self._owed += queue_offsets

    def disown(self, queue_offset: int) -> bool:
        """Take one of them back; return whether no op message names it yet."""
        with self._ops, self._lock:
            is_owed = queue_offset in self._owed
            if is_owed:
                self._owed.remove(queue_offset)
            return is_owed

    @property
    def owed(self) -> list[int]:
        """Queue offsets of decided half messages that no op message names yet."""
        with self._lock:
            return list(self._owed)

    def write_ops(self, wait: Callable[[int], int] | None) -> int:
        """Append op messages for what is owed."""
        with self._ops:
            return self._write_ops(wait)

    def _write_ops(self, wait: Callable[[int], int] | None) -> int:
        end = 0
        while True:
            with self._lock:
                offsets, self._owed = self._owed, []
            if not offsets:
                return end
            part, rest = self._records.split(offsets, self._op_nbytes)
            try:
                result = self._records.put_op(part, wait)
            except BaseException:
                self.owe(offsets)
                raise
            if not result.appended:
                self.owe(offsets)
                return end
            self.owe(rest)
            end = result.physical_offset + result.nbytes

    @property
    def waiting(self) -> int:
        """Threads that wait for the disk after a decision."""
        return self._waiting

    # --- records ------------------------------------------------------------------------------

    def begin(
        self,
        topic: str,
        body: Any,
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
        """Store the half message of a new transaction."""
        arguments.check_topic(topic)
        queue_id = arguments.check_integer("queue_id", queue_id, arguments.QUEUE_ID)
        sys_flag = arguments.check_integer("sys_flag", sys_flag, arguments.I32)
        level = arguments.check_integer("delay_level", delay_level, (0, 2**31 - 1))
        if not isinstance(group, str):
            raise TypeError(f"group must be str, not {type(group).__name__}")
        if not group:
            raise ValueError("group is empty")
        pairs = arguments.gather_properties(
            properties, unique_key, tags, keys, wait_store_msg_ok, 0, self._maker
        )
        options = {
            "flag": flag,
            "sys_flag": sys_flag & ~formats.SYS_FLAG_TRANSACTION_MASK,
            "born_timestamp": born_timestamp,
            "born_host": born_host,
            "store_host": store_host,
            "_wait": _wait,
        }
        with self._lock:
            self._beginning += 1
        try:
            result = self._records.put_half(topic, queue_id, body, group, pairs, level, options)
            return self._enter(result, pairs, group, born_timestamp)
        finally:
            with self._lock:
                self._beginning -= 1

    def _enter(
        self, result: Any, pairs: Mapping[str, str], group: str, born_timestamp: int | None
    ) -> Any:
        """Enter a half message that was put into the table; return its transaction."""
        if not result.appended:
            raise TransactionError(f"the half message was refused: {result.status}")
        stored = result.store_timestamp
        self.add(
            result.queue_offset, result.queue_offset, result.physical_offset, result.nbytes,
            stored, stored if born_timestamp is None else born_timestamp, 0,
            immunity_ms(pairs.get(formats.PROPERTY_CHECK_IMMUNITY_SEC)), self.group_number(group),
        )  # fmt: skip
        begun = self._kind(self, result.queue_offset, result.physical_offset)
        begun._begun = result
        return begun

    def decide(
        self, transaction: Any, wanted: int, wait: Callable[[int], int] | None
    ) -> tuple[bool, PutMessageResult | None]:
        """Decide a transaction, and settle it."""
        row = self._claim(transaction.key)
        if row is None:
            return False, None
        outcome: PutMessageResult | None = None
        try:
            if wanted == TransactionState.COMMIT:
                outcome = self._records.put_final(self._half(row))
                if not outcome.appended:
                    return True, outcome
            end = self._name_decided(row, outcome, wait)
            self.remove(row.key)
        finally:
            if outcome is not None and outcome.appended:
                self.remove(row.key)  # also after an interrupt
            row.owner = 0
        transaction.settle(wanted, outcome, end)
        status = self.wait_for(end, wait)
        if outcome is not None and status != PutMessageStatus.PUT_OK:
            transaction.settle(wanted, outcome.with_flush_status(status), end)
        return True, None

    def _claim(self, key: int) -> _Row | None:
        """Return the row of an undecided transaction that this thread now decides.

        Wait while another thread decides it.
        """
        me = threading.get_ident()
        while True:
            with self._lock:
                row = self._find(key)
                if row is None:
                    return None
                if not row.owner:
                    row.owner = me
                    return row
                if row.owner == me:
                    raise ReentrantCallError()
            time.sleep(_PAUSE_S)

    def _half(self, row: _Row) -> Any:
        raw = self._read(row.offset, row.nbytes)
        if self._find(row.key) is not row:
            raise TransactionError("the transaction was removed while it was decided")
        return self._records.half(raw, row.offset)

    def _name_decided(
        self, row: _Row, outcome: PutMessageResult | None, wait: Callable[[int], int] | None
    ) -> int:
        """Append the op message, or let a batch do it; return the end of what must be on disk.

        A commit is decided once its message is in the log: an op message that cannot be stored
        then is owed.
        """
        end = 0
        if outcome is not None and outcome.physical_offset is not None:
            end = outcome.physical_offset + outcome.nbytes
        try:
            if self.batch is not None and wait is None and self._waiting:
                written = int(self.batch.join(row.queue_offset))
            else:
                with self._lock:
                    self._owed.insert(0, row.queue_offset)
                written = self.write_ops(no_wait)
        except BaseException as error:
            if outcome is None and self.disown(row.queue_offset):
                raise
            if not isinstance(error, Exception):
                self.remove(row.key)
                raise
            return end or int(self._appender.write_offset)
        if outcome is None and self.disown(row.queue_offset):
            raise TransactionError("the op message was refused; the transaction is undecided")
        # Without an end of its own, another thread wrote what is owed.
        return written or end or int(self._appender.write_offset)

    def wait_for(self, end: int, wait: Callable[[int], int] | None) -> int:
        """Wait until the log is on disk up to ``end``."""
        if wait is not None:
            return wait(end)
        if self._wait is None:
            return PutMessageStatus.PUT_OK
        with self._lock:
            self._waiting += 1
        try:
            return self._wait(end)
        finally:
            with self._lock:
                self._waiting -= 1
            if self.batch is not None and self.batch.offsets:
                self.batch.write()

    def put_copy(
        self, key: int, checks: int, wait: Callable[[int], int] | None
    ) -> PutMessageResult | None:
        """Append a copy of the half message that counts one more check."""
        row = self._claim(key)
        if row is None:
            return None
        try:
            result: Any = self._records.put_copy(self._half(row), checks, key, wait)
            if result.appended:
                with self._lock:
                    row.queue_offset, row.offset = result.queue_offset, result.physical_offset
                    row.nbytes, row.store_timestamp = result.nbytes, result.store_timestamp
                    row.checks = checks
            return result  # type: ignore[no-any-return]
        finally:
            row.owner = 0

    def put_discarded(self, key: int, wait: Callable[[int], int] | None) -> PutMessageResult | None:
        """Append the half message to the topic of discarded ones; forget the transaction."""
        row = self._claim(key)
        if row is None:
            return None
        try:
            result: PutMessageResult = self._records.put_discarded(self._half(row), wait)
            if result.appended:
                self.remove(key)
            return result
        finally:
            row.owner = 0
