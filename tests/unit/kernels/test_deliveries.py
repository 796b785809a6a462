"""Staged deliveries: both bodies stage the same, and leave the same messages to the caller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore._native.message import StoredMessage, encode_record
from rocketstore.status import KernelStatus, RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies

UNIT = formats.CONSUME_QUEUE_UNIT
SEGMENT = 1 << 20
HOST, HOST_V6 = "10.0.0.1:80", "[2001:db8::1]:65535"
DUE = 1000


def pairs(**properties: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def delayed(number: int, at: int, properties: bytes, **changes: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": formats.TOPIC_SCHEDULE, "body": b"body", "queue_id": 2, "queue_offset": number,
        "physical_offset": at, "flag": 7, "sys_flag": 1, "born_timestamp": 5, "born_host": HOST,
        "store_timestamp": 9, "store_host": HOST_V6, "reconsume_times": 3, "prepared": 11,
        "properties": properties, "version": 1, "property_crc": False,
    }  # fmt: skip
    return encode_record(*{**values, **changes}.values())


class Place:
    """A log segment, and the units of its records."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.units = bytearray()

    def add(self, properties: bytes, due: int = DUE, **changes: Any) -> None:
        number = len(self.units) // UNIT.nbytes
        record = delayed(number, len(self.log), properties, **changes)
        self.units += UNIT.struct.pack(len(self.log), len(record), due)
        self.log += record

    def stage(self, encoder: Any, *, now: int = DUE, delay: int = 10**6, **given: int) -> Any:
        values = {
            "position": 0, "stop": len(self.units), "queue_offset": 0, "queue_id": 2,
            "log_stop": len(self.log), "base": 0, "end": SEGMENT,
            "flags": int(RecordFlags.CHECK_BODY_CRC), **given,
        }  # fmt: skip
        return encoder.stage(
            bytes(self.units), values["position"], values["stop"], values["queue_offset"],
            values["queue_id"], now, delay, bytes(self.log), values["log_stop"], values["base"],
            values["end"], values["flags"],
        )  # fmt: skip


def both(place: Place, *, options: dict[str, Any] | None = None, **given: int) -> tuple[Any, bytes]:
    """Stage with both bodies, compare, and return (position, status) and what was staged."""
    outcomes = []
    for body in (NATIVE, REFERENCE):
        encoder = body.deliveries.DeliveryEncoder(**(options or {}))
        result = place.stage(encoder, **given)
        assert encoder.nbytes >= encoder.rows
        outcomes.append((result, encoder.rows, encoder.take()))
        assert (encoder.nbytes, encoder.rows) == (0, 0)
    assert outcomes[0] == outcomes[1]
    return outcomes[0][0], outcomes[0][2]


ORDINARY = pairs(TAGS="t", DELAY="3", REAL_TOPIC="Orders", REAL_QID="4", WAIT="true")


def test_a_delivery_has_what_its_original_had() -> None:
    place = Place()
    place.add(ORDINARY)
    place.add(ORDINARY, body=b"")
    result, staged = both(place)
    assert result == (2 * UNIT.nbytes, RecordStatus.END)
    first = StoredMessage(staged, 0, 0, len(staged))
    assert (first.topic, first.queue_id, first.queue_offset) == ("Orders", 4, 0)
    assert (first.body, first.flag, first.reconsume_times) == (b"body", 7, 3)
    assert (first.born_timestamp, first.born_host, first.store_host) == (5, HOST, HOST_V6)
    assert (first.prepared_transaction_offset, first.store_timestamp) == (0, 0)
    assert first.properties == {
        "TAGS": "t", "DELAY": "3", "REAL_TOPIC": "Orders", "REAL_QID": "4", "WAIT": "true",
    }  # fmt: skip
    second = StoredMessage(staged, first.store_size, 0, len(staged))
    assert (second.body, second.physical_offset) == (b"", first.store_size)


def test_d_51_a_property_with_an_empty_value_is_kept() -> None:
    place = Place()
    place.add(ORDINARY + b"empty\x01\x02")
    _, staged = both(place)
    assert b"empty\x01\x02" in staged


