"""The store against plain lists and dicts, through puts, closes, kills and lost files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import rocketstore
from rocketstore import GetMessageStatus, Message, MessageBatch, PutMessageStatus, TagFilter

SEGMENT_NBYTES = 4096
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_NBYTES,
    "mapped_file_size_consume_queue": 160,
    "max_hash_slot_num": 7,
    "max_index_num": 30,
    "max_message_size": 2000,
    "start": False,
}
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
KEYS = ("a", "b", "Aa", "BB", "é")
TOPICS = ("T", "Other-Topic", "%RETRY%g")

topics = st.sampled_from(TOPICS)
queue_ids = st.integers(0, 2)
bodies = st.binary(max_size=60) | st.integers(0, 1500).map(lambda n: b"x" * n)
tags = st.sampled_from((None, "TagA", "TagB"))
keys = st.lists(st.sampled_from(KEYS), max_size=3, unique=True).map(tuple)
#: Files that may be lost between two opens without a message being lost.
losses = st.sets(
    st.sampled_from(
        ("consumequeue", "index", "one queue", "queue file", "index file", "state", "checkpoint")
    ),
    max_size=3,
)


class Put(NamedTuple):
    """One record as it must be found again."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    unique_key: str | None
    sys_flag: int
    store_timestamp: int


def as_put(message: rocketstore.StoredMessage) -> Put:
    """The same of a message that was read."""
    return Put(
        message.physical_offset,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.body,
        message.tags,
        tuple((message.keys or "").split()),
        message.unique_key,
        message.sys_flag,
        message.store_timestamp,
    )


class Oracle:
    """What the store must hold."""

    def __init__(self) -> None:
        self.log: list[Put] = []
        self.end = 0
        self.queues: dict[tuple[str, int], list[Put]] = defaultdict(list)
        self.keys: dict[tuple[str, str], list[int]] = defaultdict(list)

    def place(self, nbytes: int) -> int:
        """Where ``nbytes`` more go: behind the last record, or into the next segment."""
        left = SEGMENT_NBYTES - self.end % SEGMENT_NBYTES
        return self.end if nbytes + 8 <= left else self.end + left

    def take(self, put: Put, nbytes: int) -> None:
        self.log.append(put)
        self.end = put.physical_offset + nbytes
        transaction = put.sys_flag & ROLLBACK
        if transaction in (0, COMMIT):
            self.queues[put.topic, put.queue_id].append(put)
        if transaction != ROLLBACK:
            for key in put.keys:
                self.keys[put.topic, key].append(put.physical_offset)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), ()))


