"""Every known defect of RocketMQ has its row, the tests named there exist, and the rest is here."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from docs.examples import ROOT
from rocketstore import GetMessageStatus, Message, MessageBatch, PutMessageStatus

PAGE = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| D-")]
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "max_hash_slot_num": 7,
    "max_index_num": 30,
    "start": False,
}


def test_every_number_has_one_row() -> None:
    numbers = [int(n) for row in ROWS for n in re.findall(r"D-(\d+)", row.split("|")[1])]
    # Those between are about parts that are not here.
    assert sorted(numbers) == [*range(1, 73), *range(75, 78)]


def test_the_named_tests_exist() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row)}
    assert len(named) > 30
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    # The names of tests of bad input begin with its number: test_g03_...
    there = {
        re.sub("^test_[a-h][0-9]{2}_", "test_", n) for n in re.findall(r"def (test_\w+)", sources)
    }
    assert not {
        name for name in named if re.sub("^test_[a-h][0-9]{2}_", "test_", name) not in there
    }


def test_only_find_compares_keys(tmp_path: Path) -> None:
    """D-5: "Aa" and "BB" share a hash."""
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as store:
        for key in ("Aa", "BB"):
            store.put("T", key.encode(), 0, None, key)
        assert store.wait_dispatched()
        assert [m.body for m in store.query_message("T", "Aa").messages] == [b"Aa", b"BB"]
        assert [m.body for m in store.find(topic="T", key="Aa")] == [b"Aa"]


def test_counts_of_a_query_are_clamped(tmp_path: Path) -> None:
    """D-8."""
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as store:
        for _ in range(70):
            store.put("T", b"", 0, None, "k")
        assert store.wait_dispatched()
        for count, wanted in ((-1, 0), (0, 0), (1, 1), (64, 64), (2**31 - 1, 64)):
            assert len(store.query_message("T", "k", count).messages) == wanted


@pytest.mark.parametrize("kind", ["message", "batch"])
def test_what_fits_no_segment_takes_no_byte(kind: str, tmp_path: Path) -> None:
    """D-18, D-34."""
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as store:
        for _ in range(3):
            if kind == "message":
                result = store.put("T", bytes(4096))
            else:
                batch = MessageBatch([Message("T", bytes(900))] * 5, topic="T")
                result = store.put_messages(batch)
            assert result.status == PutMessageStatus.MESSAGE_ILLEGAL
            assert result.physical_offset is None
        assert store.max_physical_offset == 0
        assert store.put("T", b"fits").physical_offset == 0


def test_runtime_info_answers_at_once(tmp_path: Path) -> None:
    """D-30."""
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as store:
        assert store.runtime_info()["putMessageTimesTotal"] == "0"


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_questions_make_nothing(mode: str, tmp_path: Path) -> None:
    """D-36."""
    with rocketstore.open(tmp_path / "s", "x", **SMALL) as store:
        store.put("T", b"")
    before = sorted((tmp_path / "s").rglob("*"))
    with rocketstore.open(tmp_path / "s", mode, start=False) as store:
        for topic, queue_id in (("Unknown", 0), ("T", 1), ("../T", 0)):
            status = store.get_message("g", topic, queue_id, 0).status
            assert status == GetMessageStatus.NO_MESSAGE_IN_QUEUE
            assert store.max_offset_in_queue(topic, queue_id) == 0
            assert store.min_offset_in_queue(topic, queue_id) == 0
            assert store.get_offset_in_queue_by_time(topic, queue_id, 0) == 0
            assert len(store.queue_view(topic, queue_id)) == 0
            assert list(store.find(topic=topic, key="k")) == []
            assert list(store.query_message(topic, "k").messages) == []
        assert store.topics() == ["T"]
    assert sorted((tmp_path / "s").rglob("*")) == before


def test_index_files_of_one_millisecond_have_names_of_their_own(tmp_path: Path) -> None:
    """D-40."""
    clock = itertools.repeat(1_700_000_000_000).__next__
    with rocketstore.open(tmp_path / "s", "x", clock=clock, timezone="UTC", **SMALL) as store:
        for number in range(100):
            store.put("T", b"", 0, None, f"k{number}")
        assert store.wait_dispatched()
        names = sorted(path.name for path in (tmp_path / "s" / "index").iterdir())
        assert names == [f"202311142213200{number:02d}" for number in range(len(names))]
        assert len(names) == 4
        assert all(list(store.find(topic="T", key=f"k{number}")) for number in range(100))
