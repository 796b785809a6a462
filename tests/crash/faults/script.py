"""The run in which file operations fail: everything that a store does with files, in few steps.

A step that raises is over, and the next one begins, as in a program that reports errors and goes
on. Only what a put confirmed counts as acknowledged.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from crash.abandoning import abandon
from crash.faults.library import Faults
from rocketstore import Message, PutMessageResult, RocketStoreError, testing

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 20,
    "max_index_num": 60,
    "flush_consume_queue_least_pages": 0,
    # Every full segment that is dispatched and on disk may be deleted.
    "file_reserved_time": 0,
}
_POOL = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}
_OFTEN = {"flush_interval_commit_log": 1, "flush_interval_consume_queue": 1}
#: What the script is run as. ``threads``: the services run on theirs, so that the operations come
#: in another order every time.
MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH", "start": False},
    "async": {"flush_disk_type": "ASYNC_FLUSH", "start": False},
    "pool-sync": {"flush_disk_type": "SYNC_FLUSH", "start": False, **_POOL},
    "pool-async": {"flush_disk_type": "ASYNC_FLUSH", "start": False, **_POOL},
    "threads-sync": {"flush_disk_type": "SYNC_FLUSH", "start": True, **_OFTEN},
    "threads-async": {"flush_disk_type": "ASYNC_FLUSH", "start": True, **_OFTEN},
}


class BrokenPromiseError(AssertionError):
    """What must not be was seen; the text says what."""


@dataclass
class Outcome:
    """What the store answered in a run.

    Attributes
    ----------
    acknowledged : list of testing.Acknowledged
    attempted : set of bytes
        Bodies of everything that was put, with whatever result.
    errors : list of str
        Of steps that raised, in order.
    log_start : int
        Where the log may begin: cleaning up deletes what is before.
    """

    acknowledged: list[testing.Acknowledged] = field(default_factory=list)
    attempted: set[bytes] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    log_start: int = 0

    def promised(self) -> list[testing.Acknowledged]:
        """What must be in the log, unless an earlier start was left to it."""
        return [row for row in self.acknowledged if row.physical_offset >= self.log_start]


class Script:
    """One run over the store at ``root`` in one of ``MODES``; no call waits longer than
    ``patience_s``."""

    def __init__(self, root: Path, mode: str, faults: Faults, patience_s: float = 60.0) -> None:
        self.root = root
        self.outcome = Outcome()
        self._patience_s = patience_s
        self._options = {
            **OPTIONS, **MODES[mode], "sync_flush_timeout": int(patience_s * 1000)
        }  # fmt: skip
        self._is_sync = MODES[mode]["flush_disk_type"] == "SYNC_FLUSH"
        self._faults = faults
        #: Records that are in memory only: a commit or a flush is still to come.
        self._uncommitted: list[testing.Acknowledged] = []
        self._keeps_back = mode == "pool-async"
        self._store: Any = None
        self._number = 0
        self._syncs_before = 0
        #: A state file shows what is durable, so a torn record past it is not damage.
        self._has_marks = False
        self._clock = 1_700_000_000_000

    def run(self) -> None:
        """Go through the steps; ``BrokenPromiseError`` when one did what it must not."""
        for step in self._steps():
            self._attempt(step)

    def _steps(self) -> Iterable[Callable[[], None]]:
        yield self._open
        yield lambda: self._put(3)
        yield self._put_many
        yield self._dispatch
        yield self._step_services
        yield self._flush
        yield lambda: self._put(8)  # over the end of a segment
        yield self._step_services
        yield lambda: self._put(8)
        yield self._await_puts
        yield self._put_batch
        yield self._dispatch
        yield lambda: self._put(2)
        yield self._die_with_a_torn_tail
        yield self._open
        yield self._open  # once more, should the first one have failed
        yield lambda: self._put(8)
        yield self._dispatch
        yield self._flush
        yield self._clean
        yield lambda: self._put(1)
        yield self._close
        yield self._open
        yield lambda: self._put(1)
        yield self._close

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (RocketStoreError, OSError) as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        """An error says what it is about: a path of the store, or an earlier failure."""
        reported = f"{type(error).__name__}: {error}"
        self.outcome.errors.append(reported)
        if str(self.root) not in reported and "is closed" not in reported:
            raise BrokenPromiseError(f"an error without a path: {reported}") from error

    # --- steps --------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._clock += 7
        return self._clock

    def _open(self) -> None:
        if self._store is None:
            self._store = rocketstore.open(self.root, "a", clock=self._tick, **self._options)
            self._syncs_before = len(self._faults.syncs)

    def _draft(self) -> Message:
        self._number += 1
        body = b"body %d " % self._number + b"x" * (self._number % 5 * 60)
        self.outcome.attempted.add(body)
        return Message(
            "Orders",
            body,
            queue_id=self._number % 2,
            properties={"KEYS": f"k{self._number}", "TAGS": "TagA"},
        )

    def _put(self, count: int) -> None:
        if self._store is None:
            return
        for _ in range(count):
            draft = self._draft()
            try:
                result = self._store.put_message(draft)
            except (RocketStoreError, OSError) as error:
                self._note(error)
            else:
                self._acknowledge(draft, result)

    def _put_many(self) -> None:
        if self._store is None:
            return
        drafts = [self._draft() for _ in range(5)]
        for draft, result in zip(drafts, self._store.put_many(drafts), strict=True):
            self._acknowledge(draft, result)

    def _await_puts(self) -> None:
        if self._store is None or not self._options["start"]:
            return  # a loop waits for services on their threads
        asyncio.run(self._await_some())

    async def _await_some(self) -> None:
        drafts = [self._draft() for _ in range(3)]
        for draft, result in zip(drafts, await self._store.aput_many(drafts), strict=True):
            self._acknowledge(draft, result)

    def _put_batch(self) -> None:
        if self._store is None:
            return
        drafts = [self._draft() for _ in range(3)]
        bodies = [Message("Orders", draft.body) for draft in drafts]
        result = self._store.put_messages(
            rocketstore.MessageBatch(bodies, topic="Orders", queue_id=0)
        )
        self._acknowledge(None, result)

    def _acknowledge(self, draft: Message | None, result: PutMessageResult) -> None:
        if not result.ok:
            self.outcome.errors.append(f"put answered {result.status.name}")
            return
        assert result.physical_offset is not None
        if self._is_sync:
            self._require_synced(result.physical_offset, result.nbytes)
        row = testing.Acknowledged(result.physical_offset)
        if draft is not None:
            keys = tuple(str(draft.properties["KEYS"]).split())
            place = (result.physical_offset, draft.topic, draft.queue_id, result.queue_offset)
            row = testing.Acknowledged(*place, draft.body, keys)
        kept = self._uncommitted if self._keeps_back else self.outcome.acknowledged
        kept.append(row)

    def _take_committed(self) -> None:
        self.outcome.acknowledged += self._uncommitted
        self._uncommitted.clear()

    def _require_synced(self, offset: int, nbytes: int) -> None:
        """Since the store was opened (which reads again what is on disk), a sync that succeeded
        covers the record, and none that covers it has failed."""
        size = OPTIONS["mapped_file_size_commit_log"]
        path = self.root / "commitlog" / f"{offset - offset % size:020d}"
        inode = os.stat(path).st_ino
        start, stop = offset % size, offset % size + nbytes
        touching = [
            sync
            for sync in self._faults.syncs[self._syncs_before :]
            if sync.inode == inode and sync.start < stop and sync.stop > start
        ]
        if any(sync.failed not in (0, errno.EINTR) for sync in touching):
            raise BrokenPromiseError(f"acknowledged at {offset} although its sync failed")
        good = [sync.stop for sync in touching if not sync.failed and sync.start <= start]
        covered = max(good, default=0)
        if covered < stop:
            raise BrokenPromiseError(f"acknowledged at {offset} without a sync: {touching[-3:]}")

    def _dispatch(self) -> None:
        if self._store is not None and self._store.wait_dispatched(self._patience_s):
            self._take_committed()

    def _step_services(self) -> None:
        if self._store is None or self._options["start"]:
            return
        for service in self._store._writer.services:
            service.step()

    def _flush(self) -> None:
        if self._store is not None:
            self._store.flush()
            self._has_marks = True
            self._take_committed()

    def _clean(self) -> None:
        if self._store is not None:
            planned = self._store.clean_expired(what_if=True)
            self.outcome.log_start = max(self.outcome.log_start, planned.min_offset)
            self._store.clean_expired()

    def _die_with_a_torn_tail(self) -> None:
        """Leave the store as a kill does, and the last two records as a power failure may: the
        first one torn, the other whole. No put acknowledged them."""
        if self._store is None:
            return
        drafts = [self._draft() for _ in range(2)]
        store, self._store = self._store, None
        self._uncommitted.clear()  # a killed process takes them along
        self._faults.pause(True)
        try:
            offsets = [store.put_message(draft).physical_offset for draft in drafts]
            if self._has_marks and None not in offsets:
                self._tear(offsets[0] + 60)
        except (RocketStoreError, OSError) as error:
            self._note(error)
        finally:
            abandon(store)
            self._faults.pause(False)

    def _tear(self, offset: int) -> None:
        size = OPTIONS["mapped_file_size_commit_log"]
        path = self.root / "commitlog" / f"{offset - offset % size:020d}"
        with path.open("r+b") as file:
            file.seek(offset % size)
            file.write(b"\xff" * 8)

    def _close(self) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            kept, self._uncommitted = self._uncommitted, []  # gone with a close that fails
            store.close()
            self.outcome.acknowledged += kept

    def let_go(self) -> None:
        """Close what is still open, with whatever result."""
        self._attempt(self._close)
