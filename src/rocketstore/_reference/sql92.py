"""Evaluation of compiled SQL92 filters. The contract is ``_native/sql92.pyi``."""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rocketstore import formats
from rocketstore._reference import java_numbers, java_text
from rocketstore._reference.arguments import Buffer, readable
from rocketstore._reference.record_check import pairs
from rocketstore.sql92_program import (
    MAGIC,
    SQL92_HEADER,
    SQL92_INSTRUCTION,
    SQL92_TEXT,
    Op,
    Operand,
    Verdict,
)

_NUMBER_NBYTES = 8
_NUMBERS = (Operand.INTEGER, Operand.LONG, Operand.DOUBLE)
_ORDERS: dict[int, Callable[[int, int], bool]] = {
    Op.GREATER: operator.gt,
    Op.GREATER_OR_EQUAL: operator.ge,
    Op.LESS: operator.lt,
    Op.LESS_OR_EQUAL: operator.le,
}
_SEARCHES: dict[int, Callable[[str, str], bool]] = {
    Op.CONTAINS: operator.contains,
    Op.STARTS_WITH: str.startswith,
    Op.ENDS_WITH: str.endswith,
}
_BITS = {Operand.INTEGER: 32, Operand.LONG: 64}
_NEGATED = {
    Verdict.TRUE: Verdict.FALSE,
    Verdict.FALSE: Verdict.TRUE,
    Verdict.NULL: Verdict.NULL,
}


class _FailedError(Exception):
    """RocketMQ's evaluator raises here."""


class _Instruction(NamedTuple):
    op: int
    negated: int
    left: int
    right: int
    left_at: int
    right_at: int
    target: int


class _Value(NamedTuple):
    """A value that is not NULL; ``kind`` is TEXT, RESULT (a bool) or that of a number."""

    kind: Operand
    value: Any


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("these bytes are no program of an SQL92 filter")


def _by_length(text: str) -> tuple[int, bytes]:
    data = text.encode()
    return len(data), data


def _ascend(texts: list[str]) -> bool:
    keys = [_by_length(text) for text in texts]
    return all(first < second for first, second in itertools.pairwise(keys))


