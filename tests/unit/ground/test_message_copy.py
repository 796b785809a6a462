"""Copies of messages, and the properties that a program gave (D-75)."""

from __future__ import annotations

import io
from typing import Any

import pytest

import rocketstore
from rocketstore import formats
from rocketstore.message_copy import HISTORY_PROPERTIES
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

BODIES = pytest.mark.parametrize("kernels", [NATIVE, REFERENCE], ids=repr)
OWN = {"color": "red", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "u", "WAIT": "false"}


def record(kernels: Bodies, topic: str, properties: dict[str, str], **values: Any) -> Any:
    """A stored message."""
    stored = b"".join(b"%s\x01%s\x02" % (k.encode(), v.encode()) for k, v in properties.items())
    raw = kernels.record.encode_record(
        topic, b"body", 3, 7, 100, 9, values.get("sys_flag", 0), 11, "10.0.0.1:5", 12,
        values.get("store_host", "10.0.0.2:6"), 2, 55, stored, 1, False,
    )  # fmt: skip
    return kernels.message.StoredMessage(raw, 0, 100, 100 + len(raw))


@BODIES
@pytest.mark.parametrize("name", sorted(HISTORY_PROPERTIES))
def test_d_75_what_was_done_before_is_left_out(kernels: Bodies, name: str) -> None:
    properties = {"first": "1", name: "5", **OWN}
    for message in (
        kernels.message.Message("T", b"body", properties=properties),
        record(kernels, "T", properties),
    ):
        assert message.properties == properties
        assert list(message.user_properties.items()) == [("first", "1"), *OWN.items()]
        assert message.copy().properties == message.user_properties


@BODIES
def test_d_75_the_fields_of_a_copy(kernels: Bodies) -> None:
    sys_flag = formats.SYS_FLAG_TRANSACTION_COMMIT | formats.SYS_FLAG_COMPRESSED
    copy = record(kernels, "T", OWN, sys_flag=sys_flag, store_host="[::1]:6").copy()
    assert type(copy) is kernels.message.Message
    assert (copy.topic, copy.queue_id, copy.body, copy.flag) == ("T", 3, b"body", 9)
    assert copy.sys_flag == formats.SYS_FLAG_COMPRESSED
    assert (copy.born_timestamp, copy.born_host, copy.store_host) == (None, None, None)
    assert (copy.reconsume_times, copy.prepared_transaction_offset) == (0, 0)
    copy.properties["n"] = "2"
    copy.topic = "U"
    assert copy.copy() == copy


@BODIES
@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
@pytest.mark.parametrize(
    ("queue", "found"),
    [
        ("5", 5),
        ("x", 0),
        ("9" * 30, 0),
        ("0" * 30 + "7", 7),
        (str(2**31), 0),
        ("9" * 5000, 0),
        ("٣", 0),
        ("", 0),
    ],
)
def test_d_75_a_waiting_record_goes_where_it_is_for(
    kernels: Bodies, topic: str, queue: str, found: int
) -> None:
    copy = record(kernels, topic, {"REAL_TOPIC": "T", "REAL_QID": queue, **OWN}).copy()
    assert (copy.topic, copy.queue_id, copy.properties) == ("T", found, OWN)


@BODIES
def test_d_75_a_delivered_record_stays_where_it_is(kernels: Bodies) -> None:
    copy = record(kernels, "%RETRY%g", {"REAL_TOPIC": "T", "REAL_QID": "1", **OWN}).copy()
    assert (copy.topic, copy.queue_id) == ("%RETRY%g", 3)


def test_d_75_a_copy_is_not_delayed_or_timed_again(tmp_path: Any) -> None:
    with rocketstore.open(tmp_path / "s", "a", timer_wheel_enable=True) as store:
        for wish in ({"DELAY": "3"}, {"TIMER_DELAY_SEC": "50"}):
            first = store.put("T", b"x", 2, properties={**wish, "n": "1"})
            assert first.physical_offset is not None
            waiting = store.look_message_by_offset(first.physical_offset)
            assert waiting is not None
            assert waiting.topic != "T"
            again = store.put_message(waiting.copy())
            assert again.physical_offset is not None
            message = store.look_message_by_offset(again.physical_offset)
            assert message is not None
            assert (message.topic, message.queue_id) == ("T", 2)
            assert message.properties == {"n": "1"}
        with pytest.raises(io.UnsupportedOperation):
            store.timers(deliver=True)
