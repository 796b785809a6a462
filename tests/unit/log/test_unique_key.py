"""Unique keys: their parts, their time, no two alike."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.unique_key import UniqueKeyMaker, month_around

NOW = 1_763_800_000_123  # 2025-11-22T08:26:40.123 UTC
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.9.8.7:10911", "0A090807"),
        ("[2001:db8::1]:10911", "20010DB8000000000000000000000001"),
    ],
)
def test_parts(host: str, address: str) -> None:
    make = UniqueKeyMaker(host, lambda: NOW, UTC)
    first, second = make(), make()
    assert first.startswith(address)
    rest = bytes.fromhex(first.removeprefix(address))
    assert len(rest) == 12
    assert int.from_bytes(rest[:2], "big") == os.getpid() % 65_536
    began = datetime.datetime(2025, 11, 1, tzinfo=UTC).timestamp() * 1000
    assert int.from_bytes(rest[6:10], "big") == NOW - began
    assert second[:-4] == first[:-4]
    assert (int(second[-4:], 16) - int(first[-4:], 16)) % 65_536 == 1


def test_no_two_alike() -> None:
    makers = [UniqueKeyMaker("10.0.0.1:1", lambda: NOW) for _ in range(2)]
    assert len({make() for make in makers for _ in range(5000)}) == 10_000


@pytest.mark.parametrize(
    ("year", "month", "following"), [(2025, 11, (2025, 12)), (2025, 12, (2026, 1))]
)
def test_months(year: int, month: int, following: tuple[int, int]) -> None:
    now = datetime.datetime(year, month, 17, 3, tzinfo=UTC).timestamp() * 1000
    expected = [
        datetime.datetime(*first, 1, tzinfo=UTC).timestamp() * 1000
        for first in ((year, month), following)
    ]
    assert list(month_around(int(now), UTC)) == expected


@pytest.mark.parametrize("now", [-(2**62), -1, 0, 253_402_300_799_999, 2**62])
def test_clocks_beyond_the_calendar(now: int) -> None:
    assert len(UniqueKeyMaker("10.0.0.1:1", lambda: now, UTC)()) == 32


def test_a_put_gets_a_key_and_is_found_by_it(tmp_path: Path) -> None:
    # ``unique_key=True`` was refused, since the store gave its appender no maker of keys.
    with rocketstore.open(tmp_path / "store", "x") as store:
        for number in range(3):
            assert store.put("T", b"body %d" % number, 0, unique_key=True).ok
        assert store.put("T", b"own", 0, unique_key="mine").ok
        store.wait_dispatched()
        keys = [message.unique_key for message in store.scan()]
        assert len(set(keys)) == 4
        assert keys[3] == "mine"
        for number, key in enumerate(keys):
            found = list(store.find(topic="T", unique_key=key))
            assert [message.queue_offset for message in found] == [number]
