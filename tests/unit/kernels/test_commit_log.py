"""The appender of both bodies: RocketMQ's bytes, its arguments, limits, delays and batches."""

from __future__ import annotations

import base64
import struct
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golden import golden_stores
from rocketstore import formats
from rocketstore.errors import ConfigError
from rocketstore.status import AppendMessageStatus, PutMessageStatus
from support.appenders import Log, Pair, batch, message, stored
from support.kernel_bodies import Bodies

UNIQUE_KEY = "0A0102031A2B18B4AAC20000000A0007"
STORED = 1700000000500
#: One record of 162 bytes, as RocketMQ 5.3.3 stores it, and the blank after it in 512 bytes.
WORKED = (
    bytes.fromhex(
        "000000a2daa320a73610a6860000000000000000000000000000000000000000"
        "00000000000000000000018bcfe568000a010203000011d70000018bcfe569f4"
        "0a09080700002a9f00000000000000000000000000000005"
        "68656c6c6f06546f70696341003c4b455953016b310254414753015461674102"
    )
    + b"UNIQ_KEY\x01"
    + UNIQUE_KEY.encode()
    + b"\x02"
)
WORKED_BLANK = bytes.fromhex("0000015ecbd43194")
WORKED_CRC_TAIL = b"__CRC32#\x016468449021\x02"


def worked_log(kernels: Bodies, **options: Any) -> Log:
    settings = {"segment_nbytes": 512, "store_host": "10.9.8.7:10911", "clock": lambda: STORED}
    return Log(kernels, **{**settings, **options})


def put_worked(log: Log, **options: Any) -> Any:
    properties = {"KEYS": "k1", "TAGS": "TagA", "UNIQ_KEY": UNIQUE_KEY}
    settings = {"born_timestamp": 1700000000000, "born_host": "10.1.2.3:4567"}
    return log.appender.put("TopicA", b"hello", properties=properties, **{**settings, **options})


# --- Bytes --------------------------------------------------------------------------------------


def test_the_worked_example(kernels: Bodies) -> None:
    log = worked_log(kernels)
    first = put_worked(log)
    assert log.segments[0][:162] == WORKED
    assert (first.status, first.append_status) == (PutMessageStatus.PUT_OK, 0)
    assert (first.physical_offset, first.nbytes, first.queue_offset) == (0, 162, 0)
    assert (first.store_timestamp, first.message_count) == (STORED, 1)
    assert first.msg_id == "0A09080700002A9F0000000000000000"
    second = log.appender.put("TopicA", b"A" * 300, 0, "TagB", "k1")
    assert (second.physical_offset, second.nbytes, second.queue_offset) == (512, 415, 1)
    assert log.segments[0][162:170] == WORKED_BLANK
    assert not any(log.segments[0][170:])
    assert struct.unpack(">i", log.segments[1][8:12]) == (1000354595,)
    assert log.appender.write_offset == 512 + 415
    assert log.appender.last_store_timestamp == STORED


def test_the_worked_example_without_trailing_separator(kernels: Bodies) -> None:
    log = worked_log(kernels, broker_version="4.9.8")
    assert put_worked(log).nbytes == 161
    assert log.segments[0][4:156] == WORKED[4:101] + b"\x3b" + WORKED[102:156]


def test_the_worked_example_with_its_crc(kernels: Bodies) -> None:
    log = worked_log(kernels, append_property_crc=True)
    properties = {"KEYS": "k1", "__CRC32#": "stale", "TAGS": "TagA", "UNIQ_KEY": UNIQUE_KEY}
    put_worked(log)
    assert log.segments[0][162:182] == WORKED_CRC_TAIL
    log.appender.put("TopicA", b"hello", properties=properties)
    assert b"stale" not in log.segments[0]


def test_property_crc_needs_a_version_that_knows_it(kernels: Bodies) -> None:
    with pytest.raises(ConfigError, match=r"5\.1\.4"):
        Log(kernels, broker_version="5.1.4", append_property_crc=True)


