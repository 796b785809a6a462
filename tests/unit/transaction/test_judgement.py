"""What ``verify`` and ``info`` say about transactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from golden.golden_stores import unpack
from rocketstore import formats
from support.command_line import run

OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "broker_version": "5.3.3"}


def test_info_counts_the_undecided_by_age(tmp_path: Path) -> None:
    now = [1_000_000_000_000]
    with rocketstore.open(tmp_path, "a", clock=lambda: now[0], **OPTIONS) as store:
        for _ in range(3):
            store.begin("Orders", b"1", group="g")
        store.begin("Orders", b"2", group="g").commit()
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"1", group="g")
    found = json.loads(run("info", tmp_path, "--format", "json").stdout)["transactions"]
    assert found["undecided"] == 4
    assert found["oldestBornTimestamp"] == now[0]
    assert found["byAge"] == {"minute": 1, "hour": 0, "day": 0, "older": 3}
    table = run("info", tmp_path, "--format", "table").stdout
    assert "4 undecided (1 within a minute, 3 older), the oldest from 2001-09-09T" in table


def test_info_says_when_none_is_undecided(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "plain", "a", **OPTIONS) as store:
        store.put("T", b"1")
    with rocketstore.open(tmp_path / "done", "a", **OPTIONS) as store:
        store.begin("Orders", b"2", group="g").commit()
    assert "transactions" not in run("info", tmp_path / "plain", "--format", "table").stdout
    assert "none undecided" in run("info", tmp_path / "done", "--format", "table").stdout


def test_verify_finds_an_op_message_that_names_no_half(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, "a", **OPTIONS) as store:
        store.begin("Orders", b"1", group="g").commit()
        assert store.verify().ok
        put = store.put(formats.TOPIC_OP, b"0,7,8,9,10,", tags="d")
        assert store.wait_dispatched()
        (finding,) = store.verify().findings
    assert (finding.kind, finding.offset) == ("transaction-op", put.physical_offset)
    assert "7, 8, 9 …" in finding.reason
    answer = json.loads(run("verify", tmp_path, "--format", "json", code=1).stdout)
    assert answer["findingCounts"] == {"transaction-op": 1}
    assert "half messages" in json.dumps(answer)


def test_placeholders_of_a_repair_are_no_half_or_delayed_messages(tmp_path: Path) -> None:
    root = unpack("plain-5.3.3", tmp_path)
    before = json.loads(run("info", root, "--format", "json").stdout)
    (root / "commitlog/00000000000000065536").unlink()
    rocketstore.repair(root, rocketstore.plan(root, accept_loss=True))
    found = json.loads(run("info", root, "--format", "json").stdout)
    with rocketstore.open(root) as store:
        real = [one.topic for one in store.scan() if "ROCKETSTORE_LOST" not in one.properties]
        lost = [one for one in store.scan() if "ROCKETSTORE_LOST" in one.properties]
        assert len(list(store.transactions())) == real.count(formats.TOPIC_HALF)
        assert len(list(store.delays().due())) == real.count(formats.TOPIC_SCHEDULE)
        assert sum(store.delays().due_counts([1 << 60])) == real.count(formats.TOPIC_SCHEDULE)
        (half, *_) = (one for one in lost if one.topic == formats.TOPIC_HALF)
        with pytest.raises(rocketstore.TransactionNotFoundError, match="no half message"):
            store.transaction(half.physical_offset)
    assert found["transactions"]["undecided"] == real.count(formats.TOPIC_HALF) == 7
    assert found["transactions"]["oldestBornTimestamp"] > 1_000_000_000_000
    assert found["delays"]["pending"] == real.count(formats.TOPIC_SCHEDULE) == 7
    assert before["transactions"]["undecided"] == 9
    assert before["delays"]["pending"] == 10
