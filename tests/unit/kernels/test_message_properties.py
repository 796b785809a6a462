"""Properties and hosts as stored."""

from __future__ import annotations

import pytest

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
