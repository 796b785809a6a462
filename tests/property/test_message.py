"""Record kernels under hostile bytes: both bodies agree, and nothing good is lost or invented."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.status import RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, both
from support.record_factory import V4, V6, make_log, make_record, rows_of

ROW_NBYTES = formats.PARSED_RECORD.nbytes
FLAGS = st.integers(0, 31)
#: Bytes that mean something somewhere: separators, NUL, hosts' and UTF-8's edges, digits.
EDGE_BYTES = st.sampled_from(
    [0, 1, 2, 0x1F, 0x20, 0x2E, 0x2F, 0x30, 0x39, 0x41, 0x7F, 0x80, 0xBF, 0xC2, 0xDA, 0xE0, 0xED,
     0xA0, 0xA3, 0xF0, 0xF4, 0xFF]
)  # fmt: skip
EDGY = st.lists(EDGE_BYTES, max_size=40).map(bytes)
PROPERTY_PIECES = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"__CRC32#", b"\x01", b"\x02", b"\0", b"a", b"1",
     b"-", b"\xed\xa0\x80", "\u00e9".encode(), b"x" * 60, bytes(4), b"0123456789"]
)  # fmt: skip
PROPERTIES = st.lists(PROPERTY_PIECES, max_size=14).map(b"".join) | EDGY
TOPICS = st.sampled_from([b"TopicA", b"SCHEDULE_TOPIC_XXXX", b".", b"a/b", b"T" * 127]) | st.binary(
    min_size=1, max_size=40
)
I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
RECORDS = st.fixed_dictionaries(
    {
        "version": st.sampled_from([1, 2]),
        "born_host": st.sampled_from([V4, V6]),
        "store_host": st.sampled_from([V4, V6]),
        "topic": TOPICS,
        "body": st.binary(max_size=80) | EDGY,
        "properties": PROPERTIES,
        "property_crc": st.booleans(),
        "queue_id": st.integers(0, 2**31 - 1),
        "queue_offset": st.integers(0, 2**63 - 1),
        "born_timestamp": I64,
        "store_timestamp": I64,
        "reconsume_times": I32,
        "flag": I32,
        "sys_flag": st.integers(0, 15),
    }
)


def scan_both(log: bytes, base: int, end: int, flags: int) -> tuple[list[dict[str, int]], int, int]:
    out = bytearray(ROW_NBYTES * 16)
    count, position, status = both(
        "message", "scan_records", log, 0, len(log), base, end, flags, out, (1000, 5000)
    )
    return rows_of(out, count), position, status


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=5), st.integers(0, 2**40), FLAGS)
def test_a_log_of_well_formed_records_is_read_whole(
    records: list[dict[str, Any]], base: int, flags: int
) -> None:
    """Whatever is in the fields, no length is wrong: only lost sectors may stop the scan."""
    log = make_log(*records, base_offset=base)
    rows, position, status = scan_both(log, base, base + len(log), flags & ~4)
    if status == RecordStatus.END:
        assert position == len(log)
        assert len(rows) == len(records)
    else:
        assert status in (RecordStatus.BAD_TOPIC, RecordStatus.BAD_PROPERTIES)
    for row, record in zip(rows, records, strict=False):
        assert (row["queue_offset"], row["flag"]) == (record["queue_offset"], record["flag"])
        assert row["store_timestamp"] == record["store_timestamp"]


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.data(), FLAGS, st.integers(-1, 300), st.integers(0, 40))
def test_damaged_records(
    fields: dict[str, Any], data: st.DataObject, flags: int, own_offset: int, slack: int
) -> None:
    """Bytes overwritten or truncated anywhere: the same answer, and a step that stays inside."""
    record = bytearray(make_record(physical_offset=own_offset, **fields))
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(record) - 1), EDGE_BYTES), max_size=4)
    ):
        record[at] = value
    stop = data.draw(st.integers(0, len(record)))
    end = 100 + stop + slack
    for length in (stop, len(record)):
        status, step = both("message", "check_record", bytes(record), 0, length, 100, end, flags)
        assert 0 <= step <= max(length, end - 100)
        rows, position, _ = scan_both(bytes(record[:length]), 100, end, flags)
        assert position <= length
        assert bool(rows) == (status in (0, 5, 6, 7))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400) | st.lists(EDGY, max_size=8).map(b"".join), FLAGS, I32)
def test_garbage(garbage: bytes, flags: int, end: int) -> None:
    scan_both(garbage, 0, abs(end), flags)
    assert both("message", "find_record", garbage, 0, len(garbage), 0, abs(end)) == -1


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), RECORDS, st.binary(max_size=60), st.integers(0, 2**40))
def test_find_sees_through_garbage(
    before: bytes, fields: dict[str, Any], following: bytes, base: int
) -> None:
    record = make_record(physical_offset=base + len(before), **fields)
    log = before + record + following
    end = base + len(log)
    found = both("message", "find_record", log, 0, len(log), base, end)
    good = both("message", "check_record", record, 0, len(record), base + len(before), end)[0]
    assert found == (len(before) if good < RecordStatus.FIRST_DAMAGE else -1)


@settings(max_examples=300, deadline=None)
@given(EDGY | st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
@example(b"\xf0\x9f\x98")
def test_hash_codes(data: bytes) -> None:
    both("message", "string_hash_code", data)


@settings(max_examples=200, deadline=None)
@given(PROPERTIES)
def test_parsed_properties(stored: bytes) -> None:
    parsed = both("message", "parse_properties", stored)
    log = make_record(properties=stored)
    if both("message", "check_record", log, 0, len(log), 0, len(log))[0] in (0, 6):
        message = NATIVE.message.StoredMessage(log, 0, 0, len(log))
        reference = REFERENCE.message.StoredMessage(log, 0, 0, len(log))
        assert message.properties == parsed
        for name, key in (("tags", "TAGS"), ("keys", "KEYS"), ("unique_key", "UNIQ_KEY")):
            assert getattr(message, name) == getattr(reference, name) == parsed.get(key)
        assert message.delay_level == reference.delay_level


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.none(), max_size=5))
def test_properties_there_and_back(properties: dict[str, str | None]) -> None:
    text = "".join(n + (v or "") for n, v in properties.items())
    for trailing in (False, True):
        try:
            stored = both("message", "encode_properties", properties, trailing)
        except ValueError:
            assert "" in properties or any(c in text for c in "\0\1\2")
            continue
        kept = {name: value for name, value in properties.items() if value}
        parsed = both("message", "parse_properties", stored)
        assert parsed == {name: value for name, value in kept.items()}


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.integers(0, 2**62))
def test_encoded_records_equal_those_put_together_by_hand(
    fields: dict[str, Any], physical_offset: int
) -> None:
    record = make_record(physical_offset=physical_offset, **fields)
    text = fields["topic"].decode("utf-8", "ignore")
    stored = fields["properties"]
    if not text or text.encode() != fields["topic"]:
        return
    if fields["property_crc"] and stored and not stored.endswith(b"\x02"):
        return
    encoded = both(
        "message", "encode_record", text, fields["body"], fields["queue_id"],
        fields["queue_offset"], physical_offset, fields["flag"], fields["sys_flag"],
        fields["born_timestamp"], both("message", "format_host", fields["born_host"]),
        fields["store_timestamp"], both("message", "format_host", fields["store_host"]),
        fields["reconsume_times"], 5, stored, fields["version"], fields["property_crc"],
    )  # fmt: skip
    assert encoded == record


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=25) | st.from_regex(r"\[?[0-9a-f:.]{0,20}\]?:[0-9]{0,6}", fullmatch=True))
def test_hosts(host: str) -> None:
    try:
        stored = both("message", "parse_host", host)
    except ValueError:
        return
    text = both("message", "format_host", stored)
    assert both("message", "parse_host", text) == stored


@settings(max_examples=100, deadline=None)
@given(
    st.binary(min_size=20, max_size=20)
    | st.lists(st.sampled_from([0, 0, 0, 1, 255]), min_size=20, max_size=20).map(bytes)
)
def test_stored_hosts(stored: bytes) -> None:
    both("message", "format_host", stored)
