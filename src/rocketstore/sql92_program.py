"""The program that an SQL92 filter is compiled to: its layout, declared once for both bodies.

A program is immutable bytes in the machine's byte order; it is never stored or sent. After the
header come the numbers (eight bytes each: an integer, or the bits of a double), the instructions,
the names and the texts as ``SQL92_TEXT``, and the pool with their bytes in UTF-8, padded to a
multiple of eight bytes. Names are sorted by length, then bytes, and unique. So are the texts of
each IN. Places count from the first byte of the pool.

A program has one *result* (a ``Verdict``) and a stack of earlier results. Instructions run in
order, jumps lead forward only. The result is NULL at first; after the last instruction it is the
filter's. A stack that is empty or full where it may not be is an ERROR.
``make gen`` writes the C header ``rs_sql92_program.h`` from this module.
"""

from __future__ import annotations

from enum import IntEnum

from rocketstore.formats import Field, Layout

MAGIC = 0x53513932


class Verdict(IntEnum):
    """What an SQL92 filter says of a message; only ``TRUE`` lets it pass."""

    FALSE = 0
    TRUE = 1
    NULL = 2
    #: RocketMQ's evaluator raises.
    ERROR = 3


class Operand(IntEnum):
    """What an operand is; its place is ``left_at`` or ``right_at``."""

    NULL = 0
    #: A property; the place is the number of its name.
    NAME = 1
    #: The number of a text.
    TEXT = 2
    #: A Java Integer, Long or Double; the number of a number.
    INTEGER = 3
    LONG = 4
    DOUBLE = 5
    #: The result.
    RESULT = 6
    #: The result on top of the stack, which is removed.
    PUSHED = 7


class Op(IntEnum):
    """Instructions. ``negated`` turns TRUE into FALSE and FALSE into TRUE, after the rest."""

    #: The result is the verdict ``left_at``: FALSE, TRUE or NULL.
    SET = 0
    #: A property as a condition: NULL if it is missing, otherwise FALSE.
    CAST = 1
    NOT = 2
    #: Put the result on the stack.
    PUSH = 3
    #: Jump to ``target`` if the result is FALSE, otherwise put it on the stack.
    AND_LEFT = 4
    #: Join the top of the stack, which is removed, with the result.
    AND = 5
    #: Jump to ``target`` if the result is TRUE, otherwise put it on the stack.
    OR_LEFT = 6
    OR = 7
    #: If the left operand is NULL, so is the result: jump to ``target``.
    SKIP_NULL = 8
    EQUAL = 9
    GREATER = 10
    GREATER_OR_EQUAL = 11
    LESS = 12
    LESS_OR_EQUAL = 13
    #: Whether a property is one of ``target`` texts from number ``right_at``.
    IN = 14
    #: Whether the left operand contains, or starts or ends with, the text ``right_at``.
    CONTAINS = 15
    STARTS_WITH = 16
    ENDS_WITH = 17


SQL92_HEADER = Layout(
    "sql92_header",
    doc="The header of a program.",
    native=True,
    fields=(
        Field("magic", "i4", "``MAGIC``."),
        Field("number_count", "i4", "Numbers."),
        Field("code_count", "i4", "Instructions; at least one."),
        Field("name_count", "i4", "Names."),
        Field("text_count", "i4", "Texts."),
        Field("pool_nbytes", "i4", "Bytes of the pool, a multiple of eight."),
        Field("depth", "i4", "The most results on the stack."),
        Field("zero", "i4", "0."),
    ),
)
SQL92_INSTRUCTION = Layout(
    "sql92_instruction",
    doc="One instruction of a program.",
    native=True,
    fields=(
        Field("op", "i1", "``Op``."),
        Field("negated", "i1", "0 or 1."),
        Field("left", "i1", "``Operand``."),
        Field("right", "i1", "``Operand``."),
        Field("left_at", "i4", "Place of the left operand."),
        Field("right_at", "i4", "Place of the right operand."),
        Field("target", "i4", "Number of the instruction to jump to; of IN: number of texts."),
    ),
)
SQL92_TEXT = Layout(
    "sql92_text",
    doc="A name or a text of a program.",
    native=True,
    fields=(
        Field("at", "i4", "Place in the pool."),
        Field("nbytes", "i4", "Length in bytes."),
    ),
)
LAYOUTS = (SQL92_HEADER, SQL92_INSTRUCTION, SQL92_TEXT)
ENUMS: tuple[type[IntEnum], ...] = (Verdict, Operand, Op)

#: The first of each ten digits that ``Character.digit`` takes and a ``char`` can hold: those of
#: Unicode 15 (Java 21). Java 8 lacks U+0DE6 and U+A9F0.
DIGIT_ZEROS = (
    *(0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66),
    *(0x0CE6, 0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946),
    *(0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0),
    *(0xA9F0, 0xAA50, 0xABF0, 0xFF10),
)

#: The longest expression, in characters: the largest frame that a broker takes by default.
MAX_EXPRESSION_LENGTH = 16 * 1024 * 1024
#: The most open parentheses and prefix operators at one place. A JVM of 1 MiB stacks ends an
#: expression with a ``StackOverflowError`` at about 700 parentheses, or 7,000 prefix operators.
MAX_NESTING = 10_000
