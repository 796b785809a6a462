"""``Message`` and ``StoredMessage`` of both bodies."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from support.kernel_bodies import NATIVE, REFERENCE, Bodies
from support.record_factory import V6, make_record

ATTRIBUTES = (
    "topic", "body", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "store_host",
    "reconsume_times", "prepared_transaction_offset", "properties", "tags", "keys", "unique_key",
    "delay_level",
)  # fmt: skip
STORED_ATTRIBUTES = (
    *ATTRIBUTES, "queue_offset", "physical_offset", "store_timestamp", "body_crc", "store_size",
    "magic_code", "msg_id", "raw", "body_view", "properties_bytes",
)  # fmt: skip


def outcome(function: Any) -> Any:
    try:
        return function()
    except (TypeError, ValueError, BufferError) as error:
        return type(error).__name__, str(error)


# --- Message ------------------------------------------------------------------------------------


def test_a_message_has_what_was_given(kernels: Bodies) -> None:
    given = {
        "queue_id": 1, "flag": -2, "sys_flag": 3, "born_timestamp": -4, "born_host": "1.2.3.4:5",
        "store_host": "[::1]:6", "reconsume_times": 7, "prepared_transaction_offset": 2**63 - 1,
        "properties": {"b": "1", "TAGS": "t"},
    }  # fmt: skip
    message = kernels.message.Message("T", b"body", **given)
    assert {name: getattr(message, name) for name in given} == given
    assert (message.topic, message.body, message.tags) == ("T", b"body", "t")
    assert message.properties is not given["properties"]
    assert list(message.properties) == ["b", "TAGS"]


def test_defaults(kernels: Bodies) -> None:
    message = kernels.message.Message("T")
    values = {name: getattr(message, name) for name in ATTRIBUTES}
    assert values == {
        "topic": "T", "body": b"", "queue_id": 0, "flag": 0, "sys_flag": 0,
        "born_timestamp": None, "born_host": None, "store_host": None, "reconsume_times": 0,
        "prepared_transaction_offset": 0, "properties": {}, "tags": None, "keys": None,
        "unique_key": None, "delay_level": 0,
    }  # fmt: skip


def test_body_is_kept_or_copied(kernels: Bodies) -> None:
    body, changing = b"kept", bytearray(b"copied")
    assert kernels.message.Message("T", body).body is body
    message = kernels.message.Message("T", changing)
    changing[0] = 0
    assert message.body == b"copied"
    message.body = memoryview(b"12345")[1:3]
    assert message.body == b"23"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", b"T"), ("topic", None), ("body", "text"), ("body", None), ("body", 5),
        ("body", memoryview(bytes(4))[::2]), ("queue_id", "1"), ("queue_id", True),
        ("queue_id", None), ("queue_id", 1.0), ("queue_id", 2**63), ("flag", -(2**63) - 1),
        ("sys_flag", False), ("born_timestamp", "now"), ("born_timestamp", True),
        ("born_host", 1), ("store_host", b"1.2.3.4:5"), ("reconsume_times", []),
        ("prepared_transaction_offset", 2**64), ("tags", 1), ("keys", ["k"]), ("unique_key", b""),
        ("delay_level", "1"), ("delay_level", True), ("delay_level", -4),
        ("delay_level", 2**31), ("properties", 5),
    ],
)  # fmt: skip
def test_wrong_types(name: str, value: Any) -> None:
    failures = []
    for bodies in (NATIVE, REFERENCE):
        message = bodies.message.Message("T", properties={"TAGS": "t"})
        failures.append(outcome(lambda m=message: setattr(m, name, value)))
        assert message == bodies.message.Message("T", properties={"TAGS": "t"})
    assert failures[0] == failures[1]
    assert failures[0] is not None


@pytest.mark.parametrize("level", [-1, -4, 2**31])
def test_a_delay_level_that_no_store_takes(kernels: Bodies, level: int) -> None:
    with pytest.raises(ValueError, match=f"delay_level {level} is outside 0 .. 2147483647"):
        kernels.message.Message("T", b"", delay_level=level)


def test_views_of_the_properties(kernels: Bodies) -> None:
    message = kernels.message.Message("T", properties={"x": "y"})
    message.tags, message.keys, message.unique_key, message.delay_level = "t", "k1 k2", "u", 3
    assert message.properties == {
        "x": "y", "TAGS": "t", "KEYS": "k1 k2", "UNIQ_KEY": "u", "DELAY": "3",
    }  # fmt: skip
    message.tags = message.unique_key = message.delay_level = None
    message.keys = None
    message.keys = None
    assert message.properties == {"x": "y"}
    message.properties["DELAY"] = "nonsense"
    assert message.delay_level == 0
    message.properties["DELAY"] = "+7"
    assert message.delay_level == 7
    message.properties["DELAY"] = 5
    assert message.delay_level == 0
    message.properties = [("a", "b")]
    assert message.properties == {"a": "b"}


def test_messages_compare_by_their_fields(kernels: Bodies) -> None:
    make = kernels.message.Message
    assert make("T", b"x", flag=1) == make("T", b"x", flag=1)
    assert make("T", b"x") != make("T", b"y")
    assert make("T", born_timestamp=None) != make("T", born_timestamp=0)
    assert make("T") != "T"
    with pytest.raises(TypeError, match="unhashable"):
        hash(make("T"))


def test_messages_are_copied_and_pickled(kernels: Bodies) -> None:
    message = kernels.message.Message("T", b"x", born_timestamp=5, properties={"TAGS": "t"})
    for again in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
        assert again == message
        again.tags = "other"
        assert message.tags == "t"


def test_repr_of_a_message(kernels: Bodies) -> None:
    message = kernels.message.Message("T", b"x", queue_id=2, properties={"TAGS": "t"})
    assert repr(message) == "Message('T', <1 bytes>, queue_id=2, properties={'TAGS': 't'})"


def test_subclasses_keep_their_type(kernels: Bodies) -> None:
    sub = type("Sub", (kernels.message.Message,), {})
    globals()["Sub"] = sub
    sub.__module__ = __name__
    assert type(pickle.loads(pickle.dumps(sub("T")))) is sub


# --- StoredMessage ------------------------------------------------------------------------------

MANY = b"DELAY\x01-3\x02UNIQ_KEY\x01u\x02" + b"a\x01b\x02" * 99
BROKEN_TEXT = {"topic": b"\xff\xed\xa0\x80", "properties": b"A\x01\xff"}
RECORDS = [
    make_record(physical_offset=1000),
    make_record(physical_offset=1000, version=2, topic=b"T" * 200, born_host=V6),
    make_record(physical_offset=1000, store_host=V6, body=b"", properties=b"", sys_flag=8),
    make_record(physical_offset=1000, body_crc=1, **BROKEN_TEXT),
    make_record(physical_offset=1000, properties=MANY),
    make_record(physical_offset=5, queue_offset=2**63 - 1, store_timestamp=-1),
]


def stored(bodies: Bodies, record: bytes, before: int = 7) -> Any:
    buffer = b"\xaa" * before + record + b"\xbb" * 9
    return bodies.message.StoredMessage(buffer, before, 1000 - before, 1000 + len(record) + 9)


@pytest.mark.parametrize("record", RECORDS)
def test_both_bodies_decode_alike(record: bytes) -> None:
    native, reference = stored(NATIVE, record), stored(REFERENCE, record)
    for name in STORED_ATTRIBUTES:
        assert getattr(native, name) == getattr(reference, name), name
    assert repr(native) == repr(reference)
    assert hash(native) == hash(reference)


def test_decoded_attributes(kernels: Bodies) -> None:
    message = stored(kernels, RECORDS[0])
    assert {name: getattr(message, name) for name in STORED_ATTRIBUTES} == {
        "topic": "TopicA", "body": b"hello", "queue_id": 3, "flag": 7, "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000, "born_host": "10.0.0.1:1234",
        "store_host": "10.0.0.1:1234", "reconsume_times": 2, "prepared_transaction_offset": 5,
        "properties": {"KEYS": "k1", "TAGS": "TagA"}, "tags": "TagA", "keys": "k1",
        "unique_key": None, "delay_level": 0, "queue_offset": 11, "physical_offset": 1000,
        "store_timestamp": 1_700_000_000_123, "body_crc": 907060870,
        "store_size": len(RECORDS[0]), "magic_code": formats.MAGIC_V1,
        "msg_id": "0A000001000004D200000000000003E8", "raw": RECORDS[0], "body_view": b"hello",
        "properties_bytes": b"KEYS\x01k1\x02TAGS\x01TagA\x02",
    }  # fmt: skip
    assert isinstance(message, kernels.message.Message)
    assert message.properties is not message.properties


def test_stored_messages_are_read_only(kernels: Bodies) -> None:
    message = stored(kernels, RECORDS[0])
    for name in (*STORED_ATTRIBUTES, "something_else"):
        with pytest.raises(AttributeError):
            setattr(message, name, None)
        with pytest.raises(AttributeError):
            delattr(message, name)
    for view in (message.raw, message.body_view):
        with pytest.raises(TypeError, match="read-only"):
            view[0] = 1


def test_views_pin_the_buffer(kernels: Bodies) -> None:
    buffer = bytearray(RECORDS[0])
    message = kernels.message.StoredMessage(buffer, 0, 1000, 2000)
    raw, detached = message.raw, message.detach()
    with pytest.raises(BufferError):
        buffer.append(0)
    del message
    with pytest.raises(BufferError):
        buffer.append(0)
    del raw
    buffer[-1:] = b""
    assert detached.raw == RECORDS[0]


def test_detach_pickle_compare(kernels: Bodies) -> None:
    message = stored(kernels, RECORDS[0])
    later = kernels.message.StoredMessage(RECORDS[0], 0, 1001, 2000)
    other = stored(kernels, RECORDS[1])
    for again in (message.detach(), pickle.loads(pickle.dumps(message)), copy.copy(message)):
        assert again == message
        assert hash(again) == hash(message)
        assert again.msg_id == message.msg_id
    assert message != later
    assert message < later
    assert later > message
    assert message <= message.detach() <= later
    assert later >= message
    assert sorted([later, message]) == [message, later]
    assert (message < other) == (bytes(message.raw) < bytes(other.raw))
    assert message != kernels.message.Message("T")
    assert kernels.message.Message("T") != message
    with pytest.raises(TypeError):
        _ = message < 5


@pytest.mark.parametrize(
    ("record", "position", "base", "end"),
    [
        (b"", 0, 0, 100),
        (bytes(200), 0, 0, 1000),
        (formats.BLANK.struct.pack(100, formats.BLANK_MAGIC) + bytes(92), 0, 0, 100),
        (RECORDS[0][:-1], 0, 0, 1000),
        (RECORDS[0], 0, 0, len(RECORDS[0]) - 1),
        (RECORDS[0], 1, 0, 1000),
        (RECORDS[0], -1, 0, 1000),
        (RECORDS[0], 1000, 0, 2000),
        (RECORDS[0], 0, -1, 1000),
        (RECORDS[0], 0, 0, -1),
        (RECORDS[0], 0, 2**63 - 10, 2**63 - 1),
        (make_record(body_length=-1), 0, 0, 1000),
        (make_record(topic_length=0), 0, 0, 1000),
        (make_record(properties_length=1), 0, 0, 1000),
        (make_record(queue_id=-1), 0, 0, 1000),
    ],
)
def test_no_record_can_lie_there(record: bytes, position: int, base: int, end: int) -> None:
    failures = [
        outcome(lambda b=bodies: b.message.StoredMessage(record, position, base, end))
        for bodies in (NATIVE, REFERENCE)
    ]
    assert failures[0] == failures[1]
    assert failures[0][0] == "ValueError"


def test_no_crc_is_checked(kernels: Bodies) -> None:
    assert stored(kernels, make_record(body_crc=0)).body == b"hello"


def test_a_native_message_cannot_be_made_without_a_record() -> None:
    with pytest.raises(TypeError):
        NATIVE.message.StoredMessage.__new__(NATIVE.message.StoredMessage)


def test_initialising_again_changes_nothing() -> None:
    message = stored(NATIVE, RECORDS[0])
    message.__init__(b"", 0, 0, 0)
    assert message.topic == "TopicA"


# --- The arguments of Message, which are those of put -------------------------------------------

GIVEN: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"tags": "t", "keys": "k"}, {"TAGS": "t", "KEYS": "k"}),
    ({"keys": ["a", "b"], "tags": ""}, {"TAGS": "", "KEYS": "a b"}),
    ({"keys": "a b"}, {"KEYS": "a b"}),
    ({"unique_key": "u", "properties": {"x": "1"}}, {"x": "1", "UNIQ_KEY": "u"}),
    ({"delay_level": 3, "tags": "t"}, {"TAGS": "t", "DELAY": "3"}),
    ({"delay_level": 0, "tags": None, "keys": None}, {}),
]


@pytest.mark.parametrize(("given", "properties"), GIVEN)
def test_arguments_become_properties_in_order(
    kernels: Bodies, given: dict[str, Any], properties: dict[str, str]
) -> None:
    message = kernels.message.Message("Orders", b"", **given)
    assert list(message.properties.items()) == list(properties.items())
    assert message.tags == properties.get("TAGS")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tags": "t", "properties": {"TAGS": "u"}}, ValueError),
        ({"keys": "k", "properties": {"KEYS": "k"}}, ValueError),
        ({"unique_key": "k", "properties": {"UNIQ_KEY": "k"}}, ValueError),
        ({"delay_level": 1, "properties": {"DELAY": "1"}}, ValueError),
        ({"keys": ["a b"]}, ValueError),
        ({"keys": [""]}, ValueError),
        ({"tags": b"t"}, TypeError),
        ({"keys": 5}, TypeError),
        ({"delay_level": "1"}, TypeError),
    ],
)
def test_what_put_refuses_is_refused(
    kernels: Bodies, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        kernels.message.Message("Orders", b"", **given)


def test_a_message_is_put_as_its_arguments_are(tmp_path: Path) -> None:
    given: dict[str, Any] = {"tags": "t", "keys": ["a", "b"], "unique_key": "u"}
    with rocketstore.open(tmp_path / "s", "x") as store:
        assert store.put("Orders", b"x", **given).ok
        message = rocketstore.Message("Orders", b"x", **given)
        assert store.put_message(pickle.loads(pickle.dumps(message))).ok
        first, second = store.scan()
        assert first.properties == second.properties
