"""What the keys of a broker's file mean: used, ignored, unknown, overridden, refused."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore import ConfigError, MessageStoreConfig
from rocketstore.broker_file.entries import ConfigEntry, similar_key
from rocketstore.cli.app import app
from support.command_line import CliRunner

FILE = """\
# A broker's file.
brokerName = broker-a
fileReservedTime=24
fileReservedTimes=1
fileReservedTime=48
haListenPort=10912
mapedFileSizeCommitLog=65536
file_reserved_time=12
foo.bar=x
"""


def read(text: str) -> MessageStoreConfig:
    return MessageStoreConfig.from_properties(text + "\n")


def only(text: str) -> ConfigEntry:
    (entry,) = read(text).entries
    return entry


def test_every_key_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    config = MessageStoreConfig.from_properties(path)
    assert [(one.key, one.line, one.use) for one in config.entries] == [
        ("brokerName", 2, "ignored"),
        ("fileReservedTime", 3, "overridden"),
        ("fileReservedTimes", 4, "unknown"),
        ("fileReservedTime", 5, "overridden"),
        ("haListenPort", 6, "ignored"),
        ("mapedFileSizeCommitLog", 7, "used"),
        ("file_reserved_time", 8, "used"),
        ("foo.bar", 9, "unknown"),
    ]
    assert config.file_reserved_time == 12
    assert config.ignored == {"brokerName": "broker-a", "haListenPort": "10912"}
    assert config.unknown == {"fileReservedTimes": "1", "foo.bar": "x"}
    assert config.entries[2].suggestion == "fileReservedTime"
    assert config.entries[7].suggestion is None
    assert config.entries[0].suggestion is None
    assert "line 5" in config.entries[1].note
    assert "line 8" in config.entries[3].note


def test_all_sources_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    content = FILE.encode()
    sources: list[Any] = [path, str(path), FILE, content, io.StringIO(FILE), io.BytesIO(content)]
    read_all = [MessageStoreConfig.from_properties(source).entries for source in sources]
    assert all(entries == read_all[0] for entries in read_all)
    with open(path, "rb", buffering=0) as raw:
        assert MessageStoreConfig.from_properties(raw).entries == read_all[0]
    assert len(MessageStoreConfig.from_properties({"fileReservedTime": "1"}).entries) == 1
    for source in (5, None, ["a=b\n"]):
        with pytest.raises(TypeError, match="configuration"):
            MessageStoreConfig.from_properties(source)  # type: ignore[arg-type]


def test_reports_follow_copies_and_count_in_no_comparison() -> None:
    config = read("foo=1")
    assert config == MessageStoreConfig(clean_resource_enable=True, timer_wheel_enable=True)
    for other in (pickle.loads(pickle.dumps(config)), copy.copy(config), config.replace()):
        assert other == config
        assert other.unknown == {"foo": "1"}
    assert MessageStoreConfig().unknown == MessageStoreConfig().ignored == {}
    assert MessageStoreConfig().entries == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("maxMessageSize=4m", "'4m' is not a whole number"),
        ("maxMessageSize=", "'' is not a whole number"),
        ("maxMessageSize=-1", "must not be negative"),
        ("maxMessageSize=2147483648", "at most 2147483647"),
        ("messageIndexEnable=yes", "neither true nor false; RocketMQ reads it as false"),
        ("messageIndexEnable=", "neither true nor false"),
        ("flushDiskType=sync_flush", "neither 'SYNC_FLUSH' nor"),
        ("brokerRole=MASTER", "must be one of"),
        ("messageDelayLevel=1s 5x", "'5x' is not a number with"),
        (f"messageDelayLevel={'9' * 5000}s", "is longer than"),
        (f"timezone={'a' * 5000}", "is unknown"),
        ("deleteWhen=4,16", "not a list of hours"),
        ("logicalDiskSpaceCleanForciblyThreshold=80%", "is not a number"),
        ("maxHashSlotNum=0", "must be 1 to"),
        ("maxHashSlotNum=2000000000", "an index file would have"),
        ("mappedFileSizeConsumeQueue=0", "must be positive"),
        ("listenPort=70000", "is not a port"),
        ("storePathRootDir=a\\u0000b", "NUL"),
        ("storePathRootDir=a\\ud800b", "surrogate"),
        ("topicAttributes={", "not a table in JSON"),
        ("topicAttributes=[1]", "must map topics"),
        ("enableDLegerCommitLog=true", "does not support DLedger"),
    ],
)
def test_a_wrong_value_names_file_line_and_key(tmp_path: Path, text: str, reason: str) -> None:
    key = text.partition("=")[0]
    path = tmp_path / "broker.conf"
    path.write_text(f"# first\nbrokerId=0\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        MessageStoreConfig.from_properties(path)
    error = caught.value
    assert (error.path, error.line, error.key) == (str(path), 3, key)
    assert str(error).startswith(f"{path}:3: {key}: ")
    assert reason in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.line, again.key) == (str(error), str(path), 3, key)


def test_errors_of_python_name_the_field() -> None:
    with pytest.raises(ConfigError) as caught:
        MessageStoreConfig(max_message_size=-1)
    assert (caught.value.path, caught.value.line) == (None, None)
    assert caught.value.key == "max_message_size"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a=1\nb=\x00\n", ":2: a NUL byte"),
        (b"\x7fELF\x02\x01\x01\x00", ":1: a NUL byte"),
        ("maxMessageSize=1\n".encode("utf-16"), "UTF-16"),
        (b"a=1\nb=\\u00", ":2: \\u00 has no four hexadecimal digits"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        MessageStoreConfig.from_properties(path)
    assert str(caught.value).startswith(f"{path}:")
    assert reason in str(caught.value)


WRONG = """\
maxMessageSize=lots
broker.name=x
brokerRole=BOSS
listenPort=70000
cleanResourceEnable=yes
maxIndexNum=1
enableDLegerCommitLog=true
deleteWhen=25
maxErrorRateOfBloomFilter=100
expectConsumerNumUseFilter=32
maxMessageSize=4194304
maxHashSlotNum=0
timezone=Mars
"""


def test_one_error_names_every_wrong_value(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(WRONG)
    with pytest.raises(ConfigError) as caught:
        MessageStoreConfig.from_properties(path)
    error = caught.value
    assert [(one.line, one.key) for one in error.errors] == [
        (3, "brokerRole"), (4, "listenPort"), (5, "cleanResourceEnable"), (6, "maxIndexNum"),
        (7, "enableDLegerCommitLog"), (8, "deleteWhen"), (9, "maxErrorRateOfBloomFilter"),
        (12, "maxHashSlotNum"), (13, "timezone"),
    ]  # fmt: skip
    lines = str(error).splitlines()
    assert lines == [str(one) for one in error.errors]
    for one, line in zip(error.errors, lines, strict=True):
        assert line.startswith(f"{path}:{one.line}: {one.key}: ")
        assert (one.path, one.errors) == (str(path), (one,))
    assert (error.path, error.line, error.key) == (str(path), 3, "brokerRole")
    again = pickle.loads(pickle.dumps(error))
    assert [str(one) for one in again.errors] == lines


def test_a_value_is_judged_by_itself_where_its_partner_is_wrong() -> None:
    for text, keys in (
        ("maxHashSlotNum=x\nmaxIndexNum=100000000", ["maxHashSlotNum"]),
        ("maxHashSlotNum=0\nmaxIndexNum=1000000000", ["maxHashSlotNum", "maxIndexNum"]),
        ("maxErrorRateOfBloomFilter=x\nexpectConsumerNumUseFilter=300000",
         ["maxErrorRateOfBloomFilter"]),
        ("maxErrorRateOfBloomFilter=0\nexpectConsumerNumUseFilter=0",
         ["maxErrorRateOfBloomFilter", "expectConsumerNumUseFilter"]),
        ("maxHashSlotNum=500000000\nmaxIndexNum=100000000", ["maxIndexNum"]),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            read(text)
        assert [one.key for one in caught.value.errors] == keys, text


def test_a_line_end_in_a_key_makes_no_line_of_its_own() -> None:
    with pytest.raises(ConfigError) as caught:
        MessageStoreConfig.from_properties({"brokerRole": "x", "deleteWhen": "a\nb"})
    assert len(str(caught.value).splitlines()) == 2
    with pytest.raises(ConfigError) as caught:
        read("deleteWhen=\\nx\nbrokerRole=\\ny")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("command", [["config"], ["stats", "nowhere", "--config"]])
def test_the_command_line_shows_each_wrong_value(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(WRONG)
    result = CliRunner().invoke(app, [*command, str(path)])
    lines = [line for line in result.output.splitlines() if line.startswith("rocketstore: ")]
    assert result.exit_code == 2
    assert len(lines) == 9
    assert all(f"{path}:" in line for line in lines)


def test_a_mapping_has_keys_and_no_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        MessageStoreConfig.from_properties({"brokerRole": "x", "deleteWhen": "x"})
    assert [(one.line, one.key) for one in caught.value.errors] == [
        (None, "brokerRole"), (None, "deleteWhen"),
    ]  # fmt: skip


def test_the_text_of_an_error_stays_short() -> None:
    names = [item.name for item in dataclasses.fields(MessageStoreConfig)]
    wrong = {name: "?" for name in names}
    with pytest.raises(ConfigError, match=r"and [0-9]+ more wrong values$") as caught:
        MessageStoreConfig.from_properties(wrong)
    assert len(str(caught.value).splitlines()) == 21
    assert len(caught.value.errors) > 40


def test_a_file_that_is_too_large() -> None:
    for source in (io.BytesIO(b"#" * (17 << 20)), io.StringIO("#" * (17 << 20))):
        with pytest.raises(ConfigError, match="too many for a configuration"):
            MessageStoreConfig.from_properties(source)


def test_windows_line_ends_tabs_and_a_byte_order_mark() -> None:
    content = b"\xef\xbb\xbfmaxMessageSize\t=\t100\r\nfileReservedTime:7\r\n"
    for source in (content, content.decode("utf-8")):
        config = MessageStoreConfig.from_properties(source)
        assert (config.max_message_size, config.file_reserved_time) == (100, 7)
        assert "byte order mark" in config.entries[0].note
    assert read("\ufeff# a comment\nmaxMessageSize=1").entries[0].note == ""


def test_a_file_is_in_iso_8859_1(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"storePathRootDir=/caf\xe9\n")
    config = MessageStoreConfig.from_properties(path)
    assert config.store_path_root_dir == "/caf\u00e9"
    assert "ISO-8859-1" in config.entries[0].note


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("maxMessageSize=5 ", "RocketMQ ignores a number with blanks"),
        ("messageIndexEnable=true ", "reads a value with blanks around it as false"),
        ("storePathRootDir=/a ", "keeps the blanks"),
        ("storePathRootDir=${user.home}/store", "does not expand variables"),
        ("storePathRootDir=$HOME/store", "does not expand variables"),
        ("storePathCommitLog=~/log", "does not expand variables"),
        ("storePathRootDir=store", "relative to the folder"),
        ("storePathCommitLog=/a,/b", "several folders: the store can be read, not written"),
        ("readOnlyCommitLogStorePaths=/a,/b", "counts only beside several folders"),
        ("fileReservedTime=1", ""),
        ("file_reserved_time=1", "RocketMQ knows it as fileReservedTime"),
        ("mapedFileSizeCommitLog=65536", "RocketMQ knows it as mappedFileSizeCommitLog"),
        ("timezone=UTC", "of rocketstore alone"),
        ("commitLogRecoverMaxNum=10", "RocketMQ from 5.4.0"),
        ("haSlaveFallbehindMax=10", "RocketMQ up to 4.9.8"),
        ("storePathDLedgerCommitLog=/d", "DLedger"),
        ("brokerIP1=example.org", "not an IP address"),
    ],
)
def test_where_rocketmq_reads_it_differently_is_said(text: str, note: str) -> None:
    entry = only(text)
    assert note in entry.note
    assert entry.note or not note


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("fileReservedTimes", "fileReservedTime"),
        ("filereservedtime", "fileReservedTime"),
        ("FileReservedTime", "fileReservedTime"),
        ("file.reserved.time", "fileReservedTime"),
        ("flushDiskTyp", "flushDiskType"),
        ("mappedFileSizeCommitlog", "mappedFileSizeCommitLog"),
        ("x", None),
        ("kafkaBrokers", None),
        ("k" * 10_000, None),
    ],
)
def test_similar_keys(key: str, known: str | None) -> None:
    assert similar_key(key) == known
    assert only(f"{key}=1").suggestion == known


def test_rocketmq_minds_capitals() -> None:
    assert read("MaxMessageSize=5").max_message_size == MessageStoreConfig().max_message_size
    assert read("MaxMessageSize=5").unknown == {"MaxMessageSize": "5"}


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("brokerIP1=10.0.0.5", "10.0.0.5:10911"),
        ("listenPort=30911", "127.0.0.1:30911"),
        ("brokerIP1=10.0.0.5\nlistenPort=30911", "10.0.0.5:30911"),
        ("brokerIP1=2001:db8::1", "[2001:db8::1]:10911"),
        ("brokerIP1=example.org\nlistenPort=1", "127.0.0.1:1"),
        ("brokerIP1=10.0.0.5\nstoreHost=10.0.0.9:1", "10.0.0.9:1"),
        ("storeHost=10.0.0.9:1\nlistenPort=5", "10.0.0.9:1"),
    ],
)
def test_the_brokers_address(text: str, host: str) -> None:
    config = read(text)
    assert config.store_host == host
    assert len([one for one in config.entries if one.use == "unknown"]) == 0


KEYS = st.sampled_from(
    ["fileReservedTime", "maxHashSlotNum", "maxIndexNum", "flushDiskType", "storePathRootDir",
     "messageIndexEnable", "messageDelayLevel", "deleteWhen", "topicAttributes", "brokerIP1",
     "listenPort", "storeHost", "timezone", "brokerRole", "timerPrecisionMs", "transactionTimeOut",
     "logicalDiskSpaceCleanForciblyThreshold", "enableDLegerCommitLog", "foo"]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        ["1", "0", "-1", "9" * 30, "true", "FALSE ", "yes", "SYNC_FLUSH", "SLAVE", "1s 2m", "04;16",
         "0.5", "nan", "inf", "1e400", '{"T": {"queue.type": "BatchCQ"}}', "{}", "[" * 9999, "UTC",
         "10.0.0.1", "::1", "10.0.0.1:5", "\\ud800", "\\u12", "a\\", "../x", "/a,/b", ""]
    ),
    st.text(st.characters(max_codepoint=255), max_size=12),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(KEYS, st.sampled_from(["=", ":", " "]), VALUES)), st.binary(max_size=9))
def test_any_file_is_read_or_refused_by_name(
    lines: list[tuple[str, str, str]], junk: bytes
) -> None:
    content = "\n".join("".join(line) for line in lines).encode("iso-8859-1") + b"\n" + junk
    refusal = None
    try:
        config = MessageStoreConfig.from_properties(content)
    except ConfigError as error:
        refusal = error
    if refusal is not None:
        assert refusal.line is not None
        assert all(len(str(one)) < 500 for one in refusal.errors)
        return
    assert len(config.entries) >= len({line[0] for line in lines if line[0] == "foo"})
    assert MessageStoreConfig.from_properties(config.to_properties()) == config
