"""Why an instruction of a filter cannot be evaluated, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketstore.sql92_program import SQL92_HEADER, SQL92_INSTRUCTION, SQL92_TEXT, Operand

_NUMBER_NBYTES = 8
_KINDS = {
    Operand.INTEGER: "an Integer",
    Operand.LONG: "a Long",
    Operand.DOUBLE: "a Double",
}


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else f"{value[:40]}...")


def _operand(
    program: bytes, kind: int, at: int, names: Sequence[str], properties: Mapping[str, str]
) -> str:
    """Return an operand's name and value, or what kind of value it is."""
    if kind == Operand.NAME:
        return f"{names[at]} ({_shown(properties[names[at]])})"
    if kind == Operand.TEXT:
        _, numbers, code, name_count, *_ = SQL92_HEADER.struct.unpack_from(program)
        texts_at = SQL92_HEADER.nbytes + _NUMBER_NBYTES * numbers + SQL92_INSTRUCTION.nbytes * code
        texts_at += SQL92_TEXT.nbytes * name_count
        pool_at = len(program) - SQL92_HEADER.struct.unpack_from(program)[5]
        start, nbytes = SQL92_TEXT.struct.unpack_from(program, texts_at + SQL92_TEXT.nbytes * at)
        return _shown(program[pool_at + start : pool_at + start + nbytes].decode())
    return _KINDS.get(Operand(kind), "a condition")


def fault_reason(
    program: bytes, number: int, names: Sequence[str], properties: Mapping[str, str]
) -> str:
    """Return why instruction ``number``, a comparison, raises for these properties.

    Parameters
    ----------
    program : bytes
    number : int
    names : sequence of str
        The program's names in its order.
    properties : mapping
    """
    _, numbers, *_ = SQL92_HEADER.struct.unpack_from(program)
    at = SQL92_HEADER.nbytes + _NUMBER_NBYTES * numbers + SQL92_INSTRUCTION.nbytes * number
    _, _, left, right, left_at, right_at, _ = SQL92_INSTRUCTION.struct.unpack_from(program, at)
    shown = [
        _operand(program, kind, place, names, properties)
        for kind, place in ((left, left_at), (right, right_at))
    ]
    if left == right == Operand.NAME:
        return f"one of {shown[0]} and {shown[1]} is not a number"
    return f"{shown[0]} cannot be compared with {shown[1]}"
