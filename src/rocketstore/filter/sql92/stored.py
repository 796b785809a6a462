"""SQL92 expressions as brokers store them: compiled without warnings, compared by dialect."""

from __future__ import annotations

import functools

from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92.parser import Parser
from rocketstore.sql92_program import MAX_EXPRESSION_LENGTH

#: RocketMQ's name of the expressions' type.
EXPRESSION_TYPE = "SQL92"


def program_of(expression: str, *, text_search: bool) -> bytes | None:
    """Return the program of an expression, ``None`` if RocketMQ refuses it.

    Parameters
    ----------
    expression : str
    text_search : bool
        The dialect: whether it has CONTAINS, STARTSWITH and ENDSWITH (5.1.3 and later).
    """
    if len(expression) > MAX_EXPRESSION_LENGTH:
        return None
    try:
        parsed = Parser(expression, text_search=text_search, strict=False).parse()
    except FilterSyntaxError:
        return None
    return parsed.code.program()


@functools.lru_cache(maxsize=100)
def means_the_same_everywhere(expression: str) -> bool:
    """Return whether all RocketMQ versions give an expression the same program.

    If not, another version may have made a bit map by another meaning of the same text.
    """
    newest = program_of(expression, text_search=True)
    return newest is not None and newest == program_of(expression, text_search=False)