def golden_message(ask: dict[str, Any]) -> SimpleNamespace:
    def host(text: str | None) -> str | None:
        if text is None or text.startswith("[") or text.count(":") == 1:
            return text
        address, _, port = text.rpartition(":")
        return f"[{address}]:{port}"

    return message(
        ask["topic"],
        base64.b64decode(ask["body"]) if "body" in ask else b"",
        queue_id=ask["queueId"],
        flag=ask.get("flag", 0),
        sys_flag=ask.get("sysFlag", 0),
        born_timestamp=ask["bornTs"],
        born_host=host(ask.get("bornHost")) or "10.1.2.3:4567",
        store_host=host(ask.get("storeHost")),
        reconsume_times=ask.get("reconsume", 0),
        prepared_transaction_offset=ask.get("prepared", 0),
        properties=ask["props"],
    )


def golden_put(log: Log, ask: dict[str, Any]) -> Any:
    head = golden_message(ask)
    if ask["op"] == "put":
        return log.appender.put_message(head)
    items = [
        message(body=base64.b64decode(i["body"]), flag=i["flag"], properties=i["props"])
        for i in ask["messages"]
    ]
    return log.appender.put_messages(SimpleNamespace(**{**vars(head), "messages": items}))


@pytest.mark.parametrize("name", golden_stores.names("plain-"))
def test_rocketmqs_writes_give_its_log(kernels: Bodies, name: str, tmp_path: Path) -> None:
    about = golden_stores.about(name)
    now = [0]
    log = Log(
        kernels,
        segment_nbytes=golden_stores.geometry(name).commit_log_nbytes,
        broker_version=about["rocketmq"],
        max_message_size=int(about["config"]["maxMessageSize"]),
        store_host="10.9.8.7:10911",
        delay_ms=[1000] * 18,
        clock=lambda: now[0],
    )
    count = 0
    for step in golden_stores.writes(name):
        if step.op not in ("put", "batch"):
            continue
        now[0] = step.answer.get("storeTs", 0)
        result = golden_put(log, step.ask)
        assert result.status.name == step.answer["status"]
        assert result.physical_offset == step.answer.get("offset")
        assert result.nbytes == step.answer.get("bytes", 0)
        assert result.queue_offset == step.answer.get("queueOffset")
        assert result.msg_id == step.answer.get("msgId")
        count += 1
    files = sorted((golden_stores.unpack(name, tmp_path) / "commitlog").iterdir())
    assert count > 200
    assert log.bytes == b"".join(file.read_bytes() for file in files)


# --- Arguments ----------------------------------------------------------------------------------

BAD_TOPICS = ("", ".", "..", "../../x", "a/b", "/abs", "a\0b", "😀", "T+", "a$", "%RETRY%a$")


@pytest.mark.parametrize(
    ("error", "values"),
    [
        *((ValueError, {"topic": topic}) for topic in BAD_TOPICS),
        *((TypeError, {"topic": topic}) for topic in (None, 5, b"T")),
        *((TypeError, {"body": body}) for body in (None, "text", 5, [1])),
        (ValueError, {"body": memoryview(b"abcd")[::2]}),
        *((ValueError, {"queue_id": number}) for number in (-1, 2**31, 2**70)),
        *((TypeError, {"queue_id": number}) for number in (True, 1.0, "1", None)),
        *((ValueError, {"flag": number}) for number in (2**31, -(2**31) - 1)),
        (TypeError, {"sys_flag": False}),
        (ValueError, {"born_timestamp": 2**63}),
        (TypeError, {"born_timestamp": 1.5}),
        (ValueError, {"reconsume_times": 2**31}),
        (ValueError, {"prepared_transaction_offset": -(2**63) - 1}),
        *((ValueError, {"born_host": host}) for host in ("", "localhost", "1.2.3.4", "[::1]")),
        *((ValueError, {"store_host": host}) for host in ("1.2.3.4:x", "::1:80")),
        (TypeError, {"store_host": 5}),
        *((ValueError, {"tags": "a" + c}) for c in "\x00\x01\x02"),
        (TypeError, {"tags": 5}),
        (ValueError, {"keys": ["a b"]}),
        (ValueError, {"keys": ["a", ""]}),
        (TypeError, {"keys": [b"a"]}),
        (TypeError, {"keys": 5}),
        (ValueError, {"properties": {"": "x"}}),
        (ValueError, {"properties": {"a\x01": "x"}}),
        (ValueError, {"properties": {"a": "x\x02"}}),
        (TypeError, {"properties": {5: "x"}}),
        (TypeError, {"properties": {"a": 5}}),
        (TypeError, {"properties": {"a": None}}),
        (TypeError, {"properties": "a=b"}),
        (ValueError, {"properties": {"TAGS": "a"}, "tags": "a"}),
        (ValueError, {"properties": {"KEYS": "a"}, "keys": ["a"]}),
        (ValueError, {"properties": {"WAIT": "true"}, "wait_store_msg_ok": False}),
        (ValueError, {"properties": {"DELAY": "1"}, "delay_level": 1}),
        (ValueError, {"properties": {"UNIQ_KEY": "1"}, "unique_key": "2"}),
        (ValueError, {"unique_key": True}),
        (TypeError, {"unique_key": 5}),
        (ValueError, {"delay_level": -1}),
        (TypeError, {"delay_level": True}),
    ],
)
def test_bad_arguments_change_nothing(error: type[Exception], values: dict[str, Any]) -> None:
    pair = Pair()
    pair.call("put", "T", b"first")
    before = pair.native.state
    raised = pair.call("put", **{"topic": "T", "body": b"b", **values})
    assert raised[:2] == ("raised", error.__name__)
    assert pair.native.state == before
    assert pair.call("put", "T", b"next")[1][0][2] == before[1][0]


