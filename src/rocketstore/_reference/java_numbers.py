"""Numbers as Java reads them from text: ``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf``.

``None`` where Java throws a ``NumberFormatException``.
"""

from __future__ import annotations

import re
import struct

from rocketstore.sql92_program import DIGIT_ZEROS

_DIGITS = {chr(zero + digit): digit for zero in DIGIT_ZEROS for digit in range(10)}
_DECIMAL = re.compile(
    r"([+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?", re.ASCII
)
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*+\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?"
)
_WORD = re.compile(r"[+-]?(?:NaN|Infinity)")
#: What ``String.trim`` removes.
_TRIMMED = "".join(map(chr, range(0x21)))


def integer(text: str, bits: int) -> int | None:
    """Return an integer of 32 or 64 bits: an optional sign, then decimal digits of any script."""
    sign = -1 if text.startswith("-") else 1
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits:
        return None
    value = 0
    for character in digits:
        digit = _DIGITS.get(character)
        if digit is None or value >= 1 << bits:
            return None
        value = 10 * value + digit
    value *= sign
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def double(text: str) -> float | None:
    """Return a double: decimal or hexadecimal, NaN or Infinity, blanks around it ignored."""
    text = text.strip(_TRIMMED)
    if _WORD.fullmatch(text):
        return float(text)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if match := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    return None


def compare_doubles(left: float, right: float) -> int:
    """Return ``Double.compare``: NaN is the greatest and equal to itself, -0.0 is before 0.0."""
    keys = [(value != value, 0.0 if value != value else value, _is_positive(value))
            for value in (left, right)]  # fmt: skip
    return (keys[0] > keys[1]) - (keys[0] < keys[1])


def _is_positive(value: float) -> bool:
    return value != value or struct.pack(">d", value)[0] < 0x80
