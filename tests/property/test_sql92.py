"""Both bodies evaluate random SQL92 expressions alike, and random texts never break the parser."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rocketstore import formats
from rocketstore.errors import FilterSyntaxError
from rocketstore.filter.sql92.parser import Parser
from rocketstore.sql92_program import Verdict
from support.kernel_bodies import NATIVE, REFERENCE
from support.sql92_cases import NAMES, TEXTS, random_expression, random_stored

BODIES = (NATIVE, REFERENCE)

randoms = st.integers(0, 2**64).map(Random)
texts = st.one_of(
    st.sampled_from(TEXTS),
    st.text(max_size=8),
    st.text("0123456789.eE+-xXpPfFdD \u0665\uff15", max_size=12),
    st.integers(-(2**66), 2**66).map(str),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(float.hex),
)
properties = st.dictionaries(st.sampled_from(NAMES), texts)
_PIECES = (b"a", b"b", b"n", b"\x01", b"\x02", b"1", b"\xff", b"\xc3")
stored = st.one_of(
    randoms.map(random_stored),
    st.binary(max_size=200),
    st.lists(st.sampled_from(_PIECES), max_size=90).map(b"".join),
)  # fmt: skip


def compiled(expression: str) -> bytes | None:
    try:
        return Parser(expression, text_search=True, strict=False).parse().code.program()
    except FilterSyntaxError as error:
        shown = str(error)
        column = error.column
    assert 1 <= column <= len(expression) + 1
    assert shown.split("\n")[-1].strip() == "^"
    return None


@given(randoms, st.lists(properties, min_size=1, max_size=5), st.lists(stored, max_size=5))
def test_bodies_agree(random: Random, dicts: list[dict[str, str]], contents: list[bytes]) -> None:
    program = None
    while program is None:
        program = compiled(random_expression(random))
    native, reference = (body.sql92.Program(program) for body in BODIES)
    for one in dicts:
        verdict = native.evaluate(one)
        assert verdict == reference.evaluate(one)
        assert native.fault(one) == reference.fault(one)
        assert (native.fault(one) >= 0) == (verdict == Verdict.ERROR)
    for content in contents:
        verdict = native.evaluate_stored(content)
        assert verdict == reference.evaluate_stored(content)
        assert verdict == native.evaluate(NATIVE.message.parse_properties(content))
    assert native.errors == reference.errors + sum(
        native.evaluate(NATIVE.message.parse_properties(content)) == Verdict.ERROR
        for content in contents
    )


@given(st.one_of(st.text(), st.text("ab'\"()-+*/<>=. \n0129eEL", max_size=60)))
def test_any_text_is_refused_or_compiled(expression: str) -> None:
    program = compiled(expression)
    if program is not None:
        verdicts = {body.sql92.Program(program).evaluate({}) for body in BODIES}
        assert len(verdicts) == 1


@given(st.floats(), st.floats())
def test_doubles_have_the_order_of_java(left: float, right: float) -> None:
    """NaN is after all others and equal to itself, -0.0 is before 0.0."""
    program = compiled("a < b")
    assert program is not None

    def key(value: float) -> tuple[bool, float, float]:
        return math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value)

    keys = [key(value)[: 2 if math.isnan(value) else 3] for value in (left, right)]
    values = {"a": _java(left), "b": _java(right)}
    for body in BODIES:
        assert body.sql92.Program(program).evaluate(values) == (keys[0] < keys[1])


def _java(value: float) -> str:
    return repr(value).replace("nan", "NaN").replace("inf", "Infinity")


@given(
    st.dictionaries(st.text(min_size=1, max_size=9), st.just("v"), max_size=150),
    st.sampled_from((1, 16, 128)),
)
def test_orders_of_hash_maps_agree(names: dict[str, str], buckets: int) -> None:
    native, reference = (body.message.hash_map_order(names, buckets) for body in BODIES)
    assert native == reference
    assert sorted(native) == sorted(names)
    # Names in the order of the map keep it.
    assert NATIVE.message.hash_map_order(native, buckets) == native


def test_limits_are_the_formats() -> None:
    for body in BODIES:
        made = body.sql92.Program(compiled("a = 1"))
        assert made.evaluate_stored(bytes(formats.MAX_PROPERTIES_NBYTES)) == Verdict.NULL