def test_the_first_topic_may_not_be_none(kernels: Bodies) -> None:
    """The native body knows its last topic by identity; that must not begin as None's."""
    with pytest.raises(TypeError, match="topic must be str, not NoneType"):
        Log(kernels).appender.put(None, b"")


@pytest.mark.parametrize("topic", ["%RETRY%g+T", "%LMQ%$a$b", "%DLQ%g", "a|b_c-d%9Z"])
def test_all_topics_that_rocketmq_makes_are_allowed(kernels: Bodies, topic: str) -> None:
    log = Log(kernels)
    assert log.appender.put(topic, b"").ok
    assert stored(log).topic == topic


@pytest.mark.parametrize(
    "body", [bytearray(b"abcd"), memoryview(b"abcd"), array("i", [1]), b"", bytearray()]
)
def test_bodies_of_any_contiguous_buffer(kernels: Bodies, body: Any) -> None:
    log = Log(kernels)
    assert log.appender.put("T", body).ok
    assert stored(log).body == bytes(body)
    assert log.appender.put_many([message(body=body)]).ok


def test_properties_are_stored_in_order(kernels: Bodies) -> None:
    log = Log(kernels, unique_key_maker=lambda: "UK")
    given = {"z": "1", "a": "", "é": "標籤😀"}
    log.appender.put(
        "T", b"", 0, "tag", ["k1", "k2"], properties=given, wait_store_msg_ok=False, unique_key=True
    )
    expected = "z\x011\x02a\x01\x02é\x01標籤😀\x02UNIQ_KEY\x01UK\x02TAGS\x01tag\x02"
    expected += "KEYS\x01k1 k2\x02WAIT\x01false\x02"
    assert stored(log).properties_bytes == expected.encode()


def test_a_given_unique_key_stays(kernels: Bodies) -> None:
    log = Log(kernels, unique_key_maker=lambda: "made")
    log.appender.put("T", b"", properties={"UNIQ_KEY": "given"}, unique_key=True)
    assert stored(log).properties == {"UNIQ_KEY": "given"}


def test_host_bits_follow_the_hosts(kernels: Bodies) -> None:
    log = Log(kernels)
    for sys_flag in (0, 0x30, 1):
        result = log.appender.put("T", b"", sys_flag=sys_flag, born_host="[2001:db8::1]:9")
        record = stored(log, result.physical_offset)
        assert record.sys_flag == sys_flag & ~0x30 | formats.SYS_FLAG_BORN_HOST_V6
        assert (record.born_host, record.store_host) == ("[2001:db8::1]:9", "127.0.0.1:10911")


# --- Limits -------------------------------------------------------------------------------------

ILLEGAL = "MESSAGE_ILLEGAL"
TOO_MANY = "PROPERTIES_SIZE_EXCEEDED"


