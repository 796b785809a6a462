"""Bit maps of bloom filters; real ones are compared in ``tests/golden/test_sql92.py``."""

from __future__ import annotations

import pytest

from rocketstore.filter.bloom_filter import BloomFilter


def test_bits_are_set_from_the_lowest_of_each_byte() -> None:
    bloom = BloomFilter(2, 24)
    assert bloom.bit_map([]) == bytes(3)
    assert bloom.bit_map([0, 9, 23]) == bytes([0x01, 0x02, 0x80])


def test_a_hit_needs_every_bit() -> None:
    bits = bytes([0x01, 0x02, 0x80])
    assert BloomFilter.is_hit([0, 9, 23], bits)
    assert BloomFilter.is_hit([], bits)
    assert not BloomFilter.is_hit([0, 8], bits)


@pytest.mark.parametrize("position", [-1, 24, 1000])
def test_a_bit_outside_is_refused_or_not_set(position: int) -> None:
    with pytest.raises(ValueError, match="outside a bit map of 24 bits"):
        BloomFilter(2, 24).bit_map([position])
    assert not BloomFilter.is_hit([position], b"\xff\xff\xff")
