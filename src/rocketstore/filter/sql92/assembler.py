"""Puts a program together: instructions in order, with the names, texts and numbers they use."""

from __future__ import annotations

import struct
from array import array

from rocketstore.filter.sql92.operands import Term
from rocketstore.sql92_program import (
    MAGIC,
    SQL92_HEADER,
    SQL92_INSTRUCTION,
    SQL92_TEXT,
    Op,
    Operand,
)

_DOUBLE = struct.Struct("=d")
_INT64 = struct.Struct("=q")
_PUSHING = frozenset({Op.PUSH, Op.AND_LEFT, Op.OR_LEFT})
_JOINING = frozenset({Op.AND, Op.OR})


class Assembler:
    """Collects instructions; ``program`` returns their bytes.

    Attributes
    ----------
    names : dict of str to int
        Properties in order of first use, and their numbers until the program is made.
    columns : array of int
        Column of each instruction, counted from 1.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.columns = array("q")
        self._heads = bytearray()
        self._places = array("q")
        self._numbers: dict[bytes, int] = {}
        self._texts: list[bytes] = []
        self._depth = self._most_depth = 0

    def __len__(self) -> int:
        return len(self.columns)

    def name(self, name: str) -> int:
        """Return the number of a property."""
        return self.names.setdefault(name, len(self.names))

    def emit(
        self,
        op: Op,
        at: int,
        left: Term | None = None,
        right: Term | None = None,
        *,
        left_at: int = 0,
        negated: bool = False,
    ) -> int:
        """Append an instruction; return its number."""
        left_kind = right_kind = Operand.NULL
        right_at = 0
        if left is not None:
            left_kind = left.kind
            left_at = self._place(left)
        if right is not None:
            right_kind = right.kind
            right_at = self._place(right)
        self._heads.extend((op, negated, left_kind, right_kind))
        self._places.extend((left_at, right_at, 0))
        self.columns.append(at + 1)
        if op in _PUSHING:
            self._depth += 1
            self._most_depth = max(self._most_depth, self._depth)
        elif op in _JOINING or left_kind is Operand.PUSHED:
            self._depth -= 1
        return len(self.columns) - 1

    def emit_in(self, at: int, left: Term, texts: list[str], *, negated: bool) -> None:
        """Append an IN: the texts are sorted by length, then bytes."""
        number = self.emit(Op.IN, at, left, negated=negated)
        wanted = sorted({text.encode() for text in texts}, key=lambda text: (len(text), text))
        self._places[3 * number + 1] = len(self._texts)
        self._places[3 * number + 2] = len(wanted)
        self._texts += wanted

    def jump_here(self, number: int) -> None:
        """Let an instruction jump to the next one to come."""
        self._places[3 * number + 2] = len(self)

    def truncate(self, number: int) -> None:
        """Remove the instructions from ``number`` on, which together leave the stack as it was."""
        del self._heads[4 * number :]
        del self._places[3 * number :]
        del self.columns[number:]

    def _place(self, term: Term) -> int:
        value, kind = term.value, term.kind
        if isinstance(value, str):
            if kind is Operand.NAME:
                return self.name(value)
            if kind is not Operand.TEXT:
                return 0
            self._texts.append(value.encode())
            return len(self._texts) - 1
        return self._number((_DOUBLE if kind is Operand.DOUBLE else _INT64).pack(value))

    def _number(self, packed: bytes) -> int:
        return self._numbers.setdefault(packed, len(self._numbers))

    def program(self) -> bytes:
        """Return the program."""
        names = sorted((len(name), name.encode(), number) for name, number in self.names.items())
        renamed = {number: place for place, (_, _, number) in enumerate(names)}
        pool = bytearray()
        tables = bytearray()
        for text in [*(name for _, name, _ in names), *self._texts]:
            tables += SQL92_TEXT.struct.pack(len(pool), len(text))
            pool += text
        pool += bytes(-len(pool) % 8)
        header = SQL92_HEADER.struct.pack(
            MAGIC,
            len(self._numbers),
            len(self),
            len(names),
            len(self._texts),
            len(pool),
            min(self._most_depth, len(self)),  # some of it may have been removed
            0,
        )
        return b"".join((header, *self._numbers, self._code(renamed), tables, pool))

    def _code(self, renamed: dict[int, int]) -> bytearray:
        """Return the instructions, with the final numbers of names and the jumps shortened."""
        nbytes = SQL92_INSTRUCTION.nbytes
        code = bytearray(nbytes * len(self))
        for number in reversed(range(len(self))):
            op, negated, left, right = self._heads[4 * number : 4 * number + 4]
            left_at, right_at, target = self._places[3 * number : 3 * number + 3]
            if left == Operand.NAME:
                left_at = renamed[left_at]
            if right == Operand.NAME:
                right_at = renamed[right_at]
            if op in (Op.AND_LEFT, Op.OR_LEFT) and self._heads[4 * target : 4 * target + 1] == (
                bytes((op,))
            ):
                # The result does not change, so the next of the chain jumps, too.
                target = self._places[3 * target + 2]
                self._places[3 * number + 2] = target
            SQL92_INSTRUCTION.struct.pack_into(
                code, nbytes * number, op, negated, left, right, left_at, right_at, target
            )
        return code
