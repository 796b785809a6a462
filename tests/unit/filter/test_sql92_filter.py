"""``Sql92Filter``: answers, counts, warnings, strictness, and how it stands in for others."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections import ChainMap, UserDict
from types import MappingProxyType
from typing import Any

import pytest

from rocketstore import (
    ConfigError,
    FilterError,
    FilterEvaluationError,
    FilterSyntaxError,
    FilterWarning,
    Message,
    MessageFilter,
    RocketStoreError,
    Sql92Filter,
    StoredMessage,
)
from rocketstore.filter.sql92 import sql92_filter
from rocketstore.queues.consume_queue_ext import CqExtUnit
from rocketstore.sql92_program import MAX_EXPRESSION_LENGTH
from support.kernel_bodies import Bodies

COLORS = "n > 50 AND color IN ('red', 'blue')"


@pytest.fixture(autouse=True)
def _body(kernels: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters evaluate with one body after the other."""
    monkeypatch.setattr("rocketstore.kernels.sql92", kernels.sql92, raising=False)


def quiet(expression: str) -> Sql92Filter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FilterWarning)
        return Sql92Filter(expression)


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "answer"),
    [
        ({"n": "51", "color": "blue"}, True),
        ({"n": "51", "color": "green"}, False),
        ({"n": "50"}, False),
        ({"n": "51"}, None),
        ({}, None),
    ],
)
def test_three_values(properties: dict[str, str], answer: bool | None) -> None:
    made = Sql92Filter(COLORS)
    assert made.evaluate(properties) is answer
    assert made.matches(properties) is (answer is True)
    assert made.is_matched_by_commit_log(Message("T", properties=properties)) is (answer is True)
    assert made.errors == 0


@pytest.mark.parametrize("kind", [dict, UserDict, ChainMap, MappingProxyType])
def test_any_mapping(kind: Any) -> None:
    made = Sql92Filter(COLORS)
    assert made.evaluate(kind({"n": "51", "color": "red"})) is True
    assert made.evaluate(kind({"n": "1"})) is False


def record(properties: dict[str, str], kernels: Bodies) -> StoredMessage:
    stored = kernels.message.encode_properties(properties, True)
    data = kernels.message.encode_record(
        *("T", b"body", 0, 0, 0, 0, 0, 0, "1.2.3.4:5", 0, "1.2.3.4:5", 0, 0, stored)
    )
    return StoredMessage(data, 0, 0, len(data))


def test_messages_are_asked_for_their_properties(kernels: Bodies) -> None:
    made = Sql92Filter("KEYS = 'k' AND n > 1")
    given = Message("T", keys="k", properties={"n": "2"})
    stored = record(given.properties, kernels)
    assert made.evaluate(given) is made.evaluate(stored) is True
    assert made.matches(given) is made.matches(stored) is True
    odd = record({"KEYS": "k", "n": "x"}, kernels)
    assert not made.matches(odd)
    with pytest.raises(FilterEvaluationError, match=r"n \('x'\) cannot be compared"):
        made.evaluate(odd)


def test_a_property_that_is_no_text_is_refused() -> None:
    made = Sql92Filter("n = 1")
    for method in (made.evaluate, made.matches):
        with pytest.raises(TypeError, match="property n must be str, not int"):
            method({"n": 1})  # type: ignore[dict-item]
    assert made.evaluate({"n": "1", "other": 7}) is True  # type: ignore[dict-item]


def test_an_unpaired_surrogate_counts_as_it_would_be_stored() -> None:
    made = Sql92Filter("a = '?'")
    assert made.evaluate({"a": "\ud800"}) is True
    assert made.evaluate({"a": "\ud83d\ude00"}) is False  # two of them


@pytest.mark.parametrize(
    ("expression", "properties", "column", "reason"),
    [
        ("n > 5", {"n": "x"}, 3, "n ('x') cannot be compared with an Integer"),
        ("n > 5", {"n": "5.0"}, 3, "n ('5.0') cannot be compared with an Integer"),
        ("n > 5", {"n": "3000000000"}, 3, "cannot be compared with an Integer"),
        ("5000000000 > n", {"n": "1e3"}, 12, "a Long cannot be compared with n ('1e3')"),
        ("a IS NULL OR n = 1.5", {"a": "1", "n": "x" * 99}, 16, "xxx...') cannot be compared"),
        ("a > b", {"a": "1", "b": "x"}, 3, "one of a ('1') and b ('x') is not a number"),
        ("(a = '1') = b", {"a": "1", "b": "x"}, 11, "a condition cannot be compared with b"),
        ("1 = 'it''s'", {}, 3, 'an Integer cannot be compared with "it\'s"'),
    ],
)
def test_errors_name_the_comparison(
    expression: str, properties: dict[str, str], column: int, reason: str
) -> None:
    made = quiet(expression)
    with pytest.raises(FilterEvaluationError) as caught:
        made.evaluate(properties)
    error = caught.value
    assert (error.expression, error.column) == (expression, column)
    assert reason in error.reason
    assert str(error).split("\n")[-1].index("^") - 2 == column - 1
    assert not made.matches(properties)
    assert made.errors == 2
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.column, copy.reason) == (str(error), column, error.reason)


