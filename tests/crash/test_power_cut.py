"""Images of what a power cut may leave: nothing confirmed is lost, nothing is invented."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash.power_cut import Disk
from rocketstore import Message, MessageBatch, StoredMessage, TagFilter
from rocketstore.store_checkpoint import StoreCheckpoint
from rocketstore.testing import check_invariants

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 12 * 1024,
    "mapped_file_size_consume_queue": 1500,
    "max_hash_slot_num": 300,
    "max_index_num": 500,
    # Steps of the queue flusher sync queues only; flush() is the thorough one.
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 3_600_000,
    "sync_flush_timeout": 20_000,
}
TOPICS = ("Orders", "%RETRY%group")
GENERATIONS = 4
STEPS = 45


@dataclass
class Image:
    """A directory as a power cut may have left it, and what must hold for it."""

    root: Path
    log_end: int
    confirmed_end: int
    newest_confirmed: int


@dataclass
class History:
    """What was put: every record of the log in its order, and how far it was confirmed."""

    records: list[StoredMessage] = field(default_factory=list)
    confirmed_end: int = 0
    log_end: int = 0

    def cut(self, log_end: int) -> None:
        self.records = [m for m in self.records if m.physical_offset < log_end]

    def newest_confirmed(self) -> int:
        """Of the confirmed records."""
        return max(
            (
                m.store_timestamp
                for m in self.records
                if m.physical_offset + m.store_size <= self.confirmed_end
            ),
            default=0,
        )


class Life:
    """One store from open to power cut, and the images taken on the way."""

    def __init__(self, root: Path, choose: random.Random, history: History, sync: bool) -> None:
        self.root = root
        self.images: list[Image] = []
        self.history = history
        self._sync = sync
        self._choose = choose
        self._number = choose.randrange(1 << 40)
        #: Records of one size may take the place of others exactly.
        self._is_even = choose.random() < 0.4
        self._reader: Any = None  # the store's open parts, also while it closes
        self._store: rocketstore.DefaultMessageStore | None = None
        self._is_flushing = False
        self._disk = Disk(root, choose, self._moment)
        self._image_chance = 0.02
        self._clock = max((m.store_timestamp for m in history.records), default=1_700_000_000_000)

    # --- moments ------------------------------------------------------------------------------

    def _moment(self, path: Path) -> None:
        if self._choose.random() < 0.05:
            self._disk.write_back_some()
        chance = self._image_chance
        if path == self.root:  # around state file and checkpoint
            chance *= 5
            if self._is_flushing and self._choose.random() < 0.3:
                self._put_meanwhile()
        if self._choose.random() < chance:
            self.take_image()

    def _put_meanwhile(self) -> None:
        """What another thread puts while this one syncs; nobody waits for it."""
        drafts = [self._draft() for _ in range(self._choose.randrange(1, 30))]
        for draft in drafts:
            draft.properties["WAIT"] = "false"
        assert self._store is not None
        self._is_flushing = False  # a new segment is synced in a moment of its own
        self._store.put_many(drafts)
        self._is_flushing = True

    def take_image(self) -> None:
        """Cut the power, so to speak, and go on."""
        if not self.root.is_dir():
            return
        self._follow_log()
        if self._reader is not None:
            flushed = self._reader.log.queue.flushed_where
            self.history.confirmed_end = max(self.history.confirmed_end, flushed)
        root = self.root.with_name(f"{self.root.name}-{len(self.images)}")
        self._disk.image(root)
        history = self.history
        image = Image(root, history.log_end, history.confirmed_end, history.newest_confirmed())
        self.images.append(image)

    def _follow_log(self) -> None:
        """Take note of what was appended since, also by a put that has not returned yet."""
        if self._reader is None:
            return
        records = self.history.records
        start = records[-1].physical_offset if records else 0
        for message in self._reader.scan(start, self._reader.log.max_offset, "fail"):
            if not records or message.physical_offset > records[-1].physical_offset:
                records.append(message.detach())
        self.history.log_end = max(self.history.log_end, self._reader.log.max_offset)

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
        sizes = (40,) if self._is_even else (0, 1, 40, 300, 3000)
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
            if self._sync:
                end = result.physical_offset + result.nbytes
                self.history.confirmed_end = max(self.history.confirmed_end, end)

    def run(self) -> None:
        """Open, write, and stop without closing (or close now and then)."""
        with self._disk.following():
            self._image_chance = 0.1
            kind = "SYNC_FLUSH" if self._sync else "ASYNC_FLUSH"
            store = rocketstore.open(
                self.root, "a", flush_disk_type=kind, clock=self._tick, start=False, **OPTIONS
            )
            self._store, self._reader = store, store.reader
            self._image_chance = 0.02
            try:
                for _ in range(self._choose.randrange(STEPS)):
                    self._step(store)
                self.take_image()
                if self._choose.random() < 0.3:
                    self._image_chance = 0.2
                    store.close()
                    self._reader = None
                    self.take_image()
            finally:
                store.close()
                self._disk.close()
        assert self._disk.sync_count > 5

    def _step(self, store: rocketstore.DefaultMessageStore) -> None:
        step = self._choose.randrange(12)
        if step < 4:
            self._confirm(store.put_message(self._draft()))
        elif step < 6:
            drafts = [self._draft() for _ in range(self._choose.randrange(1, 30))]
            self._confirm(*store.put_many(drafts))
        elif step < 7:
            drafts = [Message("Batches", b"b%d" % n) for n in range(self._choose.randrange(1, 9))]
            self._confirm(store.put_messages(MessageBatch(drafts, topic="Batches", queue_id=0)))
        elif step < 9:
            assert store.wait_dispatched()
        elif step < 10:
            for service in store._writer.services:  # type: ignore[union-attr]
                service.step()
        elif step < 11:
            self._is_flushing = True
            store.flush()
            self._is_flushing = False
        else:
            self._disk.write_back_some()
            self.take_image()


# --- judging ----------------------------------------------------------------------------------


def check_checkpoint(image: Image, history: History) -> None:
    """RocketMQ must be able to believe the checkpoint."""
    if not (image.root / "checkpoint").exists():
        return
    checkpoint = StoreCheckpoint.read(image.root / "checkpoint", image.root)
    newest = image.newest_confirmed
    assert checkpoint.physic_timestamp <= newest
    assert checkpoint.logics_timestamp <= newest
    starts = {m.physical_offset: m for m in history.records}
    place = checkpoint.logics_physical_offset
    assert place == 0 or place in starts
    assert place == 0 or place < image.confirmed_end


def check_image(image: Image, history: History) -> History:
    """Open the image for writing; return what it holds."""
    check_checkpoint(image, history)
    with rocketstore.open(image.root, "r") as store:
        shown = store.max_physical_offset
    with rocketstore.open(image.root, "r+") as store:
        report = store.recovery_report
        assert not report.damaged
        assert not report.gaps
        assert not report.refused
        end = store.max_physical_offset
        assert image.confirmed_end <= end <= image.log_end, (
            f"confirmed {image.confirmed_end}, recovered {end}, written {image.log_end}"
        )
        assert shown == end
        kept = History(history.records[:], end, end)
        kept.cut(end)
        assert [bytes(m.raw) for m in store.scan()] == [bytes(m.raw) for m in kept.records]
        check_queues(store, kept)
        check_keys(store, kept)
        verified = store.verify()
        assert verified.ok, verified.findings[:5]
    # That opening again changes nothing is checked where images are fewer.
    check_invariants(image.root, acknowledged=kept.records, reopen=False).require()
    return kept


def check_queues(store: rocketstore.DefaultMessageStore, kept: History) -> None:
    """Every queue has exactly its messages, with their tags."""
    queues: dict[tuple[str, int], list[StoredMessage]] = {}
    for message in kept.records:
        if message.sys_flag & 12 != 4:
            queues.setdefault((message.topic, message.queue_id), []).append(message)
    for (topic, queue_id), messages in queues.items():
        assert store.max_offset_in_queue(topic, queue_id) == len(messages)
        view = store.queue_view(topic, queue_id)
        assert view["physical_offset"].tolist() == [m.physical_offset for m in messages]
        assert [m.queue_offset for m in messages] == list(range(len(messages)))
        tagged = [n for n, m in enumerate(messages) if m.tags == "TagA"]
        assert store.filter_units(topic, queue_id, "TagA").tolist() == tagged
        found = store.get_message("g", topic, queue_id, 0, 32, filter=TagFilter("TagA"))
        assert [m.queue_offset for m in found.messages] == tagged[: len(found.messages)]
    known = {(topic, queue_id) for topic in store.topics() for queue_id in store.queues(topic)}
    assert {place for place in known if store.max_offset_in_queue(*place)} == set(queues)


def check_keys(store: rocketstore.DefaultMessageStore, kept: History) -> None:
    """Every key is found, also by its time."""
    for message in kept.records:
        if not message.unique_key:
            continue
        time, place = message.store_timestamp, message.physical_offset
        value = message.unique_key
        found = store.find(topic=message.topic, unique_key=value, begin=time, end=time + 1)
        assert [m.physical_offset for m in found] == [place]
        found = store.find(topic=message.topic, key=message.keys.split()[0])
        assert [m.physical_offset for m in found] == [place]
    shared = Counter(m.topic for m in kept.records if m.unique_key)
    for topic in TOPICS:
        assert len(list(store.find(topic=topic, key="shared"))) == shared[topic]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_power_cut(flush_disk_type: str, seed: int, tmp_path: Path) -> None:
    choose = random.Random(f"{flush_disk_type} {seed}")
    history, root = History(), tmp_path / "0"
    for generation in range(1, GENERATIONS + 1):
        life = Life(root, choose, history, flush_disk_type == "SYNC_FLUSH")
        life.run()
        survivor = choose.randrange(len(life.images))
        for number, image in enumerate(life.images):
            if number == survivor:
                # The next life begins in an image as it is; its recovery may be cut short too.
                root = tmp_path / str(generation)
                shutil.copytree(image.root, root)
                following = image
            kept = check_image(image, life.history)
            if number == survivor:
                history = History(kept.records, following.confirmed_end, kept.log_end)
            shutil.rmtree(image.root)