@pytest.mark.parametrize(
    ("version", "values", "expected"),
    [
        ("4.9.8", {"topic": "t" * 127}, "PUT_OK"),
        ("4.9.8", {"topic": "t" * 128}, ILLEGAL),
        ("4.9.8", {"topic": "%RETRY%" + "t" * 121}, ILLEGAL),
        ("5.0.0", {"topic": "%RETRY%" + "t" * 121}, ILLEGAL),
        ("5.1.0", {"topic": "%RETRY%" + "t" * 248}, "PUT_OK"),
        ("5.1.0", {"topic": "%RETRY%" + "t" * 249}, ILLEGAL),
        ("5.3.3", {"topic": "%DLQ%" + "t" * 123}, ILLEGAL),
        ("5.3.3", {"body": bytes(1000)}, "PUT_OK"),
        ("5.3.3", {"body": bytes(1001)}, ILLEGAL),
        ("4.9.3", {"body": bytes(1000)}, ILLEGAL),
        ("4.9.3", {"body": bytes(900)}, "PUT_OK"),
        ("5.3.3", {"properties": {"a": "x" * 32764}}, "PUT_OK"),
        ("5.3.3", {"properties": {"a": "x" * 32765}}, TOO_MANY),
        ("5.3.3", {"properties": {"a": "é" * 16383}}, TOO_MANY),
        ("4.9.8", {"properties": {"a": "x" * 32765}}, "PUT_OK"),
        ("4.9.8", {"properties": {"a": "x" * 32766}}, ILLEGAL),
        ("4.9.8", {"properties": {"a": "é" * 16383}}, TOO_MANY),
        ("4.9.8", {"properties": {"a": "é" * 32766}}, ILLEGAL),
        ("4.9.8", {"properties": {"a": "é" * 16383}, "body": bytes(1001)}, TOO_MANY),
        ("5.0.0", {"sys_flag": 0x80}, ILLEGAL),
        ("5.0.0", {"properties": {"INNER_NUM": "2"}}, ILLEGAL),
        ("4.9.8", {"properties": {"INNER_NUM": "2"}, "sys_flag": 0x80}, "PUT_OK"),
        ("5.0.0", {"properties": {"TIMER_DELAY_SEC": "2"}}, "WHEEL_TIMER_NOT_ENABLE"),
        ("5.0.0", {"properties": {"TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": "1"}}, "PUT_OK"),
        ("5.0.0", {"properties": {"TIMER_DELAY_SEC": "2"}, "sys_flag": 4}, "PUT_OK"),
        ("4.9.8", {"properties": {"TIMER_DELAY_SEC": "2"}}, "PUT_OK"),
    ],
)
def test_limits_answer_rocketmqs_status(
    version: str, values: dict[str, Any], expected: str
) -> None:
    pair = Pair(
        segment_nbytes=65536, broker_version=version, max_message_size=1000, delay_ms=[1, 2]
    )
    values = {"topic": "T", "body": b"", **values}
    returned = pair.call("put", **values)
    assert returned[0] == "returned"
    assert returned[1][0][0].name == expected
    assert returned[1] == pair.call("put_message", message(**values))[1] or expected == "PUT_OK"
    assert pair.native.appender.failed_times == (0 if expected == "PUT_OK" else 2)
    if expected != "PUT_OK":
        assert returned[1][0][1:] == (None, None, 0)
        assert returned[1][1] == (None, 0, 0, None)
        assert pair.native.segments == []


def test_properties_count_with_their_crc(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=65536, append_property_crc=True)
    assert log.appender.put("T", b"", properties={"a": "x" * 32744}).ok
    assert log.appender.put("T", b"", properties={"a": "x" * 32745}).status.name == TOO_MANY


def test_a_record_that_fits_no_segment_is_refused(kernels: Bodies) -> None:
    """RocketMQ answers PUT_OK and stores nothing, after a new file for each try."""
    log = Log(kernels, segment_nbytes=200)
    fitting = 200 - 8 - 92
    result = log.appender.put("T", bytes(fitting + 1))
    assert (result.status, result.append_status) == (
        PutMessageStatus.MESSAGE_ILLEGAL,
        AppendMessageStatus.MESSAGE_SIZE_EXCEEDED,
    )
    assert log.rolls == []
    assert log.appender.put("T", bytes(fitting)).nbytes == 192


def test_long_retry_topics_get_version_2(kernels: Bodies) -> None:
    log = Log(kernels, broker_version="5.1.0")
    topic = "%RETRY%" + "t" * 121
    assert log.appender.put(topic, b"x").nbytes == 92 + 1 + len(topic)
    assert (stored(log).magic_code, stored(log).topic) == (formats.MAGIC_V2, topic)


