"""Options and where they come from: RocketMQ's own names, a broker's file, what contradicts."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, FlushDiskType, MessageStoreConfig
from rocketstore.config import DEFAULT_HASH_SLOT_NUM, DEFAULT_INDEX_NUM

#: Options of rocketstore alone; every other one has RocketMQ's name.
OWN = {
    *("broker_version", "allow_newer", "store_host", "timezone", "topic_attributes"),
    "clean_resource_enable",
}
#: RocketMQ's spelling of what the rule (underscore and small letter for a capital) does not give.
SPELLED = {
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
}
#: Names of RocketMQ's MessageStoreConfig (4.9 to 5.5) that a store of this library follows.
ROCKETMQ = [
    "storePathRootDir",
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "enableConsumeQueueExt",
    "mappedFileSizeConsumeQueueExt",
    "bitMapLengthConsumeQueueExt",
    "enableCalcFilterBitMap",
    "expectConsumerNumUseFilter",
    "maxErrorRateOfBloomFilter",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "maxMessageSize",
    "flushDiskType",
    "syncFlushTimeout",
    "flushIntervalCommitLog",
    "flushCommitLogLeastPages",
    "flushCommitLogThoroughInterval",
    "transientStorePoolEnable",
    "transientStorePoolSize",
    "fastFailIfNoBufferInStorePool",
    "commitIntervalCommitLog",
    "commitCommitLogLeastPages",
    "commitCommitLogThoroughInterval",
    "warmMapedFileEnable",
    "flushLeastPagesWhenWarmMapedFile",
    "flushIntervalConsumeQueue",
    "flushConsumeQueueLeastPages",
    "flushConsumeQueueThoroughInterval",
    "messageIndexEnable",
    "messageDelayLevel",
    "scheduleMessageEnable",
    "flushConsumerOffsetInterval",
    "flushDelayOffsetInterval",
    "delayMaxAttempts",
    "timerWheelEnable",
    "timerPrecisionMs",
    "timerMaxDelaySec",
    "timerCongestNumEachSlot",
    "enabledAppendPropCRC",
    "forceVerifyPropCRC",
    "enableLmq",
    "enableMultiDispatch",
    "maxLmqConsumeQueueNum",
    "enableLmqQuota",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "accessMessageInMemoryMaxRatio",
    "maxFilterMessageSize",
    "maxMsgsNumBatch",
    "brokerRole",
    "cleanResourceInterval",
    "deleteWhen",
    "fileReservedTime",
    "deleteFileBatchMax",
    "deleteCommitLogFilesInterval",
    "deleteConsumeQueueFilesInterval",
    "redeleteHangedFileInterval",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
    "cleanFileForciblyEnable",
    "replicasPerDiskPartition",
    "logicalDiskSpaceCleanForciblyThreshold",
    *("transactionTimeOut", "transactionCheckMax", "transactionCheckInterval"),
    *("transactionOpMsgMaxSize", "transactionOpBatchInterval"),
]


def camel_case(name: str) -> str:
    return SPELLED.get(name) or re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def options() -> dict[str, str]:
    return {field.name: str(field.type) for field in dataclasses.fields(MessageStoreConfig)}


def test_every_option_has_rocketmqs_name() -> None:
    ours = {camel_case(name) for name in options() if name not in OWN}
    assert ours <= set(ROCKETMQ), ours - set(ROCKETMQ)
    assert set(ROCKETMQ) <= ours, set(ROCKETMQ) - ours


def sample(name: str, kind: str) -> tuple[str, Any]:
    """A text in a file, and what it becomes."""
    special: dict[str, tuple[str, Any]] = {
        "flush_disk_type": ("SYNC_FLUSH", FlushDiskType.SYNC_FLUSH),
        "broker_role": ("SLAVE", "SLAVE"),
        "message_delay_level": ("1s 2m", "1s 2m"),
        "broker_version": ("5.1.4", "5.1.4"),
        "timezone": ("UTC", "UTC"),
        "store_host": ("10.0.0.1:1234", "10.0.0.1:1234"),
        "delete_when": ("4; 16", "4; 16"),
        "logical_disk_space_clean_forcibly_threshold": ("0.5", 0.5),
        "max_error_rate_of_bloom_filter": ("5", 5),
        "timer_precision_ms": ("500", 500),
    }
    if name in special:
        return special[name]
    if kind.startswith("int"):
        return "12880", 12880
    if kind.startswith("bool"):
        return ("true", True)
    return "some/where", "some/where"


@pytest.mark.parametrize(
    ("name", "kind"), [item for item in options().items() if item[0] != "topic_attributes"]
)
def test_every_option_is_read_from_a_brokers_file(name: str, kind: str) -> None:
    text, value = sample(name, kind)
    for spelling in {camel_case(name), name}:
        config = MessageStoreConfig.from_properties({spelling: f" {text} "})
        assert getattr(config, name) in (value, 12880)
        config = MessageStoreConfig.from_properties(io.StringIO(f"{spelling}={text}\n"))
        assert getattr(config, name) in (value, 12880)


def test_a_brokers_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(
        "\ufeff# a comment with = in it\n"
        "! another\r\n"
        "brokerClusterName = DefaultCluster\n"
        "  brokerName=broker-a\n"
        "brokerId = 0\n"
        "deleteWhen = 04\n"
        "fileReservedTime = 48\n"
        "namesrvAddr=a:9876;b:9876\n"
        "brokerRole = SYNC_MASTER\n"
        "flushDiskType : SYNC_FLUSH\n"
        "storePathRootDir=/data/st\\\n"
        "    ore\n"
        "mapedFileSizeCommitLog=16777216\n"
        "maxMessageSize\t65536\n"
        "messageIndexEnable = False\n"
        "enableLmq=TRUE\n"
        "aclEnable\n"
        "unknown\\ name = x\n"
        "=nothing\n".encode()
    )
    config = MessageStoreConfig.from_properties(path)
    assert config == MessageStoreConfig(
        clean_resource_enable=True,
        timer_wheel_enable=True,
        file_reserved_time=48,
        broker_role="SYNC_MASTER",
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        store_path_root_dir="/data/store",
        mapped_file_size_commit_log=16777216,
        max_message_size=65536,
        message_index_enable=False,
        enable_lmq=True,
    )
    with path.open(encoding="utf-8-sig") as file:
        assert MessageStoreConfig.from_properties(file) == config
    assert MessageStoreConfig.from_properties(str(path)) == config


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("storePathRootDir=C\\:\\\\st\\u006fre", "C:\\store"),
        ("storePathRootDir = a = b", "a = b"),
        ("storePathRootDir=a\\\\", "a\\"),
        ("storePathRootDir=a\\\n  # no comment", "a# no comment"),
        ("storePathRootDir=a\\", "a"),
        ("storePathRootDir=one\nstorePathRootDir=two", "two"),
    ],
)
def test_escapes_of_java_properties(line: str, value: str) -> None:
    config = MessageStoreConfig.from_properties(io.StringIO(line))
    assert config.store_path_root_dir == value


def test_bytes_that_are_no_utf_8_do_not_matter_in_other_options(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"brokerName = caf\xe9\nmaxMessageSize = 100\n")
    assert MessageStoreConfig.from_properties(path).max_message_size == 100


@pytest.mark.parametrize(("name", "given"), [("maxHashSlotNum", 7), ("maxIndexNum", 9)])
def test_half_a_pair_in_a_brokers_file_is_completed(name: str, given: int) -> None:
    """A broker has a default for the other one; only in Python both are asked for."""
    config = MessageStoreConfig.from_properties({name: str(given)})
    pair = config.max_hash_slot_num, config.max_index_num
    wanted = (given, DEFAULT_INDEX_NUM) if given == 7 else (DEFAULT_HASH_SLOT_NUM, given)
    assert pair == wanted
    with pytest.raises(ConfigError, match="together"):
        MessageStoreConfig(**({"max_hash_slot_num": 7} if given == 7 else {"max_index_num": 9}))


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_000", "\u0661", "0x10", "9" * 5000, "1 2"])
def test_whole_numbers_are_digits(text: str) -> None:
    with pytest.raises(ConfigError, match=r"maxMessageSize = .* is not a whole number") as caught:
        MessageStoreConfig.from_properties({"maxMessageSize": text})
    assert len(str(caught.value)) < 200


def test_wrong_values_name_the_option() -> None:
    for name, text in (
        ("flushDiskType", "NEVER"),
        ("brokerRole", "KING"),
        ("messageDelayLevel", "1x"),
        ("mappedFileSizeCommitLog", "1"),
        ("timezone", "Nowhere/Town"),
        ("maxMessageSize", "-1"),
        ("deleteWhen", "24"),
        ("deleteWhen", "4,5"),
        ("logicalDiskSpaceCleanForciblyThreshold", "half"),
    ):
        option = re.sub(r"([A-Z])", r"_\1", name).lower()
        with pytest.raises(ConfigError, match=f"(?i){name}|{option}|delay"):
            MessageStoreConfig.from_properties({name: text})


INTEGERS = [
    item.name
    for item in dataclasses.fields(MessageStoreConfig)
    if str(item.type).split(" ")[0] == "int"
]
AT_LEAST_ONE = (
    *("transient_store_pool_size", "flush_least_pages_when_warm_maped_file"),
    "delay_max_attempts",
)
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 50,
    "max_index_num": 400,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_numbers_are_within_those_of_java(name: str) -> None:
    """Larger ones ended a service's thread where it waited, without a word, or the first put."""
    limit = 2**63 - 1 if name == "sync_flush_timeout" else 2**31 - 1
    others = SMALL if name in ("max_hash_slot_num", "max_index_num") else {}
    for value in (-1, limit + 1, 10**400):
        with pytest.raises(ConfigError, match=name):
            MessageStoreConfig(**{**others, name: value})


