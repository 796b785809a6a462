"""A store's life on the modelled disk: random steps, and images of the disk on the way."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore
from crash.power_cut import Disk, Image
from rocketstore import Message, MessageBatch, StoredMessage, formats
from rocketstore.config import MessageStoreConfig
from rocketstore.status import FlushDiskType

_OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 12 * 1024,
    "mapped_file_size_consume_queue": 1500,
    "max_hash_slot_num": 300,
    "max_index_num": 500,
    # Steps of the queue flusher sync queues only; flush() is the thorough one.
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 3_600_000,
    "flush_commit_log_thorough_interval": 3_600_000,
    "sync_flush_timeout": 20_000,
}
_MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {"flush_disk_type": "ASYNC_FLUSH"},
    "sync-4.9.8": {"flush_disk_type": "SYNC_FLUSH", "broker_version": "4.9.8"},
    "async-5.5.0": {"flush_disk_type": "ASYNC_FLUSH", "broker_version": "5.5.0"},
    "sync-crc-5.5.0": {
        "flush_disk_type": "SYNC_FLUSH",
        "broker_version": "5.5.0",
        "enabled_append_prop_crc": True,
    },
    "pool-async": {"flush_disk_type": "ASYNC_FLUSH", "transient_store_pool_enable": True},
    "pool-sync": {"flush_disk_type": "SYNC_FLUSH", "transient_store_pool_enable": True},
    # Every full segment that is dispatched and on disk may be deleted.
    "clean-sync": {"flush_disk_type": "SYNC_FLUSH", "file_reserved_time": 0},
    "clean-async": {"flush_disk_type": "ASYNC_FLUSH", "file_reserved_time": 0},
}
#: The configuration of each mode.
MODES = {name: MessageStoreConfig(**_OPTIONS, **options) for name, options in _MODES.items()}
TOPICS = ("Orders", "%RETRY%group")
STEPS = 24


class State(NamedTuple):
    """An image and what must hold for it: bounds of the log's end, where the log may begin at the
    latest, how far the log is known to be on disk, and the store time of the newest record there.
    """

    image: Image
    log_end: int
    confirmed_end: int
    log_start: int
    durable_end: int
    newest_durable: int


@dataclass
class History:
    """What was put: every record of the log in its order, its bytes, how far it was confirmed, and
    how much of it was deleted by cleaning up."""

    records: list[StoredMessage] = field(default_factory=list)
    log: bytearray = field(default_factory=bytearray)
    confirmed_end: int = 0
    log_end: int = 0
    log_start: int = 0

    def truncated(self, log_end: int) -> History:
        """The history when the log ends at ``log_end``."""
        kept = [record for record in self.records if record.physical_offset < log_end]
        return History(kept, self.log[:log_end], log_end, log_end, self.log_start)

    def newest_before(self, end: int) -> int:
        """Store time of the newest record that is whole before ``end``."""
        times = (
            record.store_timestamp
            for record in self.records
            if record.physical_offset + record.store_size <= end
        )
        return max(times, default=0)


class Life:
    """One store from open to power failure, and the states taken on the way.

    Parameters
    ----------
    root : Path
    choose : random.Random
    history : History
        Of the lives before, as far as they are in ``root``; goes on here.
    mode : str
        One of ``MODES``.
    images : int
        States that are drawn at each moment that is chosen.
    """

    def __init__(
        self, root: Path, choose: random.Random, history: History, mode: str, images: int
    ) -> None:
        self.root = root
        self.states: list[State] = []
        self.history = history
        self._config = MODES[mode]
        self._is_sync = self._config.flush_disk_type == FlushDiskType.SYNC_FLUSH
        self._choose = choose
        self._images = images
        self._number = choose.randrange(1 << 40)
        #: Records of one size may take the place of others exactly.
        self._is_even = choose.random() < 0.4
        self._reader: Any = None  # the store's open parts, also while it closes
        self._store: rocketstore.DefaultMessageStore | None = None
        self._is_flushing = False
        self._disk = Disk(root, choose, self._moment)
        self._chance = 0.02
        self._clock = max((m.store_timestamp for m in history.records), default=1_700_000_000_000)

    # --- moments ------------------------------------------------------------------------------

    def _moment(self, path: Path) -> None:
        if self._choose.random() < 0.05:
            self._disk.write_back_some()
        chance = self._chance
        if path == self.root:  # around state file and checkpoint
            chance *= 5
            if self._is_flushing and self._choose.random() < 0.3:
                self._put_meanwhile()
        if self._choose.random() < chance:
            self.take_states()

    def _put_meanwhile(self) -> None:
        """What another thread puts while this one syncs, without waiting for the disk."""
        drafts = [self._draft() for _ in range(self._choose.randrange(1, 30))]
        for draft in drafts:
            draft.properties["WAIT"] = "false"
        assert self._store is not None
        self._is_flushing = False  # a new segment is synced in a moment of its own
        self._store.put_many(drafts)
        self._is_flushing = True

    def take_states(self) -> None:
        """Cut the power, so to speak, and go on."""
        if not self.root.is_dir():
            return
        self._follow_log()
        history = self.history
        if self._reader is not None:
            flushed = self._reader.log.queue.flushed_where
            history.confirmed_end = max(history.confirmed_end, flushed)
        moment, durable_end = self._disk.moment(), history.confirmed_end
        if self._reader is None:
            # Recovery syncs what it found, and may report it before the store is open.
            durable_end = max(durable_end, moment.durable_end(formats.COMMIT_LOG_DIR))
        newest = history.newest_before(durable_end)
        for _ in range(self._choose.randrange(1, 2 * self._images)):
            image = moment.image(self._choose)
            places = history.log_end, history.confirmed_end, history.log_start
            self.states.append(State(image, *places, durable_end, newest))

    def _follow_log(self) -> None:
        """Take note of what was appended since, also by a put that has not returned yet."""
        if self._reader is None:
            return
        history, end = self.history, self._reader.log.max_offset
        records = history.records
        start = max(records[-1].physical_offset if records else 0, history.log_start)
        for message in self._reader.scan(start, end, "fail"):
            if not records or message.physical_offset > records[-1].physical_offset:
                records.append(message.detach())
        for file in self._reader.log.queue.files:
            at = max(len(history.log) - file.file_from_offset, 0)
            stop = min(end - file.file_from_offset, file.file_size)
            if at < stop:
                history.log += file.read(at, stop - at)
        history.log_end = max(history.log_end, end)

    # --- living -------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._clock += self._choose.choice((0, 0, 1, 999, 2500))
        return self._clock

    def _draft(self) -> Message:
        self._number += 1
        number = f"{self._number:013d}"
        properties = {"KEYS": f"k{number} shared", "UNIQ_KEY": f"U{number}"}
        if self._is_even or self._choose.random() < 0.7:
            properties["TAGS"] = self._choose.choice(("TagA", "TagB"))
        sizes = (40,) if self._is_even else (0, 1, 40, 300, 2000)
        return Message(
            "Orders" if self._is_even else self._choose.choice(TOPICS),
            self._choose.randbytes(self._choose.choice(sizes)),
            queue_id=self._choose.randrange(2),
            sys_flag=self._choose.choice((0, 0, 0, 0, 4, 8)),
            properties=properties,
        )

    def _confirm(self, *results: Any) -> None:
        for result in results:
            assert result.ok, result
            if self._is_sync:
                end = result.physical_offset + result.nbytes
                self.history.confirmed_end = max(self.history.confirmed_end, end)

    def run(self) -> None:
        """Open, write, and stop without closing (or close now and then)."""
        with self._disk.following():
            self._chance = 0.1
            store = rocketstore.open(
                self.root, "a", config=self._config, clock=self._tick, start=False
            )
            self._store, self._reader = store, store.reader
            self._chance = 0.02
            try:
                for _ in range(self._choose.randrange(STEPS)):
                    self._step(store)
                self.take_states()
                if self._choose.random() < 0.3:
                    self._chance = 0.2
                    store.close()
                    self._reader = None
                    self.take_states()
            finally:
                store.close()
                self._disk.close()
        assert self._disk.sync_count > 5

    def _step(self, store: rocketstore.DefaultMessageStore) -> None:
        steps: tuple[tuple[int, Callable[[rocketstore.DefaultMessageStore], None]], ...] = (
            (4, lambda store: self._confirm(store.put_message(self._draft()))),
            (2, self._put_many),
            (1, self._put_batch),
            (2, self._dispatch),
            (1, self._step_services),
            (1, self._flush),
            (1, self._write_back),
            (1 if self._config.file_reserved_time == 0 else 0, self._clean),
        )
        weights = [weight for weight, _ in steps]
        self._choose.choices([step for _, step in steps], weights)[0](store)

    def _put_many(self, store: rocketstore.DefaultMessageStore) -> None:
        drafts = [self._draft() for _ in range(self._choose.randrange(1, 30))]
        self._confirm(*store.put_many(drafts))

    def _put_batch(self, store: rocketstore.DefaultMessageStore) -> None:
        drafts = [Message("Batches", b"b%d" % n) for n in range(self._choose.randrange(1, 9))]
        self._confirm(store.put_messages(MessageBatch(drafts, topic="Batches", queue_id=0)))

    def _dispatch(self, store: rocketstore.DefaultMessageStore) -> None:
        assert store.wait_dispatched()

    def _step_services(self, store: rocketstore.DefaultMessageStore) -> None:
        assert store._writer is not None
        for service in store._writer.services:
            service.step()

    def _flush(self, store: rocketstore.DefaultMessageStore) -> None:
        self._is_flushing = True
        store.flush()
        self._is_flushing = False

    def _clean(self, store: rocketstore.DefaultMessageStore) -> None:
        self._follow_log()
        planned = store.clean_expired(what_if=True)
        self.history.log_start = max(self.history.log_start, planned.min_offset)
        store.clean_expired()

    def _write_back(self, _store: rocketstore.DefaultMessageStore) -> None:
        self._disk.write_back_some()
        self.take_states()