# --- Delay levels -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_a_delayed_message_goes_to_the_schedule_topic(kernels: Bodies, version: str) -> None:
    log = Log(kernels, broker_version=version, delay_ms=[1000, 5000])
    result = log.appender.put("TopicA", b"x", 7, "tag", delay_level=3)
    record = stored(log)
    assert (record.topic, record.queue_id) == (formats.TOPIC_SCHEDULE, 1)
    assert list(record.properties.items()) == [
        ("TAGS", "tag"),
        ("DELAY", "2"),
        ("REAL_TOPIC", "TopicA"),
        ("REAL_QID", "7"),
    ]
    assert result.queue_offset == 0
    assert log.appender.next_queue_offset(formats.TOPIC_SCHEDULE, 1) == 1
    assert log.appender.next_queue_offset("TopicA", 7) == 0


def test_real_topic_and_queue_are_overwritten_in_place(kernels: Bodies) -> None:
    log = Log(kernels, delay_ms=[1000])
    given = {"REAL_QID": "9", "DELAY": "1", "REAL_TOPIC": "Other", "x": "y"}
    log.appender.put("TopicA", b"", properties=given)
    assert list(stored(log).properties.items()) == [
        ("REAL_QID", "0"),
        ("DELAY", "1"),
        ("REAL_TOPIC", "TopicA"),
        ("x", "y"),
    ]


HALF = {"DELAY": "1", "REAL_TOPIC": formats.TOPIC_SCHEDULE, "REAL_QID": "0"}


@pytest.mark.parametrize(
    ("version", "topic", "properties", "sys_flag", "moved"),
    [
        ("5.3.3", formats.TOPIC_SCHEDULE, {"DELAY": "1", "REAL_TOPIC": "T"}, 0, False),
        ("5.3.3", formats.TOPIC_SCHEDULE, {"DELAY": "1"}, 0, True),
        ("4.9.8", formats.TOPIC_HALF, HALF, 0, True),
        ("5.3.3", formats.TOPIC_HALF, HALF, 0, False),
        ("5.3.3", "T", {"DELAY": "1"}, formats.SYS_FLAG_TRANSACTION_COMMIT, True),
        ("5.3.3", "T", {"DELAY": "1"}, formats.SYS_FLAG_TRANSACTION_PREPARED, False),
        ("5.3.3", "T", {"DELAY": "1"}, formats.SYS_FLAG_TRANSACTION_ROLLBACK, False),
        ("5.3.3", "T", {"DELAY": "0"}, 0, False),
        ("5.3.3", "T", {"DELAY": "-1"}, 0, False),
        ("5.3.3", "T", {"DELAY": "+01"}, 0, True),
        ("5.3.3", "T", {"DELAY": "99999999999"}, 0, False),
        ("5.3.3", "T", {"DELAY": "1s"}, 0, False),
    ],
)
def test_what_is_moved_to_the_schedule_topic(
    version: str, topic: str, properties: dict[str, str], sys_flag: int, moved: bool
) -> None:
    pair = Pair(broker_version=version, delay_ms=[1000] * 18)
    pair.call("put", topic, b"", 3, properties=properties, sys_flag=sys_flag)
    record = stored(pair.native)
    if moved:
        assert (record.topic, record.queue_id) == (formats.TOPIC_SCHEDULE, 0)
        assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == (topic, "3")
    else:
        assert (record.topic, record.queue_id, record.properties) == (topic, 3, properties)


def test_a_delay_clears_timer_properties(kernels: Bodies) -> None:
    log = Log(kernels, delay_ms=[1000])
    log.appender.put("T", b"", properties={"TIMER_DELAY_MS": "5", "DELAY": "1"})
    assert "TIMER_DELAY_MS" not in stored(log).properties


def test_prepared_and_rollback_take_no_queue_offset(kernels: Bodies) -> None:
    log = Log(kernels)
    offsets = [log.appender.put("T", b"", sys_flag=s).queue_offset for s in (0, 4, 8, 12, 0)]
    assert offsets == [0, 0, 1, 0, 2]
    assert log.appender.next_queue_offset("T", 0) == 3


