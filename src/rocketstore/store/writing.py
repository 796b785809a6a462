"""The writing calls of a store: puts of one message or many, flush, and waiting for dispatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Unpack

from rocketstore import kernels
from rocketstore.lock_order import LockRank
from rocketstore.message import (
    Message,
    MessageBatch,
    PutManyResult,
    PutMessageResult,
    PutOptions,
)
from rocketstore.store.arguments import check_wait
from rocketstore.store.open_store import OpenStore

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rocketstore.flush.async_appends import AsyncAppends
    from rocketstore.store.writer import StoreWriter

_CREATING = kernels.locks.OrderedLock(LockRank.LEAF)


class WritingStore(OpenStore):
    """The calls that store messages, and those that wait for sync and dispatch."""

    def put_messages(self, batch: MessageBatch) -> PutMessageResult:
        """Store a batch of one queue, all or nothing; return one ``PutMessageResult``."""
        return self._writing().log.appender.put_messages(batch)

    def put_many(self, messages: Iterable[Message]) -> PutManyResult:
        """Store many messages, taking the put lock once per chunk; return a ``PutManyResult``."""
        return self._writing().log.appender.put_many(messages)

    def put_columns(
        self,
        topic: str,
        offsets: Buffer,
        data: Buffer,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        wait_store_msg_ok: bool = True,
    ) -> PutManyResult:
        """Store the bodies ``data[offsets[i]:offsets[i + 1]]``; ``offsets`` has n + 1 int32 or
        int64 values."""
        return self._writing().log.appender.put_columns(
            topic, offsets, data, queue_id=queue_id, tags=tags, keys=keys, properties=properties,
            flag=flag, sys_flag=sys_flag, born_timestamp=born_timestamp, born_host=born_host,
            store_host=store_host, wait_store_msg_ok=wait_store_msg_ok,
        )  # fmt: skip

    async def aput(
        self,
        topic: str,
        body: Buffer,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        **others: Unpack[PutOptions],
    ) -> PutMessageResult:
        """Store one message and wait for the disk as ``put`` does, but on an event loop.

        Parameters
        ----------
        topic, body, queue_id, tags, keys, **others
            As in ``put``.

        Returns
        -------
        PutMessageResult
            With ASYNC_FLUSH immediately. With SYNC_FLUSH when the message is on disk, or with the
            status FLUSH_DISK_TIMEOUT if that takes longer than ``sync_flush_timeout``.

        Raises
        ------
        ServiceFailedError
            A sync failed; the message may or may not be on disk.
        StoreFullError, StoreClosedError, TypeError, ValueError
            As ``put``; nothing was stored.

        Notes
        -----
        The call appends the message on the loop's thread, which takes microseconds. If it might
        need a new segment or new disk blocks, a thread of the store appends it instead. Messages of
        one loop are appended in the order of the calls. All calls that one sync made durable
        complete together, by one callback per loop. Cancelling ends the wait; an appended message
        stays. Threading: any number of loops in any threads.
        """
        writer = self._writing()
        appends = self._appends(writer)
        if appends.is_plain(body):
            return self.put(topic, body, queue_id, tags, keys, **others)
        put = partial(writer.log.appender.put, topic, body, queue_id, tags, keys, **others)
        if not appends.may_put_here(body):
            return await appends.put_away(put, body)
        result, waiting = appends.put_here(put)
        return result if waiting is None else await waiting

    async def aput_many(self, messages: Iterable[Message]) -> PutManyResult:
        """Store many messages as ``put_many`` does, appended by a thread of the store.

        Parameters
        ----------
        messages : iterable of Message
            Consumed immediately, on the loop's thread.

        Returns
        -------
        PutManyResult

        Raises
        ------
        ServiceFailedError, StoreFullError, StoreClosedError, TypeError
            As ``put_many``: messages before the failed one may be stored.
        """
        writer = self._writing()
        put = partial(writer.log.appender.put_many, list(messages))
        return await self._appends(writer).put_away(put)

    def _appends(self, writer: StoreWriter) -> AsyncAppends:
        if self._async_appends is None:
            from rocketstore.flush.async_appends import AsyncAppends

            new = AsyncAppends(writer.log, writer.flushed, writer.group_commit)
            with _CREATING:
                if self._async_appends is None:
                    self._async_appends = new
        return self._async_appends

    def flush(self) -> int:
        """Sync log, queues and index, and write state file and checkpoint.

        Return the flushed offset.
        """
        writer = self._writing()
        writer.flush_thoroughly()
        return writer.flushed.offset

    def wait_dispatched(self, timeout_s: float | None = None) -> bool:
        """Wait until everything that is now in the log is dispatched to queues and index.

        Return False after ``timeout_s`` seconds. Raises ``ServiceFailedError`` if dispatch failed.
        """
        self._use()
        if timeout_s is not None:
            check_wait(timeout_s, "timeout_s")
        if self._writer is None:
            return self._parts.behind_nbytes == 0
        try:
            return self._writer.wait_dispatched(timeout_s)
        except ValueError:
            self._use()  # a part was closed meanwhile, so the store was too
            raise
