"""Java's String.hashCode over UTF-8 bytes, malformed ones included."""

from __future__ import annotations

import pytest

from support.kernel_bodies import both

#: Bytes and what ``new String(bytes, UTF_8).hashCode()`` of Java 17 answers.
KNOWN = [
    (b"", 0),
    (b"Aa", 2112),
    (b"BB", 2112),
    (b"polygenelubricants", -(2**31)),
    (b"TagA", 2598919),
    (b"TagB", 2598920),
    (b"TopicA#k1", -1903240649),
    ("\U0001f600\u00e9".encode(), 54960102),
]
REPLACED = 0xFFFD
#: Malformed bytes and the UTF-16 units Java makes of them.
MALFORMED = [
    (b"\x80", [REPLACED]),
    (b"\xc0\x80", [REPLACED] * 2),
    (b"\xe0\x80\x80", [REPLACED] * 3),
    (b"\xe4\xb8", [REPLACED]),
    (b"\xe4\xb8A", [REPLACED, 0x41]),
    (b"\xed\xa0\x80", [REPLACED]),
    (b"\xed\xa0", [REPLACED]),
    (b"\xed\xa0A", [REPLACED, 0x41]),
    (b"\xed\xbf\xbf\xed\xa0\x80", [REPLACED] * 2),
    (b"\xf0\x9f\x98", [REPLACED]),
    (b"\xf0\x9f\xe4\xb8\x80", [REPLACED, 0x4E00]),
    (b"\xf0\x80\x80\x80", [REPLACED] * 4),
    (b"\xf4\x90\x80\x80", [REPLACED] * 4),
    (b"\xf5\x80", [REPLACED] * 2),
    (b"\xf0\x9f\x98\x80", [0xD83D, 0xDE00]),
]


def hash_of(units: list[int]) -> int:
    value = 0
    for unit in units:
        value = (31 * value + unit) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(("data", "expected"), KNOWN)
def test_known_hashes(data: bytes, expected: int) -> None:
    assert both("message", "string_hash_code", data) == expected


@pytest.mark.parametrize(("data", "units"), MALFORMED)
def test_malformed_groups(data: bytes, units: list[int]) -> None:
    assert both("message", "string_hash_code", data) == hash_of(units)
    assert both("message", "string_hash_code", b"key" + data) == hash_of([*b"key", *units])


def test_every_length() -> None:
    data = bytes(33 + (i * 37) % 90 for i in range(300))
    for n in range(300):
        for at in (0, 1, 7):
            part = data[at : at + n]
            assert both("message", "string_hash_code", part) == hash_of(list(part))


def test_leading_nul_counts_as_a_unit_of_zero() -> None:
    assert both("message", "string_hash_code", b"\0\0A") == 65
    assert both("message", "string_hash_code", b"A\0") == 65 * 31
