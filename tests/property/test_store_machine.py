"""The store against plain lists and dicts, through puts, closes, kills and lost files.

``make machine MINUTES=...`` runs it for as long as one likes; ``ROCKETSTORE_KERNELS=reference``
chooses the other body of the kernels.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import rocketstore
from property.store_oracle import (
    BATCH_TOPIC,
    COMMIT,
    PREPARED,
    ROLLBACK,
    SCHEDULE_TOPIC,
    Oracle,
    Put,
    as_put,
    check,
)
from rocketstore import Message, MessageBatch, MessageStoreConfig, PutMessageStatus, formats
from rocketstore.testing import check_invariants

SEGMENT_NBYTES = 4096
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_NBYTES,
    "mapped_file_size_consume_queue": 160,
    "mapped_file_size_consume_queue_ext": 200,
    "mapper_file_size_batch_consume_queue": 138,
    "max_hash_slot_num": 7,
    "max_index_num": 30,
    "max_message_size": 2000,
    "enable_lmq": True,
    "enable_multi_dispatch": True,
    "topic_attributes": {BATCH_TOPIC: {"queue.type": "BatchCQ"}},
    "start": False,
}
KEYS = ("a", "b", "Aa", "BB", "é")
TOPICS = ("T", "Other-Topic", "%RETRY%g")
INNER = formats.SYS_FLAG_INNER_BATCH | formats.SYS_FLAG_NEED_UNWRAP
#: Runs in a test; those of the other body take longer.
RUNS = int(os.environ.get("ROCKETSTORE_MACHINE_RUNS", "90"))
OTHER_RUNS = RUNS // 4
MINUTES = os.environ.get("ROCKETSTORE_MACHINE_MINUTES", "")

topics = st.sampled_from(TOPICS)
queue_ids = st.integers(0, 2)
bodies = st.binary(max_size=60) | st.integers(0, 1500).map(lambda n: b"x" * n)
tags = st.sampled_from((None, "TagA", "TagB"))
keys = st.lists(st.sampled_from(KEYS), max_size=3, unique=True).map(tuple)
lights = st.lists(st.sampled_from(("%LMQ%a", "%LMQ%b", "%LMQ%c")), min_size=1, max_size=3,
                  unique=True).map(tuple)  # fmt: skip
#: Files that may be lost between two opens without a message being lost.
losses = st.sets(
    st.sampled_from(
        (
            *("consumequeue", "batchconsumequeue", "consumequeue_ext", "index"),
            *("one queue", "queue file", "index file", "state", "checkpoint"),
        )
    ),
    max_size=3,
)


def commit(store: rocketstore.DefaultMessageStore) -> None:
    """Copy what a transient store pool holds to the files: before, it is invisible."""
    assert store._writer is not None
    store._writer.log.commit()


class StoreMachine(RuleBasedStateMachine):
    """Puts and everything that happens to a store between them."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda fd: None)
        self.folder = Path(tempfile.mkdtemp(prefix="rocketstore-machine-"))
        self.generation = 0
        self.oracle = Oracle(SEGMENT_NBYTES)
        self.now = 1_700_000_000_000
        self.count = 0
        self.store: rocketstore.DefaultMessageStore | None = None

    @property
    def root(self) -> Path:
        return self.folder / str(self.generation)

    @initialize(
        version=st.sampled_from(("4.9.8", "5.1.4", "5.3.3", "5.5.0")),
        is_sync=st.booleans(),
        has_crc=st.booleans(),
        has_ext=st.booleans(),
        pool_size=st.sampled_from((0, 0, 1, 2)),
    )
    def create(
        self, version: str, is_sync: bool, has_crc: bool, has_ext: bool, pool_size: int
    ) -> None:
        has_crc = has_crc and version >= "5.2"
        self.options = {
            **OPTIONS,
            "flush_disk_type": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            "enabled_append_prop_crc": has_crc,
            "force_verify_prop_crc": has_crc,
            "enable_consume_queue_ext": has_ext,
            "transient_store_pool_enable": pool_size > 0,
            "transient_store_pool_size": max(pool_size, 1),
            "clock": lambda: self.now,
            # Without the state file it would be guessed from the records.
            "broker_version": version,
        }
        self.has_batches = version >= "5"
        self.open("x")

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
                check(self.store, self.oracle)
                self.store.close()
                self.check_directory(reopen=len(self.oracle.log) % 8 == 0)
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    def check_directory(self, *, reopen: bool = False) -> None:
        fields = {n: v for n, v in self.options.items() if n not in ("start", "clock")}
        report = check_invariants(
            self.root, config=MessageStoreConfig(**fields), clock_steps=True, reopen=reopen
        ).require()
        assert report.records == len(self.oracle.log)

    # --- putting ------------------------------------------------------------------------------

    def draft(self, topic: str, queue_id: int, body: bytes, tag: str | None, words: tuple[str, ...],
              flag: int = 0, **properties: str) -> Message:  # fmt: skip
        self.count += 1
        properties["UNIQ_KEY"] = f"U{self.count}"
        if tag is not None:
            properties["TAGS"] = tag
        if words:
            properties["KEYS"] = " ".join(words)
        return Message(topic, body, queue_id=queue_id, sys_flag=flag, properties=properties)

    def expect(
        self, message: Any, offset: int, queue_offset: int, count: int, light: tuple[str, ...]
    ) -> None:
        """Take a message into the oracle that was put at ``offset``."""
        commit(self.store)
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
        self.oracle.take(put, stored.store_size, count, light)

    def put_one(
        self, message: Any, result: Any, count: int = 1, light: tuple[str, ...] = ()
    ) -> None:
        is_queued = message.sys_flag & ROLLBACK in (0, COMMIT)
        wanted = self.oracle.next_queue_offset(message.topic, message.queue_id)
        wanted = wanted if is_queued else 0
        assert result.ok, result
        assert result.physical_offset == self.oracle.place(result.nbytes)
        assert result.queue_offset == wanted
        self.expect(message, result.physical_offset, wanted, count, light)

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
        assert result.ok, result
        assert result.physical_offset == self.oracle.place(result.nbytes)
        offset = result.physical_offset
        first = self.oracle.next_queue_offset(topic, queue_id)
        assert result.queue_offset == first
        for number, message in enumerate(drafts):
            self.expect(message, offset, first + number, 1, ())
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

    @rule(names=lights, queue_id=queue_ids, body=bodies, tag=tags, words=keys)
    def put_light(
        self,
        names: tuple[str, ...],
        queue_id: int,
        body: bytes,
        tag: str | None,
        words: tuple[str, ...],
    ) -> None:
        """One record that stands in light queues too."""
        named = {formats.PROPERTY_INNER_MULTI_DISPATCH: ",".join(names)}
        message = self.draft("T", queue_id, body, tag, words, **named)
        self.put_one(message, self.store.put_message(message), light=names)

    @precondition(lambda self: self.has_batches)
    @rule(queue_id=queue_ids, count=st.integers(1, 9), body=bodies)
    def put_inner_batch(self, queue_id: int, count: int, body: bytes) -> None:
        """One record that stands for several messages of its queue."""
        message = self.draft(BATCH_TOPIC, queue_id, body, None, (), INNER, INNER_NUM=str(count))
        self.put_one(message, self.store.put_message(message), count)

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

    @rule(step_ms=st.sampled_from((1, 999, 61_000, -1, -5000)))
    def step_clock(self, step_ms: int) -> None:
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
            if name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index"):
                shutil.rmtree(root / name, ignore_errors=True)
            elif name == "one queue":
                folders = sorted(root.glob("*consumequeue/*/*"))
                if folders:
                    shutil.rmtree(folders[choice % len(folders)])
            elif name in ("queue file", "index file"):
                pattern = "*consumequeue/*/*/*" if name == "queue file" else "index/*"
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

    @precondition(lambda self: hasattr(os, "fork"))
    @rule(rows=st.lists(st.tuples(topics, queue_ids, bodies, tags, keys), max_size=6),
          is_dispatched=st.booleans())  # fmt: skip
    def kill_child(self, rows: list[tuple[Any, ...]], is_dispatched: bool) -> None:
        """A process that puts and is killed, while it has the store open."""
        drafts = [self.draft(*row) for row in rows]
        self.store.close()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            self.put_and_die(drafts, writing, is_dispatched=is_dispatched)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            reported = pipe.read().decode()
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), reported
        self.open("r+")
        assert not self.store.recovery_report.clean
        offsets = [int(word) for word in reported.split()]
        for message, offset in zip(drafts, offsets, strict=True):
            wanted = self.oracle.next_queue_offset(message.topic, message.queue_id)
            self.expect(message, offset, wanted, 1, ())

    def put_and_die(self, drafts: list[Message], pipe: int, *, is_dispatched: bool) -> None:
        """In the child; never returns."""
        try:
            store = rocketstore.open(self.root, "r+", **self.options)
            results = store.put_many(drafts)
            commit(store)
            if is_dispatched:
                store.wait_dispatched()
            os.write(pipe, " ".join(str(r.physical_offset) for r in results).encode())
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:  # noqa: BLE001 - the parent shows it
            os.write(pipe, traceback.format_exc().encode())
        os._exit(1)

    def losable(self, lost: set[str]) -> set[str]:
        """Single files are missed only by what the state file says."""
        if lost & {"state", "checkpoint"}:
            return lost - {"queue file", "index file"}
        return lost

    @rule(derive=st.sampled_from(("tail", "full")))
    def read_beside(self, derive: str) -> None:
        # Queues that were not dispatched yet do not say what their topic is.
        known = {"topic_attributes": self.options["topic_attributes"]}
        with rocketstore.open(self.root, "r", derive=derive, **known) as beside:
            check(beside, self.oracle)
            message = self.draft("T", 0, b"new", None, ("a",))
            self.put_one(message, self.store.put_message(message))
            beside.refresh()
            check(beside, self.oracle)

    @rule(derive=st.sampled_from(("tail", "full", "none")))
    def read_closed(self, derive: str) -> None:
        """No process writes the store."""
        self.store.close()
        self.check_directory()
        with rocketstore.open(self.root, "r", derive=derive) as alone:
            check(alone, self.oracle)
        self.open("r+")

    # --- comparing ----------------------------------------------------------------------------

    @invariant()
    @precondition(lambda self: self.store is not None)
    def ends_agree(self) -> None:
        end = self.store.max_physical_offset
        assert self.oracle.end <= end <= -(-self.oracle.end // SEGMENT_NBYTES) * SEGMENT_NBYTES
        for (topic, queue_id), puts in self.oracle.queues.items():
            assert self.store.max_offset_in_queue(topic, queue_id) <= self.oracle.count(puts)

    @rule()
    def look(self) -> None:
        assert self.store.wait_dispatched()
        check(self.store, self.oracle)


def run(runs: int) -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=25,
            deadline=None,
            derandomize=os.environ.get("CI") == "true",
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_for(minutes: float) -> None:
    """Seeds count up from the one given; the last one printed repeats what failed."""
    number = int(os.environ.get("ROCKETSTORE_MACHINE_SEED") or time.time_ns() % 2**32)
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        print(f"SEED={number}", flush=True)
        run_state_machine_as_test(
            seed(number)(type("StoreMachine", (StoreMachine,), {})),
            settings=settings(
                max_examples=100,
                stateful_step_count=40,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
        number += 1


@pytest.mark.timeout(0 if MINUTES else 3600)
def test_store_machine() -> None:
    if MINUTES:
        run_for(float(MINUTES))
    else:
        run(RUNS)


@pytest.mark.timeout(900)
def test_store_machine_on_the_other_body() -> None:
    """The body of the kernels is chosen once for a process."""
    other = "reference" if rocketstore.kernels.name == "native" else "native"
    environment = {**os.environ, "ROCKETSTORE_KERNELS": other}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    program = f"from property import test_store_machine as m; m.run({OTHER_RUNS})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