def test_errors_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(sql92_filter.time, "monotonic", lambda: now[0])
    made = Sql92Filter("n > 5")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert not made.matches({"n": "x"})
        assert [line.getMessage().split()[0] for line in caplog.records] == ["1"]
        now[0] += 60
        assert made.matches({"n": "6"})
        assert len(caplog.records) == 1
        made.count_errors(3)
        made.count_errors(0)
    assert [line.getMessage().split()[0] for line in caplog.records] == ["1", "8"]
    assert made.errors == 8
    with pytest.raises(ValueError, match="negative"):
        made.count_errors(-1)


# --- the expression -------------------------------------------------------------------------------


def test_facts() -> None:
    made = Sql92Filter("b > 1 AND a = b AND (b < 7)")
    assert made.expression == "b > 1 AND a = b AND (b < 7)"
    assert made.names == ("b", "a")
    assert made.unparsed == ""
    assert made.broker_version == "5.5.0"
    assert not made.strict
    assert isinstance(made.program, bytes)
    assert isinstance(made, MessageFilter)


def test_old_versions_have_no_text_search() -> None:
    assert Sql92Filter("a CONTAINS 'x'").evaluate({"a": "xx"}) is True
    assert Sql92Filter("a CONTAINS 'x'", broker_version="5.1.3").evaluate({"a": "b"}) is False
    with pytest.warns(FilterWarning, match="ignores the expression from here on"):
        made = Sql92Filter("a CONTAINS 'x'", broker_version="5.1.2")
    assert made.unparsed == "CONTAINS 'x'"
    assert made.evaluate({"a": "xx"}) is False
    with pytest.raises(ConfigError):
        Sql92Filter("a = 1", broker_version="4.8.0")


def test_what_is_no_expression() -> None:
    with pytest.raises(TypeError, match="expression must be str, not bytes"):
        Sql92Filter(b"a = 1")  # type: ignore[arg-type]
    with pytest.raises(FilterSyntaxError) as caught:
        Sql92Filter("a = 1 OR b = '" + "x" * 100)
    error = caught.value
    assert isinstance(error, ValueError | FilterError | RocketStoreError)
    assert str(error) == (
        "this text has no closing quote (column 14)\n"
        "  a = 1 OR b = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"
        "               ^"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.column, copy.reason) == (str(error), 14, error.reason)
    long = " " * MAX_EXPRESSION_LENGTH + "a"
    with pytest.raises(FilterSyntaxError, match="may have 16777216 characters, not 16777217"):
        Sql92Filter(long)


def test_the_caret_is_below_its_line() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Sql92Filter("a = 1\n\tAND \x07b ! c\nOR d")
    assert str(caught.value).split("\n")[1:] == ["   AND \ufffdb ! c", "       ^"]
    with pytest.raises(FilterSyntaxError) as caught:
        Sql92Filter("a = 1 AND\n")
    assert str(caught.value).split("\n")[1:] == ["  ", "  ^"]


# --- what RocketMQ accepts ------------------------------------------------------------------------

IGNORED = [
    ("a = 1 garbage", [(7, "ignores the expression from here on")]),
    ("a LIKE 'x%'", [(1, "the property a alone"), (3, "ignores the expression")]),
    ("order-id = 'x'", [(1, "the property order alone"), (6, "ignores the expression")]),
    ("NOT a OR b = 1", [(5, "the property a alone")]),
    ("a = 'x' AND (b)", [(14, "the property b alone")]),
    ("a CONTAINS ''", [(12, "a search for an empty text")]),
    ("5 CONTAINS '5'", [(1, "a search in what is no text")]),
    ("a > -b", [(5, "minus of anything but a number is NULL")]),
    ("NOT a = '1'", [(1, "a condition on the left"), (5, "the property a alone")]),
    ("TRUE = a", [(1, "a condition on the left of a property")]),
    ("1 = TRUE", [(1, "a condition is never equal to a number")]),
    ("(a = '1') <> 7", [(2, "a condition is never equal to a number")]),
    ("n BETWEEN 1 AND 2.5", [(11, "n is compared with a decimal elsewhere")]),
    ("n > 1.5 OR n = 3", [(16, "n is compared with a decimal elsewhere")]),
]


