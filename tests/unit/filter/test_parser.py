"""What parsing refuses, with columns; precedence; expressions of any size."""

from __future__ import annotations

import time

import pytest

from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92.parser import Parsed, Parser
from rocketstore.sql92_program import MAX_NESTING, Verdict
from support.kernel_bodies import NATIVE, Bodies


def parse(expression: str, *, strict: bool = False) -> Parsed:
    return Parser(expression, text_search=True, strict=strict).parse()


def refusal(expression: str, *, strict: bool = False) -> FilterSyntaxError:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(expression, strict=strict)
    return caught.value


@pytest.mark.parametrize(
    ("expression", "column", "reason"),
    [
        ("", 1, "a property, a number or a text is missing here"),
        ("a =", 4, "a property, a number or a text is missing here"),
        ("a = )", 5, "a property, a number or a text is missing here"),
        ("1", 1, "a condition is needed here"),
        ("a = 1 AND 'x'", 11, "a condition is needed here"),
        ("NOT 5", 5, "a condition is needed here"),
        ("-a", 1, "a condition is needed here"),
        ("'x' > a", 1, "a text has no order"),
        ("a > 'x'", 5, "a text has no order"),
        ("a > TRUE", 5, "TRUE, FALSE and NULL have no order"),
        ("a > (b = 1)", 6, "a condition has no order"),
        ("(a = 1) < 2", 2, "a condition has no order"),
        ("a = NULL", 3, "NULL cannot be compared"),
        ("NULL <> a", 6, "NULL cannot be compared"),
        ("TRUE = 1", 6, "TRUE and FALSE cannot be compared"),
        ("a BETWEEN 5 AND 4", 17, "the second limit of BETWEEN is less"),
        ("a BETWEEN 5 AND 4.9", 17, "the second limit of BETWEEN is less"),
        ("a BETWEEN NULL AND 4", 11, "TRUE, FALSE and NULL have no order"),
        ("a BETWEEN 1 > 2 AND 3", 13, "AND is missing here"),
        ("a BETWEEN b IS NULL AND 3", 13, "AND is missing here"),
        ("-a IN ('x')", 1, "IN needs a property"),
        ("'a' IN ('x')", 1, "IN needs a property"),
        ("a IN ()", 7, "a text in quotes is missing here"),
        ("a IN (1)", 7, "a text in quotes is missing here"),
        ("a IN ('x' 'y')", 11, ") is missing here"),
        ("a IN 'x'", 6, "( is missing here"),
        ("a NOT b", 7, "IN, BETWEEN or a text search is missing after NOT"),
        ("a IS 5", 6, "NULL is missing here"),
        ("a IS NOT 5", 10, "NULL is missing here"),
        ("a CONTAINS b", 12, "a text in quotes is missing here"),
        ("(a = 1", 7, ") is missing here for ( in column 1"),
        ("b AND (a = 1 garbage", 14, ") is missing here for ( in column 7"),
        ("(a IS NULL > 5)", 12, ") is missing here"),
        ("a = 9223372036854775808", 5, "an integer may not be greater than"),
        ("a = -9223372036854775808", 6, "an integer may not be greater than"),
        ("a = 1e400", 5, "this number is greater than the largest double"),
        ("a = 0.0", 5, "RocketMQ refuses decimals below"),
        ("a = 1e-400", 5, "RocketMQ refuses decimals below"),
        ("a = 1 #", 7, "unexpected character"),
    ],
)
def test_refused(expression: str, column: int, reason: str) -> None:
    error = refusal(expression)
    assert (error.column, error.expression) == (column, expression)
    assert error.reason.startswith(reason)
    caret = str(error).split("\n")[-1]
    assert caret.index("^") - 2 == column - 1
    assert f"(column {column})" in str(error)


