"""Record kernels of both bodies: the strict check, rows, search, encoding."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from golden import golden_stores
from rocketstore import formats
from rocketstore.status import RecordFlags, RecordStatus
from support.kernel_bodies import NATIVE, REFERENCE, Bodies, both
from support.record_factory import V4, V6, make_log, make_record, rows_of

SEGMENT = 65536
CRC = int(RecordFlags.CHECK_BODY_CRC)
PARSE = int(RecordFlags.PARSE_PROPERTIES)
ROW_NBYTES = formats.PARSED_RECORD.nbytes
GOOD = make_record()


def check(data: bytes, *, flags: int = CRC, base: int = 0, end: int = SEGMENT, **place: int) -> Any:
    """Check the record at the start of ``data``; returns (status, bytes to step over)."""
    position, stop = place.get("position", 0), place.get("stop", len(data))
    status, nbytes = both("message", "check_record", data, position, stop, base, end, flags)
    return RecordStatus(status), nbytes


def status(data: bytes, **options: Any) -> RecordStatus:
    found, nbytes = check(data, **options)
    steps = found < RecordStatus.FIRST_DAMAGE and found not in (
        RecordStatus.EMPTY,
        RecordStatus.END,
        RecordStatus.INCOMPLETE,
    )
    assert (nbytes > 0) == steps
    return found


def scan(data: bytes, flags: int = CRC | PARSE, capacity: int = 64, **options: Any) -> Any:
    out = bytearray(ROW_NBYTES * capacity)
    base = options.get("base", 0)
    count, position, code = both(
        "message", "scan_records", data, options.get("position", 0), len(data), base,
        options.get("end", base + SEGMENT), flags, out, options.get("delay_ms", ()),
    )  # fmt: skip
    return rows_of(out, count), position, RecordStatus(code)


# --- What lies at a place -----------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 5])
@pytest.mark.parametrize("properties", [b"", b"A\x01b", b"A\x01b\x02" * 100])
def test_good_records(
    version: int, born: bytes, store: bytes, body: bytes, properties: bytes
) -> None:
    record = make_record(
        version=version, born_host=born, store_host=store, body=body, properties=properties
    )
    assert check(record) == (RecordStatus.OK, len(record))
    assert check(record, end=len(record)) == (RecordStatus.OK, len(record))


def test_nothing_beyond_stop_is_read() -> None:
    log = GOOD + b"garbage after it"
    assert check(log, stop=len(GOOD)) == (RecordStatus.OK, len(GOOD))
    assert status(log, position=len(GOOD), stop=len(GOOD)) == RecordStatus.END
    for stop in range(1, len(GOOD)):
        assert status(log, stop=stop) == RecordStatus.INCOMPLETE


def test_the_end_of_a_segment() -> None:
    assert status(GOOD, stop=7, end=7) == RecordStatus.BAD_SIZE
    assert status(GOOD, stop=7, end=8) == RecordStatus.INCOMPLETE
    assert status(GOOD, end=len(GOOD) - 1) == RecordStatus.BAD_SIZE


def test_empty() -> None:
    assert status(bytes(8)) == RecordStatus.EMPTY
    assert status(bytes(200)) == RecordStatus.EMPTY
    assert status(bytes(7) + b"\x01" + bytes(100)) == RecordStatus.BAD_MAGIC


def blank(size: int) -> bytes:
    return formats.BLANK.struct.pack(size, formats.BLANK_MAGIC)


def test_blanks_span_exactly_the_rest_of_the_segment() -> None:
    assert check(blank(100), end=100) == (RecordStatus.BLANK, 100)
    assert check(blank(8) + b"stale", end=8) == (RecordStatus.BLANK, 8)
    assert check(blank(100), base=50, end=150) == (RecordStatus.BLANK, 100)
    for size in (0, 1, 8, 99, 101, -1, -(2**31), 2**31 - 1):
        assert status(blank(size), end=100) == RecordStatus.BAD_BLANK
    assert status(blank(5), end=5) == RecordStatus.BAD_BLANK
    assert status(blank(-10), base=60, end=50) == RecordStatus.BAD_BLANK


@pytest.mark.parametrize(
    "magic", [0, 1, -626843482, -626843480, 0x27_20A3_DA, formats.BLANK_MAGIC ^ 1]
)
def test_other_magics(magic: int) -> None:
    assert status(make_record(magic=magic)) == RecordStatus.BAD_MAGIC


@pytest.mark.parametrize("size", [0, 1, 8, 90, -1, -(2**31), 2**31 - 1, SEGMENT + 1])
def test_sizes_that_cannot_be(size: int) -> None:
    assert status(make_record(total_size=size)) == RecordStatus.BAD_SIZE


def test_the_shortest_size_depends_on_version_and_hosts() -> None:
    assert status(make_record(total_size=91, version=2)) == RecordStatus.BAD_SIZE
    assert status(make_record(total_size=102, born_host=V6)) == RecordStatus.BAD_SIZE
    assert status(make_record(total_size=114, born_host=V6, store_host=V6)) == RecordStatus.BAD_SIZE
    assert status(make_record(total_size=91)) == RecordStatus.BAD_BODY_LENGTH


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"queue_id": -1}, RecordStatus.BAD_QUEUE_ID),
        ({"queue_offset": -1}, RecordStatus.BAD_QUEUE_OFFSET),
        ({"body_length": -1}, RecordStatus.BAD_BODY_LENGTH),
        ({"body_length": 2**31 - 1}, RecordStatus.BAD_BODY_LENGTH),
        ({"body_length": -(2**31)}, RecordStatus.BAD_BODY_LENGTH),
        ({"body_crc": 0}, RecordStatus.BAD_BODY_CRC),
        ({"body_crc": -1}, RecordStatus.BAD_BODY_CRC),
        ({"topic_length": 0}, RecordStatus.BAD_TOPIC_LENGTH),
        ({"topic_length": 0x80}, RecordStatus.BAD_TOPIC_LENGTH),
        ({"topic_length": 0xFF}, RecordStatus.BAD_TOPIC_LENGTH),
        ({"topic_length": 127}, RecordStatus.BAD_TOPIC_LENGTH),
        ({"topic_length": 0x8000, "version": 2}, RecordStatus.BAD_TOPIC_LENGTH),
        ({"properties_length": -1}, RecordStatus.BAD_PROPERTIES_LENGTH),
        ({"properties_length": -32768}, RecordStatus.BAD_PROPERTIES_LENGTH),
        ({"properties_length": 32767}, RecordStatus.BAD_PROPERTIES_LENGTH),
        ({"properties_length": 19}, RecordStatus.BAD_PROPERTIES_LENGTH),
        ({"properties_length": 17}, RecordStatus.BAD_LENGTH_SUM),
        ({"topic": b"\0opic"}, RecordStatus.BAD_TOPIC),
        ({"topic": b"topi\0"}, RecordStatus.BAD_TOPIC),
        ({"topic": bytes(6)}, RecordStatus.BAD_TOPIC),
        ({"properties": b"A\x01" + bytes(512) + b"b"}, RecordStatus.BAD_PROPERTIES),
        ({"properties": b"A\x01bbb" + bytes(4)}, RecordStatus.BAD_PROPERTIES),
        ({"properties": bytes(17)}, RecordStatus.BAD_PROPERTIES),
        ({"properties": b"A\x01" + bytes(511) + b"b"}, RecordStatus.NUL_PROPERTIES),
        ({"properties": b"A\x01bbb" + bytes(3)}, RecordStatus.NUL_PROPERTIES),
        ({"properties": b"\0A\x01b"}, RecordStatus.NUL_PROPERTIES),
        ({"topic": b"a\0b"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"a/b"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"/"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"."}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b".."}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"..."}, RecordStatus.OK),
        ({"topic": b".a"}, RecordStatus.OK),
        ({"topic": b"a\x1fb"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"a\x7fb"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"\xff"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": b"a\xed\xa0\x80"}, RecordStatus.UNSAFE_TOPIC),
        ({"topic": "\u00e9\U0001f600".encode()}, RecordStatus.OK),
        ({"topic": b"%RETRY%g+r$p" * 10}, RecordStatus.OK),
        ({"topic": b"a/b", "properties": b"\0"}, RecordStatus.UNSAFE_TOPIC),
    ],
)
def test_fields(changes: dict[str, Any], expected: RecordStatus) -> None:
    assert status(make_record(**changes)) == expected


def test_an_empty_body_has_no_crc_to_compare() -> None:
    assert status(make_record(body=b"", body_crc=12345)) == RecordStatus.OK


def test_without_the_flag_no_body_crc_is_compared() -> None:
    assert status(make_record(body_crc=0), flags=0) == RecordStatus.OK


@pytest.mark.parametrize("bit", [formats.SYS_FLAG_BORN_HOST_V6, formats.SYS_FLAG_STORE_HOST_V6])
def test_a_host_flag_that_lies(bit: int) -> None:
    assert status(make_record(sys_flag=bit)) >= RecordStatus.FIRST_DAMAGE
    short = bytearray(make_record(born_host=V6, store_host=V6))
    at = formats.RECORD_HEAD.at("sys_flag")
    short[at : at + 4] = (48 ^ bit).to_bytes(4, "big")
    assert status(bytes(short)) >= RecordStatus.FIRST_DAMAGE


def test_an_unsafe_byte_anywhere_in_a_topic_of_any_length() -> None:
    for n in (1, 2, 15, 16, 17, 31, 32, 33, 127):
        for at in range(n):
            topic = bytearray(b"t" * n)
            topic[at] = ord("/")
            assert status(make_record(topic=bytes(topic))) == RecordStatus.UNSAFE_TOPIC
        assert status(make_record(topic=b"t" * n)) == RecordStatus.OK


def test_a_nul_anywhere_in_properties_of_any_length() -> None:
    for n in (1, 5, 63, 64, 65, 127, 128, 200):
        for at in {0, 1, n // 2, n - 1}:
            properties = bytearray(b"p" * n)
            properties[min(at, n - 1)] = 0
            found = status(make_record(properties=bytes(properties)))
            assert found == RecordStatus.NUL_PROPERTIES


# --- Its own place ------------------------------------------------------------------------------


def test_a_record_is_good_only_at_its_own_offset() -> None:
    record = make_record(physical_offset=1000)
    assert status(record, base=1000, end=SEGMENT) == RecordStatus.OK
    assert status(record, base=999, end=SEGMENT) == RecordStatus.BAD_PHYSICAL_OFFSET
    assert status(record, base=1001, end=SEGMENT) == RecordStatus.GHOST
    assert status(make_record(physical_offset=-1), base=1000) == RecordStatus.BAD_PHYSICAL_OFFSET


def test_a_ghost_is_good_in_every_other_respect() -> None:
    assert status(make_record(), base=500, flags=0) == RecordStatus.GHOST
    broken = make_record(body_crc=1)
    assert status(broken, base=500, flags=0) == RecordStatus.BAD_PHYSICAL_OFFSET
    assert status(broken, base=500) == RecordStatus.BAD_BODY_CRC
    assert status(make_record(topic=b"a/b"), base=500) == RecordStatus.GHOST
    assert status(make_record(topic=b"\0"), base=500) == RecordStatus.BAD_TOPIC


# --- The whole-record CRC -----------------------------------------------------------------------

CHECK = CRC | RecordFlags.CHECK_PROPERTY_CRC
REQUIRE = CRC | RecordFlags.REQUIRE_PROPERTY_CRC
REPORT = CRC | RecordFlags.REPORT_PROPERTY_CRC


def test_a_right_property_crc() -> None:
    record = make_record(property_crc=True)
    for flags in (CRC, CHECK, REQUIRE, REPORT):
        assert status(record, flags=flags) == RecordStatus.OK
    assert scan(record, REPORT)[0][0]["property_crc"] == 1
    assert scan(record, CRC)[0][0]["property_crc"] == 0


def test_every_bit_is_covered_by_the_property_crc() -> None:
    record = make_record(property_crc=True)
    for at in range(len(record) - formats.PROPERTY_CRC32_NBYTES):
        for bit in (0, 7):
            broken = bytearray(record)
            broken[at] ^= 1 << bit
            assert status(bytes(broken), flags=REQUIRE) != RecordStatus.OK


def test_a_wrong_property_crc() -> None:
    record = bytearray(make_record(property_crc=True))
    record[-2] = ord("9") if record[-2] != ord("9") else ord("0")
    assert status(bytes(record)) == RecordStatus.OK
    assert status(bytes(record), flags=CHECK) == RecordStatus.BAD_PROPERTY_CRC
    assert status(bytes(record), flags=REQUIRE) == RecordStatus.BAD_PROPERTY_CRC
    assert scan(bytes(record), REPORT)[0][0]["property_crc"] == 2


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"__CRC32#\x01012345678\x02",
        b"__CRC32#\x01-123456789\x02",
        b"__CRC32#\x01 12345678x\x02",
        b"__CRC32#\x010123456789\x02A\x01b\x02",
        b"__CRC32#\x020123456789\x02",
        b"__CRC32#\x010123456789\x01",
        b"__crc32#\x010123456789\x02",
        b"__CRC32#\x0101234567890",
    ],
)
def test_another_form_is_no_property_crc(properties: bytes) -> None:
    record = make_record(properties=properties)
    assert status(record, flags=CHECK) == RecordStatus.OK
    assert status(record, flags=REQUIRE) == RecordStatus.BAD_PROPERTY_CRC
    assert scan(record, REPORT)[0][0]["property_crc"] == 0


# --- Rows ---------------------------------------------------------------------------------------


def test_columns_of_a_row() -> None:
    record = make_record(
        version=2, born_host=V6, sys_flag=8, physical_offset=4096, topic=b"TopicA",
        properties=b"UNIQ_KEY\x01U1\x02KEYS\x01k1 k2\x02DELAY\x014\x02TAGS\x01TagA",
    )  # fmt: skip
    (row,), position, code = scan(b"\0" * 5 + record, base=4091, position=5)
    assert (position, code) == (5 + len(record), RecordStatus.END)
    text = {
        name: record[row[f"{name}_at"] : row[f"{name}_at"] + row[f"{name}_nbytes"]]
        for name in ("body", "topic", "tags", "keys", "unique_key")
    }
    assert text == {
        "body": b"hello", "topic": b"TopicA", "tags": b"TagA", "keys": b"k1 k2",
        "unique_key": b"U1",
    }  # fmt: skip
    assert row["physical_offset"] == 4096
    assert row["position"] == 5
    assert row["total_size"] == len(record)
    assert row["properties_at"] + row["properties_nbytes"] == len(record)
    assert (row["queue_id"], row["queue_offset"], row["flag"], row["sys_flag"]) == (3, 11, 7, 24)
    assert row["born_timestamp"] == 1_700_000_000_000
    assert row["store_timestamp"] == 1_700_000_000_123
    assert (row["reconsume_times"], row["prepared_transaction_offset"]) == (2, 5)
    assert (row["magic"], row["body_crc"]) == (formats.MAGIC_V2, 907060870)
    assert (row["tags_code"], row["delay_level"]) == (2598919, 4)
    assert row["multi_dispatch_at"] == 0


@pytest.mark.parametrize("offsets", [b"INNER_MULTI_QUEUE_OFFSET\x017,8\x02", b""])
def test_names_of_light_queues_count_with_their_offsets_only(offsets: bytes) -> None:
    names = b"%LMQ%a,%LMQ%b"
    record = make_record(properties=offsets + b"INNER_MULTI_DISPATCH\x01" + names + b"\x02A\x01b")
    (row,), _, _ = scan(record)
    at = row["multi_dispatch_at"]
    assert (record[at : at + len(names)] if at else b"") == (names if offsets else b"")


def test_without_parsing_the_property_columns_are_empty() -> None:
    (row,), _, _ = scan(GOOD, CRC)
    assert (row["tags_at"], row["keys_at"], row["unique_key_at"]) == (-1, -1, -1)
    assert (row["tags_code"], row["delay_level"]) == (0, 0)


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        (b"", None),
        (b"TAGS", None),
        (b"TAGS\x01", None),
        (b"TAGS\x01a", b"a"),
        (b"TAGS\x01a\x02TAGS\x01b", b"b"),
        (b"TAGS\x01a\x02TAGS\x01", b"a"),
        (b"TAGS\x01a\x02TAGS", b"a"),
        (b"xTAGS\x01a", None),
        (b"\x01TAGS\x01a", None),
        (b"\x02TAGS\x01a\x01b\x02", b"a\x01b"),
        (b"TAGS\x01" + b"t" * 100 + b"\x02" + b"A\x01b\x02" * 20, b"t" * 100),
        (b"A\x01b\x02" * 40 + b"TAGS\x01tag", b"tag"),
    ],
)
def test_which_tags_count(properties: bytes, tags: bytes | None) -> None:
    record = make_record(properties=properties)
    (row,), _, _ = scan(record)
    at, nbytes = row["tags_at"], row["tags_nbytes"]
    assert (None if at < 0 else record[at : at + nbytes]) == tags
    assert row["tags_code"] == both("message", "string_hash_code", tags or b"")


SCHEDULE = formats.TOPIC_SCHEDULE.encode()
STORED = 1_700_000_000_123


@pytest.mark.parametrize(
    ("delay", "level", "code"),
    [
        (b"1", 1, STORED + 1000),
        (b"+2", 2, STORED + 5000),
        (b"002", 2, STORED + 5000),
        (b"3", 3, STORED + 5000),
        (b"2147483647", 2147483647, STORED + 5000),
        (b"0", 0, 97),
        (b"-1", -1, 97),
        (b"-2147483648", -2147483648, 97),
        (b"2147483648", 0, 97),
        (b"-2147483649", 0, 97),
        (b"99999999999999999999999", 0, 97),
        (b"abc", 0, 97),
        (b"+", 0, 97),
        (b"-", 0, 97),
        (b"1 ", 0, 97),
        (b"1_0", 0, 97),
        ("\u0661".encode(), 0, 97),
    ],
)
def test_tags_code_of_delayed_messages(delay: bytes, level: int, code: int) -> None:
    properties = b"TAGS\x01a\x02DELAY\x01" + delay
    record = make_record(topic=SCHEDULE, properties=properties)
    (row,), _, _ = scan(record, delay_ms=(1000, 5000))
    assert (row["delay_level"], row["tags_code"]) == (level, code)
    (row,), _, _ = scan(make_record(properties=properties), delay_ms=(1000, 5000))
    assert (row["delay_level"], row["tags_code"]) == (level, 97)


def test_deliver_times_without_levels_and_beyond_64_bits() -> None:
    properties = b"DELAY\x019"
    (row,), _, _ = scan(make_record(topic=SCHEDULE, properties=properties))
    assert row["tags_code"] == STORED + 1000
    record = make_record(topic=SCHEDULE, properties=properties, store_timestamp=2**63 - 1)
    (row,), _, _ = scan(record, delay_ms=(1,))
    assert row["tags_code"] == -(2**63)


def test_store_times_are_never_judged() -> None:
    for timestamp in (0, -1, 2**63 - 1, -(2**63), 253_402_300_800_000):
        record = make_record(store_timestamp=timestamp, born_timestamp=timestamp)
        (row,), _, code = scan(record)
        assert (row["store_timestamp"], code) == (timestamp, RecordStatus.END)


def test_a_scan_goes_on_over_records_that_are_complete() -> None:
    log = make_log(
        {"body": b"1"},
        {"body": b"ghost", "physical_offset": 3},
        {"topic": b"a/b"},
        {"properties": b"\0\x01"},
        {"body": b"5", "version": 2, "born_host": V6},
    )
    rows, position, code = scan(log)
    assert [RecordStatus(row["status"]).name for row in rows] == [
        "OK", "GHOST", "UNSAFE_TOPIC", "NUL_PROPERTIES", "OK",
    ]  # fmt: skip
    assert (position, code) == (len(log), RecordStatus.END)


def test_where_a_scan_stops() -> None:
    log = make_log({}, {}, {})
    n = len(GOOD)
    rows, position, code = scan(log, capacity=2)
    assert (len(rows), position, code) == (2, 2 * n, RecordStatus.OK)
    rows, position, code = scan(log, capacity=3)
    assert (len(rows), position, code) == (3, 3 * n, RecordStatus.END)
    rows, position, code = scan(log, capacity=0)
    assert (len(rows), position, code) == (0, 0, RecordStatus.OK)
    rows, position, code = scan(log[:-1])
    assert (len(rows), position, code) == (2, 2 * n, RecordStatus.INCOMPLETE)
    rows, position, code = scan(log + bytes(100))
    assert (len(rows), position, code) == (3, 3 * n, RecordStatus.EMPTY)
    rows, position, code = scan(log + blank(100), end=3 * n + 100)
    assert (len(rows), position, code) == (3, 3 * n, RecordStatus.BLANK)
    rows, position, code = scan(log[: 2 * n] + b"x" * 200)
    assert (len(rows), position, code) == (2, 2 * n, RecordStatus.BAD_MAGIC)
    assert scan(b"") == ([], 0, RecordStatus.END)


def test_unaligned_rows() -> None:
    out = bytearray(ROW_NBYTES + 3)
    view = memoryview(out)[3:]
    for body in ("native", "reference"):
        kernel = Bodies(body).message.scan_records
        assert kernel(GOOD, 0, len(GOOD), 0, SEGMENT, CRC, view) == (1, len(GOOD), RecordStatus.END)
        assert rows_of(bytes(view), 1)[0]["total_size"] == len(GOOD)


# --- Arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "stop", "base", "end"),
    [(-1, 5, 0, 9), (5, 4, 0, 9), (0, 11, 0, 9), (11, 11, 0, 9), (0, 10, -1, 9), (0, 10, 0, -1),
     (0, 10, 2**63 - 5, 2**63 - 1)],
)  # fmt: skip
def test_ranges_outside_the_buffer(position: int, stop: int, base: int, end: int) -> None:
    data, out = bytes(10), bytearray(ROW_NBYTES)
    with pytest.raises(ValueError, match=r"do not lie in order within|is out of range"):
        both("message", "check_record", data, position, stop, base, end, 0)
    with pytest.raises(ValueError, match=r"do not lie in order within|is out of range"):
        both("message", "scan_records", data, position, stop, base, end, 0, out)
    with pytest.raises(ValueError, match=r"do not lie in order within|is out of range"):
        both("message", "find_record", data, position, stop, base, end)


def test_other_wrong_arguments() -> None:
    with pytest.raises(OverflowError, match="too large"):
        both("message", "check_record", GOOD, 0, 2**63, 0, SEGMENT)
    with pytest.raises(ValueError, match="whole rows of 144 bytes, not 143"):
        both("message", "scan_records", GOOD, 0, 1, 0, SEGMENT, 0, bytearray(143))
    with pytest.raises(BufferError, match="not writable"):
        both("message", "scan_records", GOOD, 0, 1, 0, SEGMENT, 0, bytes(144))
    with pytest.raises(OverflowError, match="too large"):
        both("message", "scan_records", GOOD, 0, 1, 0, SEGMENT, 0, bytearray(144), (2**63,))


# --- Search -------------------------------------------------------------------------------------


def find(data: bytes, position: int = 0, base: int = 0, end: int = SEGMENT) -> int:
    return both("message", "find_record", data, position, len(data), base, end)


def test_find_after_garbage_of_every_length() -> None:
    for n in range(40):
        garbage = (b"\xda\xa3\x20\xa7\xda\xa3\xda" * 6)[:n]
        record = make_record(physical_offset=n, version=1 + n % 2)
        assert find(garbage + record) == n
        assert find(garbage + record, position=n) == n
        assert find(garbage + record, position=n + 1) == -1
        assert find(garbage + record, base=1) == -1


def test_find_wants_a_good_record_at_its_own_offset() -> None:
    for changes in ({"body_crc": 1}, {"queue_id": -1}, {"physical_offset": 999}, {"topic": b"\0"}):
        broken = make_record(**changes)
        log = broken + make_record(physical_offset=len(broken), topic=b"a/b")
        assert find(log) == len(broken)
    ghost = make_record(physical_offset=0)
    assert find(b"\xff" * 50 + ghost) == -1
    assert find(GOOD[:-1]) == -1
    assert find(GOOD, end=len(GOOD) - 1) == -1
    assert find(b"") == -1
    assert find(GOOD[:8]) == -1


def test_find_in_the_middle_of_a_body_that_is_a_log() -> None:
    inner = make_record(physical_offset=200 + 88)
    outer = make_record(physical_offset=200, body=inner, body_crc=1)
    assert find(b"\xff" * 200 + outer) == 288


def claims(count: int, spacing: int, good: int | None = None) -> bytes:
    """Headers that all claim the bytes up to one common end as their body; one may be right."""
    head = make_record(body=b"", body_crc=1, topic=b"T", properties=b"")[:88]
    tail = make_record(body=b"", topic=b"T", properties=b"")[88:]
    log = bytearray(spacing * count) + tail
    for number in range(count):
        at = number * spacing
        fields = bytearray(head)
        body_nbytes = len(log) - len(tail) - 88 - at
        fields[0:4] = (len(log) - at).to_bytes(4, "big")
        fields[28:36] = at.to_bytes(8, "big")
        fields[84:88] = body_nbytes.to_bytes(4, "big")
        log[at : at + 88] = fields
    if good is not None:
        at = good * spacing
        crc = both("message", "crc32", bytes(log[at + 88 : -len(tail)])) & 0x7FFFFFFF
        log[at + 8 : at + 12] = crc.to_bytes(4, "big")
    return bytes(log)


def test_many_headers_that_claim_one_long_body() -> None:
    """Once each of them had its whole body read: work grew with the square of the file."""
    for count, good in ((30, None), (30, 29), (30, 20), (400, 399), (400, 250), (400, None)):
        log = claims(count, 97, good)
        assert find(log, end=len(log)) == (-1 if good is None else good * 97)
    log = claims(100_000, 97, 99_998)
    begin = time.perf_counter()
    position = NATIVE.message.find_record(log, 0, len(log), 0, len(log))
    assert position == 99_998 * 97
    assert time.perf_counter() - begin < 5


# --- Encoding -----------------------------------------------------------------------------------


def encode(**changes: Any) -> bytes:
    given = {
        "topic": "TopicA", "body": b"hello", "queue_id": 3, "queue_offset": 11,
        "physical_offset": 0, "flag": 7, "sys_flag": 0, "born_timestamp": 1_700_000_000_000,
        "born_host": "10.0.0.1:1234", "store_timestamp": 1_700_000_000_123,
        "store_host": "10.0.0.1:1234", "reconsume_times": 2, "prepared_transaction_offset": 5,
        "properties": b"KEYS\x01k1\x02TAGS\x01TagA\x02", "version": 1, "property_crc": False,
    }  # fmt: skip
    return both("message", "encode_record", *{**given, **changes}.values())


def test_encode_equals_a_record_put_together_by_hand() -> None:
    assert encode() == GOOD
    assert encode(version=2) == make_record(version=2)
    assert encode(property_crc=True) == make_record(property_crc=True)
    six = "[1:203:405:607:809:a0b:c0d:e0f]:65535"
    assert encode(born_host=six) == make_record(born_host=V6)
    assert encode(store_host=six, sys_flag=0x1C) == make_record(store_host=V6, sys_flag=12)
    assert encode(sys_flag=-1) == make_record(sys_flag=-49)
    assert encode(topic="\ud800\u00e9") == make_record(topic=b"?\xc3\xa9")
    body = bytes(range(256)) * 300
    assert encode(body=body, properties=b"") == make_record(body=body, properties=b"")
    assert encode(body=memoryview(body)[1:]) == make_record(body=body[1:])


def test_encode_adds_a_missing_separator_before_the_crc() -> None:
    record = encode(properties=b"A\x01b", property_crc=True)
    assert record == make_record(properties=b"A\x01b\x02", property_crc=True)
    assert encode(properties=b"", property_crc=True) == make_record(
        properties=b"", property_crc=True
    )


@pytest.mark.parametrize("name", golden_stores.names("plain-", "crc-"))
def test_golden_records_encode_to_themselves(name: str, tmp_path: Path) -> None:
    """Every record that RocketMQ wrote is good, and its fields give its bytes again."""
    size = golden_stores.geometry(name).commit_log_nbytes
    for file in sorted((golden_stores.unpack(name, tmp_path) / "commitlog").iterdir()):
        log, base = file.read_bytes(), int(file.name)
        rows, _, code = scan(log, REPORT, 1000, base=base, end=base + size)
        assert code in (RecordStatus.BLANK, RecordStatus.EMPTY)
        assert rows
        for row in rows:
            message = REFERENCE.message.StoredMessage(log, row["position"], base, base + size)
            crc = row["property_crc"] == 1
            assert row["status"] == RecordStatus.OK
            assert crc == name.startswith("crc-")
            stored = message.properties_bytes
            assert message.raw == encode(
                topic=message.topic, body=message.body, queue_id=message.queue_id,
                queue_offset=message.queue_offset, physical_offset=message.physical_offset,
                flag=message.flag, sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp, born_host=message.born_host,
                store_timestamp=message.store_timestamp, store_host=message.store_host,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
                properties=stored[: -formats.PROPERTY_CRC32_NBYTES] if crc else stored,
                version=2 if message.magic_code == formats.MAGIC_V2 else 1, property_crc=crc,
            )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"topic": b"T"}, TypeError, "topic must be str, not bytes"),
        ({"topic": ""}, ValueError, "topic has 0 bytes"),
        ({"topic": "t" * 128}, ValueError, "topic has 128 bytes, not 1 to 127"),
        ({"topic": "t" * 32768, "version": 2}, ValueError, "topic has 32768 bytes"),
        ({"properties": bytes(32768)}, ValueError, "properties have 32768 bytes"),
        ({"properties": bytes(32747), "property_crc": True}, ValueError, "have 32768 bytes"),
        ({"version": 3}, ValueError, "version must be 1 or 2"),
        ({"queue_id": 2**31}, ValueError, "queue_id 2147483648 does not fit"),
        ({"flag": -(2**31) - 1}, ValueError, "flag -2147483649 does not fit"),
        ({"born_timestamp": 2**63}, OverflowError, "too large"),
        ({"born_host": "nowhere"}, ValueError, "is not like"),
        ({"body": memoryview(bytes(8))[::2]}, BufferError, "not C-contiguous"),
    ],
)
def test_encode_refuses(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        encode(**changes)


def test_a_body_that_is_not_contiguous_is_refused(kernels: Bodies) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        kernels.message.Message("T", memoryview(b"abcdef")[::2])