@pytest.mark.parametrize("now", [DUE - 1, DUE])
def test_d_52_only_what_is_due_is_staged(now: int) -> None:
    place = Place()
    place.add(ORDINARY, due=DUE - 1)
    place.add(ORDINARY, due=DUE)
    place.add(ORDINARY, due=DUE + 1)
    result, _ = both(place, now=now)
    count = 1 if now < DUE else 2
    assert result == (count * UNIT.nbytes, RecordStatus.OK)


def test_a_due_time_later_than_a_whole_delay_is_now() -> None:
    place = Place()
    place.add(ORDINARY, due=DUE)
    assert both(place, now=0, delay=DUE)[0] == (0, RecordStatus.OK)
    assert both(place, now=0, delay=DUE - 1)[0] == (UNIT.nbytes, RecordStatus.END)
    assert both(place, now=0, delay=-1)[0] == (0, RecordStatus.OK)
    assert both(place, now=2**63 - 2, delay=2**62)[0] == (UNIT.nbytes, RecordStatus.END)


LONG = "%RETRY%" + "g" * 200


@pytest.mark.parametrize(
    "properties",
    [
        pairs(DELAY="1", REAL_QID="0"),
        pairs(DELAY="1", REAL_TOPIC="T"),
        pairs(REAL_TOPIC="T/x", REAL_QID="0"),
        pairs(REAL_TOPIC="T" * 128, REAL_QID="0"),
        pairs(REAL_TOPIC=formats.TOPIC_HALF, REAL_QID="0"),
        pairs(REAL_TOPIC=formats.TOPIC_SCHEDULE, REAL_QID="0"),
        *(pairs(REAL_TOPIC="T", REAL_QID=text) for text in ("", "-1", "+1", "x", "2147483648")),
        pairs(REAL_TOPIC="T", REAL_QID="99999999999"),
        pairs(**{f"n{n}": "v" for n in range(63)}, REAL_TOPIC="T", REAL_QID="0"),
        b"",
    ],
)
def test_what_is_not_ordinary_is_left_to_the_caller(properties: bytes) -> None:
    place = Place()
    place.add(ORDINARY)
    place.add(properties)
    place.add(ORDINARY)
    assert both(place)[0] == (UNIT.nbytes, KernelStatus.MISMATCH)


def test_records_that_are_not_the_units_are_left_to_the_caller() -> None:
    def status(**changes: Any) -> int:
        place = Place()
        place.add(ORDINARY, **changes)
        return int(both(place)[0][1])

    assert status() == RecordStatus.END
    assert status(queue_offset=1) == KernelStatus.MISMATCH
    assert status(queue_id=3) == KernelStatus.MISMATCH
    assert status(topic="Other") == KernelStatus.MISMATCH
    assert status(physical_offset=4) == KernelStatus.MISMATCH
    assert status(sys_flag=formats.SYS_FLAG_INNER_BATCH) == KernelStatus.MISMATCH
    assert status(sys_flag=formats.SYS_FLAG_TRANSACTION_PREPARED) == KernelStatus.MISMATCH
    assert status(due=formats.MAX_EXT_ADDRESS) == KernelStatus.MISMATCH
    place = Place()
    place.add(ORDINARY)
    place.log[-60] ^= 1
    assert both(place)[0][1] in (KernelStatus.MISMATCH, RecordStatus.END)
    place.units[8:12] = (1).to_bytes(4, "big")
    assert both(place)[0] == (0, KernelStatus.MISMATCH)
    for offset, size in ((0, formats.FILLER_UNIT_SIZE), (-1, 50), (0, 0)):
        place.units[:12] = UNIT.struct.pack(offset, size, 0)[:12]
        assert both(place)[0] == (0, KernelStatus.MISMATCH)


def test_segments_and_ends() -> None:
    place = Place()
    place.add(ORDINARY)
    place.add(ORDINARY)
    second = UNIT.struct.unpack_from(place.units, UNIT.nbytes)[0]
    assert both(place, end=second)[0] == (UNIT.nbytes, KernelStatus.OTHER_SEGMENT)
    assert both(place, log_stop=second)[0] == (UNIT.nbytes, KernelStatus.MISMATCH)
    assert both(place, log_stop=second - 1)[0] == (0, KernelStatus.MISMATCH)
    assert both(place, stop=UNIT.nbytes)[0] == (UNIT.nbytes, RecordStatus.END)
    result = both(place, position=UNIT.nbytes, queue_offset=1)[0]
    assert result == (2 * UNIT.nbytes, RecordStatus.END)


