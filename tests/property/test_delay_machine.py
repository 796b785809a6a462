"""Delayed messages through puts, clock steps, kills and reopenings: each is delivered once.

What must be true is read from the log alone: it holds each delayed message, and each delivery.
``make delay-machine RUNS=2000`` runs it for longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

import rocketstore
from crash.abandoning import abandon
from rocketstore import formats
from rocketstore.message import StoredMessage

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 160,
    "max_hash_slot_num": 7,
    "max_index_num": 30,
    "start": False,
}
RUNS = int(os.environ.get("ROCKETSTORE_DELAY_RUNS", "200"))
#: Tables of which each has the levels of those before it, or fewer.
LEVELS = ("1s 2s 5s", "1s 2s 5s 10s", "2s 4s 5s 10s", "1s")
FAR_MS = 10**9

levels = st.integers(1, 5)
bodies = st.sampled_from((b"", b"a", b"b")) | st.binary(max_size=900)
steps = st.sampled_from((0, 1, 500, 999, 1000, 1001, 2000, 5000, 60_000))


def is_delivery(message: StoredMessage) -> bool:
    return (
        message.topic != formats.TOPIC_SCHEDULE
        and message.delay_level > 0
        and message.properties.get(formats.PROPERTY_REAL_TOPIC) == message.topic
    )


def identity(message: StoredMessage) -> tuple[Any, ...]:
    properties = message.properties
    return (
        *(properties[formats.PROPERTY_REAL_TOPIC], properties[formats.PROPERTY_REAL_QUEUE_ID]),
        *(message.delay_level, message.born_timestamp, message.body),
    )


class DelayMachine(RuleBasedStateMachine):
    """Everything that may happen to a store with delayed messages."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda fd: None)
        self.root = Path(tempfile.mkdtemp(prefix="rocketstore-delays-"))
        self.now = 1_700_000_000_000
        self.levels = LEVELS[0]
        self.store: rocketstore.DefaultMessageStore

    @initialize(
        version=st.sampled_from(("4.9.8", "5.1.4", "5.3.3", "5.5.0")),
        is_sync=st.booleans(),
        has_ext=st.booleans(),
        has_pool=st.booleans(),
        enabled=st.booleans(),
    )
    def create(
        self, version: str, is_sync: bool, has_ext: bool, has_pool: bool, enabled: bool
    ) -> None:
        self.options = {
            **OPTIONS,
            "flush_disk_type": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            "enable_consume_queue_ext": has_ext,
            "transient_store_pool_enable": has_pool,
            "broker_version": version,
            "enabled_append_prop_crc": version >= "5.2",
            "clock": lambda: self.now,
        }
        self.open(enabled)

    def open(self, enabled: bool) -> None:
        self.store = rocketstore.open(
            self.root / "store",
            "a",
            message_delay_level=self.levels,
            schedule_message_enable=enabled,
            **self.options,
        )

    @rule(level=levels, body=bodies, queue_id=st.integers(0, 1), count=st.integers(1, 6))
    def put(self, level: int, body: bytes, queue_id: int, count: int) -> None:
        for _ in range(count):
            result = self.store.put("T", body, queue_id, "tag", delay_level=level)
            assert result.appended

    @rule(body=bodies)
    def put_plain(self, body: bytes) -> None:
        self.store.put("T", body)

    @rule(step=steps, back=st.booleans())
    def step_clock(self, step: int, back: bool) -> None:
        self.now += -step if back else step

    @rule(max_count=st.none() | st.integers(0, 3))
    def deliver(self, max_count: int | None) -> None:
        count = self.store.deliver_due(max_count=max_count)
        assert max_count is None or count <= max_count
        report = self.store.delays()
        assert max_count is not None or report.overdue == 0

    @rule()
    def persist(self) -> None:
        service = self.store.delay_service
        if service is not None:
            service.persist()

    @rule()
    def commit(self) -> None:
        assert self.store._writer is not None
        self.store._writer.log.commit()

    @rule(enabled=st.booleans(), table=st.sampled_from(LEVELS))
    def reopen(self, enabled: bool, table: str) -> None:
        self.store.close()
        self.levels = table
        self.open(enabled)
        self.check()

    @rule(enabled=st.booleans())
    def kill(self, enabled: bool) -> None:
        abandon(self.store)
        self.open(enabled)
        self.check()

    @rule()
    def read(self) -> None:
        """A reader beside the writer sees what the log shows, whatever was persisted."""
        assert self.store._writer is not None
        self.store._writer.log.commit()
        self.store.wait_dispatched()
        with rocketstore.open(
            self.root / "store", message_delay_level=self.levels, clock=lambda: self.now
        ) as reader:
            waiting = Counter(identity(entry.message.detach()) for entry in reader.delays().due())
        delayed, delivered = self.seen()
        assert waiting == Counter(map(identity, delayed)) - Counter(map(identity, delivered))

    def seen(self) -> tuple[list[StoredMessage], list[StoredMessage]]:
        """Delayed messages and deliveries, in log order."""
        messages = [message.detach() for message in self.store.scan()]
        delayed = [m for m in messages if m.topic == formats.TOPIC_SCHEDULE]
        return delayed, [m for m in messages if is_delivery(m)]

    def check(self) -> None:
        delayed, delivered = self.seen()
        for level in {message.delay_level for message in delivered}:
            order = [identity(m) for m in delayed if m.delay_level == level]
            done = [identity(m) for m in delivered if m.delay_level == level]
            assert done == order[: len(done)], "a level is delivered in order, each message once"

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.now += FAR_MS
                self.store.deliver_due()
                assert self.store._writer is not None
                self.store._writer.log.commit()
                self.check()
                delayed, delivered = self.seen()
                assert len(delivered) == len(delayed), "nothing is lost"
                self.store.close()
        finally:
            self.patch.undo()
            shutil.rmtree(self.root, ignore_errors=True)


def test_each_delayed_message_is_delivered_once() -> None:
    run_state_machine_as_test(
        DelayMachine,
        settings=settings(
            max_examples=RUNS,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
