"""Transactions against a plain table, through puts, clock steps, checks, kills and reopenings.

``ROCKETSTORE_MACHINE_RUNS=2000`` runs it longer (``make transactions``);
``ROCKETSTORE_KERNELS=reference`` chooses the other body of the kernels.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import rocketstore
from rocketstore import TransactionState, TransactionStateError, formats, kernels
from rocketstore.dialect import Dialect
from rocketstore.testing import check_invariants
from rocketstore.transaction import checking
from rocketstore.transaction_records import RecordMaker

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 160,
    "max_hash_slot_num": 7,
    "max_index_num": 30,
    "max_message_size": 2000,
    "transaction_check_max": 2,
    "start": False,
}
UNKNOWN, COMMIT, ROLLBACK, DISCARDED = TransactionState
RUNS = int(os.environ.get("ROCKETSTORE_MACHINE_RUNS", "160"))
OTHER_RUNS = RUNS // 4
TIME_OUT_MS = 6000
GROUPS = ("a", "b")
ANSWERS = (None, UNKNOWN, COMMIT, ROLLBACK, "fail", "stop")


@dataclass
class Expected:
    """One transaction, as it must be."""

    body: bytes
    group: str
    topic: str
    born: int
    immunity_ms: int | None
    offset: int
    place: int
    state: TransactionState = UNKNOWN
    checks: int = 0
    is_asked: bool = False
    committed_at: int | None = None

    def is_immune(self, now: int, *, includes_end: bool) -> bool:
        age = now - self.born
        if self.immunity_ms is not None:
            return age < self.immunity_ms + includes_end
        return 0 <= age < TIME_OUT_MS + includes_end


logging.getLogger("quiet").addHandler(logging.NullHandler())


class TransactionMachine(RuleBasedStateMachine):
    """Transactions and everything that happens to a store between their records."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda fd: None)
        self.patch.setattr(checking, "_log", logging.getLogger("quiet"))  # callbacks fail often
        self.folder = Path(tempfile.mkdtemp(prefix="rocketstore-transactions-"))
        self.generation = 0
        self.now = 1_700_000_000_000
        self.count = 0
        self.places = itertools.count()
        self.table: dict[str, Expected] = {}
        self.plain = 0
        self.store: Any = None

    @property
    def root(self) -> Path:
        return self.folder / str(self.generation)

    @initialize(
        version=st.sampled_from(("4.9.8", "5.1.4", "5.3.3", "5.5.0")),
        is_sync=st.booleans(),
        has_index=st.booleans(),
        has_pool=st.booleans(),
    )
    def create(self, version: str, is_sync: bool, has_index: bool, has_pool: bool) -> None:
        self.options = {
            **OPTIONS,
            "broker_version": version,
            "flush_disk_type": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            "message_index_enable": has_index,
            "transient_store_pool_enable": has_pool,
            "clock": lambda: self.now,
        }
        self.dialect = Dialect.for_version(version)
        self.store = rocketstore.open(self.root, "x", **self.options)

    def teardown(self) -> None:
        try:
            if self.store is not None:
                self.store.close()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> list[str]:
        return [key for key, one in self.table.items() if one.state == UNKNOWN]

    # --- what happens ---------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS), topic=st.sampled_from(("T", "Other")),
          size=st.integers(0, 900), immunity=st.sampled_from((None, None, "0", "20", "x")),
          queue_id=st.integers(0, 1))  # fmt: skip
    def begin(self, group: str, topic: str, size: int, immunity: str | None, queue_id: int) -> None:
        self.count += 1
        key, body = f"key-{self.count}", b"%d " % self.count + bytes(size)
        properties = {} if immunity is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity}
        begun = self.store.begin(
            topic, body, group=group, queue_id=queue_id, unique_key=key, properties=properties
        )
        own = 1000 * int(immunity) if immunity is not None and immunity.isdigit() else None
        self.table[key] = Expected(
            body, group, topic, self.now, own, begun.offset, next(self.places)
        )

    @rule(size=st.integers(0, 1500))
    def put(self, size: int) -> None:
        assert self.store.put("T", bytes(size)).ok
        self.plain += 1

    @precondition(lambda self: self.table)
    @rule(data=st.data(), commits=st.booleans(), by_key=st.booleans())
    def decide(self, data: st.DataObject, commits: bool, by_key: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.table)))
        expected = self.table[key]
        one = self.store.transaction(key if by_key else expected.offset)
        wanted = COMMIT if commits else ROLLBACK
        if expected.state not in (UNKNOWN, wanted):
            with pytest.raises(TransactionStateError):
                one.commit() if commits else one.rollback()
            return
        before = self.store.reader.log.wrote_offset
        if not commits:
            one.rollback()
        else:
            outcome = one.commit()
            if expected.committed_at is None:
                expected.committed_at = outcome.physical_offset
            assert outcome.physical_offset == expected.committed_at
        if expected.state == wanted:
            assert self.store.reader.log.wrote_offset == before
        expected.state = wanted

    @rule(answers=st.lists(st.sampled_from(ANSWERS), min_size=1),
          group=st.sampled_from((None, *GROUPS)), force=st.booleans(),
          max_count=st.sampled_from((None, None, 1, 2)))  # fmt: skip
    def check(
        self, answers: list[Any], group: str | None, force: bool, max_count: int | None
    ) -> None:
        asked: list[str] = []

        def callback(message: Any) -> Any:
            answer = answers[len(asked) % len(answers)]
            asked.append(message.unique_key)
            if answer == "fail":
                raise KeyError
            if answer == "stop":
                raise KeyboardInterrupt
            return answer

        expected_asked: list[str] = []
        seen = 0
        late = self.dialect.immunity_includes_end
        stops = False
        for key in sorted(self.left(), key=lambda key: self.table[key].place):
            one = self.table[key]
            if group is not None and one.group != group:
                continue
            if not force and one.is_immune(self.now, includes_end=late):
                continue
            if max_count is not None and seen == max_count:
                break
            seen += 1
            if one.checks >= OPTIONS["transaction_check_max"] and one.is_asked:
                one.state = DISCARDED
                continue
            answer = answers[len(expected_asked) % len(answers)]
            expected_asked.append(key)
            if answer == "stop":
                stops = True
                break
            one.is_asked = True
            if answer in (COMMIT, ROLLBACK):
                one.state = answer
            elif one.checks >= OPTIONS["transaction_check_max"]:
                one.state = DISCARDED
            else:
                one.checks += 1
                one.place = next(self.places)
        with pytest.raises(KeyboardInterrupt) if stops else contextlib.nullcontext():
            self.store.transaction_check(callback, group=group, force=force, max_count=max_count)
        assert asked == expected_asked

    @rule(step_ms=st.sampled_from((1, 900, 6000, 30_000, 10**7, -1, -5000, -(10**6))))
    def step_clock(self, step_ms: int) -> None:
        self.now += step_ms

    # --- stops ----------------------------------------------------------------------------------

    def reopen(self) -> None:
        self.store = rocketstore.open(self.root, "r+", **self.options)
        for one in self.table.values():
            one.is_asked = False

    @rule()
    def close(self) -> None:
        self.store.close()
        if self.options["message_index_enable"]:
            check_invariants(self.root, clock_steps=True).require()
        self.reopen()

    @rule()
    def kill(self) -> None:
        """The directory as a killed process leaves it."""
        self.store._writer.log.commit()
        following = self.folder / str(self.generation + 1)
        shutil.copytree(self.root, following, ignore=shutil.ignore_patterns("lock"))
        self.store.close()
        shutil.rmtree(self.root)
        self.generation += 1
        self.reopen()

    @precondition(lambda self: self.left())
    @rule(data=st.data(), what=st.sampled_from(("final", "discard", "copy")))
    def kill_between(self, data: st.DataObject, what: str) -> None:
        """Killed after the first record of a decision, or of a check."""
        key = data.draw(st.sampled_from(self.left()))
        one = self.table[key]
        half = self.store.transaction(key).message
        maker = RecordMaker(self.store.reader.log.appender, self.dialect, kernels.message)
        if what == "final":
            one.committed_at = maker.put_final(half).physical_offset
            one.state = COMMIT
        elif what == "discard":
            maker.put_discarded(half, None)
            one.state = DISCARDED
        else:
            one.checks += 1
            one.place = next(self.places)
            maker.put_copy(half, one.checks, half.queue_offset, None)
        self.kill()

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def undecided(self) -> None:
        if self.store is None:
            return
        found = {
            one.message.unique_key: (one.message.body, one.group, one.topic, one.checks)
            for one in self.store.transactions()
        }
        assert found == {
            key: (one.body, one.group, one.topic, one.checks)
            for key, one in self.table.items()
            if one.state == UNKNOWN
        }

    @rule()
    def every(self) -> None:
        """The log shows each decided once; another process sees the same."""
        self.store._writer.log.commit()
        mask = formats.SYS_FLAG_TRANSACTION_MASK
        assert self.store.wait_dispatched()
        with rocketstore.open(self.root, "r", **self.options) as reader:
            committed = Counter(
                message.body
                for message in reader.scan()
                if message.sys_flag & mask == formats.SYS_FLAG_TRANSACTION_COMMIT
            )
            states = {one.message.unique_key: one.state for one in reader.transactions(state=None)}
            seen = {one.message.unique_key for one in reader.transactions()}
        assert committed == {one.body: 1 for one in self.table.values() if one.state == COMMIT}
        assert states == {key: one.state for key, one in self.table.items()}
        assert seen == set(self.left())


def run(runs: int) -> None:
    run_state_machine_as_test(
        TransactionMachine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=15,
            deadline=None,
            derandomize=os.environ.get("CI") == "true",
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3600)
def test_transaction_machine() -> None:
    run(RUNS)


@pytest.mark.timeout(900)
def test_transaction_machine_on_the_other_body() -> None:
    """The body of the kernels is chosen once for a process."""
    other = "reference" if rocketstore.kernels.name == "native" else "native"
    environment = {**os.environ, "ROCKETSTORE_KERNELS": other}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    program = f"from property import test_transaction_machine as m; m.run({OTHER_RUNS})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
