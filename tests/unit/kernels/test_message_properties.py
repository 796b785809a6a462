"""Properties and hosts as stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.kernel_bodies import both

NAME = b"\x01"
PAIR = b"\x02"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b"", {}),
        (b"\x02", {}),
        (b"\x01", {}),
        (b"\x02\x02\x02", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"no separator\x02a\x01b", {"a": "b"}),
        (b"\x01value\x02a\x01b", {"a": "b"}),
        (b"name\x01\x02a\x01b", {"a": "b"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"a\x011\x02b\x012\x02a\x013\x02", {"a": "3", "b": "2"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        (b"a\0\x01\0b\x02", {"a\0": "\0b"}),
        ("n\u00e9\x01\U0001f600\x02".encode(), {"n\u00e9": "\U0001f600"}),
        (b"a\x01\xed\xa0\x80\x02b\xff\x01c", {"a": "\ufffd", "b\ufffd": "c"}),
    ],
)
def test_parse_properties(stored: bytes, expected: dict[str, str]) -> None:
    parsed = both("message", "parse_properties", stored)
    assert parsed == expected
    assert list(parsed) == list(expected)


def test_encode_properties() -> None:
    properties = {"KEYS": "k1 k2", "empty": "", "none": None, "\u00e9": "\U0001f600", "s": "\ud800"}
    expected = b"KEYS\x01k1 k2\x02empty\x01\x02\xc3\xa9\x01\xf0\x9f\x98\x80\x02s\x01?"
    assert both("message", "encode_properties", properties, False) == expected
    assert both("message", "encode_properties", properties, True) == expected + PAIR
    assert both("message", "encode_properties", {}, True) == b""


@pytest.mark.parametrize(
    "properties",
    [{"": "v"}, {"a\x01": "v"}, {"a": "\x01"}, {"a": "b\x02"}, {"\0": "v"}, {"a": "\0"}],
)
def test_encode_refuses_separators(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is empty or holds"):
        both("message", "encode_properties", properties, True)


@pytest.mark.parametrize("properties", [{"a": 1}, {1: "a"}, {"a": b"b"}])
def test_encode_refuses_other_types(properties: dict) -> None:
    with pytest.raises(TypeError, match="must be str"):
        both("message", "encode_properties", properties, True)


@pytest.mark.parametrize(
    ("host", "stored"),
    [
        ("10.0.0.1:1234", bytes([10, 0, 0, 1, 0, 0, 4, 210])),
        ("255.255.255.255:65535", b"\xff\xff\xff\xff\0\0\xff\xff"),
        ("0.0.0.0:0", bytes(8)),
        ("[2001:db8::1]:1234", bytes.fromhex("20010db8000000000000000000000001000004d2")),
        ("[::]:0", bytes(20)),
        ("[::1]:80", bytes(15) + b"\x01\0\0\0\x50"),
        ("[1::]:80", b"\0\x01" + bytes(14) + b"\0\0\0\x50"),
        ("[1:0:0:2::3]:1", bytes.fromhex("00010000000000020000000000000003") + b"\0\0\0\x01"),
        ("[1:0:2:3:4:5:6:7]:1", bytes.fromhex("00010000000200030004000500060007") + b"\0\0\0\x01"),
        ("[::ffff:102:304]:1", bytes(10) + b"\xff\xff\x01\x02\x03\x04\0\0\0\x01"),
    ],
)
def test_hosts_there_and_back(host: str, stored: bytes) -> None:
    assert both("message", "parse_host", host) == stored
    assert both("message", "format_host", stored) == host


def test_hosts_written_otherwise() -> None:
    assert both("message", "parse_host", "1.2.3.4:00080") == b"\x01\x02\x03\x04\0\0\0\x50"
    mapped = bytes(10) + b"\xff\xff\x01\x02\x03\x04\0\0\0\x01"
    assert both("message", "parse_host", "[::FFFF:1.2.3.4]:1") == mapped
    assert both("message", "format_host", b"\x01\x02\x03\x04\xff\xff\xff\xff") == "1.2.3.4:-1"


@pytest.mark.parametrize(
    "host",
    ["", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:-1", "1.2.3.4:65536", "1.2.3.4:123456", "1.2.3:1",
     "1.2.3.256:1", "01.2.3.4:1", "1.2.3.4.5:1", "1..3.4:1", "a:1", " 1.2.3.4:1", "1.2.3.4:1 ",
     "1.2.3.4:1\0", "::1:80", "[::1:80", "[::1]", "[::1]80", "[::1%1]:80", "[g::]:80",
     "[1.2.3.4]:80", "[]:80", "\uff11.2.3.4:1", "1.2.3.4:\u0661", "\ud800"],
)  # fmt: skip
def test_wrong_hosts(host: str) -> None:
    with pytest.raises(ValueError, match="is not like"):
        both("message", "parse_host", host)


def test_a_host_is_text() -> None:
    with pytest.raises(TypeError, match="must be str, not bytes"):
        both("message", "parse_host", b"1.2.3.4:1")


@pytest.mark.parametrize("data", [b"", bytes(7), bytes(9), bytes(19), bytes(21)])
def test_stored_hosts_have_two_widths(data: bytes) -> None:
    with pytest.raises(ValueError, match="8 or 20 bytes"):
        both("message", "format_host", data)
    with pytest.raises(ValueError, match="8 or 20 bytes"):
        both("message", "message_id", data, 0)


def test_message_ids() -> None:
    host = bytes([10, 9, 8, 7]) + (10911).to_bytes(4, "big")
    assert both("message", "message_id", host, 61273) == "0A09080700002A9F000000000000EF59"
    identifier = both("message", "message_id", bytes(range(20)), 2**63 - 1)
    assert identifier == "000102030405060708090A0B0C0D0E0F10111213" + "7FFFFFFFFFFFFFFF"
    with pytest.raises(OverflowError, match="too large"):
        both("message", "message_id", host, 2**63)


# --- the order of a Java hash map -----------------------------------------------------------------


def java_hash_map(names: list[str], buckets: int) -> list[str]:
    """A hash map as Java's is described: chains of buckets, doubled when three quarters full."""
    table: list[list[str]] = [[] for _ in range(buckets)]
    for count, name in enumerate(names, 1):
        _chain(table, name).append(name)
        if count > 3 * len(table) // 4:
            old, table = table, [[] for _ in range(2 * len(table))]
            for chain in old:
                for other in chain:
                    _chain(table, other).append(other)
    return [name for chain in table for name in chain]


