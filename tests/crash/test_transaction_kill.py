"""A process that decides transactions, killed at a random moment: each is decided once.

``ROCKETSTORE_TRANSACTION_KILLS=500`` kills more often (``make transactions``).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from crash import killing
from crash.transaction_writer import wanted
from rocketstore import TransactionState, formats

WRITER = Path(__file__).with_name("transaction_writer.py")
KILLS = int(os.environ.get("ROCKETSTORE_TRANSACTION_KILLS", "4"))


class Promised:
    """What the killed processes said about one store."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.decided: dict[str, str] = {}

    def take(self, output: bytes) -> None:
        for line in output.split(b"\n")[:-1]:
            if line == b"open":
                continue
            key, what = line.decode().split()
            if what == "begin":
                self.begun.add(key)
            else:
                self.decided[key] = what


def committed(store: Any) -> Counter[str]:
    mask = formats.SYS_FLAG_TRANSACTION_MASK
    return Counter(
        one.unique_key
        for one in store.scan()
        if one.sys_flag & mask == formats.SYS_FLAG_TRANSACTION_COMMIT
    )


def judge(root: Path, promised: Promised) -> None:
    with rocketstore.open(root, "r") as store:
        counts = committed(store)
        left = {one.transaction_id for one in store.transactions()}
        states = {one.transaction_id: one.state for one in store.transactions(state=None)}
    assert set(counts.values()) <= {1}, "a transaction was committed twice"
    assert all(wanted(key) == "commit" for key in counts)
    assert promised.begun <= states.keys(), "a begun transaction is gone"
    for key, what in promised.decided.items():
        assert (key in counts) == (what == "commit"), f"{key}: {what} is not in the log"
        assert key not in left
        assert states[key] == (
            TransactionState.COMMIT if what == "commit" else TransactionState.ROLLBACK
        )
    assert not left & counts.keys()


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.timeout(3600)
def test_killed_process_decides_each_once(
    flush_disk_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killing, "WRITER", WRITER)
    name = f"{flush_disk_type}-{random.SystemRandom().randrange(1 << 31)}"
    print(f"seed {name!r}")
    chance = random.Random(name)
    for number in range(KILLS):
        if number % 10 == 0:  # a new store: judging an old one takes longer and longer
            root, promised = tmp_path / f"store-{number}", Promised()
        moment = killing.KillMoment.choose(chance)
        least = 1 if number == KILLS - 1 else 0
        promised.take(killing.run_and_kill(root, flush_disk_type, number, moment, least_rows=least))
        if root.exists():
            judge(root, promised)
    with rocketstore.open(root, "r+") as store:
        assert store.verify().ok
        report = store.transaction_check(
            lambda one: (
                TransactionState.COMMIT
                if wanted(one.unique_key) == "commit"
                else TransactionState.ROLLBACK
            ),
            force=True,
        )
        assert report.asked == report.committed + report.rolled_back
        assert not list(store.transactions())
        assert set(committed(store).values()) <= {1}
    assert promised.begun
