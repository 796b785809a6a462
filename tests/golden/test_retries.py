"""Retries and dead letters of real brokers: the same records, byte by byte."""

from __future__ import annotations

import base64
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.config import MessageStoreConfig
from rocketstore.config_managers import ConsumerOffsetManager
from rocketstore.consumer.send_back import SendBack, decide, send_back_records
from rocketstore.dialect import Dialect
from rocketstore.message import StoredMessage

ENGINE = Path(__file__).resolve().parent / "engine"
#: Records that the broker wrote for messages that were not consumed: retries and dead letters.
STORES = {"retry-4.9.8": (37, 13), "retry-5.3.3": (78, 26)}
#: The consumers of these stores.
MAX_RECONSUME_TIMES = 3
_HEAD = formats.RECORD_HEAD


@pytest.fixture(params=sorted(STORES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def about(name: str) -> dict[str, Any]:
    return json.loads((ENGINE / name / "about.json").read_text(encoding="utf-8"))


def records(name: str) -> list[StoredMessage]:
    found = []
    with lzma.open(ENGINE / name / "after.ndjson.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "raw" in row:
                raw, at = base64.b64decode(row["raw"]), row["physicalOffset"]
                found.append(StoredMessage(raw, 0, at, at + len(raw)))
    return found


def comparable(raw: Any) -> bytes:
    """A record's bytes without its places and its store time."""
    found = bytearray(raw)
    for field in ("queue_offset", "physical_offset"):
        found[_HEAD.at(field) : _HEAD.at(field) + 8] = bytes(8)
    stored = _HEAD.nbytes + 8
    found[stored : stored + 8] = bytes(8)
    return bytes(found)


def settings(name: str) -> MessageStoreConfig:
    port = about(name)["broker_config"]["listenPort"]
    return MessageStoreConfig(store_host=f"127.0.0.1:{port}")


def target(message: StoredMessage) -> str:
    """Where a record goes in the end, if the broker wrote it for a message given back."""
    if message.topic.startswith(formats.TOPIC_DLQ_PREFIX):
        return message.topic
    if message.topic == formats.TOPIC_SCHEDULE:
        topic = message.properties[formats.PROPERTY_REAL_TOPIC]
        return topic if topic.startswith(formats.TOPIC_RETRY_PREFIX) else ""
    return ""


def test_every_record_is_the_broker_s(name: str) -> None:
    found, config = records(name), settings(name)
    dialect = Dialect.for_version(about(name)["rocketmq"])
    counts = [0, 0]
    for message in found:
        topic = target(message)
        if not topic:
            continue
        is_dead = topic.startswith(formats.TOPIC_DLQ_PREFIX)
        sources = [
            one
            for one in found
            if one.unique_key == message.unique_key
            and one.physical_offset < message.physical_offset
            and one.reconsume_times == message.reconsume_times - 1
            and one.topic not in (formats.TOPIC_SCHEDULE, topic if is_dead else "")
        ]
        wanted = SendBack(topic, 0 if is_dead else message.delay_level)
        made = [send_back_records(one, wanted, config, dialect)[0] for one in sources]
        assert comparable(message.raw) in map(comparable, made)
        counts[is_dead] += 1
    assert tuple(counts) == STORES[name]


def test_levels_and_dead_letters_are_the_broker_s(name: str) -> None:
    """The group gives most of its messages back without a level."""
    for message in records(name):
        topic, times = target(message), message.reconsume_times - 1
        if not topic:
            continue
        group = topic.rpartition("%")[2]
        level = message.delay_level
        usual = decide(group, times, 0, MAX_RECONSUME_TIMES, 18)
        if topic.startswith(formats.TOPIC_DLQ_PREFIX):
            assert SendBack(topic, 0) in (usual, decide(group, times, -1, MAX_RECONSUME_TIMES, 18))
        elif level != usual.delay_level:
            assert level == 2  # asked for by name
            assert usual.topic == topic


def test_a_group_goes_on_where_the_broker_stopped(name: str, tmp_path: Path) -> None:
    """Messages that the broker delivered to its group are not handed out again."""
    with tarfile.open(ENGINE / name / "store.tar.xz", "r:xz") as archive:
        archive.extractall(
            tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    root = tmp_path / "store"
    config = about(name)["config"]
    offsets = ConsumerOffsetManager(root)
    offsets.load()
    ((topic, group, committed),) = [
        entry for entry in offsets.entries() if entry[0].startswith("Work")
    ]
    with rocketstore.open(
        root, "r+", broker_version=about(name)["rocketmq"],
        max_hash_slot_num=int(config["maxHashSlotNum"]), max_index_num=int(config["maxIndexNum"]),
        message_delay_level=config["messageDelayLevel"],
    ) as store:  # fmt: skip
        waiting = {
            (m.topic, m.queue_id, m.queue_offset)
            for queue_id in store.queues(topic)
            for m in store.get_message(group, topic, queue_id, committed[queue_id], 1000).messages
        }
        with store.consumer(group, topic, idle_timeout_s=0) as consumer:
            found = list(consumer)
            assert store.groups()[group].dead_letter_count > 0
        own = [message for message in found if not hasattr(message, "retry_topic")]
        assert {(m.topic, m.queue_id, m.queue_offset) for m in own} == waiting
        again = [message for message in found if hasattr(message, "retry_topic")]
        assert again
        assert {message.topic for message in again} == {topic}
        assert all(message.origin_msg_id for message in again)
        assert store.groups()[group].total_lag == 0
