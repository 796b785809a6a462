"""Answers of a store in other processes: they are pickled and copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore

Copy = Callable[[Any], Any]
COPIES: list[Copy] = [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy]


@pytest.mark.parametrize("duplicate", COPIES, ids=["pickle", "deepcopy"])
def test_every_answer_can_go_to_another_process(tmp_path: Path, duplicate: Copy) -> None:
    with rocketstore.open(tmp_path / "s", "x", mapped_file_size_commit_log=1 << 16) as store:
        put = store.put("T", b"one", keys="k", tags="a")
        many = store.put_many([rocketstore.Message("T", b"two"), rocketstore.Message("T", b"3")])
        refused = store.put("T" * 300, b"")
        batch = rocketstore.MessageBatch([rocketstore.Message("T", b"4")] * 2, topic="T")
        answers = [
            put,
            many,
            refused,
            store.put_messages(batch),
            store.query_message("T", "k", 3, 0, 2**62),
            store.recovery_report,
            store.facts,
            store.config,
            store.verify(),
            store.clean_expired(),
        ]
        for answer in answers:
            assert duplicate(answer) == answer
        assert not refused.appended
        store.wait_dispatched()
        pulled = store.get_message("g", "T", 0, 0, 10)
    found = duplicate(pulled)
    assert found[:4] == pulled[:4]
    assert list(found.messages) == list(pulled.messages)
    assert [message.body for message in found.messages] == [b"one", b"two", b"3", b"4", b"4"]
