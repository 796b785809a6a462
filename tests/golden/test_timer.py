"""What waits in the timer of a real broker, compared with its files and with what it did next."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

import rocketstore
from golden.golden_stores import HERE
from rocketstore import formats, kernels

NAMES = ("timer-5.3.3", "timer-5.5.0")


def unpacked(name: str, directory: Path) -> Path:
    import tarfile

    with tarfile.open(HERE / "engine" / name / "store.tar.xz", "r:xz") as archive:
        archive.extractall(
            directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    return directory / "store"


def files_say(root: Path) -> list[tuple[int, int, bool]]:
    """(log offset, time of the slot, whether it rolls) of each unit in a slot that is not read."""
    check = (root / "config" / "timercheck").read_bytes()
    read_time = int.from_bytes(check[:8], "big")
    wheel = np.fromfile(root / "timerwheel", formats.TIMER_SLOT.dtype)
    log = np.fromfile(
        root / "timerlog" / ("0" * 20), formats.TIMER_UNIT.dtype, 99
    )  # a file has room for 99 units
    found = []
    for slot in wheel[wheel["time"] * 1000 >= read_time]:
        at, count = int(slot["last_position"]), 0
        while at != -1:
            unit = log[at // 52]
            time = int(unit["write_time"]) + int(unit["delay"])
            assert time == int(slot["time"]) * 1000
            found.append((int(unit["physical_offset"]), time, bool(unit["magic"] & 2)))
            at, count = int(unit["previous_position"]), count + 1
        assert count == slot["count"]
    return sorted(found)


def records_after(name: str) -> list[rocketstore.StoredMessage]:
    """Every record of the log after the broker went on."""
    found = []
    with lzma.open(HERE / "engine" / name / "after.ndjson.xz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if "physicalOffset" in row:
                raw, at = base64.b64decode(row["raw"]), row["physicalOffset"]
                found.append(kernels.message.StoredMessage(raw, 0, at, at + len(raw)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_pending_equals_wheel_and_log(name: str, tmp_path: Path) -> None:
    root = unpacked(name, tmp_path)
    with rocketstore.open(root) as store:
        report = store.timers()
        pending = list(report.pending)
        assert sorted((m.message.physical_offset, m.slot_time, m.rolls) for m in pending) == (
            files_say(root)
        )
        for one in pending:
            out = int(one.message.properties["TIMER_OUT_MS"])
            assert one.due == out
            assert one.slot_time == out or (one.rolls and one.slot_time < out)
            assert (one.topic, one.queue_id) == (
                one.message.properties["REAL_TOPIC"], int(one.message.properties["REAL_QID"])
            )  # fmt: skip
            assert (one.delete, one.is_deleted, one.is_enqueued) == (False, False, True)
        assert [one.due for one in pending] == sorted(one.due for one in pending)
        assert len(report) == len(pending) > 30
        assert (report.queue_offset, report.not_enqueued) == (44, 0)
        assert report.findings == []
        metrics = json.loads((root / "config" / "timermetrics").read_text(encoding="utf-8"))
        assert report.by_topic == {
            topic: counts["count"] for topic, counts in metrics["timingCount"].items()
        }


@pytest.mark.parametrize("name", NAMES)
def test_metrics_show_the_brokers_own_counts(name: str, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    from rocketstore.metrics import StoreCollector, exposition

    root = unpacked(name, tmp_path)
    with rocketstore.open(root, timer_wheel_enable=True) as store:
        text = exposition(StoreCollector(store))
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    metrics = json.loads((root / "config" / "timermetrics").read_text(encoding="utf-8"))
    assert {one.labels["topic"]: one.value for one in families["rocketmq_timing_messages"]} == {
        topic: counts["count"] for topic, counts in metrics["timingCount"].items()
    }
    (lag,) = families["rocketmq_timer_enqueue_lag"]
    assert lag.value == 0
    bounds = [one.labels["timer_bound_s"] for one in families["rocketmq_timer_message_snapshot"]]
    assert bounds == [str(bound) for bound in formats.TIMER_BOUNDS_S]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_broker_delivered_next_was_pending(name: str, tmp_path: Path) -> None:
    root = unpacked(name, tmp_path)
    with rocketstore.open(root) as store:
        pending = {one.message.unique_key: one for one in store.timers().pending}
        end = store.max_physical_offset
    delivered = [
        record
        for record in records_after(name)
        if record.physical_offset >= end
        and "TIMER_OUT_MS" in record.properties
        and record.topic != formats.TOPIC_TIMER
    ]
    assert len(delivered) > 5
    for record in delivered:
        one = pending[record.unique_key]
        assert (one.topic, one.queue_id) == (record.topic, record.queue_id)
        assert one.message.body == record.body
        assert not one.rolls
        assert record.store_timestamp > one.due
    last = max(int(record.properties["TIMER_OUT_MS"]) for record in delivered)
    keys = {record.unique_key for record in delivered}
    assert {key for key, one in pending.items() if one.due < last} <= keys


@pytest.mark.parametrize("name", NAMES)
def test_a_put_makes_the_record_that_the_broker_made(name: str, tmp_path: Path) -> None:
    """The time of the slot, topic and queue of every timer record, from the wish in it."""
    version = name.removeprefix("timer-")
    names = ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")
    compared = 0
    with rocketstore.open(unpacked(name, tmp_path)) as store:
        records = [one for one in store.scan() if one.topic == formats.TOPIC_TIMER]
    now = 0
    with rocketstore.open(
        tmp_path / "own", "x", timer_wheel_enable=True, broker_version=version, clock=lambda: now
    ) as own:
        for record in records:
            wish = {k: v for k, v in record.properties.items() if k not in names}
            topic, queue_id = record.properties["REAL_TOPIC"], int(record.properties["REAL_QID"])
            outs = set()
            for now in (record.store_timestamp - 5, record.store_timestamp):  # noqa: B007
                result = own.put(topic, record.body, queue_id, properties=wish)
                assert result.status == rocketstore.PutMessageStatus.PUT_OK
                put = own.look_message_by_offset(result.physical_offset)
                assert put is not None
                assert (put.topic, put.queue_id) == (formats.TOPIC_TIMER, 0)
                assert {k: put.properties[k] for k in names[1:]} == {
                    k: record.properties[k] for k in names[1:]
                }
                outs.add(put.properties["TIMER_OUT_MS"])
            assert record.properties["TIMER_OUT_MS"] in outs
            compared += 1
    assert compared == 44
