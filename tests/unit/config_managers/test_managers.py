"""The broker's tables: what brokers wrote is read, and nothing of it is lost when it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golden import golden_stores
from rocketstore.config_managers import (
    ConfigManager,
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    LmqConsumerOffsetManager,
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    TopicConfig,
    TopicConfigManager,
)
from rocketstore.config_managers.json_dialect import loads
from rocketstore.config_managers.tables import ContentError
from rocketstore.filter.bloom_filter import BloomFilter, murmur3_128_low

BROKERS = golden_stores.names("broker-")
NOW = 1_700_000_000_000
MANAGERS: list[type[ConfigManager]] = [
    TopicConfigManager,
    SubscriptionGroupManager,
    ConsumerOffsetManager,
    DelayOffsetManager,
    ConsumerFilterManager,
]


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a whole broker; the tests write only ``.json`` files there."""
    return golden_stores.unpack(request.param, tmp_path_factory.mktemp("broker"))


@pytest.mark.parametrize("kind", MANAGERS)
def test_a_brokers_table_is_written_without_a_loss(broker: Path, kind: type[ConfigManager]) -> None:
    manager = kind(broker)
    assert manager.load()
    path = manager.config_file_path
    former = path.read_bytes()
    manager.persist()
    assert path.with_name(path.name + ".bak").read_bytes() == former
    written = json.loads(path.read_bytes())
    wanted = loads(former)
    wanted.pop("groupTopicMap", None)  # readers derive it from the offsets
    assert written == wanted
    again = kind(broker)
    assert again.load()
    assert again.encode() == manager.encode() == path.read_text(encoding="ascii")


def test_what_brokers_wrote(broker: Path) -> None:
    topics = TopicConfigManager(broker)
    topics.load()
    config = topics.select_topic_config("SCHEDULE_TOPIC_XXXX")
    assert config is not None
    assert (config.read_queue_nums, config.perm, config.topic_filter_type) == (18, 6, "SINGLE_TAG")
    assert topics.data_version.counter == 4
    groups = SubscriptionGroupManager(broker)
    groups.load()
    group = groups.find_subscription_group_config("SELF_TEST_C_GROUP")
    assert group is not None
    assert (group.retry_max_times, group.group_retry_policy) == (16, {"type": "CUSTOMIZED"})
    offsets = ConsumerOffsetManager(broker)
    offsets.load()
    assert offsets.which_topic_by_consumer("cg") == {"Mix0", "MixB"}
    assert offsets.which_group_by_topic("Mix0") == {"cg"}
    assert set(offsets.query_offsets("cg", "MixB")) == {0, 1, 2, 3}
    delays = DelayOffsetManager(broker)
    delays.load()
    assert set(delays.offset_table) == {1, 2, 12}


def test_delay_offsets_of_4_9(tmp_path: Path) -> None:
    root = golden_stores.unpack("ext-4.9.8", tmp_path)
    manager = DelayOffsetManager(root)
    assert manager.load()
    assert manager.data_version.counter == 0


def test_topics(tmp_path: Path) -> None:
    manager = TopicConfigManager(tmp_path, clock=lambda: NOW)
    assert not manager.load()
    config = TopicConfig(
        topic_name="BCQ",
        read_queue_nums=2,
        write_queue_nums=2,
        attributes={"queue.type": "BatchCQ"},
    )
    manager.update_topic_config(config)
    manager.update_topic_config(TopicConfig(topic_name="Ordered", order=True))
    assert manager.data_version.counter == 2
    assert manager.data_version.timestamp == NOW
    manager.persist()
    again = TopicConfigManager(tmp_path)
    assert again.load()
    assert again.select_topic_config("BCQ") == config
    assert again.select_topic_config("other") is None
    assert again.is_order_topic("Ordered")
    assert not again.is_order_topic("BCQ")
    assert again.delete_topic_config("BCQ")
    assert not again.delete_topic_config("BCQ")
    assert again.data_version.counter == 3
    with pytest.raises(ValueError, match="name"):
        again.update_topic_config(TopicConfig(topic_name=""))
    assert json.loads(manager.encode())["topicConfigTable"]["BCQ"] == {
        "attributes": {"queue.type": "BatchCQ"},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "BCQ",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }


def test_fields_that_are_not_known_are_kept(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "dataVersion": {"counter": 1, "timestamp": 2, "stateVersion": 3, "newer": 4},
        "topicConfigTable": {"T": {"topicName": "T", "newer": {"0": [1]}}},
        "newest": {"1": 2},
    }
    manager = TopicConfigManager(tmp_path)
    manager.decode(json.dumps(document))
    written = json.loads(manager.encode())
    assert written["newest"] == {"1": 2}
    assert written["dataVersion"] == document["dataVersion"]
    assert written["topicConfigTable"]["T"]["newer"] == {"0": [1]}
    manager.decode(b"{}")
    assert json.loads(manager.encode()) == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "topicConfigTable": {},
    }


def test_fields_in_other_spellings_and_kinds(tmp_path: Path) -> None:
    """As fastjson takes them."""
    manager = TopicConfigManager(tmp_path)
    manager.decode(
        b'{topicConfigTable:{T:{ReadQueueNums:"3",write_queue_nums:4.0,order:"true",perm:null}}}'
    )
    config = manager.select_topic_config("T")
    assert config == TopicConfig(
        topic_name="T", read_queue_nums=3, write_queue_nums=4, order=True, perm=6
    )


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ('{"order":2}', "$.topicConfigTable.T.order: expected true or false, found 2"),
        ('{"perm":"x"}', "$.topicConfigTable.T.perm: expected a whole number, found 'x'"),
        ('{"perm":true}', "$.topicConfigTable.T.perm: expected a whole number, found True"),
        ('{"topicName":{}}', "$.topicConfigTable.T.topicName: expected a string, found dict"),
        ('{"attributes":[]}', "$.topicConfigTable.T.attributes: expected an object, found list"),
        ('"x"', "$.topicConfigTable.T: expected an object, found 'x'"),
    ],
)
def test_content_errors_name_the_place(tmp_path: Path, entry: str, where: str) -> None:
    manager = TopicConfigManager(tmp_path)
    manager.update_topic_config(TopicConfig(topic_name="Old"))
    with pytest.raises(ContentError) as caught:
        manager.decode(f'{{"x":1,"topicConfigTable":{{"T":{entry}}}}}')
    assert where in str(caught.value)
    assert list(manager.topic_config_table) == ["Old"]
    assert '"x"' not in manager.encode()


def test_subscription_groups(tmp_path: Path) -> None:
    manager = SubscriptionGroupManager(tmp_path, clock=lambda: NOW)
    config = SubscriptionGroupConfig(
        group_name="g", retry_max_times=3, subscription_data_set=[{"topic": "T"}]
    )
    manager.update_subscription_group_config(config)
    manager.forbidden_table["g"] = {"T": 4}
    manager.persist()
    again = SubscriptionGroupManager(tmp_path)
    assert again.load()
    assert again.find_subscription_group_config("g") == config
    assert again.forbidden_table == {"g": {"T": 4}}
    assert again.find_subscription_group_config("unknown") is None
    assert list(again.subscription_group_table) == ["g"]
    assert again.disable_consume("g")
    assert not again.disable_consume("unknown")
    assert not again.subscription_group_table["g"].consume_enable
    assert again.delete_subscription_group_config("g")
    assert not again.delete_subscription_group_config("g")
    assert again.forbidden_table == {}
    with pytest.raises(ValueError, match="name"):
        again.update_subscription_group_config(SubscriptionGroupConfig(group_name=""))