class StoreMachine(RuleBasedStateMachine):
    """Puts and everything that happens to a store between them."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda fd: None)
        self.folder = Path(tempfile.mkdtemp())
        self.generation = 0
        self.oracle = Oracle()
        self.now = 1_700_000_000_000
        self.count = 0
        self.store: rocketstore.DefaultMessageStore | None = None

    @property
    def root(self) -> Path:
        return self.folder / str(self.generation)

    @initialize(
        version=st.sampled_from(("4.9.8", "5.1.4", "5.3.3", "5.5.0")), is_sync=st.booleans()
    )
    def create(self, version: str, is_sync: bool) -> None:
        self.options = {
            **OPTIONS,
            "flush_disk_type": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            "clock": lambda: self.now,
        }
        self.open("x", broker_version=version)

    def open(self, mode: str, **options: Any) -> None:
        self.store = rocketstore.open(self.root, mode, **self.options, **options)
        report = self.store.recovery_report
        assert not report.damaged
        assert not report.cut
        assert not report.gaps
        assert not report.refused

    def teardown(self) -> None:
        try:
            if self.store is not None:
                self.check(self.store)
                self.store.close()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    # --- putting ------------------------------------------------------------------------------

    def draft(self, topic: str, queue_id: int, body: bytes, tag: str | None, words: tuple[str, ...],
              flag: int = 0) -> Message:  # fmt: skip
        self.count += 1
        properties = {"UNIQ_KEY": f"U{self.count}"}
        if tag is not None:
            properties["TAGS"] = tag
        if words:
            properties["KEYS"] = " ".join(words)
        return Message(topic, body, queue_id=queue_id, sys_flag=flag, properties=properties)

    def expect(self, message: Any, result: Any, offset: int, queue_offset: int) -> None:
        """Take a message into the oracle that was put at ``offset``."""
        assert result.ok
        stored = self.store.look_message_by_offset(offset)
        assert stored is not None
        put = Put(
            offset,
            message.topic,
            message.queue_id,
            queue_offset,
            message.body,
            message.tags,
            tuple((message.keys or "").split()),
            message.unique_key,
            message.sys_flag,
            self.now,
        )
        assert as_put(stored) == put
        self.oracle.take(put, stored.store_size)

    def put_one(self, message: Any, result: Any) -> None:
        is_queued = message.sys_flag & ROLLBACK in (0, COMMIT)
        wanted = self.oracle.next_queue_offset(message.topic, message.queue_id)
        wanted = wanted if is_queued else 0
        assert result.physical_offset == self.oracle.place(result.nbytes)
        assert result.queue_offset == wanted
        self.expect(message, result, result.physical_offset, wanted)

    @rule(topic=topics, queue_id=queue_ids, body=bodies, tag=tags, words=keys,
          flag=st.sampled_from((0, 0, 0, PREPARED, COMMIT, ROLLBACK)))  # fmt: skip
    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        tag: str | None,
        words: tuple[str, ...],
        flag: int,
    ) -> None:
        message = self.draft(topic, queue_id, body, tag, words, flag)
        self.put_one(message, self.store.put_message(message))

    @rule(queue_id=queue_ids, level=st.integers(1, 18), words=keys)
    def put_delayed(self, queue_id: int, level: int, words: tuple[str, ...]) -> None:
        result = self.store.put("T", b"late", queue_id, None, words or None, delay_level=level)
        wanted = Message(SCHEDULE_TOPIC, b"late", queue_id=level - 1,
                         properties={"KEYS": " ".join(words)} if words else {})  # fmt: skip
        self.put_one(wanted, result)

    @rule(topic=topics, queue_id=queue_ids, words=keys, sizes=st.lists(st.integers(0, 200),
          min_size=1, max_size=6))  # fmt: skip
    def put_batch(
        self, topic: str, queue_id: int, words: tuple[str, ...], sizes: list[int]
    ) -> None:
        if topic.startswith("%RETRY%"):
            topic = "T"
        drafts = [self.draft(topic, queue_id, b"b" * size, None, words) for size in sizes]
        result = self.store.put_messages(MessageBatch(drafts, topic=topic, queue_id=queue_id))
        assert result.physical_offset == self.oracle.place(result.nbytes)
        offset = result.physical_offset
        first = self.oracle.next_queue_offset(topic, queue_id)
        assert result.queue_offset == first
        for number, message in enumerate(drafts):
            self.expect(message, result, offset, first + number)
            offset = self.oracle.end
        assert offset == result.physical_offset + result.nbytes

    @rule(rows=st.lists(st.tuples(topics, queue_ids, bodies, tags, keys), max_size=12))
    def put_many(self, rows: list[tuple[Any, ...]]) -> None:
        drafts = [self.draft(*row) for row in rows]
        for message, result in zip(drafts, self.store.put_many(drafts), strict=True):
            self.put_one(message, result)

    @rule(topic=topics, queue_id=queue_ids, sizes=st.lists(st.integers(0, 90), max_size=20))
    def put_columns(self, topic: str, queue_id: int, sizes: list[int]) -> None:
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        data = bytes(number % 251 for number in range(int(offsets[-1])))
        results = self.store.put_columns(topic, offsets, data, queue_id=queue_id, keys="col")
        assert len(results) == len(sizes)
        for result, start, stop in zip(results, offsets, offsets[1:], strict=False):
            message = Message(topic, data[start:stop], queue_id=queue_id,
                              properties={"KEYS": "col"})  # fmt: skip
            self.put_one(message, result)

    @rule(queue_id=queue_ids)
    def refused(self, queue_id: int) -> None:
        result = self.store.put("T", b"x" * 2001, queue_id)
        assert result.status == PutMessageStatus.MESSAGE_ILLEGAL
        assert result.physical_offset is None
        for wrong in ("", "a/b", "..", "a\0b", "T\n"):
            with pytest.raises(ValueError, match="topic"):
                self.store.put(wrong, b"x")
        with pytest.raises(ValueError, match="queue_id"):
            self.store.put("T", b"x", -1)
        with pytest.raises(TypeError):
            self.store.put("T", "text")

    @rule(step_ms=st.sampled_from((1, 999, 61_000)))
    def wait(self, step_ms: int) -> None:
        self.now += step_ms

    # --- services -----------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.store.max_physical_offset

    @rule()
    def dispatch(self) -> None:
        assert self.store.wait_dispatched()
        assert self.store.dispatch_behind_nbytes == 0

    @rule()
    def step_services(self) -> None:
        for service in self.store._writer.services:
            service.step()

    # --- opening again ------------------------------------------------------------------------

    def lose(self, lost: set[str], choice: int) -> None:
        root = self.root
        for name in sorted(lost):
            if name in ("consumequeue", "index"):
                shutil.rmtree(root / name, ignore_errors=True)
            elif name == "one queue":
                folders = sorted(root.glob("consumequeue/*/*"))
                if folders:
                    shutil.rmtree(folders[choice % len(folders)])
            elif name in ("queue file", "index file"):
                pattern = "consumequeue/*/*/*" if name == "queue file" else "index/*"
                files = sorted(root.glob(pattern))
                if files:
                    files[choice % len(files)].unlink()
            else:
                file = "rocketstore.state" if name == "state" else name
                (root / file).unlink(missing_ok=True)

    @rule(lost=losses, choice=st.integers(0, 1000))
    def reopen(self, lost: set[str], choice: int) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        self.lose(self.losable(lost), choice)
        self.open("r+")
        assert self.store.recovery_report.clean

    @rule(lost=losses, choice=st.integers(0, 1000))
    def kill(self, lost: set[str], choice: int) -> None:
        """The directory as a killed process leaves it."""
        killed = self.store
        following = self.folder / str(self.generation + 1)
        shutil.copytree(self.root, following, ignore=shutil.ignore_patterns("lock"))
        killed.close()
        shutil.rmtree(self.root)
        self.generation += 1
        self.lose(self.losable(lost), choice)
        self.open("r+")
        assert not self.store.recovery_report.clean

    def losable(self, lost: set[str]) -> set[str]:
        """Single files are missed only by what the state file says."""
        if lost & {"state", "checkpoint"}:
            return lost - {"queue file", "index file"}
        return lost

    @rule(derive=st.sampled_from(("tail", "full")))
    def read_beside(self, derive: str) -> None:
        with rocketstore.open(self.root, "r", derive=derive) as beside:
            self.check(beside)
            message = self.draft("T", 0, b"new", None, ("a",))
            self.put_one(message, self.store.put_message(message))
            beside.refresh()
            self.check(beside)

    # --- comparing ----------------------------------------------------------------------------

    @invariant()
    @precondition(lambda self: self.store is not None)
    def ends_agree(self) -> None:
        end = self.store.max_physical_offset
        assert self.oracle.end <= end <= -(-self.oracle.end // SEGMENT_NBYTES) * SEGMENT_NBYTES
        for (topic, queue_id), puts in self.oracle.queues.items():
            assert self.store.max_offset_in_queue(topic, queue_id) <= len(puts)

    @rule()
    def look(self) -> None:
        assert self.store.wait_dispatched()
        self.check(self.store)

    def check(self, store: rocketstore.DefaultMessageStore) -> None:
        assert store.wait_dispatched()
        assert [as_put(message) for message in store.scan()] == self.oracle.log
        known = {(t, q) for t in store.topics() for q in store.queues(t)}
        filled = {place for place, puts in self.oracle.queues.items() if puts}
        assert {place for place in known if store.max_offset_in_queue(*place)} == filled
        for place in filled:
            self.check_queue(store, *place)
        for (topic, key), offsets in self.oracle.keys.items():
            self.check_key(store, topic, key, offsets)
        for put in self.oracle.log[-20:]:
            message = store.look_message_by_offset(put.physical_offset)
            assert as_put(message) == put
            assert as_put(store.look_message_by_id(message.msg_id)) == put
            if put.unique_key and put.sys_flag & ROLLBACK != ROLLBACK:
                found = store.find(topic=put.topic, unique_key=put.unique_key)
                assert [as_put(m) for m in found] == [put]
        verified = store.verify()
        assert verified.ok, verified.findings[:5]

    def check_queue(
        self, store: rocketstore.DefaultMessageStore, topic: str, queue_id: int
    ) -> None:
        puts = self.oracle.queues[topic, queue_id]
        end = len(puts)
        assert store.min_offset_in_queue(topic, queue_id) == 0
        assert store.max_offset_in_queue(topic, queue_id) == end
        for offset, status in (
            (-1, GetMessageStatus.OFFSET_TOO_SMALL),
            (end, GetMessageStatus.OFFSET_OVERFLOW_ONE),
            (end + 1, GetMessageStatus.OFFSET_OVERFLOW_BADLY),
        ):
            assert store.get_message("g", topic, queue_id, offset).status == status
        self.check_pulls(store, topic, queue_id, None, puts)
        if topic != SCHEDULE_TOPIC:
            tagged = [put for put in puts if put.tags == "TagA"]
            self.check_pulls(store, topic, queue_id, TagFilter("TagA"), tagged)
            units = store.filter_units(topic, queue_id, "TagA").tolist()
            assert units == [put.queue_offset for put in tagged]
        times = [put.store_timestamp for put in puts]
        for time in {times[0] - 1, times[0], times[-1], times[-1] + 1, times[len(times) // 2]}:
            by_time = store.get_offset_in_queue_by_time
            lower, upper = sum(t < time for t in times), sum(t <= time for t in times)
            assert by_time(topic, queue_id, time, boundary="lower") == lower
            assert by_time(topic, queue_id, time, boundary="upper") == max(upper - 1, 0)

    def check_pulls(
        self,
        store: rocketstore.DefaultMessageStore,
        topic: str,
        queue_id: int,
        chosen: TagFilter | None,
        wanted: list[Put],
    ) -> None:
        offset, found = 0, []
        end = store.max_offset_in_queue(topic, queue_id)
        while offset < end:
            result = store.get_message("g", topic, queue_id, offset, 5, filter=chosen)
            assert offset < result.next_begin_offset <= end
            assert (result.status == GetMessageStatus.FOUND) == bool(result.messages)
            offset = result.next_begin_offset
            found += [as_put(message) for message in result.messages]
        assert found == wanted

    def check_key(
        self, store: rocketstore.DefaultMessageStore, topic: str, key: str, offsets: list[int]
    ) -> None:
        assert [m.physical_offset for m in store.find(topic=topic, key=key)] == offsets
        hits, splits = store.index_offsets(topic, [key, "nowhere"])
        assert set(offsets) <= set(hits[: splits[1]].tolist())
        middle = self.oracle.log[len(self.oracle.log) // 2].store_timestamp
        times = {put.physical_offset: put.store_timestamp for put in self.oracle.log}
        late = [offset for offset in offsets if times[offset] >= middle]
        found = store.find(topic=topic, key=key, begin=middle)
        assert [m.physical_offset for m in found] == late
        answer = store.query_message(topic, key, 64).messages
        assert len(answer) <= 64
        answered = [message.physical_offset for message in answer]
        assert set(answered) <= set(times)
        assert len(answered) == 64 or set(offsets) <= set(answered)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
