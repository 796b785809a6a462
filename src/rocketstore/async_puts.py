"""``aput`` and ``aput_many``: puts that are awaited on an event loop, without a thread each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketstore import kernels
from rocketstore.lock_order import LockRank

if TYPE_CHECKING:
    from rocketstore.services.async_appends import AsyncAppends
    from rocketstore.writer import StoreWriter

_CREATING = kernels.locks.OrderedLock(LockRank.LEAF)


class AsyncPutMethods:
    """``aput`` and ``aput_many`` of ``DefaultMessageStore``."""

    _async_appends: AsyncAppends | None = None  # set once, under _CREATING

    def _writing(self) -> StoreWriter:
        raise NotImplementedError

    def _appends(self, writer: StoreWriter) -> AsyncAppends:
        if self._async_appends is None:
            from rocketstore.services.async_appends import AsyncAppends

            new = AsyncAppends(writer.log, writer.flushed, writer.group_commit)
            with _CREATING:
                if self._async_appends is None:
                    self._async_appends = new
        return self._async_appends

    async def aput(
        self,
        topic: str,
        body: Any,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        **others: Any,
    ) -> Any:
        """Store one message and wait for the disk as ``put`` does, but on an event loop.

        Parameters
        ----------
        topic, body, queue_id, tags, keys, **others
            As in ``put``.

        Returns
        -------
        PutMessageResult
            With ASYNC_FLUSH at once; with SYNC_FLUSH when the message is on disk, and with the
            status FLUSH_DISK_TIMEOUT when that takes longer than ``sync_flush_timeout``.

        Raises
        ------
        ServiceFailedError
            A sync failed: whether the message is on disk is unknown.
        StoreFullError, StoreClosedError, TypeError, ValueError
            As ``put``; nothing was stored.

        Notes
        -----
        The message is appended by the call itself, on the loop's thread, which takes microseconds;
        a call that might need a new segment or blocks of the disk is appended by a thread of the
        store. The messages of one loop are appended in the order in which the calls began.
        All that one sync made durable complete together, by one callback in each loop. Cancelling
        ends the wait; what was appended stays. Threading: any number of loops in any threads.
        """
        writer = self._writing()
        put = partial(writer.log.appender.put, topic, body, queue_id, tags, keys, **others)
        appends = self._appends(writer)
        if not appends.may_put_here(body):
            return await appends.put_away(put)
        result, waiting = appends.put_here(put)
        return result if waiting is None else await waiting

    async def aput_many(self, messages: Iterable[Any]) -> Any:
        """Store many messages as ``put_many`` does, appended by a thread of the store.

        Parameters
        ----------
        messages : iterable of Message
            Taken at once, on the loop's thread.

        Returns
        -------
        PutManyResult

        Raises
        ------
        ServiceFailedError, StoreFullError, StoreClosedError, TypeError
            As ``put_many``: messages in front of the one that failed may be stored.
        """
        writer = self._writing()
        put = partial(writer.log.appender.put_many, list(messages))
        return await self._appends(writer).put_away(put)
