"""Operands while an expression is parsed, and which of them RocketMQ's parser refuses where."""

from __future__ import annotations

from typing import NamedTuple

from rocketstore.sql92_program import Operand

_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
NUMBERS = frozenset({Operand.INTEGER, Operand.LONG, Operand.DOUBLE})
#: Operands that may be NULL and need no instruction of their own.
MISSING = frozenset({Operand.NULL, Operand.NAME})


class Term(NamedTuple):
    """One operand.

    Attributes
    ----------
    kind : Operand
        ``RESULT`` for what instructions compute.
    at : int
        Where it begins in the expression, from 0.
    code_at : int
        Number of its first instruction, if it has any.
    value : str or int or float
        Name, text or number.
    is_constant : bool
        A literal; ``-5`` is not one.
    is_boolean : bool
        A comparison, a logic term, TRUE, FALSE or NULL.
    """

    kind: Operand
    at: int
    code_at: int = 0
    value: str | int | float = ""
    is_constant: bool = False
    is_boolean: bool = False


class RefusedError(Exception):
    """An operand or a literal is refused, ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def integer(text: str, at: int, code_at: int) -> Term:
    """Return an integer literal: Integer if it fits 32 bits, otherwise Long."""
    digits = text.rstrip("lL")
    if len(digits) > len(str(_INT64_MAX)) or int(digits) > _INT64_MAX:
        raise RefusedError(f"an integer may not be greater than {_INT64_MAX}")
    value = int(digits)
    kind = Operand.INTEGER if value <= _INT32_MAX else Operand.LONG
    return Term(kind, at, code_at, value, is_constant=True)


def decimal(text: str, at: int, code_at: int, *, strict: bool) -> Term:
    """Return a literal with a point or an exponent: Double. RocketMQ refuses 0.0 (D-66)."""
    value = float(text)
    if value == float("inf"):
        raise RefusedError("this number is greater than the largest double")
    if value == 0.0:
        mantissa = text.lower().partition("e")[0]
        if not strict or mantissa.strip("0.") != "":
            raise RefusedError("RocketMQ refuses decimals below 4.9E-324, 0.0 too; write 0")
    return Term(Operand.DOUBLE, at, code_at, value, is_constant=True)


def negative(term: Term, at: int) -> Term:
    """Return ``-term``: NULL of anything but a number."""
    if term.kind in NUMBERS:
        assert not isinstance(term.value, str)
        return Term(term.kind, at, term.code_at, -term.value)
    return Term(Operand.NULL, at, term.code_at)


def check_ordered(term: Term) -> None:
    """Raise unless ``> >= < <=`` and BETWEEN take this operand."""
    if term.kind in NUMBERS or not (term.is_constant or term.is_boolean):
        return
    if term.kind == Operand.TEXT:
        raise RefusedError("a text has no order: > >= < <= and BETWEEN need a number here")
    if term.is_constant:
        raise RefusedError("TRUE, FALSE and NULL have no order: a number is needed here")
    raise RefusedError("a condition has no order: a number or a property is needed here")


def check_equal(left: Term, right: Term) -> None:
    """Raise unless ``=`` and ``<>`` take these operands."""
    if any(term.kind == Operand.NULL and term.is_constant for term in (left, right)):
        raise RefusedError("NULL cannot be compared; write IS NULL or IS NOT NULL")
    if left.is_constant and left.is_boolean and right.is_constant and not right.is_boolean:
        raise RefusedError("TRUE and FALSE cannot be compared with a number or a text")


def check_limits(low: Term, high: Term) -> None:
    """Raise if BETWEEN has two number literals in the wrong order."""
    if not (low.is_constant and high.is_constant):
        return
    first, last = low.value, high.value
    assert not isinstance(first, str)
    assert not isinstance(last, str)
    if Operand.DOUBLE in (low.kind, high.kind):
        first, last = float(first), float(last)
    if last < first:
        raise RefusedError("the second limit of BETWEEN is less than the first")