# --- Batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "first", "second"),
    [
        ("4.9.0", b"a\x01b\x02C\x01d\x02", b"C\x01d\x02"),
        ("4.9.2", b"a\x01bC\x01d", b"C\x01d"),
        ("4.9.8", b"a\x01b\x02C\x01d", b"C\x01d"),
        ("5.3.3", b"a\x01b\x02C\x01d\x02", b"C\x01d\x02"),
        ("5.5.0", b"a\x01b\x02", b""),
    ],
)
def test_batch_properties_by_version(
    kernels: Bodies, version: str, first: bytes, second: bytes
) -> None:
    log = Log(kernels, broker_version=version)
    log.appender.put("TopicA", b"", 2)
    result = log.appender.put_messages(
        batch(
            message(body=b"one", flag=5, properties={"a": "b"}),
            message(body=b"two", properties={}),
            topic="TopicA",
            queue_id=2,
            born_timestamp=77,
            properties={"C": "d"},
        )
    )
    assert (result.queue_offset, result.message_count) == (1, 2)
    one = stored(log, result.physical_offset)
    two = stored(log, result.physical_offset + one.store_size)
    assert (one.properties_bytes, two.properties_bytes) == (first, second)
    assert (one.body, one.flag, two.body, two.flag) == (b"one", 5, b"two", 0)
    assert (one.queue_offset, two.queue_offset) == (1, 2)
    assert {one.born_timestamp, two.born_timestamp} == {77}
    assert one.store_timestamp == two.store_timestamp == result.store_timestamp
    assert result.nbytes == one.store_size + two.store_size
    assert result.msg_id == f"{one.msg_id},{two.msg_id}"
    assert log.appender.put_times == 3


@pytest.mark.parametrize(
    ("version", "values", "expected"),
    [
        ("5.3.3", {"sys_flag": 4}, ILLEGAL),
        ("5.3.3", {"properties": {"DELAY": "1"}}, ILLEGAL),
        ("5.3.3", {"topic": "%RETRY%g"}, ILLEGAL),
        ("4.9.8", {"topic": "%RETRY%g"}, "PUT_OK"),
        ("4.9.8", {"topic": "t" * 128}, ILLEGAL),
        ("5.3.3", {"messages": [message(body=bytes(500))] * 2}, ILLEGAL),
        ("5.3.3", {"messages": [message(body=bytes(478))] * 2}, "PUT_OK"),
        ("4.9.3", {"messages": [message(body=bytes(478))] * 2}, ILLEGAL),
        ("5.3.3", {"messages": [message(properties={"DELAY": "3"})]}, "PUT_OK"),
        ("5.3.3", {"messages": [message(properties={"INNER_NUM": "3"})]}, "PUT_OK"),
        ("5.3.3", {"properties": {"INNER_NUM": "3"}}, ILLEGAL),
        ("5.3.3", {"properties": {"x": "y" * 32766}}, TOO_MANY),
        ("5.5.0", {"properties": {"x": "y" * 32766}}, "PUT_OK"),
    ],
)
def test_batches_that_are_refused(version: str, values: dict[str, Any], expected: str) -> None:
    pair = Pair(segment_nbytes=65536, broker_version=version, max_message_size=1000)
    sent = batch(message(), message())
    for name, value in values.items():
        setattr(sent, name, value)
    returned = pair.call("put_messages", sent)
    assert returned[1][0][0].name == expected
    assert bool(pair.native.segments) == (expected == "PUT_OK")


def test_a_batch_is_never_split(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=512)
    log.appender.put("T", bytes(100))
    result = log.appender.put_messages(batch(message(body=bytes(80)), message(body=bytes(80))))
    assert result.physical_offset == 512
    assert log.rolls == [192, 344]
    assert log.segments[0][192:200] == struct.pack(">ii", 320, formats.BLANK_MAGIC)
    too_long = log.appender.put_messages(batch(*[message(body=bytes(100))] * 3))
    assert too_long.append_status == AppendMessageStatus.MESSAGE_SIZE_EXCEEDED


def test_an_empty_batch_is_an_error(kernels: Bodies) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        Log(kernels).appender.put_messages(batch())


# --- Many ---------------------------------------------------------------------------------------