@pytest.mark.parametrize(
    ("expression", "names", "unparsed"),
    [
        ("a = 1 garbage # '", ["a"], "garbage # '"),
        ("a = 1) b", ["a"], ") b"),
        ("order-id = 'x'", ["order"], "-id = 'x'"),
        ("a LIKE 'x%'", ["a"], "LIKE 'x%'"),
        ("a' = ''", ["a"], "' = ''"),
        ("a IS NULL > 5", ["a"], "> 5"),
        ("a IS NULL NOT", ["a"], "NOT"),
        ("a = 1 -- no line end", ["a"], "-- no line end"),
        ("b > 1 AND a = b", ["b", "a"], ""),
        ("a = 1 /* comment */ ", ["a"], ""),
    ],
)
def test_text_past_the_expression_is_not_read(
    expression: str, names: list[str], unparsed: str
) -> None:
    parsed = parse(expression)
    assert list(parsed.code.names) == names
    assert expression[parsed.unparsed_at :] == unparsed


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("TRUE OR TRUE AND FALSE", Verdict.TRUE),
        ("(TRUE OR TRUE) AND FALSE", Verdict.FALSE),
        ("NOT TRUE = FALSE", Verdict.TRUE),
        ("NOT FALSE AND FALSE", Verdict.FALSE),
        ("1 = 1 = TRUE", Verdict.TRUE),
        ("TRUE = (1 = 1)", Verdict.TRUE),
        ("1 < 2 = TRUE", Verdict.TRUE),
        ("TRUE = 2 < 1", Verdict.FALSE),
        ("-1 = -1", Verdict.TRUE),
        ("- - 1 = 1", Verdict.TRUE),
        ("2 BETWEEN 1 AND 3 AND FALSE", Verdict.FALSE),
        ("2 NOT BETWEEN 3 AND 1", Verdict.TRUE),
        ("1 = 2 OR NULL", Verdict.NULL),
        ("NULL AND FALSE", Verdict.FALSE),
        ("NULL OR TRUE", Verdict.TRUE),
        ("NOT NULL", Verdict.NULL),
        ("NULL IS NULL", Verdict.TRUE),
        ("TRUE = (1 = 'x')", Verdict.ERROR),
        ("FALSE AND 1 = 'x'", Verdict.FALSE),
        ("TRUE OR 1 = 'x'", Verdict.TRUE),
        ("NULL AND 1 = 'x'", Verdict.ERROR),
        ("1 = 'x' AND FALSE", Verdict.ERROR),
        ("a > -(1 = 'x')", Verdict.NULL),
        ("1 > -(1 = 'x')", Verdict.ERROR),
        ("-(1 = 'x') > 1", Verdict.ERROR),
        ("a BETWEEN -(1 = 'x') AND -(1 = 'x')", Verdict.NULL),
        ("(1 = 'x') CONTAINS ''", Verdict.FALSE),
        ("TRUE OR (1 = 'x') CONTAINS '' AND 1 = 'x'", Verdict.TRUE),
        ("(1 = 1 AND (2 = 2 OR 3 = 3)) NOT CONTAINS '' OR TRUE", Verdict.TRUE),
        ("(1 = 'x') CONTAINS 'x'", Verdict.ERROR),
        ("FALSE AND TRUE AND TRUE OR TRUE", Verdict.TRUE),
        ("TRUE OR TRUE OR TRUE AND FALSE", Verdict.TRUE),
        ("(FALSE AND TRUE) AND TRUE", Verdict.FALSE),
    ],
)
def test_precedence_and_short_cuts(expression: str, verdict: Verdict, kernels: Bodies) -> None:
    program = kernels.sql92.Program(parse(expression).code.program())
    assert program.evaluate({}) == verdict


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "(" * MAX_NESTING + "a IS NULL" + ")" * MAX_NESTING,
        "NOT " * MAX_NESTING + "TRUE",
        "a = 1 OR " * 30_000 + "a IS NULL",
        "a IS NULL AND " * 30_000 + "a IS NULL",
        "(a IS NULL AND " * 9_000 + "a IS NULL" + ")" * 9_000,
        "a IS NULL = (" * 9_000 + "a IS NULL" + ")" * 9_000,
        "a IS NULL" + " IS NOT NULL" * 50_000,
        "a IS NULL OR b IN ('" + "','".join(map(str, range(100_000))) + "')",
        "a IS NULL OR b = '" + "x" * 1_000_000 + "'",
        "a IS NULL " + "OR n1 = '1' ".replace("1", "12345") * 20_000,
        " " * 1_000_000 + "a IS NULL",
    ],
    ids=lambda expression: expression[:12],
)
def test_large_expressions_have_a_verdict(expression: str, kernels: Bodies) -> None:
    started = time.process_time()
    program = kernels.sql92.Program(parse(expression).code.program())
    assert program.evaluate({}) == Verdict.TRUE
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("(" * 100_000, MAX_NESTING + 1),
        ("-" * 100_000, MAX_NESTING + 1),
        ("+" * 100_000, MAX_NESTING + 1),
        ("NOT " * 100_000, 4 * MAX_NESTING + 1),
        ("(a = 1 OR " * 100_000, 10 * MAX_NESTING + 1),
        ("a = " + "9" * 1_000_000, 5),
        ("a = " + "9" * 400 + ".0" + "1" * 1_000_000, 5),
        ("a = '" + "''" * 500_000, 1_000_005),
        ("a = 1 OR " * 30_000, 270_001),
        ("a IN (" + "'x'," * 200_000, 800_007),
    ],
    ids=lambda value: str(value)[:12],
)
def test_large_expressions_are_refused(expression: str, column: int) -> None:
    started = time.process_time()
    error = refusal(expression)
    assert error.column == column
    assert len(str(error)) < 400
    assert time.process_time() - started < 20


def test_a_deep_filter_needs_little_stack() -> None:
    """Evaluation keeps its stack in the program's own memory."""
    expression = "(a IS NULL AND " * 9_999 + "a IS NULL" + ")" * 9_999
    program = NATIVE.sql92.Program(parse(expression).code.program())
    assert program.evaluate({}) == program.evaluate_stored(b"b\x01c") == Verdict.TRUE
    assert program.evaluate_stored(b"a\x01c") == Verdict.FALSE
