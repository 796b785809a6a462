"""Rounds of checks in the background, and where the callbacks of groups are kept."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable
from typing import Any

from rocketstore.errors import RocketStoreError, error_text
from rocketstore.services.service_thread import ServiceThread
from rocketstore.transaction.book import TransactionBook
from rocketstore.transaction.checking import (
    Callback,
    CheckRound,
    Stopped,
    Unanswered,
    awaited,
    drop,
)

_log = logging.getLogger(__name__)
#: How often it is looked whether a loop still runs from which an answer is awaited.
_LOOK_S = 0.1


class TransactionCheckService(ServiceThread):
    """Asks the registered callbacks about undecided transactions, a round per interval.

    Parameters
    ----------
    book : TransactionBook
    interval_s : float
    save : callable
        Called after a round, to write the progress.
    on_failure : callable
        See ``ServiceThread``.

    Notes
    -----
    Threading: callbacks run on the service's thread; async ones on the event loop that was running
    when they were registered. Source: RocketMQ
    ``transaction/TransactionalMessageCheckService.java``.
    """

    def __init__(
        self,
        book: TransactionBook,
        interval_s: float,
        save: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__("transaction-check", interval_s, on_failure)
        self._book = book
        self._save = save
        self._lock = threading.Lock()
        self._callbacks: dict[str, Callback] = {}  # guarded by: _lock
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}  # guarded by: _lock
        self._is_first = True

    def register(self, group: str, callback: Callback | None) -> None:
        """Set the callback of a producer group; ``None`` removes it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None  # called outside an event loop
        with self._lock:
            self._callbacks.pop(group, None)
            self._loops.pop(group, None)
            if callback is not None:
                self._callbacks[group] = callback
                if loop is not None:
                    self._loops[group] = loop

    def run_once(self) -> bool:
        """Run a round; the first step only waits for the interval."""
        if self._is_first:
            self._is_first = False
            return False
        with self._lock:
            callbacks = dict(self._callbacks)
        if callbacks:
            try:
                CheckRound(
                    self._book, callbacks, group=None, force=False, max_count=None,
                    stopping=lambda: self._stopping, run_async=self._wait_on_loop,
                    is_background=True,
                ).run()  # fmt: skip
                if not self._stopping:  # who stops the service saves
                    self._save()
            except (RocketStoreError, OSError) as error:
                _log.warning("a round of transaction checks failed: %s", error_text(error))
        return False

    def drain(self) -> None:
        """Do nothing: what is undecided stays undecided."""

    def _wait_on_loop(self, group: str, answer: Any) -> Any:
        """Wait for an async callback's answer on its loop, or on a loop of this call."""
        with self._lock:
            loop = self._loops.get(group)
        if loop is None:
            return asyncio.run(awaited(answer))
        if not loop.is_running():
            drop(answer)
            raise Unanswered("the event loop that registered the callback runs no longer")
        future = asyncio.run_coroutine_threadsafe(awaited(answer), loop)
        while True:
            try:
                return future.result(_LOOK_S)
            except concurrent.futures.CancelledError:
                raise Unanswered("it was cancelled") from None
            except TimeoutError:
                if future.done():
                    raise  # the callback's own
            if self._stopping:
                future.cancel()
                raise Stopped
            if not loop.is_running():
                future.cancel()
                raise Unanswered("its event loop stopped meanwhile")
