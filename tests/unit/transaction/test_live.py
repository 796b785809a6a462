"""Transactions of a store that many threads use: results are in the log, and a broker agrees."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import TransactionError, TransactionState, TransactionStateError, formats
from rocketstore.status import PutMessageStatus
from rocketstore.transaction import checking
from rocketstore.transaction.op_messages import offsets_in
from rocketstore.transaction.progress import read_progress

SECONDS = 0.8
TURNS = 250


class Traffic:
    """Threads that decide, ask and disturb; ``results`` is what callers know."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.stop = threading.Event()
        self.results: dict[str, str] = {}
        self.errors: list[BaseException] = []

    def run(self) -> None:
        calls = [*([self.decide] * 4), *([self.ask] * 2), self.refuse]
        threads = [
            threading.Thread(target=self.keep, args=(call, at)) for at, call in enumerate(calls)
        ]
        for thread in threads:
            thread.start()
        self.stop.wait(SECONDS)
        self.stop.set()
        for thread in threads:
            thread.join()
        self.store.reader.log.appender.refuse(None)

    def keep(self, call: Any, number: int) -> None:
        chance = random.Random(number)
        try:
            for turn in range(TURNS):
                if self.stop.is_set():
                    return
                call(chance, f"{number}-{turn}")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.errors.append(error)

    def decide(self, chance: random.Random, key: str) -> None:
        try:
            one = self.store.begin("Orders", b"x", group=chance.choice("ab"), unique_key=key)
        except TransactionError:
            return
        self.results[key] = "UNKNOWN"
        try:
            wanted = chance.choice(("commit", "rollback", None))
            if wanted == "commit" and one.commit().appended:
                self.results[key] = "COMMIT"
            elif wanted == "rollback":
                one.rollback()
                self.results[key] = "ROLLBACK"
        except TransactionStateError:
            return  # a check decided it
        except TransactionError:
            return  # refused

    def ask(self, chance: random.Random, key: str) -> None:
        states = (TransactionState.COMMIT, TransactionState.ROLLBACK, None, None)
        self.store.transaction_check(
            lambda message: chance.choice(states),
            force=True,
            group=chance.choice((None, "a")),
            max_count=chance.choice((None, 5)),
        )
        self.stop.wait(0.005)

    def refuse(self, chance: random.Random, key: str) -> None:
        appender = self.store.reader.log.appender
        self.stop.wait(0.004 * chance.random())
        appender.refuse(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        self.stop.wait(0.001 * chance.random())
        appender.refuse(None)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_threads_that_decide_ask_and_are_refused(
    flush: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking._log, "disabled", True)
    options: dict[str, Any] = {
        "mapped_file_size_commit_log": 1 << 20,
        "broker_version": "5.3.3",
        "transaction_check_max": 3,
    }
    with rocketstore.open(tmp_path, "a", flush_disk_type=flush, **options) as store:
        store.begin("Orders", b"x", group="silent", unique_key="first")
        traffic = Traffic(store)
        traffic.run()
        assert traffic.errors == []
        known = {one.transaction_id for one in store.transactions()}
    assert logging.getLogger(checking.__name__).disabled
    with rocketstore.open(tmp_path, "r", **options) as store:
        assert {one.transaction_id for one in store.transactions()} == known
        states = {one.transaction_id: one.state.name for one in store.transactions(state=None)}
        mask, commit = formats.SYS_FLAG_TRANSACTION_MASK, formats.SYS_FLAG_TRANSACTION_COMMIT
        committed = [one.unique_key for one in store.scan() if one.sys_flag & mask == commit]
        asked = asked_by_a_broker(store, tmp_path)
        newest = {one.message.queue_offset for one in store.transactions()}
    results = {key: state for key, state in traffic.results.items() if state != "UNKNOWN"}
    assert {key: states[key] for key in results} == results
    assert len(committed) == len(set(committed)) > 0
    assert asked == newest


def asked_by_a_broker(store: Any, root: Path) -> set[int]:
    """The half messages that a broker would ask about, as it reads queues and progress."""
    progress = read_progress(root)
    offsets: dict[str, list[Any]] = {formats.TOPIC_HALF: [], formats.TOPIC_OP: []}
    for one in store.scan():
        if one.topic in offsets:
            offsets[one.topic].append((one.queue_offset, bytes(one.body)))
    named: set[int] = set()
    for offset, body in offsets[formats.TOPIC_OP]:
        if offset >= progress.op:
            named.update(offsets_in(body))
    halves = {offset for offset, _ in offsets[formats.TOPIC_HALF] if offset >= progress.half}
    return halves - named