class Program:
    """A compiled filter."""

    def __init__(self, program: bytes, /) -> None:
        data = bytes(program)
        _require(len(data) >= SQL92_HEADER.nbytes)
        magic, numbers, code, names, texts, pool_nbytes, depth, zero = (
            SQL92_HEADER.struct.unpack_from(data)
        )
        counts = (numbers, code, names, texts, pool_nbytes, depth)
        _require(magic == MAGIC and zero == 0 and min(counts) >= 0 and code > 0 and depth <= code)
        code_at = SQL92_HEADER.nbytes + _NUMBER_NBYTES * numbers
        names_at = code_at + SQL92_INSTRUCTION.nbytes * code
        pool_at = names_at + SQL92_TEXT.nbytes * (names + texts)
        _require(pool_nbytes % 8 == 0 and pool_at + pool_nbytes == len(data))
        self._numbers = [
            data[at : at + _NUMBER_NBYTES]
            for at in range(SQL92_HEADER.nbytes, code_at, _NUMBER_NBYTES)
        ]
        self._code = [
            _Instruction(*fields)
            for fields in SQL92_INSTRUCTION.struct.iter_unpack(data[code_at:names_at])
        ]
        pool = data[pool_at:]
        both = [
            self._text(pool, *place)
            for place in SQL92_TEXT.struct.iter_unpack(data[names_at:pool_at])
        ]
        self._depth: int = depth
        self._names, self._texts = both[:names], both[names:]
        _require(all(self._names) and _ascend(self._names))
        for number, instruction in enumerate(self._code):
            self._check(number, instruction)
        self._errors = 0

    @staticmethod
    def _text(pool: bytes, at: int, nbytes: int) -> str:
        _require(0 <= at <= len(pool) and 0 <= nbytes <= len(pool) - at)
        try:
            return pool[at : at + nbytes].decode()
        except UnicodeDecodeError:
            raise ValueError("these bytes are no program of an SQL92 filter") from None

    def _check(self, number: int, one: _Instruction) -> None:
        """Check that an instruction refers only to what exists, and jumps forward."""
        _require(0 <= one.op <= max(Op) and one.negated in (0, 1))
        limits = {Operand.NAME: len(self._names), Operand.TEXT: len(self._texts)}
        for kind, place in ((one.left, one.left_at), (one.right, one.right_at)):
            _require(0 <= kind <= max(Operand))
            if kind in _NUMBERS:
                _require(0 <= place < len(self._numbers))
            elif kind in limits:
                _require(0 <= place < limits[Operand(kind)])
        if one.op == Op.SET:
            _require(one.left_at in (Verdict.FALSE, Verdict.TRUE, Verdict.NULL))
        elif one.op in (Op.CAST, Op.IN):
            _require(one.left == Operand.NAME)
        elif one.op in (Op.AND_LEFT, Op.OR_LEFT, Op.SKIP_NULL):
            _require(number < one.target <= len(self._code))
        elif one.op in _SEARCHES:
            _require(one.right == Operand.TEXT)
        if one.op == Op.IN:
            _require(one.right_at >= 0 and 0 < one.target <= len(self._texts) - one.right_at)
            _require(_ascend(self._texts[one.right_at : one.right_at + one.target]))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def errors(self) -> int:
        return self._errors

    def count_errors(self, count: int, /) -> None:
        if count < 0:
            raise ValueError("count is negative")
        self._errors += count

    def evaluate(self, properties: Mapping[str, str], /) -> int:
        return self._counted(self._wanted(properties))

    def matches(self, properties: Mapping[str, str], /) -> bool:
        return self._counted(self._wanted(properties)) == Verdict.TRUE

    def fault(self, properties: Mapping[str, str], /) -> int:
        run = _Run(self, self._wanted(properties))
        return run.at if run.verdict() == Verdict.ERROR else -1

    def evaluate_stored(self, properties: Buffer, /) -> int:
        data = bytes(readable(properties))
        if len(data) > formats.MAX_PROPERTIES_NBYTES:
            raise ValueError(
                f"the properties have {len(data)} bytes, more than {formats.MAX_PROPERTIES_NBYTES}"
            )
        found = {name: data[start:stop] for name, start, stop in pairs(data)}
        values = [found.get(name.encode()) for name in self._names]
        return self._counted([None if v is None else java_text.decode(v) for v in values])

    def _wanted(self, properties: Mapping[str, str]) -> list[str | None]:
        """Return the values of the names, as they would be stored."""
        values: list[str | None] = []
        for name in self._names:
            value = properties.get(name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"property {name} must be str, not {type(value).__name__}")
            values.append(None if value is None else java_text.encode(value).decode())
        return values

    def _counted(self, values: list[str | None]) -> int:
        verdict = _Run(self, values).verdict()
        self._errors += verdict == Verdict.ERROR
        return int(verdict)