def _chain(table: list[list[str]], name: str) -> list[str]:
    code = 0
    units = name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return table[(code ^ code >> 16) % len(table)]


@pytest.mark.parametrize("buckets", [4, 16, 128])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 12, 13, 24, 25, 96, 97, 300])
def test_names_come_in_the_order_of_a_hash_map(buckets: int, count: int) -> None:
    names = ["\u00e9" * (n % 3) + f"name{n * n}" + "\U0001f600" * (n % 2) for n in range(count)]
    assert both("message", "hash_map_order", names, buckets) == java_hash_map(names, buckets)


def test_names_of_one_bucket_keep_their_order() -> None:
    assert both("message", "hash_map_order", ["BB", "Aa"], 16) == ["BB", "Aa"]
    assert both("message", "hash_map_order", ["Aa", "BB"], 16) == ["Aa", "BB"]


def test_properties_written_again() -> None:
    properties = {"WAIT": "true", "TAGS": "t", "UNIQ_KEY": "u", "KEYS": "k", "CLUSTER": "c"}
    for buckets in (16, 128):
        order = java_hash_map(list(properties), buckets)
        expected = b"\x02".join(f"{name}\x01{properties[name]}".encode() for name in order)
        assert both("message", "rewritten_properties", properties, buckets, False) == expected
        assert both("message", "rewritten_properties", properties, buckets, True) == (
            expected + PAIR
        )
    assert both("message", "rewritten_properties", {}, 16, True) == b""


@pytest.mark.parametrize("buckets", [0, -1, -16, 3, 100, 2**31, 2**40])
def test_buckets_are_a_power_of_two(buckets: int) -> None:
    with pytest.raises(ValueError, match=f"buckets must be a power of two, not {buckets}"):
        both("message", "hash_map_order", ["a"], buckets)


def test_names_are_texts() -> None:
    with pytest.raises(TypeError, match="a property's name must be str, not int"):
        both("message", "hash_map_order", ["a", 5], 16)
    with pytest.raises(TypeError, match="property names and values must be str"):
        both("message", "rewritten_properties", {"a": 5}, 16, True)
    with pytest.raises(OverflowError):
        both("message", "hash_map_order", ["a"], 2**70)


def texts(size: int) -> st.SearchStrategy[bytes]:
    return st.text(max_size=size).map(str.encode)


@given(
    st.lists(st.tuples(texts(6), texts(4)), max_size=70),
    st.sampled_from([1, 16, 128]),
    st.booleans(),
)
def test_reordered_properties_keep_their_bytes(
    pairs: list[tuple[bytes, bytes]], buckets: int, trailing: bool
) -> None:
    stored = b"\x02".join(name + b"\x01" + value for name, value in pairs)
    ordered = both("message", "reordered_properties", stored, buckets, trailing)
    again = both("message", "reordered_properties", ordered, buckets, trailing)
    assert again == ordered
    assert parse(ordered) == parse(stored)


def parse(stored: bytes) -> dict[str, str]:
    return both("message", "parse_properties", stored)


def test_d_51_reordered_properties_keep_empty_values() -> None:
    text = b"b\x01\x02a\x011\x02b\x012\x02a\x01\x02nothing\x02\x01x"
    assert both("message", "reordered_properties", text, 16, False) == b"a\x011\x02b\x012"
    assert both("message", "reordered_properties", b"e\x01", 16, True) == b"e\x01\x02"
    assert both("message", "reordered_properties", b"", 16, True) == b""
    for wrong in (0, 3, 2**31):
        with pytest.raises(ValueError, match="power of two"):
            both("message", "reordered_properties", b"", wrong, True)
    with pytest.raises(ValueError, match="longer than 32767"):
        both("message", "reordered_properties", bytes(32768), 16, True)
