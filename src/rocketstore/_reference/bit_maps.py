"""Bit maps of ext units: which consumer groups' SQL92 filters a record matches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

from rocketstore._reference.sql92 import Program
from rocketstore.sql92_program import Verdict

#: (topic, program, bits, born_time); see ``_native/reput.pyi``.
FilterRow = tuple[bytes, "bytes | None", bytes, int]
_TIME_MAX = 2**63 - 1


class Made(NamedTuple):
    """A record's bit map, empty if it has none, and the evaluations that raised."""

    bit_map: bytes
    errors: int


class _GroupFilter(NamedTuple):
    program: Program | None
    bits: int
    born_time: int


class BitMaps:
    """The filters of all topics, and bit maps of ``nbytes`` by them."""

    def __init__(self, nbytes: int, filters: Sequence[FilterRow]) -> None:
        self._nbytes = nbytes
        self._of_topic: dict[bytes, list[_GroupFilter]] = {}
        for topic, program, bits, born_time in [self._checked(row) for row in filters]:
            compiled = None if program is None else Program(program)
            one = _GroupFilter(compiled, int.from_bytes(bits, "little"), born_time)
            self._of_topic.setdefault(topic, []).append(one)

    def _checked(self, row: FilterRow) -> FilterRow:
        topic, program, bits, born_time = row
        if type(topic) is not bytes or type(bits) is not bytes:
            raise TypeError("topic and bits must be bytes")
        if program is not None and type(program) is not bytes:
            raise TypeError("program must be bytes or None")
        if len(bits) != self._nbytes:
            raise ValueError(f"bits has {len(bits)} bytes, a bit map {self._nbytes}")
        number = operator.index(born_time)
        if not -_TIME_MAX <= number <= _TIME_MAX:
            raise ValueError(f"born_time {number} is outside {-_TIME_MAX} .. {_TIME_MAX}")
        return topic, program, bits, number

    def of(self, topic: bytes, properties: bytes, store_timestamp: int) -> Made:
        """Return the bit map of a record."""
        older = [one for one in self._of_topic.get(topic, ()) if store_timestamp > one.born_time]
        bits = errors = 0
        for one in older:
            if one.program is not None:
                verdict = one.program.evaluate_stored(properties)
                errors += verdict == Verdict.ERROR
                bits |= one.bits if verdict == Verdict.TRUE else 0
        return Made(bits.to_bytes(self._nbytes, "little") if older else b"", errors)
