"""What RocketMQ accepts in an expression although it ignores it, or it never matches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rocketstore.filter.sql92.lexer import Token
from rocketstore.filter.sql92.operands import NUMBERS, Term
from rocketstore.sql92_program import Operand

#: More notes are not kept: an expression may have a million of a kind.
MOST_NOTES = 20
_STRINGS = (Operand.NAME, Operand.TEXT)
_CONDITIONS = (Operand.RESULT, Operand.PUSHED)


class Note(NamedTuple):
    """One such place: its column, counted from 1, and what happens there."""

    column: int
    text: str


@dataclass
class Notes:
    """The notes of one expression, in the order in which they were found."""

    found: list[Note] = field(default_factory=list)
    _integers: dict[str, int] = field(default_factory=dict)
    _with_decimals: set[str] = field(default_factory=set)

    def _add(self, at: int, text: str) -> None:
        if len(self.found) < MOST_NOTES:
            self.found.append(Note(at + 1, text))

    def unparsed(self, token: Token) -> None:
        """Note text after the expression (D-65)."""
        self._add(token.at, "RocketMQ ignores the expression from here on")

    def bare_property(self, term: Term) -> None:
        """Note a property that is used as a condition (D-67)."""
        self._add(term.at, f"the property {term.value} alone is never true; compare it")

    def search(self, left: Term, right: Term) -> None:
        """Note a search for nothing, or in what is no text (D-69)."""
        if right.value == "":
            self._add(right.at, "a search for an empty text is false, with NOT as well")
        elif left.kind not in _STRINGS:
            self._add(left.at, "a search in what is no text is false, with NOT as well")

    def negative(self, term: Term, at: int) -> None:
        """Note a minus before anything but a number."""
        if term.kind not in NUMBERS:
            self._add(at, "minus of anything but a number is NULL")

    def order(self, left: Term, right: Term) -> None:
        """Note a property that is compared with integers and with decimals (D-70)."""
        for name, number in ((left, right), (right, left)):
            if name.kind == Operand.NAME and number.kind in NUMBERS:
                self._number(str(name.value), number)

    def _number(self, name: str, number: Term) -> None:
        if number.kind == Operand.DOUBLE:
            self._with_decimals.add(name)
        else:
            self._integers.setdefault(name, number.at)
        if name in self._with_decimals and name in self._integers:
            at = self._integers.pop(name)
            self._with_decimals.discard(name)
            self._add(
                at,
                f"{name} is compared with a decimal elsewhere, but a decimal as its value is an "
                "error here; write the integer as a decimal",
            )

    def equal(self, left: Term, right: Term) -> None:
        """Note what always fails or never matches (D-71)."""
        self.order(left, right)
        if left.kind in _CONDITIONS and right.kind in _STRINGS:
            self._add(left.at, "a condition on the left of a property or a text is an error")
        elif (left.kind in _CONDITIONS and right.kind in NUMBERS) or (
            left.kind in NUMBERS and right.kind in _CONDITIONS
        ):
            self._add(left.at, "a condition is never equal to a number")
