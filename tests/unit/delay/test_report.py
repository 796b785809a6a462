"""Reports of what waits."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rocketstore.errors import StoreClosedError
from support.delayed_stores import NOW, DelayedStore, put_raw


@pytest.fixture
def delayed(tmp_path: Path) -> DelayedStore:
    return DelayedStore(tmp_path / "store")


def test_levels_and_messages_of_every_mode(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        for number in range(6):
            store.put("T", b"%d" % number, number, delay_level=1 + number % 3)
            delayed.clock.now += 10
        store.wait_dispatched()
        delayed.clock.now = NOW + 1000
        for opened in (store, delayed.read()):
            report = opened.delays()
            assert [one.level for one in report.levels] == [1, 2, 3]
            first = report.levels[0]
            assert (first.delay_ms, first.offset, first.min_offset, first.max_offset) == (
                1000, 0, 0, 2,
            )  # fmt: skip
            assert (first.pending, first.overdue, first.next_due) == (2, 1, NOW + 1000)
            assert (report.pending, report.overdue) == (6, 1)
            assert repr(report) == "<DelayReport 6 pending, 1 overdue>"
            entries = list(report.due())
            assert [entry.due - NOW for entry in entries] == [
                1000, 1030, 5010, 5040, 10_020, 10_050,
            ]  # fmt: skip
            assert [entry.level for entry in entries] == [1, 1, 2, 2, 3, 3]
            assert [entry.queue_id for entry in entries] == [0, 3, 1, 4, 2, 5]
            assert {entry.topic for entry in entries} == {"T"}
            assert [m.due - NOW for m in report.due(begin=NOW + 5010, end=NOW + 10_020)] == [
                5010, 5040, 10_020,
            ]  # fmt: skip
            assert [entry.due - NOW for entry in report.due(level=2)] == [5010, 5040]
            with pytest.raises(ValueError, match="no delay level 4"):
                report.due(level=4)


def test_messages_that_cannot_be_delivered(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        put_raw(store, b"poison", REAL_TOPIC="T", REAL_QID="x")
        report = store.delays()
        assert report.pending == 0
        store.wait_dispatched()
        (entry,) = store.delays().due()
        assert (entry.topic, entry.queue_id) == ("T", None)
        delayed.clock.now += 1000
        store.deliver_due()
        report = store.delays()
        assert (report.pending, list(report.levels[0].parked)) == (0, [0])
        assert repr(report) == "<DelayReport 0 pending, 0 overdue, 1 parked>"
        assert list(report.due()) == []


def test_a_reader_delivers_nothing(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
    before = sorted(path.name for path in delayed.root.rglob("*"))
    with delayed.read() as reader:
        with pytest.raises(io.UnsupportedOperation):
            reader.deliver_due()
        report = reader.delays()
        assert report.pending == 1
    assert sorted(path.name for path in delayed.root.rglob("*")) == before
    with pytest.raises(StoreClosedError):
        reader.delays()
    with pytest.raises(StoreClosedError):
        list(report.due())


def test_a_report_of_a_writer_writes_nothing(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        store.put("T", b"x", delay_level=1)
        store.wait_dispatched()
        assert store.delays().pending == 1
    assert not (delayed.root / "config").exists()


def test_an_empty_store(delayed: DelayedStore) -> None:
    with delayed.open() as store:
        assert store.delays().pending == 0
        assert store.deliver_due() == 0
        assert list(store.delays().due()) == []
    assert not (delayed.root / "config").exists()


def test_what_waits_for_the_message_before_it_is_not_overdue(delayed: DelayedStore) -> None:
    """The clock was set back: the second message is due at once, the first one a little later."""
    with delayed.open() as store:
        for _ in range(2):
            store.put("T", b"x", delay_level=1)
            delayed.clock.now += 1
        delayed.clock.now = NOW
        assert store.deliver_due() == 0
        report = store.delays()
        assert (report.pending, report.overdue) == (2, 0)
        assert report.levels[0].next_due == NOW + 1000
