"""One round of checks: asking what became of undecided transactions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy

from rocketstore.errors import (
    ReentrantCallError,
    TransactionError,
    TransactionStateError,
    error_text,
)
from rocketstore.message import StoredMessage
from rocketstore.status import PutMessageStatus, TransactionState
from rocketstore.transaction.book import TransactionBook

_log = logging.getLogger(__name__)
#: A callback of a check: what became of the transaction of a half message; ``None``: not known.
Callback = Callable[[StoredMessage], Any]
_DECISIONS = (TransactionState.COMMIT, TransactionState.ROLLBACK)
#: How often a round that waits for another one looks whether the store is closing.
_LOOK_S = 0.1
#: Statuses of commits that are refused each time.
_NEVER_STORED = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
#: The books whose callbacks called what runs in this context, also on another thread or loop.
_asking: ContextVar[tuple[TransactionBook, ...]] = ContextVar("_asking", default=())


class Stopped(Exception):  # noqa: N818 - no error: the store is closing
    """The round ends before the answer came; nothing is counted."""


class Unanswered(Exception):  # noqa: N818 - no error of the callback
    """The callback could not run to its end; its transaction is not counted."""


class AwaitError(TypeError):
    """An async callback was given where its answer cannot be waited for."""


@dataclass(slots=True)
class CheckReport:
    """What a round of checks did.

    Attributes
    ----------
    asked : int
        Transactions whose callback was called.
    committed, rolled_back : int
        Those of them that were decided.
    unknown : int
        Those that stay undecided; their half message was copied, with the count of checks.
    immune : int
        Transactions that were too young to be asked about.
    discarded : int
        Those that were asked about ``transaction_check_max`` times in vain.
    gone : int
        Those whose half message expired.
    damaged : int
        Those whose half message is damaged. They stay undecided; `verify` finds the record.
    """

    asked: int = 0
    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    immune: int = 0
    discarded: int = 0
    gone: int = 0
    damaged: int = 0


class CheckRound:
    """A round over the transactions that are undecided when it begins.

    Parameters
    ----------
    book : TransactionBook
    ask : mapping of str to callable, or callable
        Callbacks by producer group, or one for all groups.
    group : str, optional
        Ask only about transactions of this group.
    force : bool
        Ask also about immune ones.
    max_count : int, optional
        Most transactions that are asked about.
    stopping : callable
        Returns whether the store is closing: the round then ends after the present callback.
    run_async : callable, optional
        ``run_async(group, awaitable)`` waits for the answer of an async callback; by default on an
        event loop of its own.
    is_background : bool
        Whether no caller of the store waits: a callback that exits ends only its own check.

    Notes
    -----
    Threading: rounds of the same book run one after another.
    """

    def __init__(
        self,
        book: TransactionBook,
        ask: Mapping[str, Callback] | Callback,
        *,
        group: str | None,
        force: bool,
        max_count: int | None,
        stopping: Callable[[], bool],
        run_async: Callable[[str, Any], Any] | None = None,
        is_background: bool = False,
    ) -> None:
        self.report = CheckReport()
        self._book = book
        self._ledger = book.ledger
        self._rules = book.rules
        self._ask = ask
        self._group = group
        self._force = force
        self._max_count = max_count
        self._stopping = stopping
        self._run_async = run_async if run_async is not None else _run_here
        self._caught: tuple[type[BaseException], ...] = (
            (BaseException,) if is_background else (Exception, asyncio.CancelledError)
        )
        self._end = 0
        #: Key and queue offset of half messages that were copied or discarded, or were to be.
        self._touched: list[tuple[int, int]] = []

    def run(self) -> CheckReport:
        """Ask, decide, count and discard; then wait for the disk.

        Raises ``ReentrantCallError`` if a callback of a round of the same book calls this.
        """
        with contextlib.suppress(Stopped), self._alone():
            try:
                for key, group in self._chosen():
                    self._check(key, group)
            except BaseException:
                self._finish_after_error()
                raise
            self._finish()
        return self.report

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for the other rounds of the book."""
        lock = self._book.round_lock
        if self._book in _asking.get() or self._book.is_in_round:
            raise ReentrantCallError(
                "a round of transaction checks was begun from inside another one of the same "
                "store; begin it after the callback has returned"
            )
        try:
            while not lock.acquire(timeout=0 if _runs_loop() else _LOOK_S):
                if _runs_loop():
                    raise TransactionError(
                        "another round of transaction checks runs, and an event loop must not wait "
                        "for it; call transaction_check on another thread, as asyncio.to_thread "
                        "does"
                    )
                self._end_if_stopping()
            yield
        finally:
            if self._book.is_in_round:  # it was acquired, even if an interrupt came then
                lock.release()

    def _end_if_stopping(self) -> None:
        if self._stopping():
            raise Stopped

    def _chosen(self) -> list[tuple[int, str]]:
        """Return keys and groups of those to ask about: first whose half message is the oldest.

        A transaction that was asked about has a new copy, so that with a ``max_count`` the others
        come first in the next round.
        """
        columns = self._ledger.columns()
        chosen = numpy.flatnonzero(self._wanted(columns))
        offsets = numpy.frombuffer(columns["queue_offset"], numpy.int64)[chosen]
        chosen = chosen[numpy.argsort(offsets, kind="stable")]
        groups = self._ledger.groups
        return [
            (columns["key"][at], groups[columns["group"][at]])
            for at in chosen[: self._max_count].tolist()
        ]

    def _wanted(self, columns: Mapping[str, Any]) -> Any:
        """Return which rows are asked about."""
        arrays = {name: numpy.frombuffer(column, numpy.int64) for name, column in columns.items()}
        now = self._book.clock()
        age = now - arrays["born_timestamp"]
        own = arrays["immunity_ms"]
        late = 1 if self._rules.includes_end else 0
        immune = numpy.where(
            own >= 0, age < own + late, (age >= 0) & (age < self._rules.time_out_ms + late)
        )
        groups = self._ledger.groups
        asks = numpy.array([self._callback(name) is not None for name in groups], bool)
        wanted = asks[arrays["group"]] if len(groups) else numpy.zeros(0, bool)
        if not self._force:
            self.report.immune = int((wanted & immune).sum())
            wanted = wanted & ~immune
        return wanted

    def _callback(self, group: str) -> Callback | None:
        if self._group is not None and group != self._group:
            return None
        return self._ask.get(group) if isinstance(self._ask, Mapping) else self._ask

    def _check(self, key: int, group: str) -> None:
        self._end_if_stopping()
        row = self._ledger.row(key)
        if row is None:
            return  # decided meanwhile
        queue_offset, offset, checks, is_asked = row[1], row[2], row[6], row[9]
        if checks >= self._rules.check_max and is_asked:
            self._discard(key, queue_offset)
            return
        message = self._book.log.record(offset)
        if message is None:
            self._note_missing(key, offset)
            return
        self.report.asked += 1
        answer = self._answer(group, message)
        if answer is None:
            return
        self._ledger.note_asked(key)
        if answer in _DECISIONS and self._decide(key, offset, answer):
            return
        if checks >= self._rules.check_max:
            self._discard(key, queue_offset)
        else:
            self._count(key, queue_offset, checks + 1)

    def _note_missing(self, key: int, offset: int) -> None:
        """Forget a half message that expired; keep one that is damaged."""
        if not self._book.log.has_expired(offset):
            self.report.damaged += 1
            _log.error("the half message at log offset %d is damaged; it stays undecided", offset)
        elif self._ledger.forget(key):
            self.report.gone += 1
            _log.warning("the half message at log offset %d expired undecided", offset)

    def _answer(self, group: str, message: StoredMessage) -> TransactionState | None:
        """Ask; an exception counts as not known. Return ``None`` if there was no answer."""
        callback = self._callback(group)
        assert callback is not None
        token = _asking.set((*_asking.get(), self._book))
        try:
            answer = callback(message)
            if inspect.isawaitable(answer):
                answer = self._run_async(group, answer)
            if answer is None:
                answer = TransactionState.UNKNOWN
            is_state = isinstance(answer, TransactionState)
            if not is_state or answer == TransactionState.DISCARDED:
                raise TypeError(f"a check returned {answer!r}, not a TransactionState or None")
        except (Stopped, AwaitError):
            raise
        except Unanswered as error:
            _log.warning("the check of a transaction of group %r gave no answer: %s", group, error)
            return None
        except self._caught:
            if not self._stopping():
                _log.exception("the check of a transaction of group %r failed", group)
            answer = TransactionState.UNKNOWN
        finally:
            _asking.reset(token)
        if answer == TransactionState.UNKNOWN and self._stopping():
            raise Stopped  # a callback may not know because the store is closing
        return answer  # type: ignore[no-any-return]

    def _decide(self, key: int, offset: int, answer: TransactionState) -> bool:
        """Decide as answered; return whether the check ends with that."""
        found = self._book.transaction_at(key, offset)
        try:
            if answer == TransactionState.COMMIT:
                result = found.commit(_wait=self._wait)
                if result is not None and not result.appended:
                    if result.status in _NEVER_STORED:
                        _log.error(
                            "the message of the transaction at log offset %d cannot be stored: %s",
                            offset, result.status,
                        )  # fmt: skip
                        return False
                    self.report.unknown += 1
                    return True
                self.report.committed += 1
            else:
                found.rollback(_wait=self._wait)
                self.report.rolled_back += 1
        except TransactionStateError:
            _log.warning("the transaction at log offset %d was decided while asked about", offset)
        except TransactionError as error:
            _log.error(
                "the transaction at log offset %d cannot be decided as answered (%s): %s",
                offset, answer.name, error,
            )  # fmt: skip
            return False
        return True

    def _count(self, key: int, queue_offset: int, checks: int) -> None:
        self._touched.append((key, queue_offset))
        try:
            result = self._ledger.put_copy(key, checks, self._wait)
        except TransactionError as error:
            self.report.unknown += 1
            _log.error("a check was not counted: %s", error)
            return
        self.report.unknown += result is not None  # else it was decided meanwhile

    def _discard(self, key: int, queue_offset: int) -> None:
        self._touched.append((key, queue_offset))
        try:
            result = self._ledger.put_discarded(key, self._wait)
        except TransactionError as error:
            _log.error("a transaction was not discarded: %s", error)
            return
        self.report.discarded += result is not None and result.appended

    def _wait(self, end_offset: int) -> int:
        """Remember how far the log must be on disk when the round ends."""
        self._end = max(self._end, end_offset)
        return PutMessageStatus.PUT_OK

    def _finish(self) -> None:
        """Name copied and discarded half messages in an op message, where a broker's next round
        would meet them; wait for the disk."""
        progress = self._book.half_progress()
        touched, self._touched = self._touched, []
        for key, queue_offset in touched:
            row = self._ledger.row(key)
            if queue_offset >= progress and (row is None or row[1] != queue_offset):
                self._ledger.owe([queue_offset])
        self._end = max(self._end, self._ledger.write_ops(self._wait))
        if self._end:
            status = PutMessageStatus(self._ledger.wait_for(self._end, None))
            if status != PutMessageStatus.PUT_OK:
                _log.warning("a round of transaction checks ended with %s", status)

    def _finish_after_error(self) -> None:
        """Finish; the error that ended the round is the one to raise."""
        try:
            self._finish()
        except Exception as error:  # noqa: BLE001 - logged; the first error is raised
            _log.warning("a round of checks could not be finished: %s", error_text(error))


def _runs_loop() -> bool:
    """Return whether an event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_callback(callback: Any) -> None:
    """Raise ``TypeError`` for what cannot be called, or whose answer cannot be waited for here."""
    if not callable(callback):
        raise TypeError(f"a callback must be callable, not {type(callback).__name__}")
    call = getattr(callback, "__call__", None)  # noqa: B004 - of an object with an async one
    is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)
    if is_async and _runs_loop():
        raise AwaitError(_NO_WAIT)


_NO_WAIT = (
    "the answer of an async callback cannot be waited for on a running event loop; call "
    "transaction_check on another thread, as asyncio.to_thread does, or register the callback "
    "with on_transaction_check"
)


async def awaited(answer: Any) -> Any:
    """Await an answer, which need not be a coroutine."""
    return await answer


def drop(answer: Any) -> None:
    """Give an awaitable up that was not awaited."""
    if inspect.iscoroutine(answer):
        answer.close()


def _run_here(group: str, answer: Any) -> Any:
    """Wait for an async callback's answer where no event loop runs."""
    if _runs_loop():
        drop(answer)
        raise AwaitError(_NO_WAIT)
    return asyncio.run(awaited(answer))