EXTREMES = [
    (name, value)
    for name in INTEGERS
    for value in (0, 2**31 - 1, *((2**63 - 1,) if name == "sync_flush_timeout" else ()))
    if not name.startswith(
        ("mapped_file", "mapper_file", "max_hash", "max_index", "max_error", "expect_consumer")
    )
    and (value > 0 or name not in AT_LEAST_ONE)
]


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize(("name", "value"), EXTREMES)
def test_the_extremes_can_be_lived_with(
    name: str, value: int, flush_disk_type: str, tmp_path: Path
) -> None:
    store = rocketstore.open(
        tmp_path / "s",
        "x",
        flush_disk_type=flush_disk_type,
        transient_store_pool_enable=True,
        clean_resource_enable=True,
        timer_wheel_enable=True,
        **{**SMALL, name: value},
    )
    with store:
        for _ in range(40):
            assert store.put("T", bytes(2000 if name != "max_message_size" else 0)).appended
        assert store.wait_dispatched(120)
        store.get_message("g", "T", 0, 0)
        store.clean_expired()
        assert store._writer is not None
        assert all(service.is_running for service in store._writer.services)


@pytest.mark.parametrize(
    "value", [5, None, "T", ["T"], {"T": "BatchCQ"}, {1: {"queue.type": "x"}}, {"T": {"a": 1}}]
)
def test_topic_attributes_of_other_types_are_refused(tmp_path: Path, value: Any) -> None:
    """They were looked at when a store was half open, and raised whatever came of them."""
    with pytest.raises(ConfigError, match="topic_attributes"):
        rocketstore.open(tmp_path / "s", "x", topic_attributes=value)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no FIFOs")