def test_limits_of_a_put_hold() -> None:
    place = Place()
    place.add(ORDINARY)
    size = len(both(place)[1])
    assert both(place, options={"max_message_size": 3})[0] == (0, KernelStatus.MISMATCH)
    for version, limit in (("4.9.0", size), ("4.9.0", size - 1)):
        status = both(place, options={"max_message_size": limit, "broker_version": version})[0][1]
        assert status == (RecordStatus.END if limit >= size else KernelStatus.MISMATCH)
    assert both(place, options={"segment_nbytes": size + 8})[0][1] == RecordStatus.END
    assert both(place, options={"segment_nbytes": size + 7})[0][1] == KernelStatus.MISMATCH


def test_a_full_stage_is_taken_first() -> None:
    place = Place()
    for _ in range(3):
        place.add(ORDINARY)
    size = len(both(place, stop=UNIT.nbytes)[1])
    for capacity, count in ((2 * size, 2), (2 * size - 1, 1), (1, 1)):
        result, staged = both(place, options={"capacity": capacity})
        assert result == (count * UNIT.nbytes, KernelStatus.LIMIT)
        assert len(staged) == count * size


@pytest.mark.parametrize("version", ["4.9.8", "5.1.4", "5.3.3"])
def test_versions_differ_in_order_separator_and_record(version: str) -> None:
    place = Place()
    place.add(pairs(REAL_TOPIC=LONG, REAL_QID="0", WAIT="true", TAGS="t"))
    result, staged = both(place, options={"broker_version": version})
    if version == "4.9.8":
        assert result[1] == KernelStatus.MISMATCH
        return
    message = StoredMessage(staged, 0, 0, len(staged))
    assert (message.topic, message.magic_code) == (LONG, formats.MAGIC_V2)
    assert bytes(message.properties_bytes).endswith(b"\x02") == (version == "5.3.3")


def test_the_original_s_crc_is_left_out_where_a_put_appends_one() -> None:
    place = Place()
    place.add(ORDINARY, property_crc=True)
    name = formats.PROPERTY_CRC32.encode()
    assert name in both(place)[1]
    assert name not in both(place, options={"append_property_crc": True})[1]


def test_queues_named_in_a_message_are_left_to_the_caller() -> None:
    place = Place()
    place.add(ORDINARY + b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    assert both(place)[0][1] == RecordStatus.END
    assert both(place, options={"gives_offsets": True})[0][1] == KernelStatus.MISMATCH


names = st.sampled_from(
    ("TAGS", "KEYS", "DELAY", "WAIT", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "é")
)
values = st.sampled_from(("", "1", "3", "Orders", "x" * 40, "\x01", "é"))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(names, values), max_size=12), max_size=6),
    st.sampled_from(("4.9.8", "5.1.4", "5.5.0")),
    st.booleans(),
)
def test_both_bodies_agree(
    messages: list[list[tuple[str, str]]], version: str, has_crc: bool
) -> None:
    place = Place()
    for given_pairs in messages:
        text = b"".join(f"{name}\x01{value}\x02".encode() for name, value in given_pairs)
        place.add(ORDINARY + text)
    both(place, options={
        "broker_version": version, "append_property_crc": has_crc and version >= "5.2",
    })  # fmt: skip


@pytest.mark.parametrize("body", [NATIVE, REFERENCE], ids=repr)
def test_wrong_arguments(body: Bodies) -> None:
    for options in ({"capacity": 0}, {"max_message_size": -1}, {"segment_nbytes": 1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            body.deliveries.DeliveryEncoder(**options)
    place = Place()
    place.add(ORDINARY)
    encoder = body.deliveries.DeliveryEncoder()
    for given_values in (
        {"position": -1}, {"stop": 21}, {"log_stop": len(place.log) + 1}, {"base": -1},
        {"queue_id": -1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"position|base_offset|queue_id"):
            place.stage(encoder, **given_values)
    assert encoder.take() == b""
