"""Delayed messages of real brokers: delivered once, in order, with a broker's bytes."""

from __future__ import annotations

import base64
import json
import lzma
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.config_managers import DelayOffsetManager
from rocketstore.message import StoredMessage
from rocketstore.status import RecordStatus
from support.kernel_bodies import Bodies

ENGINE = Path(__file__).resolve().parent / "engine"
#: Delayed messages of each store, and how many of them a broker had not delivered.
STORES = {
    "delay-4.9.8": (40, 16),
    "delay-5.3.3": (40, 25),
    "retry-4.9.8": (18, 0),
    "retry-5.3.3": (26, 13),
}
LATE_MS = 3 * 3_600_000
#: Where a record holds what differs: place in the log and in the queue, and the store time.
_HEAD, _STORED = formats.RECORD_HEAD, formats.RECORD_STORED


def about(name: str) -> dict[str, Any]:
    return json.loads((ENGINE / name / "about.json").read_text(encoding="utf-8"))


def options(name: str) -> dict[str, Any]:
    config = about(name)["config"]
    levels = about(name)["broker_config"].get("messageDelayLevel")
    return {
        "max_hash_slot_num": int(config["maxHashSlotNum"]),
        "max_index_num": int(config["maxIndexNum"]),
        "broker_version": about(name)["rocketmq"],
        **({} if levels is None else {"message_delay_level": levels}),
    }