def test_consumer_offsets(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(tmp_path)
    for group, topic, queue_id, offset in (("a", "T", 0, 5), ("a", "T", 1, 7), ("b", "T", 0, 3)):
        manager.commit_offset(group, topic, queue_id, offset)
    manager.commit_offset("a", "%RETRY%a", 0, 1)
    manager.commit_offset("a", "T", 1, 6)
    assert manager.query_offset("a", "T", 1) == 6
    assert manager.query_offset("a", "T", 2) == -1
    assert manager.query_offset("c", "T", 0) == -1
    assert manager.query_min_offset_in_all_group("T") == {0: 3, 1: 6}
    assert manager.query_min_offset_in_all_group("T", ["b"]) == {0: 5, 1: 6}
    assert manager.query_min_offset_in_all_group("T") == {0: 3, 1: 6}
    assert manager.clone_offset("a", "c", "T")
    assert not manager.clone_offset("z", "c", "T")
    manager.commit_offset("c", "T", 0, 9)
    assert manager.query_offset("a", "T", 0) == 5
    manager.persist()
    again = ConsumerOffsetManager(tmp_path)
    assert again.load()
    assert again.offset_table == manager.offset_table
    assert '"0":5' in again.encode()
    assert again.remove_offset("a")
    assert not again.remove_offset("a")
    assert again.which_group_by_topic("T") == {"b", "c"}
    for group, topic, queue_id, offset in (
        ("a@b", "T", 0, 1),
        ("a", "T@", 0, 1),
        ("", "T", 0, 1),
        ("a", "T", -1, 1),
        ("a", "T", 0, -1),
    ):
        with pytest.raises(ValueError, match="must"):
            again.commit_offset(group, topic, queue_id, offset)


@pytest.mark.parametrize(
    ("queue_id", "offset", "error"),
    [
        (-1, 0, ValueError), (0, -1, ValueError), (2**31, 0, ValueError), (0, 2**63, ValueError),
        (True, 0, TypeError), (0, 1.0, TypeError), ("0", 0, TypeError), (0, None, TypeError),
    ],
)  # fmt: skip
def test_offsets_that_could_not_be_read_again_are_refused(
    tmp_path: Path, queue_id: Any, offset: Any, error: type[Exception]
) -> None:
    manager = ConsumerOffsetManager(tmp_path)
    manager.commit_offset("g", "T", 2**31 - 1, 2**63 - 1)
    with pytest.raises(error):
        manager.commit_offset("g", "T", queue_id, offset)
    manager.persist()
    again = ConsumerOffsetManager(tmp_path)
    assert again.load()
    assert again.offset_table == {"T@g": {2**31 - 1: 2**63 - 1}}


def test_offsets_under_odd_names_are_kept_and_belong_to_no_group(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(tmp_path)
    manager.decode(b'{"offsetTable":{"T":{0:1},"T@g@h":{0:2},"T@g":{0:3}}}')
    assert manager.which_group_by_topic("T") == {"g"}
    assert manager.query_min_offset_in_all_group("T") == {0: 3}
    assert len(json.loads(manager.encode())["offsetTable"]) == 3


def test_light_consumer_offsets(tmp_path: Path) -> None:
    manager = LmqConsumerOffsetManager(tmp_path)
    manager.commit_offset("%LMQ%a", "%LMQ%a", 0, 4)
    manager.commit_offset("g", "T", 1, 5)
    assert manager.offset_table == {"T@g": {1: 5}}
    manager.persist()
    assert manager.config_file_path.name == "lmqConsumerOffset.json"
    again = LmqConsumerOffsetManager(tmp_path)
    assert again.load()
    assert again.lmq_offset_table == {"%LMQ%a@%LMQ%a": 4}
    assert again.query_offset("%LMQ%a", "%LMQ%a", 0) == 4
    assert again.query_offsets("%LMQ%a", "%LMQ%a") == {0: 4}
    assert again.query_offsets("%LMQ%b", "%LMQ%a") == {}
    assert again.query_offset("g", "T", 1) == 5
    assert again.remove_offset("%LMQ%a")
    assert not again.remove_offset("%LMQ%a")


def test_delay_offsets(tmp_path: Path) -> None:
    manager = DelayOffsetManager(tmp_path)
    manager.update_offset(1, 3)
    manager.update_offset(18, 40)
    assert json.loads(manager.encode())["offsetTable"] == {"1": 3, "18": 40}
    moved = manager.correct_delay_offset(lambda queue_id: (5, 20) if queue_id == 0 else (0, 30))
    assert moved == {1: 3, 18: 40}
    assert manager.offset_table == {1: 5, 18: 30}
    assert manager.correct_delay_offset(lambda queue_id: (0, 100)) == {}
    for level, offset in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="must be from"):
            manager.update_offset(level, offset)


def test_bloom_filter_positions() -> None:
    """The hash is MurmurHash3 x64 128; the values were made with another implementation of it
    (mmh3)."""
    assert BloomFilter.create() == BloomFilter(3, 112)
    assert murmur3_128_low(b"") == 0
    assert murmur3_128_low(b"rocketstore") == 0x6533AD7AD6ADCA36
    assert murmur3_128_low(b"0123456789abcdef0") == 0xEB24AE8785A5C075
    positions = BloomFilter.create().bit_positions("group", "topic")
    assert positions == [79, 21, 21]
    for rate, consumers in ((0, 32), (100, 32), (20, 0)):
        with pytest.raises(ValueError, match="must be"):
            BloomFilter.create(rate, consumers)
