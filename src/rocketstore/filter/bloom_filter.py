"""Bloom filters of ConsumeQueueExt: the bits of a consumer group's filter on a topic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

_MASK = 2**64 - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The size of a bloom filter.

    Attributes
    ----------
    k : int
        Number of bits per consumer.
    m : int
        Number of bits of the whole filter, a multiple of 8.

    Notes
    -----
    Source: RocketMQ ``filter/util/BloomFilter.java``.
    """

    k: int
    m: int

    @classmethod
    def create(cls, max_error_rate: int = 20, expected_consumers: int = 32) -> BloomFilter:
        """Return the size for a number of consumers and a rate of false matches in percent.

        Raises ``ValueError`` for a rate outside 1 .. 99 or less than one consumer.
        """
        if not 1 <= max_error_rate < 100 or expected_consumers < 1:
            raise ValueError("max_error_rate must be 1 to 99 and expected_consumers positive")
        rate = max_error_rate / 100
        k = math.ceil(math.log(rate, 0.5))
        bits = math.ceil(expected_consumers * math.log2(1 / rate) * math.log2(math.e))
        return cls(k, -(-bits // 8) * 8)

    def bit_positions(self, group: str, topic: str) -> list[int]:
        """Return the ``k`` bit positions of the group's filter on the topic."""
        low = murmur3_128_low(f"{group}#{topic}".encode("utf-8", "replace"))
        first, second = _int32(low), _int32(low >> 32)
        positions = []
        for i in range(1, self.k + 1):
            combined = _int32(first + i * second)
            positions.append((~combined if combined < 0 else combined) % self.m)
        return positions

    def bit_map(self, positions: Iterable[int]) -> bytes:
        """Return the bit map of ``m`` bits with these bits set, as ConsumeQueueExt stores it.

        Raises ``ValueError`` for a position outside of it.
        """
        bits = bytearray(self.m // 8)
        for position in positions:
            if not 0 <= position < self.m:
                raise ValueError(f"bit {position} is outside a bit map of {self.m} bits")
            bits[position // 8] |= 1 << position % 8
        return bytes(bits)

    @staticmethod
    def is_hit(positions: Iterable[int], bit_map: bytes) -> bool:
        """Return whether all these bits are set; a bit outside the map is not."""
        return all(
            0 <= position < 8 * len(bit_map) and bit_map[position // 8] >> position % 8 & 1
            for position in positions
        )


class GroupBits(NamedTuple):
    """The bits of a consumer group's filter on a topic, and which ext units have them.

    Attributes
    ----------
    positions : tuple of int
    bit_count : int
        Bits of a bit map.
    born_time : int
        Epoch ms of the subscription: bit maps of older messages were made without it.
    until : int
        Store time of the newest message whose bit map is trusted.
    """

    positions: tuple[int, ...]
    bit_count: int
    born_time: int
    until: int = 2**63 - 1

    @property
    def is_usable(self) -> bool:
        """Whether all positions are inside a bit map, which has whole bytes."""
        return self.bit_count % 8 == 0 and all(0 <= one < self.bit_count for one in self.positions)

    def excludes(self, ext: Any) -> bool:
        """Return whether an ext unit's bit map says that the message does not match."""
        return (
            self.born_time < ext.store_timestamp <= self.until
            and len(ext.bit_map) * 8 == self.bit_count > 0
            and self.is_usable
            and not BloomFilter.is_hit(self.positions, ext.bit_map)
        )


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _MASK


def _mix_first(block: int) -> int:
    return _rotate(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_second(block: int) -> int:
    return _rotate(block * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3_128_low(data: bytes) -> int:
    """Return the first 64 bits, unsigned, of MurmurHash3 x64 128 (public domain) with seed 0."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        first ^= _mix_first(int.from_bytes(data[at : at + 8], "little"))
        first = ((_rotate(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _mix_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = ((_rotate(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    second ^= _mix_second(int.from_bytes(data[whole + 8 :], "little"))
    first ^= _mix_first(int.from_bytes(data[whole : whole + 8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    return (_finish(first) + _finish(second)) & _MASK