@pytest.mark.parametrize(("expression", "notes"), IGNORED)
def test_one_warning_names_what_is_ignored(expression: str, notes: list[tuple[int, str]]) -> None:
    with pytest.warns(FilterWarning) as caught:
        made = Sql92Filter(expression)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert text.count("^") == len(notes)
    for column, start in notes:
        assert start in text
        assert f"(column {column})" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(made)) == made  # not warned of again


@pytest.mark.parametrize(("expression", "notes"), IGNORED)
def test_strict_refuses_it(expression: str, notes: list[tuple[int, str]]) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Sql92Filter(expression, strict=True)
    assert caught.value.column == notes[0][0]
    assert caught.value.reason.startswith("strict: ")
    assert notes[0][1] in caught.value.reason


@pytest.mark.parametrize(
    "expression", [COLORS, "a = b OR c IS NOT NULL", "n > 5 AND m > 2.5", "NOT (a = '1')"]
)
def test_nothing_to_warn_of(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Sql92Filter(expression).names == Sql92Filter(expression, strict=True).names


def test_few_notes_of_many_are_shown() -> None:
    with pytest.warns(FilterWarning) as caught:
        Sql92Filter("a OR " * 1000 + "b = 1")
    assert str(caught[0].message).count("^") == 20


def test_strict_takes_zero_as_a_decimal() -> None:
    for expression in ("a = 0.0", "a = .0", "a = 0e5", "a = 00.000E-7"):
        assert Sql92Filter(expression, strict=True).evaluate({"a": "0"}) is True
        with pytest.raises(FilterSyntaxError, match=r"RocketMQ refuses decimals below 4\.9E-324"):
            Sql92Filter(expression)
    with pytest.raises(FilterSyntaxError, match="RocketMQ refuses decimals below"):
        Sql92Filter("a = 1e-400", strict=True)


# --- bit maps -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "passes"),
    [
        (None, True),
        (CqExtUnit(0, 101, b"\x81" + bytes(13)), True),
        (CqExtUnit(0, 101, b"\x80" + bytes(13)), False),
        (CqExtUnit(0, 101, bytes(14)), False),
        (CqExtUnit(0, 100, bytes(14)), True),
        (CqExtUnit(0, 101, b""), True),
        (CqExtUnit(0, 101, bytes(13)), True),
        (CqExtUnit(0, 101, bytes(15)), True),
    ],
)
def test_bit_maps_of_a_group(unit: CqExtUnit | None, passes: bool) -> None:
    plain = Sql92Filter(COLORS)
    made = plain.of_group([0, 7], 112, 100)
    assert made.is_matched_by_consume_queue(5, unit) is passes
    assert plain.is_matched_by_consume_queue(5, unit) is True
    assert made != plain
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert copy.is_matched_by_consume_queue(None, unit) is passes


# --- object ---------------------------------------------------------------------------------------


def test_equality_and_repr() -> None:
    made = Sql92Filter("a = 1")
    assert made == Sql92Filter("a = 1", broker_version="5.3.3")
    assert hash(made) == hash(Sql92Filter("a = 1"))
    assert made != Sql92Filter("a = 2")
    assert made != Sql92Filter("a = 1", strict=True)
    assert made != Sql92Filter("a = 1", broker_version="5.1.2")
    assert made != "a = 1"
    assert repr(made) == "Sql92Filter('a = 1')"
    for options in ({"strict": True}, {"broker_version": "4.9.8"}):
        copy = Sql92Filter("a = 1", **options)  # type: ignore[arg-type]
        assert eval(repr(copy)) == copy
        assert pickle.loads(pickle.dumps(copy)) == copy
        assert pickle.loads(pickle.dumps(copy)).broker_version == copy.broker_version


def test_a_filter_cannot_be_changed() -> None:
    made = Sql92Filter("a = 1")
    for name in ("expression", "names", "unparsed", "errors", "program", "strict"):
        with pytest.raises(AttributeError):
            setattr(made, name, "x")
