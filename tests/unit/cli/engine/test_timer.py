"""``rocketstore timer``, and what ``info`` and ``verify`` say about a timer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketstore import formats
from support.command_line import lines, run
from support.timer_files import NOW, TimedStore, after


@pytest.fixture
def timed(tmp_path: Path) -> TimedStore:
    store = TimedStore(tmp_path / "store")
    records = store.put(after(9_000), after(5_000), after(200_000_000))
    store.files.enqueue_all([*records, *store.put(after(5_000), topic="U")], NOW)
    store.put(after(7_000))
    store.files.write()
    return store


def test_the_list(timed: TimedStore) -> None:
    *rows, summary = lines(run("timer", timed.root))
    assert [row["dueTimestamp"] - NOW for row in rows] == [4_500, 4_500, 6_500, 8_500, 199_999_500]
    assert [row["topic"] for row in rows] == ["T", "U", "T", "T", "T"]
    assert [row["isEnqueued"] for row in rows] == [True, True, False, True, True]
    assert [row["rolls"] for row in rows] == [False] * 4 + [True]
    assert summary["kind"] == "summary"
    assert (summary["pending"], summary["overdue"], summary["notEnqueued"]) == (5, 5, 1)
    assert summary["findings"] == []


def test_the_formats(timed: TimedStore) -> None:
    *rows, summary = lines(run("timer", timed.root))
    document = json.loads(run("timer", timed.root, "--format", "json").stdout)
    assert document == {**summary, "messages": rows}
    names, first, *others = run("timer", timed.root, "--format", "csv").stdout.splitlines()
    assert names.startswith("dueTimestamp,topic,queueId,rolls")
    assert first.startswith(f"{NOW + 4_500},T,1,false")
    assert len(others) == 4
    table = run("timer", timed.root, "--format", "table").stdout
    assert "not in the wheel" in table
    assert "rolls at " in table
    assert "5 messages pending, 5 overdue, 1 not in the wheel yet" in table


def test_the_counts(timed: TimedStore) -> None:
    *rows, _ = lines(run("timer", timed.root, "--by", "topic"))
    assert rows == [{"topic": "T", "messages": 4}, {"topic": "U", "messages": 1}]
    *rows, _ = lines(run("timer", timed.root, "--by", "time"))
    assert [row["seconds"] for row in rows] == list(formats.TIMER_BOUNDS_S)
    for by in ("topic", "time"):
        assert "messages" in run("timer", timed.root, "--by", by, "--format", "table").stdout


def test_findings(timed: TimedStore) -> None:
    at = formats.TIMER_UNIT.nbytes + formats.TIMER_UNIT.at("previous_position")
    timed.files.log[at : at + 8] = (1 << 40).to_bytes(8, "big")
    timed.files.write()
    *_, summary = lines(run("timer", timed.root, code=1))
    (one,) = [one for one in summary["findings"] if one["kind"] == "timer-chain"]
    assert (one["position"], one["path"]) == (52, str(timed.root / "timerlog" / ("0" * 20)))
    table = run("timer", timed.root, "--format", "table", code=1).stdout
    assert "Findings:" in table
    findings = lines(run("verify", timed.root, code=1))
    assert {row.get("findingKind", row["kind"]) for row in findings} & {"timer-file"}
    document = json.loads(run("info", timed.root, "--format", "json", code=1).stdout)
    assert [text for text in document["findings"] if "which is not before it" in text]
    assert document["timer"]["findings"] == 2 - 1 + len(
        [one for one in summary["findings"] if one["kind"] == "timer-count"]
    )


def test_info_and_verify_of_a_good_timer(timed: TimedStore) -> None:
    document = json.loads(run("info", timed.root, "--format", "json").stdout)
    assert document["timer"] == {
        "pending": 5, "overdue": 5, "nextDue": NOW + 4_500, "notEnqueued": 1, "findings": 0
    }  # fmt: skip
    assert "5 messages pending" in run("info", timed.root, "--format", "table").stdout
    run("verify", timed.root)


def test_a_store_of_4_9(tmp_path: Path) -> None:
    from golden import golden_stores

    root = golden_stores.unpack("plain-4.9.8", tmp_path)
    (summary,) = lines(run("timer", root))
    assert (summary["pending"], summary["readTime"], summary["wheel"]) == (0, None, None)
    assert "timer" not in json.loads(run("info", root, "--format", "json").stdout)


def test_a_wheel_of_a_wrong_size_is_found_once(timed: TimedStore) -> None:
    (timed.root / "timerwheel").write_bytes(bytes(32))
    findings = [row for row in lines(run("verify", timed.root, code=1)) if "position" in row]
    assert len([one for one in findings if one["path"].endswith("timerwheel")]) == 1
    run("timer", timed.root, code=1)