def test_what_is_no_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """A FIFO without a writer was waited for, for ever."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 30)
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for name in ("fifo", "link", "."):
        with pytest.raises(ConfigError, match="not a regular file"):
            MessageStoreConfig.from_properties(tmp_path / name)
    for device in ("/dev/null", "/dev/zero"):
        with pytest.raises(ConfigError, match="not a regular file"):
            MessageStoreConfig.from_properties(device)
    with pytest.raises(ConfigError, match="too many for a configuration"):
        MessageStoreConfig.from_properties(tmp_path / "large")
    with pytest.raises(FileNotFoundError):
        MessageStoreConfig.from_properties(tmp_path / "none")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/fd")
def test_what_a_shell_hands_over_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"maxMessageSize=100\n")
    os.close(writing)
    try:
        assert MessageStoreConfig.from_properties(f"/dev/fd/{reading}").max_message_size == 100
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (0, 100),
        (99, 100),
        (100, 100),
        (150, 100),
        (499, 200),
        (999, 500),
        (1000, 1000),
        (5000, 1000),
    ],
)
def test_the_timers_precision_is_one_of_four(given: int, taken: int) -> None:
    assert MessageStoreConfig(timer_precision_ms=given).timer_precision_ms == taken


def test_a_brokers_timer_is_on_unless_its_file_says_otherwise() -> None:
    assert not MessageStoreConfig().timer_wheel_enable
    assert MessageStoreConfig.from_properties({}).timer_wheel_enable
    assert not MessageStoreConfig.from_properties({"timerWheelEnable": "false"}).timer_wheel_enable


@pytest.mark.parametrize("text", ["9223372036854775807s", "9" * 5000 + "d", "99999999999d"])
def test_a_delay_level_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"message_delay_level: .* is longer than"):
        MessageStoreConfig(message_delay_level=f"1s {text}")


def test_a_delay_level_may_have_leading_zeros() -> None:
    assert MessageStoreConfig(message_delay_level="0001s 0h 9999999999d").delay_ms == (
        1000,
        0,
        9999999999 * 86_400_000,
    )


@pytest.mark.parametrize("name", [name for name in options() if name != "topic_attributes"])
def test_a_file_that_is_written_is_read(name: str) -> None:
    """Every option alone, from a broker's defaults and from those of a program."""
    _, value = sample(name, options()[name])
    pair = {"max_hash_slot_num": 12880, "max_index_num": 12880}
    change = pair if name in pair else {name: value}
    for start in (MessageStoreConfig(), MessageStoreConfig.from_properties({})):
        config = start.replace(**change)
        text = config.to_properties()
        assert MessageStoreConfig.from_properties(text) == config
        assert MessageStoreConfig.from_properties(text.encode()) == config
        assert not MessageStoreConfig.from_properties(text).unknown


def test_a_written_file_has_only_what_differs() -> None:
    assert MessageStoreConfig.from_properties({}).to_properties().count("\n") == 1
    config = MessageStoreConfig(
        store_path_root_dir="/a\\b/c\u00e9/\u4e2d/\U0001f600",
        topic_attributes={"T": {"queue.type": "BatchCQ"}},
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
    )
    text = config.to_properties()
    assert text.splitlines()[1:] == [
        "storePathRootDir=/a\\\\b/c\\u00e9/\\u4e2d/\\ud83d\\ude00",
        "flushDiskType=SYNC_FLUSH",
        "timerWheelEnable=false",
        "cleanResourceEnable=false",
        'topicAttributes={"T": {"queue.type": "BatchCQ"}}',
    ]
    assert MessageStoreConfig.from_properties(text) == config


@pytest.mark.parametrize("value", [" /a", "/a ", "\t", "/a\n"])
def test_a_text_that_no_file_can_hold_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="store_path_root_dir") as caught:
        MessageStoreConfig(store_path_root_dir=value).to_properties()
    assert caught.value.key == "store_path_root_dir"