def test_put_many_goes_on_after_a_refused_message(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=512, max_message_size=100)
    bodies = (b"a", bytes(101), b"c" * 90, b"d" * 90, b"e" * 90)
    results = log.appender.put_many(
        message(body=body, store_host="1.2.3.4:5" if body == b"a" else None) for body in bodies
    )
    assert len(results) == 5
    assert [r.status.name for r in results] == ["PUT_OK", ILLEGAL] + ["PUT_OK"] * 3
    assert results.physical_offsets.tolist() == [0, -1, 93, 275, 512]
    assert results.queue_offsets.tolist() == [0, -1, 1, 2, 3]
    assert results.nbytes.tolist() == [93, 0, 182, 182, 182]
    assert results.statuses.tolist() == [0, 6, 0, 0, 0]
    assert results[0].msg_id == "01020304000000050000000000000000"
    assert results[-1].msg_id == "7F00000100002A9F0000000000000200"
    assert (results.ok, results[2:4].__len__()) == (False, 2)
    assert list(reversed(results)) == list(results)[::-1]
    assert results.index(results[3]) == 3
    assert results[1] in results
    with pytest.raises(IndexError):
        results[5]
    assert log.appender.failed_times == 1


def test_put_many_raises_before_its_chunk_is_appended(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1 << 20)
    good = [message()] * 512
    with pytest.raises(TypeError):
        log.appender.put_many([*good, message(), message(body="text"), message()])
    assert log.appender.put_times == 512


def test_chunks_end_after_4_mib(kernels: Bodies) -> None:
    clocks: list[int] = []
    log = Log(kernels, segment_nbytes=1 << 24, clock=lambda: clocks.append(1) or 1)
    log.appender.put_many([message(body=bytes(1 << 20))] * 6)
    assert len(clocks) == 2
    log.appender.put_many([message()] * 1025)
    assert len(clocks) == 5


@pytest.mark.parametrize("code", ["i", "q"])
def test_put_columns(kernels: Bodies, code: str) -> None:
    log = Log(kernels)
    offsets = array(code, [1, 3, 3, 6])
    results = log.appender.put_columns(
        "T", offsets, b"-abcdef", queue_id=4, tags="t", keys=["k"], properties={"p": "q"}, flag=9
    )
    assert [stored(log, at).body for at in results.physical_offsets] == [b"ab", b"", b"cde"]
    assert [stored(log, at).queue_offset for at in results.physical_offsets] == [0, 1, 2]
    record = stored(log, results[1].physical_offset)
    assert (record.queue_id, record.flag) == (4, 9)
    assert record.properties == {"p": "q", "TAGS": "t", "KEYS": "k"}
    assert len(log.appender.put_columns("T", array(code, [0]), b"")) == 0


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        (array("q"), "one entry more"),
        (array("q", [0, 4]), "must be in 0 .. "),
        (array("q", [-1, 2]), "must be in 0 .. "),
        (array("q", [0, 2, 1]), "must not decrease"),
        (array("d", [0.0]), "int32 or int64"),
        (b"\0" * 8, "int32 or int64"),
        (memoryview(array("q", [0, 1, 2]))[::2], "int32 or int64"),
    ],
)
def test_bad_columns(kernels: Bodies, offsets: Any, error: str) -> None:
    log = Log(kernels)
    with pytest.raises(ValueError, match=error):
        log.appender.put_columns("T", offsets, b"abc")
    with pytest.raises(TypeError):
        log.appender.put_columns("T", 5, b"abc")
    assert log.segments == []


def test_rows_of_a_column_are_judged_one_by_one() -> None:
    pair = Pair(segment_nbytes=512, max_message_size=300, delay_ms=[1])
    offsets = array("i", [0, 0, 301, 601, 610])
    returned = pair.call("put_columns", "T", offsets, bytes(610), properties={"DELAY": "1"})
    assert returned[1][1][0] == [0, 6, 0, 0]
    refused = pair.call("put_columns", "t" * 128, offsets, bytes(610))
    assert refused[1][1][0] == [6, 6, 6, 6]


def test_room_in_the_allocated_blocks(kernels: Bodies) -> None:
    log = Log(kernels, segment_nbytes=1024)
    appender = log.appender
    assert not appender.has_room(0)  # no segment yet
    appender.attach(bytearray(1024), 0, 100, 600)
    assert [nbytes for nbytes in (0, 499, 500, 501, 2**40) if appender.has_room(nbytes)] == [
        0, 499, 500,
    ]  # fmt: skip
    appender.set_frontier(700)
    assert appender.has_room(600)
    assert not appender.has_room(601)
    appender.detach()
    assert not appender.has_room(0)
    appender.close()
    assert not appender.has_room(0)