@pytest.fixture(params=sorted(STORES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(name: str, tmp_path: Path) -> Path:
    with tarfile.open(ENGINE / name / "store.tar.xz", "r:xz") as archive:
        archive.extractall(
            tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    return tmp_path / "store"


def broker_records(name: str) -> Iterator[StoredMessage]:
    """Yield the records of the log after the broker ran once more."""
    with lzma.open(ENGINE / name / "after.ndjson.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "raw" in row:
                raw, at = base64.b64decode(row["raw"]), row["physicalOffset"]
                yield StoredMessage(raw, 0, at, at + len(raw))


def is_delivery(message: StoredMessage) -> bool:
    properties = message.properties
    return message.delay_level > 0 and properties.get(formats.PROPERTY_REAL_TOPIC) == message.topic


def identity(message: StoredMessage) -> tuple[Any, ...]:
    """What makes a delayed message one and the same, before and after its delivery."""
    properties = message.properties
    return (
        *(properties[formats.PROPERTY_REAL_TOPIC], properties[formats.PROPERTY_REAL_QUEUE_ID]),
        *(message.delay_level, message.unique_key, message.reconsume_times, message.body),
        *(message.born_timestamp, properties.get("RETRY_TOPIC")),
    )


def comparable(message: StoredMessage) -> bytes:
    """The record's bytes without times and offsets."""
    raw = bytearray(message.raw)
    for field in ("queue_offset", "physical_offset"):
        raw[_HEAD.at(field) : _HEAD.at(field) + 8] = bytes(8)
    stored = _HEAD.nbytes + (20 if message.sys_flag & formats.SYS_FLAG_BORN_HOST_V6 else 8)
    raw[stored : stored + 8] = bytes(8)
    return bytes(raw)


def scheduled(store: rocketstore.DefaultMessageStore) -> list[StoredMessage]:
    """The delayed messages, by level, in the order of their queues."""
    found = [m.detach() for m in store.scan() if m.topic == formats.TOPIC_SCHEDULE]
    return sorted(found, key=lambda m: (m.queue_id, m.queue_offset))


def test_what_waited_is_delivered_once_and_in_order(name: str, root: Path) -> None:
    with rocketstore.open(root, **options(name)) as reader:
        before = [m.detach() for m in reader.scan() if is_delivery(m)]
        waiting = [entry.message for entry in reader.delays().due()]
        last = max(m.store_timestamp for m in reader.scan())
        delayed = Counter(map(identity, scheduled(reader)))
    already = Counter(map(identity, before))
    assert Counter(identity(m) for m in waiting if m is not None) == delayed - already
    with rocketstore.open(
        root, "r+", clock=lambda: last + LATE_MS, start=False, **options(name)
    ) as store:
        count = store.deliver_due()
        assert count == len(waiting)
        assert store.deliver_due() == 0
        assert store.delays().pending == 0
        store.wait_dispatched()
        after = [m.detach() for m in store.scan() if is_delivery(m)][len(before) :]
        order = [identity(m) for m in scheduled(store)]
    assert (sum(delayed.values()), count) == STORES[name]
    assert len(after) == count
    delivered = Counter(map(identity, after))
    assert delivered == delayed - already, "nothing the log shows delivered comes again"
    for level in {m.delay_level for m in after}:
        ours = [identity(m) for m in after if m.delay_level == level]
        assert ours == [one for one in order if one in delivered and one[2] == level]


def test_delivered_records_are_a_broker_s_byte_for_byte(name: str, root: Path) -> None:
    with rocketstore.open(root, **options(name)) as reader:
        last = max(m.store_timestamp for m in reader.scan())
        end = reader.max_physical_offset
    theirs = {
        identity(m): comparable(m)
        for m in broker_records(name)
        if m.physical_offset >= end and is_delivery(m)
    }
    with rocketstore.open(
        root, "r+", clock=lambda: last + LATE_MS, start=False, **options(name)
    ) as store:
        store.deliver_due()
        ours = {
            identity(m): comparable(m)
            for m in store.scan()
            if m.physical_offset >= end and is_delivery(m)
        }
    both = ours.keys() & theirs.keys()
    assert len(ours) == STORES[name][1]
    assert bool(both) == bool(ours)
    for one in both:
        assert ours[one] == theirs[one]


def test_every_recorded_delivery_is_staged_as_it_is(name: str, root: Path, kernels: Bodies) -> None:
    """Also those that the broker made before it stopped."""
    seen = set()
    with rocketstore.open(root, **options(name)) as reader:
        delayed = set(map(identity, scheduled(reader)))
        recorded = [m for m in broker_records(name) if is_delivery(m)]
        theirs = {identity(m): comparable(m) for m in recorded if identity(m) in delayed}
        encoder = kernels.deliveries.DeliveryEncoder(broker_version=reader.broker_version)
        for queue_id in reader.queues(formats.TOPIC_SCHEDULE):
            queue = reader.reader.queues.get(formats.TOPIC_SCHEDULE, queue_id)
            for first, units, count in queue.view():
                window = reader.reader.log.window(0)
                position, status = encoder.stage(
                    units, 0, count * 20, first, queue_id, 2**62, -1,
                    window.buffer, window.stop, 0, window.segment_end, window.flags,
                )  # fmt: skip
                assert (position, status) == (count * 20, RecordStatus.END)
                staged = encoder.take()
                at = 0
                while at < len(staged):
                    message = StoredMessage(staged, at, 0, len(staged))
                    at += message.store_size
                    if identity(message) in theirs:
                        assert comparable(message) == theirs[identity(message)]
                        seen.add(identity(message))
    assert seen == set(theirs)


def test_the_offset_table_is_handed_back(name: str, root: Path) -> None:
    version = about(name)["rocketmq"]
    with rocketstore.open(root, **options(name)) as reader:
        last = max(m.store_timestamp for m in reader.scan())
    with rocketstore.open(
        root, "r+", clock=lambda: last + LATE_MS, start=False, **options(name)
    ) as store:
        store.deliver_due()
        expected = {
            queue_id + 1: store.max_offset_in_queue(formats.TOPIC_SCHEDULE, queue_id)
            for queue_id in store.queues(formats.TOPIC_SCHEDULE)
        }
    manager = DelayOffsetManager(root)
    assert manager.load()
    assert {k: v for k, v in manager.offset_table.items() if v} == expected
    content = (root / "config" / "delayOffset.json").read_text(encoding="utf-8")
    assert ("dataVersion" in content) == (not version.startswith("4."))