class _Run:
    """One evaluation: the result, the stack and the number of the instruction."""

    def __init__(self, program: Program, values: list[str | None]) -> None:
        self._program = program
        self._values = values
        self._stack: list[Verdict] = []
        self._result = Verdict.NULL
        self.at = 0

    def verdict(self) -> Verdict:
        """Return the program's verdict."""
        code = self._program._code
        try:
            while self.at < len(code):
                self.at = self._step(code[self.at])
        except _FailedError:
            return Verdict.ERROR
        return self._result

    def _step(self, one: _Instruction) -> int:
        """Carry out an instruction; return the number of the next one."""
        if one.op in (Op.AND_LEFT, Op.OR_LEFT):
            if self._result == (Verdict.FALSE if one.op == Op.AND_LEFT else Verdict.TRUE):
                return one.target
            self._push()
            return self.at + 1
        if one.op == Op.SKIP_NULL:
            if self._load(one.left, one.left_at) is not None:
                return self.at + 1
            self._result = Verdict.NULL
            return one.target
        self._result = self._computed(one)
        if one.negated:
            self._result = _NEGATED[self._result]
        return self.at + 1

    def _computed(self, one: _Instruction) -> Verdict:
        """Return the result of an instruction before ``negated`` is applied."""
        if one.op == Op.SET:
            return Verdict(one.left_at)
        if one.op == Op.CAST:
            is_missing = self._load(one.left, one.left_at) is None
            return Verdict.NULL if is_missing else Verdict.FALSE
        if one.op == Op.NOT:
            return _NEGATED[self._result]
        if one.op == Op.PUSH:
            self._push()
            return self._result
        if one.op in (Op.AND, Op.OR):
            return self._joined(Verdict.FALSE if one.op == Op.AND else Verdict.TRUE)
        if one.op == Op.IN:
            found = self._load(one.left, one.left_at)
            texts = self._program._texts[one.right_at : one.right_at + one.target]
            return Verdict.NULL if found is None else Verdict(found.value in texts)
        left = self._load(one.left, one.left_at)
        if one.op in _SEARCHES:
            return self._searched(one, left)
        right = self._load(one.right, one.right_at)
        if one.op == Op.EQUAL:
            return _equal(left, right)
        return _ordered(one.op, left, right)

    def _searched(self, one: _Instruction, left: _Value | None) -> Verdict:
        text = self._program._texts[one.right_at]
        if left is None or left.kind != Operand.TEXT or not text:
            return Verdict(one.negated)  # FALSE once it is negated
        return Verdict(_SEARCHES[one.op](left.value, text))

    def _joined(self, deciding: Verdict) -> Verdict:
        left, right = self._pop(), self._result
        if deciding in (left, right):
            return deciding
        return Verdict.NULL if Verdict.NULL in (left, right) else _NEGATED[deciding]

    def _push(self) -> None:
        if len(self._stack) == self._program._depth:
            raise _FailedError
        self._stack.append(self._result)

    def _pop(self) -> Verdict:
        if not self._stack:
            raise _FailedError
        return self._stack.pop()

    def _load(self, kind: int, at: int) -> _Value | None:
        """Return an operand, ``None`` for NULL."""
        if kind == Operand.NAME:
            text = self._values[at]
            return None if text is None else _Value(Operand.TEXT, text)
        if kind == Operand.TEXT:
            return _Value(Operand.TEXT, self._program._texts[at])
        if kind in _NUMBERS:
            code = "=d" if kind == Operand.DOUBLE else "=q"
            (number,) = struct.unpack(code, self._program._numbers[at])
            return _Value(Operand(kind), number)
        if kind in (Operand.RESULT, Operand.PUSHED):
            verdict = self._result if kind == Operand.RESULT else self._pop()
            if verdict != Verdict.NULL:
                return _Value(Operand.RESULT, verdict == Verdict.TRUE)
        return None


def _equal(left: _Value | None, right: _Value | None) -> Verdict:
    if left is None:
        return Verdict.TRUE if right is None else Verdict.NULL
    if right is None:
        return Verdict.FALSE
    if left.kind == right.kind == Operand.TEXT:
        return Verdict(left.value == right.value)
    return Verdict(_compare(left, right) == 0)


def _ordered(op: int, left: _Value | None, right: _Value | None) -> Verdict:
    if left is None or right is None:
        return Verdict.NULL
    if left.kind == right.kind == Operand.TEXT:
        left = _Value(Operand.DOUBLE, _as_double(left.value))
        right = _Value(Operand.DOUBLE, _as_double(right.value))
    return Verdict(_ORDERS[op](_compare(left, right), 0))


def _as_double(text: str) -> float:
    value = java_numbers.double(text)
    if value is None:
        raise _FailedError
    return value


def _read(text: str, other: _Value) -> _Value:
    """Return a text as a value of the other operand's kind."""
    if other.kind == Operand.RESULT:
        return _Value(Operand.RESULT, text.lower() == "true" and text.isascii())
    if other.kind == Operand.DOUBLE:
        return _Value(Operand.DOUBLE, _as_double(text))
    value = java_numbers.integer(text, _BITS[other.kind])
    if value is None:
        raise _FailedError
    return _Value(other.kind, value)


def _compare(left: _Value, right: _Value) -> int:
    """Return less than, equal to or greater than 0, as ``ComparisonExpression.__compare``."""
    if left.kind == Operand.RESULT and right.kind == Operand.TEXT:
        raise _FailedError  # a ClassCastException
    if left.kind == Operand.TEXT:
        left = _read(left.value, right)
    elif right.kind == Operand.TEXT:
        right = _read(right.value, left)
    if (left.kind == Operand.RESULT) != (right.kind == Operand.RESULT):
        return -1
    if Operand.DOUBLE in (left.kind, right.kind):
        return java_numbers.compare_doubles(float(left.value), float(right.value))
    return int(left.value > right.value) - int(left.value < right.value)
