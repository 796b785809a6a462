"""Reading a store's timer: what is pending, from where a broker goes on, and what is wrong."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

import rocketstore
from rocketstore import formats
from support.timer_files import NOW, TimedStore, after

DAY_MS = 86_400_000


def test_a_store_without_a_timer_has_an_empty_report(timed: TimedStore) -> None:
    with rocketstore.open(timed.root, "a") as store:
        store.put("T", b"x")
        report = store.timers()
        assert len(report) == report.not_enqueued == report.queue_offset == report.overdue == 0
        assert (report.read_time, report.next_due, report.wheel) == (None, None, None)
        assert list(report.pending) == report.findings == []
        assert report.by_topic == {}
        assert set(report.by_bound.values()) == {0}


def test_what_was_put_waits_in_the_queue(timed: TimedStore) -> None:
    timed.put(after(90_000), after(5_000), after(60_000))
    timed.put(after(30_000), topic="U")
    with rocketstore.open(timed.root, clock=lambda: NOW) as store:
        report = store.timers()
        found = list(report.pending)
        assert report.by_topic == {"T": 3, "U": 1}
    assert [one.due - NOW for one in found] == [4_500, 29_500, 59_500, 89_500]
    assert not any(one.is_enqueued or one.rolls or one.delete for one in found)
    assert [one.topic for one in found] == ["T", "U", "T", "T"]
    assert {one.queue_id for one in found} == {1}
    assert (report.not_enqueued, report.queue_offset, len(report)) == (4, 0, 4)
    assert report.by_bound == {
        5: 0, 60: 2, 300: 2, 900: 0, 3600: 0, 14_400: 0, 28_800: 0, 86_400: 0
    }  # fmt: skip
    assert report.next_due == NOW + 4_500


def test_wheel_and_queue_together(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(after(9_000), after(3_000)), NOW)
    timed.put(after(6_000))
    timed.files.write()
    report, _ = timed.report()
    assert timed.delays() == [3_000, 6_000, 9_000]
    assert (report.not_enqueued, report.queue_offset, report.findings) == (1, 2, [])
    with rocketstore.open(timed.root) as store:
        assert [one.is_enqueued for one in store.timers().pending] == [True, False, True]


def test_read_slots_are_not_pending(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(*map(after, (2_000, 4_000, 8_000))), NOW)
    timed.files.read_time = NOW - 500 + 4_000
    timed.files.write()
    assert timed.delays() == [4_000, 8_000]
    timed.files.read_time += 1_000
    timed.files.write()
    assert timed.delays() == [8_000]
    timed.now = NOW + 60_000
    assert timed.report()[0].overdue == 1


def test_a_message_in_the_log_but_behind_the_checkpoint_counts_once(timed: TimedStore) -> None:
    """The broker was killed: its checkpoint is older than the timer log."""
    records = timed.put(*map(after, (2_000, 4_000, 8_000)))
    timed.files.enqueue_all(records, NOW)
    timed.files.queue_offset = 1
    timed.files.write()
    report, _ = timed.report()
    assert timed.delays() == [2_000, 4_000, 8_000]
    assert (report.queue_offset, report.not_enqueued) == (3, 0)


def test_units_that_the_wheel_lacks_are_recovered(timed: TimedStore) -> None:
    """The wheel is written each second, the timer log at once."""
    records = timed.put(*map(after, (2_000, 4_000, 4_000)))
    timed.files.enqueue(records[0], NOW)
    timed.files.enqueue(records[1], NOW)
    timed.files.write_wheel()
    flushed = len(timed.files.log)
    timed.files.enqueue(records[2], NOW)
    timed.files.write_log()
    timed.files.write_checkpoint(flushed=flushed)
    assert timed.delays() == [2_000, 4_000, 4_000]
    assert timed.kinds() == []


def test_several_segments(timed: TimedStore) -> None:
    delays = [1_000 * (5 + number % 7) for number in range(250)]
    timed.files.enqueue_all(timed.put(*map(after, delays)), NOW)
    assert len(timed.files.log) > 2 * timed.files.segment_nbytes
    timed.files.write()
    assert timed.delays() == sorted(delays)
    assert timed.kinds() == []


@pytest.mark.parametrize("precision_ms", [100, 200, 500])
def test_a_finer_precision_is_detected(timed: TimedStore, precision_ms: int) -> None:
    timed.files.precision_ms = precision_ms
    with rocketstore.open(
        timed.root, "a", timer_wheel_enable=True, timer_precision_ms=precision_ms,
        clock=lambda: NOW,
    ) as store:  # fmt: skip
        for delay in (700, 1_900, 2_300):
            result = store.put("T", b"x", properties=after(delay))
            record = store.look_message_by_offset(result.physical_offset)
            assert record is not None
            assert int(record.properties["TIMER_OUT_MS"]) % precision_ms == 0
            timed.files.enqueue(record, NOW)
    timed.files.write()
    report, _ = timed.report()
    assert report.precision_ms == precision_ms
    assert timed.delays() == [700, 1_900, 2_300]
    assert report.findings == []


def test_a_message_that_rolls(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(after(3 * DAY_MS - 5_000), after(DAY_MS)), NOW)
    timed.files.write()
    with rocketstore.open(timed.root, clock=lambda: NOW) as store:
        first, second = store.timers().pending
    assert (first.rolls, first.due == first.slot_time) == (False, True)
    assert second.rolls
    assert second.due == NOW - 500 + 3 * DAY_MS - 5_000
    assert second.slot_time < second.due


def test_d_55_a_delete_that_hits_nothing_is_reported(timed: TimedStore) -> None:
    timed.version = "5.5.0"
    (target,) = timed.put(after(5_000))
    other = after(9_000, TIMER_DEL_UNIQKEY=target.unique_key or "")
    same = after(5_000, TIMER_DEL_UNIQKEY=target.unique_key or "")
    deletes = timed.put(other, same)
    timed.files.enqueue_all([target, *deletes], NOW)
    timed.files.write()
    with rocketstore.open(timed.root, broker_version="5.5.0") as store:
        report = store.timers()
        found = [(one.delete, one.is_deleted) for one in report.pending]
        assert report.by_topic == {"T": 1}
    assert found == [(False, True), (True, False), (True, False)]
    (one,) = report.findings
    assert one.kind == "timer-delete"
    assert f"log offset {deletes[0].physical_offset}" in one.reason


@pytest.mark.parametrize(("version", "prefix"), [("5.3.1", ""), ("5.3.3", "T+"), ("5.4.0", "")])
def test_d_55_the_key_that_a_delete_names(timed: TimedStore, version: str, prefix: str) -> None:
    timed.version = version
    (target,) = timed.put(after(5_000))
    for name, hits in ((prefix, True), ("" if prefix else "T+", False)):
        wish = after(5_000, TIMER_DEL_UNIQKEY=f"{name}{target.unique_key}")
        (delete,) = timed.put(wish)
        timed.files = type(timed.files)(timed.root)
        timed.files.enqueue_all([target, delete], NOW)
        timed.files.queue_offset = 99  # the deletes of earlier rounds are not looked at
        timed.files.write()
        kinds = [kind for kind in timed.kinds() if kind != "timer-check"]
        assert (kinds == []) == hits, (name, kinds)


def test_d_56_a_due_message_stays_until_a_broker_delivers_it(timed: TimedStore) -> None:
    """Delivery is refused by name, so nothing is dropped after failed puts."""
    timed.files.enqueue_all(timed.put(after(5_000)), NOW)
    timed.files.write()
    timed.now = NOW + 3_600_000
    with rocketstore.open(timed.root, "r+", timer_wheel_enable=True) as store:
        with pytest.raises(io.UnsupportedOperation, match="broker"):
            store.timers(deliver=True)
        assert len(store.timers()) == store.timers().overdue == 1
    assert timed.delays() == [5_000]


def test_d_57_the_count_of_a_slot_is_that_of_its_chain(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(*map(after, (5_000, 5_000, 9_000))), NOW)
    for slot in timed.files.slots.values():
        slot[2] += 7
    timed.files.write()
    with rocketstore.open(timed.root, clock=lambda: NOW) as store:
        report = store.timers()
        assert (len(report), report.by_topic) == (3, {"T": 3})
    assert [one.kind for one in report.findings] == ["timer-count", "timer-count"]
    path = timed.root / "timerwheel"
    for one in report.findings:
        assert one.path == str(path)
        time = int.from_bytes(path.read_bytes()[one.position : one.position + 8], "big")
        assert time in timed.files.slots


def test_d_58_what_was_due_long_before_the_start_is_still_pending(timed: TimedStore) -> None:
    """RocketMQ begins at most a week before its start, and loses what was due earlier."""
    timed.files.enqueue_all(timed.put(after(5_000), after(9_000)), NOW)
    timed.files.read_time = NOW - 500
    timed.files.write()
    timed.now = NOW + 10 * DAY_MS
    report, pending = timed.report()
    assert len(pending) == report.overdue == 2
    assert report.findings == []


def test_a_missing_checkpoint(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(after(5_000)), NOW)
    timed.files.write_wheel()
    timed.files.write_log()
    report, pending = timed.report()
    assert [one.kind for one in report.findings] == ["timer-check"]
    assert (len(pending), report.not_enqueued) == (1, 0)


def test_a_checkpoint_past_the_files(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(after(5_000)), NOW)
    timed.files.queue_offset = 9
    timed.files.write()
    timed.files.write_checkpoint(flushed=1 << 40)
    report, pending = timed.report()
    assert [(one.kind, one.position) for one in report.findings] == [
        ("timer-check", 8), ("timer-check", 16)
    ]  # fmt: skip
    assert len(pending) == 1


def test_a_unit_outside_the_log(timed: TimedStore) -> None:
    records = timed.put(after(5_000), after(6_000))
    timed.files.enqueue_all(records, NOW)
    at = formats.TIMER_UNIT.at("physical_offset")
    timed.files.log[at : at + 8] = (1 << 40).to_bytes(8, "big")
    timed.files.write()
    report, pending = timed.report()
    assert [one.physical_offset for one in pending] == [records[1].physical_offset]
    (one,) = report.findings
    assert (one.kind, one.position) == ("timer-message", 0)
    assert one.path.endswith("timerlog/" + "0" * 20)


def test_a_unit_that_names_another_record(timed: TimedStore) -> None:
    records = timed.put(after(5_000), after(0), after(6_000))
    timed.files.enqueue_all(records, NOW)
    start = formats.TIMER_UNIT.nbytes + formats.TIMER_UNIT.at("physical_offset")
    timed.files.log[start : start + 8] = records[0].store_size.to_bytes(8, "big")
    timed.files.write()
    with rocketstore.open(timed.root) as store:
        report = store.timers()
        assert len(list(report.pending)) == len(list(report.pending)) == 1
        (one,) = report.findings  # once, however often they are read
    assert (one.kind, one.position) == ("timer-message", 52)
    assert "topic T" in one.reason


def test_two_units_of_one_message(timed: TimedStore) -> None:
    (record,) = timed.put(after(5_000))
    timed.files.enqueue_all([record, record], NOW)
    timed.files.write()
    report, pending = timed.report()
    assert pending == [record]
    (one,) = report.findings
    assert (one.kind, one.position) == ("timer-message", 52)
    assert "twice" in one.reason


def test_a_unit_with_another_time_than_its_record(timed: TimedStore) -> None:
    first, second = timed.put(after(5_000), after(9_000))
    timed.files.enqueue_all([first, second], NOW)
    at = formats.TIMER_UNIT.at("physical_offset")
    timed.files.log[at : at + 8] = second.physical_offset.to_bytes(8, "big")
    start = at + formats.TIMER_UNIT.nbytes
    timed.files.log[start : start + 8] = first.physical_offset.to_bytes(8, "big")
    timed.files.write()
    with rocketstore.open(timed.root) as store:
        report = store.timers()
        assert list(report.pending) == []
        assert {one.kind for one in report.findings} == {"timer-message"}
        assert len(report.findings) == 2


def test_a_record_without_a_time_on_the_timer_topic(timed: TimedStore) -> None:
    with rocketstore.open(timed.root, "a", timer_wheel_enable=True) as store:
        store.put(formats.TOPIC_TIMER, b"x")
        store.put("T", b"x", properties=after(5_000))
        assert store.wait_dispatched(10)
        report = store.timers()
        assert len(report) == len(list(report.pending)) == 1
        (one,) = report.findings
    assert one.kind == "timer-message"
    assert "TIMER_OUT_MS" in one.reason


def test_a_database_that_may_hold_timelines_is_reported(timed: TimedStore) -> None:
    timed.put(after(5_000))
    folder = timed.root / "rocksdbstore"
    folder.mkdir()
    (folder / "000004.log").write_bytes(b"")
    (folder / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    assert timed.kinds() == []  # a broker of 5.5.0 creates it, and leaves it empty
    (folder / "000009.sst").write_bytes(bytes(100))
    (one,) = timed.report()[0].findings
    assert (one.kind, one.path) == ("timer-rocksdb", str(folder))
    assert "not read" in one.reason


def test_the_newest_snapshot_is_read(timed: TimedStore) -> None:
    """The wheel itself is that of an earlier time."""
    records = timed.put(*map(after, (2_000, 4_000, 8_000)))
    timed.files.write_wheel()
    names = []
    for record in records:
        timed.files.enqueue(record, NOW)
        names.append(f"timerwheel.{len(timed.files.log)}")
        timed.files.write_wheel(names[-1])
    timed.files.write_log()
    timed.files.write_checkpoint()
    report, _ = timed.report()
    assert (report.wheel, report.findings) == (str(timed.root / names[-1]), [])
    assert timed.delays() == [2_000, 4_000, 8_000]
    os.truncate(timed.root / names[-1], 1_000)
    report, _ = timed.report()
    assert report.wheel == str(timed.root / names[-2])
    assert [one.kind for one in report.findings] == ["timer-wheel"]
    assert timed.delays() == [2_000, 4_000, 8_000]  # the log has what the older one lacks


def test_a_wheel_newer_than_the_snapshots(timed: TimedStore) -> None:
    records = timed.put(*map(after, (2_000, 4_000)))
    timed.files.enqueue(records[0], NOW)
    timed.files.write_wheel("timerwheel.52")
    timed.files.enqueue(records[1], NOW)
    timed.files.write()
    report, _ = timed.report()
    assert (report.wheel, report.findings) == (str(timed.root / "timerwheel"), [])
    assert timed.delays() == [2_000, 4_000]


def test_reports_need_an_open_store(timed: TimedStore) -> None:
    timed.put(after(5_000))
    store = rocketstore.open(timed.root)
    report = store.timers()
    store.close()
    with pytest.raises(rocketstore.StoreClosedError):
        store.timers()
    assert len(report) == 1


def test_nothing_is_changed(timed: TimedStore, tmp_path: Path) -> None:
    timed.files.enqueue_all(timed.put(after(5_000)), NOW)
    timed.files.write()
    before = {path: path.read_bytes() for path in timed.root.rglob("*") if path.is_file()}
    timed.report()
    assert {path: path.read_bytes() for path in timed.root.rglob("*") if path.is_file()} == before


def test_a_read_time_in_the_future_is_a_finding(timed: TimedStore) -> None:
    """All slots before it count as delivered, also for a broker."""
    timed.files.enqueue_all(timed.put(after(5_000)), NOW)
    for read_time, kinds in ((NOW + DAY_MS, []), (NOW + 2 * DAY_MS, ["timer-check"])):
        timed.files.read_time = read_time
        timed.files.write()
        assert timed.kinds() == kinds
    timed.files.read_time = 2**63 - 1
    timed.files.write()
    (finding,) = timed.report()[0].findings
    assert finding.position == formats.TIMER_CHECK.at("read_time")
    assert "later than now" in finding.reason


def test_an_invalid_checkpoint_is_not_called_missing(timed: TimedStore) -> None:
    timed.files.enqueue_all(timed.put(after(5_000)), NOW)
    timed.files.read_time = -1
    timed.files.write()
    reasons = [one.reason for one in timed.report()[0].findings]
    assert "must not be negative" in reasons[0]
    assert reasons[1].startswith("it is invalid")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"TIMER_OUT_MS": "5000"}, "no property REAL_TOPIC"),
        ({"TIMER_OUT_MS": "5000", "REAL_TOPIC": "T"}, "REAL_QID is ''"),
        ({"TIMER_OUT_MS": "5000", "REAL_TOPIC": "T", "REAL_QID": "-1"}, "REAL_QID is '-1'"),
        ({"TIMER_OUT_MS": "5000", "REAL_TOPIC": "T", "REAL_QID": "9" * 5000}, "REAL_QID is '99"),
    ],
)
def test_a_message_that_names_no_place_is_a_finding(
    properties: dict[str, str], reason: str, timed: TimedStore
) -> None:
    with rocketstore.open(timed.root, "a", broker_version="5.3.3") as store:
        assert store.put(formats.TOPIC_TIMER, b"x", properties=properties).ok
        store.wait_dispatched()
        report = store.timers()
        assert list(report.pending) == []
        (finding,) = report.findings
        assert (finding.kind, reason in finding.reason) == ("timer-message", True)
